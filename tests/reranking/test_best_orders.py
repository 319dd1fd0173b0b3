"""With two groups the orders are the best that have what is asked for, by enumeration."""

from itertools import permutations
from math import floor

import numpy as np
import pytest

import fairtopk as ft
from fairtopk.reranking import prefix_table

N = 7
DISCOUNT = 1 / np.log2(2 + np.arange(N))


def best_dcg(scores: np.ndarray, groups: np.ndarray, least: np.ndarray) -> float:
    """The largest DCG of an order that has `least` items of each group, ``[2, k]``."""
    k = least.shape[1]
    orders = np.array(list(permutations(range(N), k)))
    counts = np.stack([(groups[orders] == one).cumsum(-1) for one in (0, 1)], axis=1)
    allowed = (counts >= least).all((1, 2))
    return float((scores[orders[allowed]] @ DISCOUNT[:k]).max())


def lists(seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    rng = np.random.default_rng(seed)
    groups = rng.permutation([0] * 3 + [1] * 4)
    return rng.random(N) - 0.3 * (groups == 0), groups, int(rng.integers(3, N + 1))


@pytest.mark.parametrize("method", ["det-greedy", "det-const-sort"])
@pytest.mark.parametrize("seed", range(8))
def test_no_order_with_these_floors_has_a_larger_dcg(method: str, seed: int) -> None:
    scores, groups, k = lists(seed)
    if method == "det-const-sort":
        k = N  # of a shorter top it chooses the items by their floors behind it as well
    fair = ft.rerank(scores[None], groups[None], method=method, k=k)
    places = range(1, k + 1)
    least = [[floor(i * size / N + 1e-9) for i in places] for size in (3, 4)]
    found = scores[fair.slot[0, :k].numpy()] @ DISCOUNT[:k]
    assert found == pytest.approx(best_dcg(scores, groups, np.array(least)))


@pytest.mark.parametrize("seed", range(8))
def test_no_order_that_passes_its_table_has_a_larger_dcg(seed: int) -> None:
    scores, groups, k = lists(seed)
    options = {"p": 0.4, "alpha": 0.3, "adjust": "none"}
    fair = ft.rerank(scores[None], groups[None], method="fa-ir", k=k, **options)
    counts = prefix_table(k=k, **options).counts
    found = scores[fair.slot[0, :k].numpy()] @ DISCOUNT[:k]
    least = np.stack([counts, np.zeros_like(counts)])
    assert found == pytest.approx(best_dcg(scores, groups, least))
