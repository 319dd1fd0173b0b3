"""Equal scores: where row order decides, an audit says so."""

from typing import Any

import polars as pl
import pytest
from rich.console import Console

import fairtopk as ft
from fairtopk.reporting.page import audit_page

LISTS = 4
COLUMNS: dict[str, Any] = {"query": "q", "item": "i", "groups": "sex", "k": [1, 2]}


def lists(scores: list[list[float]], sex: str = "fmfm", grades: str = "0101") -> pl.DataFrame:
    """A list of each row of scores; items of different lists have different ids."""
    n = len(scores[0])
    return pl.DataFrame(
        {
            "q": [q for q in range(len(scores)) for _ in range(n)],
            "i": range(len(scores) * n),
            "s": [float(score) for row in scores for score in row],
            "y": [int(grade) for _ in scores for grade in grades],
            "sex": [one for _ in scores for one in sex],
        }
    )


def audited(frame: pl.DataFrame, **options: Any) -> dict[str, Any]:
    return ft.audit(frame, **{**COLUMNS, "score": "s", **options}).to_dict()


APART, ACROSS_1, ACROSS_2 = [4, 3, 2, 1], [4, 4, 2, 1], [4, 3, 3, 1]


def test_ties_are_counted_at_each_cut_and_by_the_metrics_that_they_touch() -> None:
    record = audited(lists([APART, ACROSS_1, ACROSS_1, ACROSS_2]), relevance="y")
    column = record["columns"][0]
    assert column["ties"]["1"] == {
        "across": 2, "across_share": 0.5, "within": 2, "within_share": 0.5,
    }  # fmt: skip
    assert (column["ties"]["2"]["across"], column["ties"]["2"]["within"]) == (1, 3)
    tied = {name: cell["tied"] for name, cell in column["metrics"].items()}
    assert tied["impact_ratio@2"] == tied["rank_exposure_gap_p@2"] == 3
    assert tied["representation_gap@2"] == tied["exposure_gap_signed@2"] == 1
    assert record["metrics"]["ndcg@2"]["tied"] == 3


def test_equals_of_one_group_decide_nothing_of_groups() -> None:
    record = audited(lists([ACROSS_1, APART], sex="ffmm"), relevance="y")
    assert record["ties"]["1"]["across"] == 1
    assert record["columns"][0]["metrics"]["impact_ratio@1"]["tied"] == 0
    assert record["columns"][0]["notes"] == []
    assert record["metrics"]["ndcg@1"]["tied"] == 1


def test_without_ties_nothing_is_said() -> None:
    record = audited(lists([APART, APART]), fail_if="impact_ratio@1 < 0.5")
    assert record["columns"][0]["notes"] == []
    assert "equal" not in " ".join(record["notes"])
    assert record["checks"][0]["note"] is None


def test_scores_that_differ_by_little_are_not_equal() -> None:
    record = audited(lists([[1 + 1e-12, 1, 1e-12, 0]]))
    assert record["ties"]["2"]["within"] == 0


def test_of_equals_the_earlier_row_is_first() -> None:
    record = audited(lists([[1, 1, 1, 1]]))
    assert record["columns"][0]["groups"][0]["share_at_rank"] == [1, 0]


@pytest.mark.parametrize(("ordering", "words"), [("score", "SCORES"), ("rank", "RANKS")])
def test_ties_are_told_beside_tables_and_verdicts_in_every_output(
    ordering: str, words: str
) -> None:
    frame = lists([APART, ACROSS_1, ACROSS_1, ACROSS_2])
    frame = frame.with_columns(s=5 - pl.col("s") if ordering == "rank" else pl.col("s"))
    options = {
        "score": None,
        ordering: "s",
        "fail_if": ["impact_ratio@1 < 2", "impact_ratio@2 > 2"],
    }
    found = ft.audit(frame, **{**COLUMNS, **options})
    record = found.to_dict()
    who, first = record["columns"][0]["notes"]
    assert who.startswith(f"EQUAL {words}: row order decides who is in the top")
    assert "at K = 1 in 2 of 4 lists (50 %), at K = 2 in 1 of 4 lists (25 %)" in who
    assert "representation_gap" in who
    assert "at K = 2 in 3 of 4 lists (75 %)" in first
    assert first.endswith("this affects impact_ratio, rank_exposure_gap")
    notes = [check["note"] for check in record["checks"]]
    assert notes == [
        f"EQUAL {words}: row order decides impact_ratio@1 in 2 of 4 lists (50 %), "
        "and in 2 of them who is in the top",
        f"EQUAL {words}: row order decides impact_ratio@2 in 3 of 4 lists (75 %), "
        "and in 1 of them who is in the top",
    ]
    page = audit_page(record)
    for note in (who, first, *notes):
        assert note in page, note
    assert printed(found).count(f"EQUAL {words}") == 4


def test_equal_scores_of_a_baseline_are_told_as_well() -> None:
    record = audited(lists([APART, APART]), baseline=lists([APART, ACROSS_2]))
    assert record["baseline"]["ties"]["2"]["across"] == 1
    assert record["baseline"]["notes"] == [
        "EQUAL SCORES: the baseline has ties too, in the first 2 positions of 1 of 2 lists"
    ]


def printed(found: ft.Audit) -> str:
    console = Console(width=500)
    with console.capture() as captured:
        console.print(found.table())
    return captured.get()
