"""The table of results: what scores tell of groups, before and after."""

from typing import Any

from fairtopk.reporting.curves import views_of
from fairtopk.reporting.page import sweep_page
from fairtopk.reporting.results import Result, Run, Sweep
from fairtopk.reporting.tables import ResultsTable, results_tables


def result(c: float | None, ndcg: float, gap: float, auc: float | None) -> Result:
    def cell(mean: float | None) -> dict[str, Any]:
        ends = None if mean is None else [mean - 0.01, mean + 0.01]
        return {"mean": mean, "ci95": ends, "n": 9, "undefined": 0}

    metrics = {"ndcg@10": cell(ndcg), "exposure_gap@10": cell(gap), "group_auc": cell(auc)}
    method, weight = ("k-song", None) if c is None else ("kso-red", ("C", c))
    run = Run(f"run-{c}", method, {}, weight, 0)
    return Result(run, {"data": "films", "part": "test", "protocol": "sampled"}, metrics)


def tables(results: list[Result]) -> list[ResultsTable]:
    return results_tables(views_of(results))


def test_it_is_told_how_well_groups_can_be_told_from_scores_before_and_after() -> None:
    results = [
        result(None, 0.5, 0.1, 0.31),
        result(1.0, 0.49, 0.05, 0.42),
        result(9.0, 0.2, 0.01, 0.49),
    ]
    (table,) = tables(results)
    assert table.leaks
    assert [row["auc"] for row in table.rows] == ["0.31 ±0.01", "0.42 ±0.01", "0.49 ±0.01"]
    assert (
        "not at all): 0.31 ±0.01 (k-song) before, 0.42 ±0.01 (kso-red, C = 1) after"
        in table.notes[0]
    )
    page = sweep_page(Sweep("films", results, []), views_of(results), {})
    assert page.count('<th rowspan="2" scope="col">Group AUC</th>') == 1
    assert "<td>0.42 ±0.01</td>" in page
    assert "can still reveal them" in page


def test_without_a_fair_model_nothing_is_told_of_after() -> None:
    (table,) = tables([result(None, 0.5, 0.1, 0.31)])
    assert table.leaks
    assert not any("told from scores" in note for note in table.notes)


def test_results_that_lack_it_have_no_column_for_it() -> None:
    results = [result(None, 0.5, 0.1, None), result(1.0, 0.5, 0.1, None)]
    (undefined,) = tables(results)
    assert [row["auc"] for row in undefined.rows] == ["\u2013", "\u2013"]
    for one in results:
        del one.metrics["group_auc"]
    (table,) = tables(results)
    assert not table.leaks
    assert not any("told from scores" in note for note in table.notes)
    page = sweep_page(Sweep("films", results, []), views_of(results), {})
    assert ">Group AUC</th>" not in page
