"""What is said where sampled lists and the catalogue differ on who is fairer."""

from typing import Any

from fairtopk.reporting.curves import views_of
from fairtopk.reporting.page import disagreements
from fairtopk.reporting.results import Result, Run

Gaps = dict[str, float]  # of Eq. 9 and by rank


def result(protocol: str, gaps: Gaps, *, c: float | None, data: str = "films") -> Result:
    weight = None if c is None else ("C", c)
    method = "k-song" if c is None else "kso-red"
    run = Run(f"{data}-{method}", method, {}, weight, 0)
    cells: dict[str, Any] = {
        f"{name}@10": {"mean": gap, "ci95": [gap - 0.01, gap + 0.01], "n": 9, "undefined": 0}
        for name, gap in ({"ndcg": 0.5} | gaps).items()
    }
    lists = {"data": data, "part": "test", "protocol": protocol, "users": None}
    lists["unrated"] = "300" if protocol == "sampled" else None
    return Result(run, lists, cells)


def gaps(of_scores: float, by_rank: float) -> Gaps:
    return {"exposure_gap": of_scores, "rank_exposure_gap": by_rank}


def said(sampled: Gaps, full: Gaps) -> list[str]:
    """Return what is said of a fair run beside a colour-blind one with gaps of 0.2."""
    blind = gaps(0.2, 0.2)
    results = [
        result(protocol, of, c=c)
        for protocol, fair in (("sampled", sampled), ("full", full))
        for c, of in ((None, blind), (1.0, fair))
    ]
    return disagreements(views_of(results))


def test_fairer_on_sampled_lists_and_less_fair_on_the_catalogue_is_told_once() -> None:
    (words,) = said(gaps(0.1, 0.1), gaps(0.1, 0.3))
    assert words.startswith("kso-red, C = 1, films, test, full catalogue: at K = 10 it is")
    assert "fairer than k-song on sampled lists (exposure gap (Eq. 9))" in words
    assert "less fair on the full catalogue (exposure gap by rank)" in words
    (by_rank,) = said(gaps(0.2, 0.1), gaps(0.2, 0.3))
    assert "fairer than k-song on sampled lists (exposure gap by rank)" in by_rank


def test_nothing_is_told_where_both_agree_or_intervals_overlap() -> None:
    assert said(gaps(0.1, 0.1), gaps(0.1, 0.1)) == []
    assert said(gaps(0.1, 0.1), gaps(0.3, 0.2)) == []
    assert said(gaps(0.1, 0.1), gaps(0.1, 0.215)) == []
    assert said(gaps(0.19, 0.19), gaps(0.1, 0.3)) == []
    assert said(gaps(0.3, 0.3), gaps(0.3, 0.3)) == []


def test_lists_of_other_data_are_not_set_against_each_other() -> None:
    blind, fair, unfair = gaps(0.2, 0.2), gaps(0.1, 0.1), gaps(0.3, 0.3)
    results = [
        result("sampled", blind, c=None, data="books"),
        result("sampled", fair, c=1.0, data="books"),
        result("full", blind, c=None),
        result("full", unfair, c=1.0),
    ]
    assert disagreements(views_of(results)) == []


def test_a_run_without_a_colour_blind_one_is_not_compared() -> None:
    results = [
        result("sampled", gaps(0.1, 0.1), c=1.0),
        result("full", gaps(0.3, 0.3), c=1.0),
    ]
    assert disagreements(views_of(results)) == []
