"""Rankers of features on published data with protected groups: quality, gaps, and what C buys.

Usage: python benchmarks/documents.py --data DIR --out DIR [--seeds 5] [--only law-gender ...]

`DIR` of the data holds one Parquet file for each set. Law and engineering students, W3C experts
and TREC Fair 2020 have lists; German credit and COMPAS have none, so people are dealt into
lists of 50, by seed. MQ2008 has no groups: it is there for NDCG alone. A fifth of the lists is
for testing (given splits and folds where there are any), a seed is a fold or a split, and every
figure is of test lists. No model is given the group, but for the rows called "group seen",
where it is a feature as in DELTR's own experiments.

Writes ``documents.csv``, a row for each ranker, metric and seed, which grows ranker by ranker:
what is there already is not trained again. Prints a Markdown table of means and standard
deviations over seeds.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import fairtopk as ft

KS = (10, 50)
LIST = 50  # people of a dealt list
TEST = 0.2  # share of the lists
COLUMNS = ("data", "model", "method", "c_relative", "seen", "seed", "metric", "mean", "n")
TYPES = {"c_relative": pl.Float64, "seen": pl.Int64, "seed": pl.Int64, "mean": pl.Float64}
SHOWN = ("ndcg", "exposure_gap", "exposure_gap_signed", "rank_exposure_gap",
         "rank_exposure_gap_signed", "representation_gap")  # fmt: skip
# One weight for everybody, and ten times that; DELTR's is its own curve below.
METHODS: tuple[tuple[str, float | None], ...] = (
    ("k-song", None),
    ("kso-red", 0.5), ("kso-red", 5.0),
    ("so-red", 0.5), ("so-red", 5.0),
    ("ng-de", 0.5), ("ng-de", 5.0),
    ("deltr", 0.5), ("deltr", 5.0),
)  # fmt: skip
DELTR_CURVE = (0.0, 0.5, 5.0, 50.0, 500.0)  # on law and engineering students, group seen


class Rows(NamedTuple):
    """Documents of a set: features, grades, lists, groups, and which are for testing."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    qid: NDArray[np.int64]
    group: list[str | None] | None
    test: NDArray[np.bool_]


class Ranker(NamedTuple):
    """What is trained."""

    data: str
    model: str
    method: str
    c_relative: float | None
    seen: int  # 1 where the group is a feature
    seed: int


Reader = Callable[[Path, int], Rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=list(SETS))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "documents.csv"
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    done = set(pl.read_csv(path, schema_overrides=TYPES).select(Ranker._fields).rows())
    for ranker in rankers(asked.only, asked.seeds):
        if tuple(ranker) not in done:
            with path.open("a", newline="") as file:
                csv.writer(file).writerows([*measure(ranker, asked.data)])
    print(table(pl.read_csv(path, schema_overrides=TYPES)))


def rankers(names: list[str], seeds: int) -> Iterator[Ranker]:
    for name in names:
        for seed in range(seeds):
            for model in ("linear", "mlp"):
                for method, c in METHODS:
                    if name != "mq2008" or c is None:
                        yield Ranker(name, model, method, c, 0, seed)
            if name.startswith(("law", "engineering")):
                for c in DELTR_CURVE:
                    yield Ranker(name, "linear", "deltr", c, 1, seed)


def measure(ranker: Ranker, folder: Path) -> Iterator[tuple[object, ...]]:
    """Train a ranker; yield a row for each metric."""
    rows = SETS[ranker.data](folder, ranker.seed)
    x = rows.x
    if ranker.seen:
        x = np.column_stack([x, np.array([one == "protected" for one in rows.group or []])])
    longest = np.bincount(rows.qid[rows.test]).max()
    ks = [k for k in KS if k < longest]
    model = ft.FairRanker(
        ranker.method, ranker.model, k=ks[-1], c_relative=ranker.c_relative, seed=ranker.seed
    )
    train, test = ~rows.test, rows.test
    model.fit(x[train], rows.y[train], qid=rows.qid[train], groups=_some(rows.group, train))
    found = model.evaluate(
        x[test], rows.y[test], qid=rows.qid[test], groups=_some(rows.group, test), k=ks
    )
    for name, mean, n in found.select("metric", "mean", "n").rows():
        yield (*ranker, name, mean, n)


def table(found: pl.DataFrame) -> str:
    """Return means and deviations over seeds as Markdown, a row for each ranker."""
    wanted = [f"{name}@{k}" for k in KS for name in SHOWN]
    keys = ["data", "seen", "model", "method", "c_relative"]
    cells = (
        found.filter(pl.col("metric").is_in(wanted))
        .group_by([*keys, "metric"], maintain_order=True)
        .agg(pl.col("mean").mean(), pl.col("mean").std().alias("std"), pl.len().alias("seeds"))
    )
    lines = [f"| {' | '.join([*keys, *wanted])} |", f"|{' --- |' * (len(keys) + len(wanted))}"]
    for key, part in cells.group_by(keys, maintain_order=True):
        shown = {row["metric"]: row for row in part.iter_rows(named=True)}
        values = [_cell(shown.get(name)) for name in wanted]
        lines.append(
            f"| {' | '.join(['' if one is None else str(one) for one in key] + values)} |"
        )
    return "\n".join(lines)


def _cell(row: dict[str, float] | None) -> str:
    if row is None or row["mean"] is None:
        return ""
    spread = "" if row["std"] is None else f" ± {row['std']:.4f}"
    return f"{row['mean']:.4f}{spread}"


def _some(group: list[str | None] | None, where: NDArray[np.bool_]) -> list[str | None] | None:
    return (
        None if group is None else [one for one, take in zip(group, where, strict=True) if take]
    )


def _protected(column: pl.Series) -> list[str | None]:
    names = {True: "protected", False: "other", None: None}
    return [names[one] for one in column.cast(pl.Boolean).to_list()]


def _graded(relevance: pl.Series) -> NDArray[np.float64]:
    """Return relevance as grades from 0 to 4; its own scale may be any."""
    low, high = relevance.min(), relevance.max()
    return ((relevance - low) / (high - low) * 4).to_numpy()  # type: ignore[operator]


def students(file: str, features: tuple[str, ...]) -> Reader:
    """Return the reader of law or engineering students; a test list is a split, or a year."""

    def read(folder: Path, seed: int) -> Rows:
        frame = pl.read_parquet(folder / f"{file}.parquet")
        test = (
            frame["split"] == "test"
            if "split" in frame.columns
            else frame["query_id"] == frame["query_id"].unique().sort()[seed % 5]
        )
        qid = frame["query_id"].to_numpy() * 2 + test.to_numpy()
        return Rows(
            frame.select(features).to_numpy(),
            _graded(frame["relevance"]),
            qid,
            _protected(frame["protected"]),
            test.to_numpy(),
        )

    return read


def experts(folder: Path, seed: int) -> Rows:
    frame = pl.read_parquet(folder / "w3c-experts.gender.parquet")
    return Rows(
        frame.select(pl.col("^f[0-9]+$")).to_numpy(),
        _graded(frame["relevance"]),
        frame["query_id"].to_numpy(),
        _protected(frame["protected"]),
        (frame["test_fold"] == seed % 6 + 1).to_numpy(),
    )


def papers(folder: Path, seed: int) -> Rows:
    frame = pl.read_parquet(folder / "trec-fair-2020.features.parquet")
    return Rows(
        np.log1p(frame.select(pl.col("^f[0-9]+$")).to_numpy().clip(0)),
        frame["relevance"].cast(pl.Float64).to_numpy(),
        frame["query_id"].to_numpy(),
        _protected(frame["frac_low_h"] >= 1),
        _some_lists(frame["query_id"].to_numpy(), seed),
    )


def letor(folder: Path, seed: int) -> Rows:
    frame = pl.read_parquet(folder / "mq2008.parquet")
    return Rows(
        frame.select(pl.col("^f[0-9]+$")).to_numpy(),
        frame["relevance"].cast(pl.Float64).to_numpy(),
        frame["query_id"].to_numpy(),
        None,
        (frame["subset"] == seed % 5 + 1).to_numpy(),
    )


def people(
    file: str,
    protected: Callable[[pl.DataFrame], pl.Series],
    good: pl.Expr,
    drop: tuple[str, ...],
) -> Reader:
    """Return the reader of a table of people, dealt into lists of 50."""

    def read(folder: Path, seed: int) -> Rows:
        frame = pl.read_parquet(folder / f"{file}.parquet")
        order = np.random.default_rng(seed).permutation(len(frame) // LIST * LIST)
        frame = frame[order]
        text = [name for name, kind in frame.schema.items() if kind == pl.String]
        kept = frame.drop(drop)
        kept = kept.to_dummies([name for name in text if name in kept.columns]).fill_null(0)
        qid = np.arange(len(frame)) // LIST
        return Rows(
            kept.to_numpy().astype(np.float64),
            frame.select(good.cast(pl.Float64)).to_series().to_numpy(),
            qid,
            _protected(protected(frame)),
            _some_lists(qid, seed),
        )

    return read


def _some_lists(qid: NDArray[np.integer], seed: int) -> NDArray[np.bool_]:
    """Return the rows of a fifth of the lists."""
    lists = np.unique(qid)
    chosen = np.random.default_rng([seed, 1]).permutation(lists)[: round(TEST * len(lists))]
    return np.isin(qid, chosen)


LAW, ENGINEERING = ("lsat", "ugpa"), ("psu_math", "psu_lang", "psu_science", "hs_gpa")
CREDIT = ("risk", "sex", "age")
REPEATED = (
    "id", "sex", "race", "age_cat", "decile_score", "score_text", "is_recid", "two_year_recid"
)  # fmt: skip
SETS: dict[str, Reader] = {
    "law-gender": students("law-students.gender", LAW),
    "law-race": students("law-students.race_black", LAW),
    "engineering-gender": students("engineering-students.gender", ENGINEERING),
    "engineering-school": students("engineering-students.highschool", ENGINEERING),
    "experts-gender": experts,
    "papers-h-index": papers,
    "credit-sex": people(
        "german-credit", lambda one: one["sex"] == "female", pl.col("risk") == "good", CREDIT
    ),
    "credit-age": people(
        "german-credit", lambda one: one["age"] < 25, pl.col("risk") == "good", CREDIT
    ),
    "compas-race": people(
        "compas-two-years",
        lambda one: one["race"] == "African-American",
        pl.col("two_year_recid") == 0,
        REPEATED,
    ),
    "compas-sex": people(
        "compas-two-years",
        lambda one: one["sex"] == "Female",
        pl.col("two_year_recid") == 0,
        REPEATED,
    ),
    "mq2008": letor,
}


if __name__ == "__main__":
    main()
