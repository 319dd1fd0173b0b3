"""An audit against the metrics of the library, plain counts and what users get wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import fairtopk as ft
from fairtopk.auditing import measures as blocks

Q, L, KS = 60, 12, [3, 6]
GLOBAL: dict[str, Any] = {"query": "q", "item": "i", "score": "s", "groups": "sex", "k": KS}
COLUMNS = {**GLOBAL, "local_items": True}


def rows(seed: int = 0, groups: int = 2) -> pl.DataFrame:
    """Lists of equal length, rows of different queries mixed, men favoured."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, groups, (Q, L))
    sex[:, :groups] = np.arange(groups)
    frame = pl.DataFrame(
        {
            "q": np.repeat(np.arange(Q), L),
            "i": np.tile(np.arange(L), Q),
            "s": (rng.normal(size=(Q, L)) + 0.7 * sex).ravel(),
            "y": rng.integers(0, 3, Q * L),
            "sex": pl.Series(["f", "m", "x"]).gather(sex.ravel()),
            "age": rng.choice(["old", "young"], Q * L),
        }
    )
    # Items of a list stay in their order, so that a table of them is that of the metrics.
    return frame.sort("i", "q", maintain_order=True)


def table(frame: pl.DataFrame, column: str) -> np.ndarray:
    return frame.sort("q", maintain_order=True)[column].to_numpy().reshape(Q, L)


def codes(frame: pl.DataFrame, names: list[str]) -> np.ndarray:
    numbers = {name: number for number, name in enumerate(names)}
    return np.vectorize(numbers.get)(table(frame, "sex"))


@pytest.mark.parametrize("groups", [2, 3])
def test_means_and_intervals_are_those_of_the_metrics(groups: int) -> None:
    frame = rows(groups=groups)
    record = ft.audit(frame, relevance="y", **COLUMNS).to_dict()
    column = record["columns"][0]
    labels = codes(frame, [group["name"] for group in column["groups"]])
    values = ft.metrics.summarise(table(frame, "s"), table(frame, "y"), labels, ks=KS)
    means = ft.metrics.means_with_intervals(values)
    found = {**record["metrics"], **column["metrics"]}
    for name, mean in means.items():
        if "_mse@" in name:
            continue
        assert found[name]["mean"] == pytest.approx(mean.mean, rel=1e-5, abs=1e-8)
        assert found[name]["ci95"] == pytest.approx(mean.ci95, rel=1e-5, abs=1e-7)
    ratio = ft.metrics.impact_ratio(table(frame, "s"), labels, k=3)
    assert found["impact_ratio@3"]["value"] == pytest.approx(ratio.value, rel=1e-5)
    assert found["impact_ratio@3"]["ci95"] == pytest.approx(ratio.ci95, rel=1e-5)
    exposures = [group["rank_exposure@3"]["mean"] for group in column["groups"]]
    assert exposures == pytest.approx(ratio.by_group, rel=1e-5)


def test_floors_and_p_values_of_two_groups_are_those_of_the_metrics() -> None:
    frame = rows(seed=3)
    column = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]
    labels = codes(frame, [group["name"] for group in column["groups"]])
    scores = torch.tensor(table(frame, "s")).float()
    for name, floor in ft.metrics.chance_floors(scores, labels, ks=KS).items():
        assert column["metrics"][name]["value"] == pytest.approx(floor.value, rel=1e-5)
    for name, found in ft.metrics.gap_p_values(scores, labels, ks=KS).items():
        assert column["metrics"][name]["value"] == pytest.approx(found.p, abs=0.002)
        assert column["metrics"][name]["expected"] == pytest.approx(found.expected, abs=1e-7)


@pytest.mark.parametrize("groups", [2, 3])
def test_blocks_of_lists_give_what_all_lists_at_once_do(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    frame = rows(groups=groups).filter(pl.Series(rng.random(Q * L) < 0.8))
    whole = ft.audit(frame, relevance="y", **COLUMNS).to_dict()
    monkeypatch.setattr(blocks, "BLOCK_CELLS", 5 * L)
    parts = ft.audit(frame, relevance="y", **COLUMNS).to_dict()
    assert parts["metrics"] == whole["metrics"]
    first, second = whole["columns"][0], parts["columns"][0]
    assert second["groups"] == first["groups"]
    assert second["flagged"] == first["flagged"]
    for name, cell in first["metrics"].items():
        other = second["metrics"][name]
        if "_floor@" in name:  # each is known to 1 %
            assert other["value"] == pytest.approx(cell["value"], rel=0.06)
        elif "_p@" in name:
            assert other["value"] == pytest.approx(cell["value"], abs=0.06)
            assert other["expected"] == pytest.approx(cell["expected"], abs=0.01)
        else:
            assert other["ci95"] == pytest.approx(cell["ci95"], rel=1e-6)
            key = "mean" if "mean" in cell else "value"
            assert other[key] == pytest.approx(cell[key], rel=1e-6)


def test_an_unknown_label_takes_a_place_and_is_in_no_group() -> None:
    frame = pl.DataFrame(
        {"q": [1] * 4, "i": [1, 2, 3, 4], "s": [4, 3, 2, 1], "sex": [None, "f", "m", ""]}
    )
    column = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]
    assert column["unknown"] == {"items": 2, "rows": 2}
    woman, man = column["groups"]
    assert woman["rank_exposure@3"]["mean"] == pytest.approx(1 / np.log2(3))
    assert man["rank_exposure@3"]["mean"] == pytest.approx(1 / 2)
    assert woman["share_at_rank"] == [0, 1, 0, 0]


def test_the_exposure_up_to_a_rank_is_shared_out_among_all_rows() -> None:
    frame = rows()
    groups = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]["groups"]
    ranked = frame.sort("q", "s", descending=[False, True])["sex"].to_numpy().reshape(Q, L)
    worth = 1 / np.log2(2 + np.arange(6))
    for group in groups:
        own = ranked[:, :6] == group["name"]
        assert group["share_at_rank"] == pytest.approx(own.mean(0).tolist())
        shares = (own * worth).sum(0).cumsum() / (Q * worth).cumsum()
        assert group["exposure_to_rank"] == pytest.approx(shares.tolist())


def test_flagged_lists_are_those_with_the_largest_gaps() -> None:
    frame = rows()
    flagged = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]["flagged"]["3"]
    labels = codes(frame, ["f", "m"])
    gaps = ft.metrics.rank_exposure_gap(table(frame, "s"), labels, k=3)
    assert flagged[0]["query"] == int(gaps.argmax())
    assert [one["gap"] for one in flagged] == pytest.approx(gaps.topk(10).values.tolist())
    exposures = ft.metrics.group_rank_exposures(table(frame, "s"), labels, k=3)
    assert flagged[0]["most"] == "fm"[int(exposures[gaps.argmax()].argmax())]


def test_ranks_give_what_scores_do_but_no_softmax() -> None:
    frame = rows().with_columns(r=pl.col("s").rank(descending=True).over("q"))
    by_score = ft.audit(frame, **COLUMNS).to_dict()
    by_rank = ft.audit(frame, **{**COLUMNS, "score": None}, rank="r").to_dict()
    metrics = by_rank["columns"][0]["metrics"]
    assert not [name for name in metrics if name.startswith("exposure_gap")]
    assert "ranks only" in by_rank["notes"][0]
    assert "exposure_gap" not in by_rank["definitions"]
    for name in ("rank_exposure_gap@3", "representation_gap_signed@6", "impact_ratio@3"):
        assert metrics[name] == by_score["columns"][0]["metrics"][name]


def test_intersections_are_the_product_of_the_columns() -> None:
    frame = rows().with_columns(
        age=pl.when(pl.col("i") == 0).then(None).otherwise(pl.col("age"))
    )
    found = ft.audit(
        frame, **{**COLUMNS, "groups": ["sex", "age"]}, intersections=True
    ).to_dict()
    product = found["columns"][2]
    assert product["name"] == "sex x age"
    known = frame.drop_nulls("age")
    counts = dict(known.group_by("sex", "age").len().select(
        pl.format("{} & {}", "sex", "age"), "len").iter_rows())  # fmt: skip
    assert {group["name"]: group["rows"] for group in product["groups"]} == counts
    assert product["unknown"]["rows"] == Q


def test_intersections_of_one_name_are_refused() -> None:
    frame = rows().with_columns(
        sex=pl.when(pl.col("i") % 2 == 0).then(pl.lit("a")).otherwise(pl.lit("a & b")),
        age=pl.when(pl.col("i") % 3 == 0).then(pl.lit("c")).otherwise(pl.lit("b & c")),
    )
    columns = {**COLUMNS, "groups": ["sex", "age"]}
    with pytest.raises(ft.InputError, match="both called 'a & b & c'; rename labels"):
        ft.audit(frame, **columns, intersections=True)


def test_k_may_be_a_whole_number_of_numpy() -> None:
    assert ft.audit(rows(), **{**COLUMNS, "k": np.int64(3)}).to_dict()["ks"] == [3]


def test_a_group_of_few_items_is_marked_and_so_is_a_ratio_that_rests_on_it() -> None:
    sex = pl.Series(["x", *"mfmfmfmfmfm"])
    frame = rows().with_columns(sex=sex.gather(rows()["i"]))
    column = ft.audit(frame, min_group=5, **GLOBAL).to_dict()["columns"][0]
    assert [group["small"] for group in column["groups"]] == [True, False, False]
    assert column["groups"][0]["items"] == 1
    ratio = column["metrics"]["impact_ratio@3"]
    assert ratio["small"] == ("x" in (ratio["least"], ratio["most"]))


def test_labels_may_come_from_a_table_of_items() -> None:
    frame = rows().drop("sex")
    items = pl.DataFrame({"id": range(L), "sex": ["f", "m"] * (L // 2)})
    joined = frame.join(items.rename({"id": "i"}), on="i", maintain_order="left")
    found = ft.audit(frame, items=items, items_item="id", **GLOBAL).to_dict()
    assert found["columns"] == ft.audit(joined, **GLOBAL).to_dict()["columns"]


def test_a_baseline_shows_what_changes_for_the_queries_of_both() -> None:
    now, before = rows(), rows().with_columns(s=-pl.col("s")).filter(pl.col("q") < 50)
    found = ft.audit(now, baseline=before, **COLUMNS).to_dict()["baseline"]
    assert (found["queries"], found["only_in_audited"], found["only_in_baseline"]) == (
        50,
        10,
        0,
    )
    common = now.filter(pl.col("q") < 50)
    for name in ("rank_exposure_gap_signed@3", "impact_ratio@6"):
        old, new = (
            ft.audit(one, **COLUMNS).to_dict()["columns"][0]["metrics"][name]
            for one in (before, common)
        )
        change = found["columns"][0]["metrics"][name]
        key = "value" if "ratio" in name else "mean"
        assert change["before"] == pytest.approx(old[key])
        assert change["now"] == pytest.approx(new[key])
        assert change["difference"] == pytest.approx(new[key] - old[key])
        assert change["ci95"][0] <= change["difference"] <= change["ci95"][1]


def test_an_impact_ratio_that_chance_explains_has_a_large_p() -> None:
    frame = rows().with_columns(s=pl.Series(np.random.default_rng(5).normal(size=Q * L)))
    metrics = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]["metrics"]
    fair = metrics["impact_ratio_p@3"]
    assert fair["value"] > 0.05
    assert metrics["impact_ratio@3"]["value"] < 1
    assert 0.7 < fair["expected"] < 1
    unfair = ft.audit(rows(), **COLUMNS).to_dict()["columns"][0]["metrics"]
    assert unfair["impact_ratio_p@3"]["value"] == 0.001


def test_the_interval_of_an_impact_ratio_is_that_of_its_two_groups_and_holds_it() -> None:
    frame = rows().with_columns(s=pl.Series(np.random.default_rng(5).normal(size=Q * L)))
    column = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]
    ratio = column["metrics"]["impact_ratio@3"]
    (least,) = [one for one in column["groups"] if one["name"] == ratio["least"]]
    found = least["ratio_to_most@3"]
    assert found["value"] == ratio["value"] <= 1
    assert found["ci95"] == ratio["ci95"]
    assert found["ci95"][0] < ratio["value"] < 1 < found["ci95"][1]


def test_a_list_without_two_groups_is_counted_as_undefined() -> None:
    frame = rows().filter((pl.col("q") > 4) | (pl.col("sex") == "f"))
    column = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]
    gap = column["metrics"]["rank_exposure_gap@3"]
    assert (gap["n"], gap["undefined"]) == (Q - 5, 5)
    assert (
        "5 lists contain only one group of 'sex' and are not counted in its gaps"
        in column["notes"]
    )


def test_lists_that_lack_the_first_group_are_told_to_be_left_out_of_signed_gaps() -> None:
    cells = [(q, i, -i, "ab"[i % 2] if q else "bc"[i % 2]) for q in range(3) for i in range(4)]
    frame = pl.DataFrame(cells, schema=["q", "i", "s", "sex"], orient="row")
    column = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]
    first = column["groups"][0]["name"]
    lacking = 3 - frame.filter(sex=first)["q"].n_unique()
    lists = f"{lacking} lists lack {first!r} or all other groups"
    sentence = f"{lists} and are not counted in signed gaps"
    assert lacking > 0
    assert sentence in column["notes"]


def test_lists_that_all_lack_a_second_group_leave_null() -> None:
    frame = pl.DataFrame({"q": [1, 1, 2], "i": [1, 2, 3], "s": [3, 2, 1], "sex": list("ffm")})
    found = ft.audit(frame, fail_if="rank_exposure_gap@3 > 0.1", **COLUMNS)
    metrics = found.to_dict()["columns"][0]["metrics"]
    assert metrics["rank_exposure_gap@3"]["mean"] is None
    assert metrics["rank_exposure_gap_floor@3"]["value"] is None
    assert found.unchecked == ["rank_exposure_gap@3 > 0.1"]
    assert not found.failed


def test_huge_scores_keep_their_order() -> None:
    frame = rows().with_columns(s=pl.col("s") * 1e300)
    huge = ft.audit(frame, **COLUMNS).to_dict()["columns"][0]["metrics"]
    plain = ft.audit(rows(), **COLUMNS).to_dict()["columns"][0]["metrics"]
    assert huge["rank_exposure_gap@3"] == plain["rank_exposure_gap@3"]


def test_a_file_is_named_by_name_and_checksum_and_its_json_holds_no_nan(tmp_path: Path) -> None:
    frame = rows()
    frame.write_csv(tmp_path / "ranked.csv")
    frame.write_parquet(tmp_path / "ranked.parquet")
    first, second = (
        ft.audit(tmp_path / f"ranked.{kind}", relevance="y", **COLUMNS)
        for kind in ("csv", "parquet")
    )
    assert first.to_dict()["columns"] == second.to_dict()["columns"]
    path = first.save(tmp_path / "out")
    text = path.read_text()
    assert str(tmp_path) not in text
    assert json.loads(text) == first.to_dict()
    assert len(json.loads(text)["data"]["sha256"]) == 64


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (pl.col("s").replace(pl.first("s"), None), {}, "row 0 of the table: s is missing"),
        (pl.col("s") * np.nan, {}, "s is missing"),
        (pl.col("s").cast(pl.String) + "x", {}, "s must be a number"),
        (pl.col("i") * 0, {}, "query 0 ranks item 0 again"),
        (pl.lit("f").alias("sex"), {}, "in one group ('f'); two groups are needed"),
        (pl.col("i").cast(pl.String).alias("sex"), {"k": []}, "at least one length"),
        (pl.col("y"), {"groups": "colour"}, "has no column 'colour'"),
        (pl.col("y"), {"score": "points"}, "has no column 'points'"),
        (pl.col("y"), {"score": None}, "scores or a column of ranks, got neither"),
        (pl.col("y"), {"rank": "y"}, "scores or a column of ranks, got both"),
        (pl.col("y") - 5, {"relevance": "y"}, "y must lie between 0 and 100"),
        (pl.col("y"), {"intersections": True}, "two columns of groups or more, got one"),
        (pl.col("y"), {"groups": ["sex", "sex"]}, "each once"),
        (pl.col("s").alias("sex"), {}, "has 720 groups, but an audit takes at most 100"),
        (pl.col("y"), {"fail_if": "impact_ratio@7 < 1"}, "K is 3, 6, no @7; add 7 to --k"),
        (pl.col("y"), {"fail_if": "ndcg@3 < 1"}, "ndcg needs a column of relevance (--relev"),
        (pl.col("y"), {"fail_if": "exposure_gap_p@3 < 1", "score": None, "rank": "i"},
         "exposure_gap_p needs scores (--score)"),
        (pl.col("y"), {"groups": ["sex", "q"]}, "groups names 'q', the column of queries"),
        (pl.lit(None).alias("sex"), {}, "no row of the table has a label in column 'sex'"),
        (pl.lit("").alias("sex"), {}, "no row of the table has a label in column 'sex'"),
        (pl.col("y"), {"items": rows()}, "a table of items cannot label them"),
        (pl.col("y"), {"fail_if": "age:impact_ratio@3 < 1"}, "the columns are sex"),
        (pl.col("y"), {"fail_if": "__import__('os')"}, "a rule is a metric"),
    ],
)  # fmt: skip
def test_what_cannot_be_audited_is_refused(
    change: pl.Expr, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ft.InputError) as error:
        ft.audit(rows().with_columns(change), **{**COLUMNS, **options})
    assert words in str(error.value)


def test_a_baseline_of_other_queries_is_refused() -> None:
    with pytest.raises(ft.InputError, match="no query in common"):
        ft.audit(rows(), baseline=rows().with_columns(q=pl.col("q") + 100), **COLUMNS)


def test_a_baseline_of_other_labels_is_refused() -> None:
    other = rows().with_columns(sex=pl.lit("not ") + pl.col("sex"))
    with pytest.raises(ft.InputError, match="other labels of sex, such as 'not f'"):
        ft.audit(rows(), baseline=other, **COLUMNS)


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ft.InputError, match="is empty"):
        ft.audit(rows().head(0), **COLUMNS)
    rows().head(0).write_csv(tmp_path / "none.csv")
    with pytest.raises(ft.InputError, match="is empty"):
        ft.audit(tmp_path / "none.csv", **COLUMNS)


def test_groups_of_a_column_that_no_table_has_are_refused() -> None:
    items = pl.DataFrame({"i": range(L), "sex": ["f", "m"] * (L // 2)})
    with pytest.raises(ft.InputError, match="the table of items has no column 'colour'"):
        ft.audit(rows(), items=items, **{**GLOBAL, "groups": "colour"})
