"""Metrics beside those of FairRankTune and ir-measures, where installed."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fairtopk import metrics

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other packages


@pytest.fixture
def tuned() -> Any:
    return pytest.importorskip("FairRankTune").Metrics


def ranking_of(scores: NDArray[np.floating], groups: NDArray[np.integer]) -> tuple[Any, Any]:
    """One list as FairRankTune wants it: items from best to worst, and their groups."""
    pandas = pytest.importorskip("pandas")
    items = (-scores).argsort(kind="stable")
    return pandas.DataFrame(items[:, None]), dict(enumerate(groups.tolist()))


def some_list(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 2 + seed % 3, 40)
    groups[: groups.max()] = np.arange(groups.max())  # every group is there
    return rng.normal(size=40) + 0.3 * groups, groups


@pytest.mark.parametrize("seed", range(6))
def test_exposure_by_rank_is_that_of_fairranktune(tuned: Any, seed: int) -> None:
    scores, groups = some_list(seed)
    ranking = ranking_of(scores, groups)
    gap, means = tuned.EXP(*ranking, "MaxMinDiff")
    ratio, _ = tuned.EXP(*ranking, "MinMaxRatio")
    lists = scores[None], groups[None]
    ours = metrics.group_rank_exposures(*lists, k=40)[0].tolist()
    assert ours == pytest.approx(list(means.values()), abs=1e-12)
    assert metrics.rank_exposure_gap(*lists, k=40).item() == pytest.approx(gap, abs=1e-12)
    assert metrics.impact_ratios(*lists, k=40).item() == pytest.approx(ratio, abs=1e-12)
    assert metrics.impact_ratio(*lists, k=40).value == pytest.approx(ratio, abs=1e-12)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_attention_is_that_of_fairranktune_which_counts_in_percent(
    tuned: Any, seed: int, p: float
) -> None:
    scores, groups = some_list(seed)
    gap, means = tuned.AWRF(*ranking_of(scores, groups), p, "MaxMinDiff")
    lists = scores[None], groups[None]
    ours = 100 * metrics.group_attentions(*lists, k=40, p=p)[0]
    assert ours.tolist() == pytest.approx(list(means.values()), abs=1e-10)
    assert 100 * metrics.awrf(*lists, k=40, p=p).item() == pytest.approx(gap, abs=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_divergence_is_that_of_fairranktune_but_for_its_epsilon(tuned: Any, seed: int) -> None:
    scores, groups = some_list(seed)
    theirs = tuned.NDKL(*ranking_of(scores, groups))
    ours = metrics.ndkl(scores[None], groups[None], k=40).item()
    assert ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 5, 20, 99])
def test_ndcg_is_that_of_ir_measures(k: int, ties: bool) -> None:
    measures = pytest.importorskip("ir_measures")
    rng = np.random.default_rng(k)
    scores = rng.integers(0, 6, (30, 40)).astype(float) if ties else rng.normal(size=(30, 40))
    grades = rng.choice([0, 0, 0, 1, 2, 3, 5], (30, 40))
    # Of equal scores trec_eval has the document with the greater name first.
    names = [f"{99 - slot:02}" for slot in range(40)]
    judged = {
        str(q): dict(zip(names, row, strict=True)) for q, row in enumerate(grades.tolist())
    }
    run = {str(q): dict(zip(names, row, strict=True)) for q, row in enumerate(scores.tolist())}
    gains = {grade: 2**grade - 1 for grade in range(6)}
    measure = measures.nDCG(gains=gains) @ k
    theirs = {one.query_id: one.value for one in measures.iter_calc([measure], judged, run)}
    ours = metrics.ndcg(torch.from_numpy(scores), torch.from_numpy(grades), k=k).tolist()
    assert [theirs[str(q)] for q in range(30)] == pytest.approx(ours, abs=1e-12)


def test_without_a_relevant_item_ir_measures_has_0_where_ndcg_is_undefined() -> None:
    measures = pytest.importorskip("ir_measures")
    judged, run = {"q": {"a": 0, "b": 0}}, {"q": {"a": 2.0, "b": 1.0}}
    (theirs,) = measures.iter_calc([measures.nDCG @ 2], judged, run)
    assert theirs.value == 0
    assert metrics.ndcg(torch.tensor([[2.0, 1.0]]), torch.zeros(1, 2), k=2).isnan().all()
