"""The pages of docs/results that studies/movielens/run.py makes of the runs of `reproduce`."""

import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from paper_runs import REAL, Made

from studies.movielens import run, tables

pytestmark = pytest.mark.slow  # the pages of the paper's runs are written once
REPOSITORY = Path(__file__).parents[3]
MARKED = re.compile(r"(<!-- [a-z]+ -->)\n.*?\1", re.DOTALL)  # with what is between
ELSEWHERE = {"<!-- choices -->"}  # filled by another script
TITLES = ["embedded", "horror", "MovieLens, not run"]


@pytest.fixture(scope="module")
def pages(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out, pages = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("pages")
    shutil.copytree(made.out, out, dirs_exist_ok=True)
    for folder in (out / "runs").glob("*/*/seed*"):
        (folder / "commit.txt").write_text("abc1234\n")
    for name in ("movielens.md", "findings.md"):
        text = (REPOSITORY / "docs" / "results" / name).read_text()
        (pages / name).write_text(MARKED.sub(r"\1\n\1", text))
    (pages / "README.md").write_text("<!-- headline -->\n<!-- headline -->\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "FIGURES", (REAL, "not-drawn"))
        run.write_pages(out, pages, pages / "README.md", TITLES)
    return pages


def lines_of(page: Path, mark: str) -> list[str]:
    """Return the rows of a table between its marks, without its head."""
    return page.read_text().split(f"<!-- {mark} -->\n")[1].split("\n")[2:-1]


def test_every_mark_of_the_pages_is_filled(pages: Path) -> None:
    for name in ("movielens.md", "findings.md"):
        text = (pages / name).read_text()
        marks = {line for line in text.split("\n") if line.startswith("<!-- ")}
        assert len(marks) >= 6
        for mark in marks - ELSEWHERE:
            assert text.count(mark) == 2, mark
            assert text.split(mark)[1].strip(), mark


def test_pages_name_the_commit_and_how_many_seeds_there_are(pages: Path) -> None:
    assert "runs by commit abc1234" in (pages / "movielens.md").read_text()
    rows = lines_of(pages / "findings.md", "seeds")
    assert [row.split(" | ")[2:] for row in rows] == [["2", "2 |"], ["2", "2 |"], ["0", "0 |"]]


def test_the_csv_has_means_over_seeds_and_changes_from_k_song(pages: Path, made: Made) -> None:
    rows = pl.read_csv(pages / "movielens.csv", infer_schema_length=None)
    one = rows.filter(
        (pl.col("data") == "embedded") & (pl.col("protocol") == "sampled")
        & (pl.col("method") == "KSO-RED") & (pl.col("weight") == 1e5) & (pl.col("k") == 100)
    )  # fmt: skip
    assert one["seeds"].to_list() == [2]
    assert one["exposure_gap_change"].to_list() == [pytest.approx(-0.5, abs=1e-4)]
    runs = [made.out / "runs" / one["folder"][0] / f"seed{seed}" for seed in (0, 1)]
    assert all((run / "metrics.json").exists() for run in runs)
    whole = pl.read_csv(made.out / "results.csv", infer_schema_length=None)
    told = whole.filter(
        (pl.col("data") == "embedded") & (pl.col("protocol") == "sampled")
        & (pl.col("method") == "kso-red") & (pl.col("weight") == 1e5)
        & (pl.col("preset") == "default") & pl.col("gamma_u").is_null()
        & (pl.col("metric") == "ndcg") & (pl.col("k") == 100)
    )  # fmt: skip
    assert len(told) == 2
    assert one["ndcg"].to_list() == [pytest.approx(told["mean"].mean(), rel=1e-3)]


def test_kso_red_is_compared_with_each_rival_seed_by_seed(pages: Path) -> None:
    rows = lines_of(pages / "findings.md", "dominates")
    first = rows[0].split(" | ")
    # All methods of the made-up runs cut alike, but DPR, whose weight is nearly none.
    assert first[5:9] == ["+0 ±0"] * 4
    assert first[9].startswith("**-50 ±")
    assert "0 more, 0 less" in lines_of(pages / "findings.md", "verdict")[0]


def test_the_readme_has_a_row_per_method_and_a_column_per_data_set(pages: Path) -> None:
    head, _, first, *_ = (pages / "README.md").read_text().split("\n")[1:]
    assert head == "| method | labels when serving | embedded | horror |"
    assert first == "| KSO-RED | no | -0.4 / -50 / -50 | -0.4 / -50 / -50 |"


def test_gammas_stand_side_by_side_at_one_weight(pages: Path) -> None:
    rows = [row.split(" | ") for row in lines_of(pages / "findings.md", "gamma")]
    of = [row[3] for row in rows if row[0] == "| embedded" and row[1] == "KSO-RED"]
    assert of == ["0.2", "0.6", "1"]


@pytest.mark.parametrize(
    ("flat", "after", "told"),
    [(0.8, 0.6, "50 %"), (1.1, 0.5, "-20 %"), (0.8, 0.96, "hardly a fall"),
     (0.8, 1.0, "no fall"), (None, 0.5, "undefined")],
)  # fmt: skip
def test_the_share_of_a_fall_is_told_where_there_is_one(
    flat: float | None, after: float, told: str
) -> None:
    falls = pl.DataFrame({"before": [1.0], "flat": [flat], "after": [after]})
    assert tables._share(falls) == told


def test_data_without_runs_has_a_page_that_says_so(pages: Path) -> None:
    assert "No run of this is done yet" in (pages / "movielens-not-run.md").read_text()
    horror = (pages / "movielens-horror.md").read_text()
    assert "chosen for the gap of Eq. 9" in horror
    assert "mean (standard deviation over seeds)" in horror


def test_figures_are_small_and_no_page_tells_where_files_are(pages: Path, made: Made) -> None:
    picture = pages / f"movielens-{REAL}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < (made.out / "figures" / f"{REAL}.png").stat().st_size
    for page in pages.glob("*.md"):
        assert "/home" not in page.read_text()
        assert str(made.out) not in page.read_text()
