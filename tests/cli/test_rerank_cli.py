"""`fairtopk rerank` on a table, as a user meets it: its output, its file and its exit code."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import Ended, Run

import fairtopk as ft
from fairtopk.reranking.rerank import RERANKERS

JOBS, PEOPLE, K = 30, 12, 5
WORDS = ["--query", "job", "--item", "person", "--groups", "sex", "--k", str(K)]


@pytest.fixture
def ranked(tmp_path: Path) -> Path:
    """Lists of people in any order of rows, in which men come first more often."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "job": f"job {job}",
            "person": person,
            "score": round(rng.normal() + (person % 2), 1),  # many are equal
            "hired": int(person % 3 == 0),
            "merit": round(rng.random() + 0.1, 2),
            "sex": "fm"[person % 2],
            "age": "young" if person < 4 else "old",
        }
        for job in range(JOBS)
        for person in range(PEOPLE)
    ]
    path = tmp_path / "ranked.csv"
    pl.DataFrame(rows).sample(fraction=1, shuffle=True, seed=0).write_csv(path)
    return path


@pytest.fixture
def run(run: Run, ranked: Path) -> Run:
    """A function that re-ranks the people with some more words."""

    def rerank(*more: str | Path, file: Path = ranked, words: list[str] = WORDS) -> Ended:
        return run("rerank", file, *words, *more)

    return rerank


def representation(frame: pl.DataFrame, sex: str) -> float:
    """Share of a sex in the first places, whose rows are in order."""
    top = frame.group_by("job", maintain_order=True).head(K)
    return float((top["sex"] == sex).mean())


@pytest.mark.parametrize("method", RERANKERS)
def test_every_method_writes_each_list_in_its_new_order(
    method: str, run: Run, ranked: Path, tmp_path: Path
) -> None:
    bonus = ["--bonus", "1"] if method == "group-bonus" else []
    ended = run("--score", "score", "--method", method, *bonus, "--out", tmp_path / "fair.csv")
    assert ended.code == 0, ended.stderr
    assert f"{method} needs group labels when serving" in ended.stdout
    before, after = pl.read_csv(ranked), pl.read_csv(tmp_path / "fair.csv")
    assert after.columns == [
        "job", "person", "score", "sex", "old_rank", "new_rank", "met",
    ]  # fmt: skip
    assert after["met"].all()
    assert after["job"].unique(maintain_order=True).to_list() == (
        before["job"].unique(maintain_order=True).to_list()
    )
    for job, rows in after.group_by("job"):
        own = before.filter(pl.col("job") == job[0])
        assert rows["person"].sort().to_list() == list(range(PEOPLE))
        assert rows["new_rank"].to_list() == list(range(1, PEOPLE + 1))
        assert rows["score"].is_sorted(descending=True)
        assert rows["score"].n_unique() == PEOPLE
        assert rows["score"].round(4).to_list() == sorted(own["score"].round(4), reverse=True)
        scores = own.sort("score", descending=True, maintain_order=True)
        assert rows.sort("old_rank")["person"].to_list() == scores["person"].to_list()
    in_order = before.sort("score", descending=True)
    assert representation(after, "f") > representation(in_order, "f") + 0.03


def test_the_table_shows_what_an_audit_of_both_files_finds(
    run: Run, ranked: Path, tmp_path: Path
) -> None:
    out = tmp_path / "fair.parquet"
    ended = run(
        "--score", "score", "--relevance", "hired", "--method", "det-cons", "--out", out
    )
    assert ended.code == 0, ended.stderr
    found = ft.audit(
        out, query="job", item="person", score="score", relevance="hired", groups="sex", k=K,
        baseline=ranked,
    ).to_dict()  # fmt: skip
    (changes,) = found["baseline"]["columns"]
    for name in ("rank_exposure_gap", "representation_gap_signed", "exposure_gap"):
        change = changes["metrics"][f"{name}@{K}"]
        assert f"{change['before']:.3g} ±" in ended.stdout
        assert f"{change['now']:.3g} ±" in ended.stdout
        assert f"{change['difference']:.3g} ±" in ended.stdout
    floor = found["columns"][0]["metrics"][f"representation_gap_floor@{K}"]["value"]
    assert f"{floor:.3g}" in ended.stdout
    assert f"{found['metrics'][f'ndcg@{K}']['mean']:.3g} ±" in ended.stdout


@pytest.mark.parametrize(("grade", "kind"), [("1", pl.Int64), ("0.5", pl.Float64)])
def test_whole_grades_of_a_text_stay_whole_numbers(
    grade: str, kind: type[pl.DataType], run: Run, ranked: Path, tmp_path: Path
) -> None:
    graded = pl.read_csv(ranked).with_columns(
        hired=pl.when(pl.col("hired") == 1).then(pl.lit(grade)).otherwise(pl.lit("0"))
    )
    graded.write_csv(tmp_path / "graded.csv")
    more = ("--score", "score", "--relevance", "hired", "--method", "det-cons", "--out")
    ended = run(*more, tmp_path / "fair.csv", file=tmp_path / "graded.csv")
    assert ended.code == 0, ended.stderr
    after = pl.read_csv(tmp_path / "fair.csv")
    assert after["hired"].dtype == kind
    ids = ["job", "person"]
    expected = pl.read_csv(tmp_path / "graded.csv").sort(ids)["hired"]
    assert after.sort(ids)["hired"].to_list() == expected.to_list()


def test_text_that_a_spreadsheet_would_run_is_guarded_on_request(
    run: Run, ranked: Path, tmp_path: Path
) -> None:
    odd = pl.read_csv(ranked).with_columns(job="=" + pl.col("job")).rename({"sex": "@sex"})
    odd.write_csv(tmp_path / "odd.csv")
    words = [word if word != "sex" else "@sex" for word in WORDS]
    more = ("--score", "score", "--method", "det-greedy", "--out")
    asked = {"file": tmp_path / "odd.csv", "words": words}
    for name, guard in (("plain.csv", []), ("safe.csv", ["--csv-safe"])):
        ended = run(*more, tmp_path / name, *guard, **asked)
        assert ended.code == 0, ended.stderr
    plain, safe = (pl.read_csv(tmp_path / name) for name in ("plain.csv", "safe.csv"))
    assert plain["job"].str.starts_with("=").all()
    assert safe["job"].to_list() == ("'" + plain["job"]).to_list()
    assert safe["'@sex"].to_list() == plain["@sex"].to_list()
    assert safe["new_rank"].to_list() == plain["new_rank"].to_list()


def test_a_user_is_told_which_groups_are_meant_and_what_is_in_none(
    run: Run, ranked: Path, tmp_path: Path
) -> None:
    unlabelled = pl.col("person") == PEOPLE - 1
    labelled = pl.read_csv(ranked).with_columns(
        sex=pl.when(unlabelled).then(None).otherwise(pl.col("sex"))
    )
    labelled.write_csv(tmp_path / "labelled.csv")
    words = ("--score", "score", "--method")
    ended = run(*words, "fa-ir", file=tmp_path / "labelled.csv")
    assert "fa-ir protects 'm' against all others" in ended.stdout
    assert "signed gap = 'm' minus the rest; negative: it is under-exposed" in ended.stdout
    assert f"no label: {JOBS} rows, kept in the lists" in ended.stdout
    ended = run(*words, "group-bonus", "--bonus", "1", "--group", "f")
    assert "group-bonus protects 'f' against all others" in ended.stdout
    assert "no label" not in ended.stdout
    assert "against all others" not in run(*words, "det-cons").stdout


def test_ranks_will_do_and_without_grades_there_is_no_ndcg(
    run: Run, ranked: Path, tmp_path: Path
) -> None:
    by_score = pl.read_csv(ranked).sort("score", descending=True, maintain_order=True)
    by_rank = by_score.with_columns(rank=pl.int_range(1, pl.len() + 1).over("job"))
    by_rank.drop("score").write_parquet(tmp_path / "ranks.parquet")
    out = tmp_path / "fair.parquet"
    ended = run(
        "--rank", "rank", "--method", "det-greedy", "--out", out,
        file=tmp_path / "ranks.parquet",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    assert "NDCG" not in ended.stdout
    assert "Eq. 9" not in ended.stdout
    found = pl.read_parquet(out)
    assert (found["rank"] == found["new_rank"]).all()
    run("--score", "score", "--method", "det-greedy", "--out", tmp_path / "same.csv")
    same = pl.read_csv(tmp_path / "same.csv")
    key = ["job", "person", "new_rank"]
    assert found.select(key).sort(key).equals(same.select(key).sort(key), null_equal=True)


def test_random_floors_hang_on_the_seed(run: Run, tmp_path: Path) -> None:
    ranks = []
    for name, more in {"one": ["1"], "same": ["1"], "other": ["2"]}.items():
        out = tmp_path / f"{name}.csv"
        words = ["--score", "score", "--method", "det-greedy", "--rounding", "random"]
        ended = run(*words, "--infeasible", "mark", "--seed", *more, "--out", out)
        assert ended.code == 0, ended.stderr
        ranks.append(pl.read_csv(out).sort("job", "person")["new_rank"].to_list())
    assert ranks[0] == ranks[1] != ranks[2]


def test_groups_have_names_and_several_columns_are_their_product(
    run: Run, tmp_path: Path
) -> None:
    halves = run(
        "--score", "score", "--method", "det-greedy", "--target", "f=0.6", "--target", "m=0.4",
        "--out", tmp_path / "halves.csv",
    )  # fmt: skip
    assert halves.code == 0, halves.stderr
    assert representation(pl.read_csv(tmp_path / "halves.csv"), "f") >= 0.6
    words = [word if word != "sex" else "sex,age" for word in WORDS]
    product = run(
        "--score", "score", "--method", "det-cons", "--target", "f & young=0.4",
        "--infeasible", "mark", "--out", tmp_path / "product.csv", words=words,
    )  # fmt: skip
    assert product.code == 0, product.stderr
    top = pl.read_csv(tmp_path / "product.csv").filter(pl.col("new_rank") <= K)
    young_women = top.filter((pl.col("sex") == "f") & (pl.col("age") == "young"))
    assert len(young_women) == 2 * JOBS
    for method, bonus in (("fa-ir", []), ("group-bonus", ["--bonus", "9"])):
        out = tmp_path / f"{method}.csv"
        men = run("--score", "score", "--method", method, "--group", "m", *bonus, "--out", out)
        assert men.code == 0, men.stderr
    assert representation(pl.read_csv(out), "m") == 1


def test_labels_may_be_in_a_table_of_items(run: Run, ranked: Path, tmp_path: Path) -> None:
    rows = pl.read_csv(ranked)
    rows.drop("sex").write_csv(tmp_path / "bare.csv")
    people = rows.select(id="person", sex="sex").unique()
    people.write_csv(tmp_path / "people.csv")
    outs = tmp_path / "one.csv", tmp_path / "other.csv"
    assert run("--score", "score", "--method", "det-cons", "--out", outs[0]).code == 0
    ended = run(
        "--score", "score", "--method", "det-cons", "--items", tmp_path / "people.csv",
        "--items-item", "id", "--out", outs[1], file=tmp_path / "bare.csv",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    one, other = map(pl.read_csv, outs)
    assert one.drop("sex").equals(other)


def test_blocks_of_lists_change_nothing_also_not_what_is_drawn(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--score", "score", "--method", "exposure-lp", "--out"]
    assert run(*words, tmp_path / "one.csv").code == 0
    monkeypatch.setattr("fairtopk.auditing.measures.BLOCK_CELLS", 40)
    assert run(*words, tmp_path / "other.csv").code == 0
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "other.csv").read_text()


def test_a_merit_is_what_random_rankings_are_fair_to(run: Run, tmp_path: Path) -> None:
    words = ["--score", "score", "--method", "exposure-lp", "--notion", "treatment"]
    refused = run(*words)
    assert refused.code == 2
    assert "but treatment divides by relevance; name a column of relevance" in refused.stderr
    ended = run(*words, "--merit", "merit", "--out", tmp_path / "fair.csv")
    assert ended.code == 0, ended.stderr
    assert "one draw from a random ranking" in ended.stdout
    assert "det-cons takes no merit" in run(
        "--score", "score", "--method", "det-cons", "--merit", "merit"
    ).stderr  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--method", "fa-ir", "--p", "0.9", "--k", "12"],
            "query 'job {job}' has 6 items of 'f' where its top 12 needs 9; lower p, alpha "
            "or k"),
        (["--method", "det-cons", "--target", "f=0.9", "--k", "12"],
            "query 'job {job}' has 6 items of 'f' where its top 12 needs 10; lower its target "
            "or k"),
        (["--method", "det-cons", "--k", "13"],
            "query 'job {job}' has 12 items where k asks for 13; lower k"),
    ],
)  # fmt: skip
def test_what_lists_cannot_have_is_refused_or_marked(
    words: list[str], why: str, run: Run, ranked: Path, tmp_path: Path
) -> None:
    first = pl.read_csv(ranked)["job"][0].removeprefix("job ")
    out = tmp_path / "fair.csv"
    refused = run("--score", "score", *words, "--out", out)
    assert refused.code == 2
    method, said = words[1], why.format(job=first)
    assert refused.stderr == (
        f"fairtopk: {method}: {said}, or pass --infeasible mark "
        "(30 of 30 lists are like this)\n"
    )
    assert not out.exists()
    marked = run("--score", "score", *words, "--infeasible", "mark", "--out", out)
    assert marked.code == 0, marked.stderr
    assert f"marked: 30 of 30 lists cannot meet the targets; {said}" in marked.stdout
    assert not pl.read_csv(out)["met"].any()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--method", "fair"], "method must be one of fa-ir, det-greedy"),
        (
            ["--method", "fa-ir", "--infeasible", "skip"],
            "infeasible must be one of refuse, mark",
        ),
        (["--method", "fa-ir", "--p", "2"], "fa-ir: p should be less than 1, got 2.0"),
        (["--method", "fa-ir", "--group", "x"], "no group is called 'x': the groups are f, m"),
        (["--method", "fa-ir", "--target", "f=0.4"], "fa-ir has no option 'targets'"),
        (["--method", "det-cons", "--target", "f"], "--target takes a group and its share"),
        (["--method", "det-cons", "--target", "f=x"], "--target takes a group and its share"),
        (["--method", "det-cons", "--target", "x=0.1"], "no group is called 'x'"),
        (["--method", "det-cons", "--target", "f=1.1"], "targets.0 should be less than or"),
        (["--method", "det-cons", "--target", "f=0", "--target", "f=1"], "names 'f' twice"),
        (["--method", "det-cons", "--k", "0"], "k must be at least 1, got 0"),
        (["--method", "det-cons", "--part", "test"], "--part is for a run; leave it out for a"),
        (["--method", "det-cons", "--relevance", "score"], "'score' orders the lists and is"),
        (["--method", "det-cons", "--relevance", "met"], "has a column 'met' of its own"),
        (["--method", "det-cons", "--relevance", "none"], "ranked.csv has no column 'none'"),
        (["--method", "group-bonus"], "group-bonus needs the option 'bonus'"),
        (["--method", "group-bonus", "--bonus", "a"], "--bonus takes numbers such as 0.1,0.2"),
        (
            ["--method", "group-bonus", "--bonus", "inf"],
            "group-bonus: bonus should be a finite",
        ),
        (["--method", "group-bonus", "--bonus", "1,2"], "a table takes one --bonus"),
        (["--method", "exposure-lp", "--seed", "-1"], "exposure-lp: seed should be greater"),
    ],
)
def test_a_wrong_word_gets_one_sentence_and_nothing_is_written(
    words: list[str], sentence: str, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "fair.csv"
    ended = run("--score", "score", *words, "--out", out)
    assert ended.code == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("fairtopk: ")
    assert sentence in line
    assert [path.name for path in tmp_path.iterdir()] == ["ranked.csv"]


def test_a_file_is_written_where_it_is_new_and_of_a_known_kind(
    run: Run, ranked: Path, tmp_path: Path
) -> None:
    words = ["--score", "score", "--method", "det-cons", "--out"]
    kept = ranked.read_text()
    assert "exists; choose a new file" in run(*words, ranked).stderr
    assert ranked.read_text() == kept
    assert "must end in .csv or .parquet or .pq" in run(*words, tmp_path / "fair.txt").stderr
    assert "cannot be written" in run(*words, ranked / "fair.csv").stderr
    assert run(*words, tmp_path / "new" / "fair.PQ").code == 0
    assert len(pl.read_parquet(tmp_path / "new" / "fair.PQ")) == JOBS * PEOPLE


@pytest.mark.parametrize("missing", ["query", "item", "groups", "k"])
def test_a_table_needs_its_columns_and_k(missing: str, run: Run) -> None:
    place = WORDS.index(f"--{missing}")
    ended = run(
        "--score", "score", "--method", "fa-ir", words=WORDS[:place] + WORDS[place + 2 :]
    )
    assert ended.code == 2
    assert f"--{missing} is missing: a table needs it" in ended.stderr
