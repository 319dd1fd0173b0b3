"""FA*IR (Zehlike et al., 2017): no prefix of the top K with too few protected items.

A prefix of i items needs m(i) protected ones, the alpha_c-quantile of Binomial(i, p). It is
tested at every i, so alpha_c is chosen such that an order made by a fair process, where each
item is protected with probability p, fails somewhere with probability alpha.
"""

from functools import partial
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.kernels.fair_prefixes import (
    adjusted_counts,
    failure,
    fill_fair_prefixes,
    minimum_counts,
)
from fairtopk.kernels.threads import run_all
from fairtopk.reranking.lists import Candidates, Outcome, Places, reordered
from fairtopk.reranking.settings import FairPrefixes


class PrefixTable(NamedTuple):
    """How many protected items every prefix needs at least.

    Attributes:
        counts: m(1) to m(k), ``[k]``.
        alpha_c: The level whose quantiles they are; any other level between two steps of the
            failure probability has the same counts.
        failure: The probability that an order made by a fair process fails.
    """

    counts: NDArray[np.int64]
    alpha_c: float
    failure: float


def prefix_table(*, k: int, p: float, alpha: float, adjust: str = "closest") -> PrefixTable:
    """Return how many protected items the prefixes of a top `k` need.

    Failure is a step function of alpha_c, so that no step need have probability `alpha`.

    Args:
        k: Length of the top, at least 1.
        p: Share of protected items that is asked for, between 0 and 1.
        alpha: Probability that a fair process fails, between 0 and 1.
        adjust: "closest" takes the step nearest to `alpha`, which may be above it, of those
            with an alpha_c up to `alpha`; "conservative" the largest step up to `alpha`;
            "none" the quantiles of `alpha` itself, with which each prefix fails with at most
            that probability, but all together more.

    Example:
        >>> table = prefix_table(k=10, p=0.2, alpha=0.15)
        >>> table.counts.tolist(), round(table.failure, 9)
        ([0, 0, 0, 0, 0, 0, 0, 0, 1, 1], 0.134217728)
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}")
    for name, value in {"p": p, "alpha": alpha}.items():
        if not isinstance(value, Real) or not 0 < value < 1:
            raise InputError(f"{name} must be a number between 0 and 1, got {value!r}")
    if adjust not in ("closest", "conservative", "none"):
        raise InputError(f"adjust must be closest, conservative or none, got {adjust!r}")
    counts, alpha_c = _counts(k, p, alpha, adjust)
    return PrefixTable(counts, alpha_c, failure(counts, p))


def fair_prefixes(lists: Candidates, k: int, settings: FairPrefixes) -> Outcome:
    """Return the lists in the best order whose prefixes have enough items of the group."""
    protected = lists.group == settings.group
    n_items, n_protected = lists.mask.sum(-1), protected.sum(-1)
    counts, row = _tables(n_items.clamp(max=k), n_items, n_protected, settings)

    def fill(places: Places, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        inside = places.group == settings.group
        rows = row[places.rows]
        return fill_fair_prefixes(places.scores, inside, places.n_items, counts, rows, order)

    def why(query: int) -> str:
        needed = counts[row[query]].max()
        return (
            f"has {n_protected[query]} items of {lists.called(settings.group)} where its top "
            f"{min(k, int(n_items[query]))} needs {needed}; lower p, alpha or k"
        )

    slot, met = reordered(lists, fill)
    return Outcome(slot, met, why)


def _tables(
    lengths: Tensor, n_items: Tensor, n_protected: Tensor, settings: FairPrefixes
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different tables of some lists, and which of them is that of each list.

    Args:
        lengths: Of the top of each list, ``[Q]``.
        n_items: Of each list, ``[Q]``.
        n_protected: Of each list, ``[Q]``.
        settings: If they name no p, it is the share of the protected items in a list.
    """
    keys = torch.stack([lengths, n_protected, n_items], dim=-1)
    if settings.p is not None:
        keys[:, 1:] = 0
    distinct, row = np.unique(keys.numpy(), axis=0, return_inverse=True)

    def table(length: int, protected: int, items: int) -> NDArray[np.int64]:
        p = settings.p if settings.p is not None else protected / max(items, 1)
        return _counts(length, p, settings.alpha, settings.adjust)[0]

    counts = np.zeros((len(distinct), int(lengths.max())), np.int64)
    found = run_all([partial(table, *key) for key in distinct.tolist()])
    for number, values in enumerate(found):
        counts[number, : len(values)] = values
    return counts, row.reshape(-1)


def _counts(k: int, p: float, alpha: float, adjust: str) -> tuple[NDArray[np.int64], float]:
    if adjust == "none":
        return minimum_counts(k, p, alpha), alpha
    return adjusted_counts(k, p, alpha, adjust == "conservative")
