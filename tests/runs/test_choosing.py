import math
from typing import Any

from fairtopk.runs.build import is_better
from fairtopk.runs.trainer import alarms


def chosen(
    values: list[tuple[float, float]], *, gap: str | None, tolerance: float
) -> int | None:
    """The place that is chosen when epochs with these NDCGs and gaps pass by."""
    history: list[dict[str, Any]] = []
    place = None
    for ndcg, found in values:
        history.append({"ndcg": ndcg, "gap": found})
        if is_better(history, place, ndcg="ndcg", gap=gap, tolerance=tolerance):
            place = len(history) - 1
    return place


def test_without_a_penalty_the_best_ndcg_is_chosen() -> None:
    assert chosen([(0.3, 1), (0.5, 9), (0.4, 0)], gap=None, tolerance=0.01) == 1


def test_with_one_the_smallest_gap_within_the_tolerance_is() -> None:
    values = [(0.500, 5.0), (0.496, 3.0), (0.490, 1.0), (0.499, 4.0)]
    assert chosen(values, gap="gap", tolerance=0.01) == 1
    assert chosen(values, gap="gap", tolerance=0.05) == 2
    assert chosen(values, gap="gap", tolerance=0.0) == 0


def test_an_undefined_gap_is_the_largest() -> None:
    assert chosen([(0.5, math.nan), (0.5, 9.0)], gap="gap", tolerance=0.01) == 1
    assert chosen([(0.5, 9.0), (0.5, math.nan)], gap="gap", tolerance=0.01) == 0


def test_a_choice_that_falls_out_of_the_window_is_given_up() -> None:
    assert chosen([(0.3, 1.0), (0.4, 5.0)], gap="gap", tolerance=0.01) == 1


def record(**changes: float) -> dict[str, Any]:
    calm = {"spread": 1.0, "penalty_norm": 0.1, "ranking_norm": 1.0, "gap": -1.0}
    return {"phase": "fine-tuning", **calm, **changes}


def test_each_alarm_is_raised_by_its_sign_and_once() -> None:
    for change, word in (
        ({"spread": 0.4}, "flattening"),
        ({"penalty_norm": 5.0}, "outweighs"),
        ({"gap": 0.9}, "changed sides"),
    ):
        history = [record(), record(**change)]
        (found,) = alarms(history, "gap")
        assert word in found
        history[-1]["alarms"] = [found]
        assert alarms([*history, record(**change)], "gap") == []
    assert alarms([record(), record(gap=0.3, spread=0.6, penalty_norm=0.9)], "gap") == []


def test_scores_are_flat_if_they_stay_flatter_than_after_the_warm_up() -> None:
    warm = {"phase": "warm-up", "penalty_norm": 0.0, "ranking_norm": 1.0}
    history = [{**warm, "spread": 0.1}, {**warm, "spread": 3.0}]
    for _ in range(5):  # a last layer drawn anew needs some epochs
        history.append(record())
        assert alarms(history, "gap") == []
    (found,) = alarms([*history, record()], "gap")
    assert "flattening" in found
    assert alarms([*history, record(spread=1.6)], "gap") == []


def test_a_gap_flips_against_the_first_that_was_measured() -> None:
    unmeasured = record()
    del unmeasured["gap"]
    (found,) = alarms([unmeasured, record(), record(gap=0.9)], "gap")
    assert "changed sides" in found
