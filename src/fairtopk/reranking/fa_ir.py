"""FA*IR (Zehlike et al., 2017): no prefix of the top K has too few protected items.

If each item is protected with probability p, a prefix of i items has Binomial(i, p) of them. It
is unfair if it has fewer than m(i), the alpha_c-quantile. Every prefix is tested, so alpha_c is
chosen such that an order made by a fair process fails somewhere with probability alpha.
"""

from functools import partial
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.threads import run_all
from fairtopk.reranking.lists import Candidates, FairPrefixes, Outcome, reordered

ROUNDING = 1e-10  # of alpha: a sum that should equal it may be off by so much
NARROW = 1e-9  # of a level: steps that are nearer to each other may be one, but for rounding
CLOSEST, CONSERVATIVE, UNADJUSTED = 0, 1, 2
RULES = {"closest": CLOSEST, "conservative": CONSERVATIVE, "none": UNADJUSTED}


@compiled
def minimum_counts(k: int, p: float, alpha: float) -> NDArray[np.int64]:
    """Return the least m with P(Binomial(i, p) <= m) >= alpha for i from 1 to k, ``[k]``."""
    counts = np.zeros(k, np.int64)
    if p >= 1.0:
        for i in range(1, k + 1):
            counts[i - 1] = i
        return counts
    wanted = alpha * (1.0 - ROUNDING)
    # P(X = m) and P(X <= m), carried from i - 1 to i and, where m rises, from m to m + 1. It
    # rises by one at most, as a single trial does.
    m, chance, below = 0, 1.0, 1.0
    for i in range(1, k + 1):
        below -= p * chance
        chance *= (1.0 - p) * i / (i - m)
        if below < wanted:
            chance *= p / (1.0 - p) * (i - m) / (m + 1)
            below += chance
            m += 1
        counts[i - 1] = m
    return counts


@compiled
def failure(counts: NDArray[np.int64], p: float) -> float:
    """Return the probability that some prefix of i items has fewer than ``counts[i - 1]``.

    Each item is protected with probability p, whatever the others are.
    """
    enough = 0  # so many never fail any more
    for count in counts:
        enough = max(enough, count)
    chance = np.zeros(enough + 1, np.float64)  # of each number of protected items so far
    chance[0] = 1.0
    failed, least = 0.0, 0
    for i in range(1, len(counts) + 1):
        for count in range(min(i, enough), least, -1):
            chance[count] = chance[count] * (1.0 - p) + chance[count - 1] * p
        chance[least] *= 1.0 - p
        while least < counts[i - 1]:
            failed += chance[least]
            chance[least] = 0.0
            least += 1
    return failed


@compiled
def adjusted_counts(
    k: int, p: float, alpha: float, rule: int
) -> tuple[NDArray[np.int64], float]:
    """Return the `minimum_counts` that fail with probability alpha, and their own level.

    Failure is a step function of the level, so alpha lies between two steps in general: it is
    the lower one by `CONSERVATIVE`, the one nearest to alpha by `CLOSEST`. `UNADJUSTED` takes
    alpha for the level.
    """
    high, high_level = minimum_counts(k, p, alpha), alpha
    if rule == UNADJUSTED:
        return high, high_level
    high_failure, allowed = failure(high, p), alpha * (1.0 + ROUNDING)
    if high_failure <= allowed:
        return high, high_level
    low, low_level, low_failure = np.zeros(k, np.int64), 0.0, 0.0
    while high.sum() - low.sum() > 1 and high_level - low_level > NARROW * high_level:
        level = (low_level + high_level) / 2.0
        counts = minimum_counts(k, p, level)
        failed = failure(counts, p)
        if failed <= allowed:
            low, low_level, low_failure = counts, level, failed
        else:
            high, high_level, high_failure = counts, level, failed
    if rule == CONSERVATIVE or alpha - low_failure <= high_failure - alpha:
        return low, low_level
    return high, high_level


@compiled
def fill_fair_prefixes(
    scores: NDArray[np.floating],
    protected: NDArray[np.bool_],
    n_items: NDArray[np.int64],
    counts: NDArray[np.int64],
    row: NDArray[np.int64],
    order: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Fill `order` with the best order that has its counts; return which lists have them.

    A list that runs out of protected items goes on with the others. If scores are equal, a
    protected item comes first.

    Args:
        scores: By place, never rising, ``[Q, L]``.
        protected: By place, ``[Q, L]``.
        n_items: Places of each list that are no padding, ``[Q]``.
        counts: Least numbers of protected items in prefixes, ``[n_tables, K]``.
        row: Which of the tables is that of a list, ``[Q]``.
        order: The old place of the item at each new place, ``[Q, L]``.
    """
    met = np.ones(len(n_items), np.bool_)
    for query in range(len(n_items)):
        n, inside, taken = n_items[query], protected[query], 0
        first = other = 0  # the best place left of a protected item, and of any other
        for place in range(n):
            while first < n and not inside[first]:
                first += 1
            while other < n and inside[other]:
                other += 1
            least = counts[row[query], place] if place < counts.shape[1] else 0
            if first < n and (
                taken < least or other >= n or scores[query, first] >= scores[query, other]
            ):
                order[query, place] = first
                first += 1
                taken += 1
            else:
                order[query, place] = other
                other += 1
            met[query] &= taken >= least
        for place in range(n, order.shape[1]):
            order[query, place] = place
    return met


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
        p: Target share of protected items, between 0 and 1.
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
    if adjust not in list(RULES):
        raise InputError(f"adjust must be closest, conservative or none, got {adjust!r}")
    counts, alpha_c = adjusted_counts(k, p, alpha, RULES[adjust])
    return PrefixTable(counts, alpha_c, failure(counts, p))


def fair_prefixes(lists: Candidates, k: int, settings: FairPrefixes) -> Outcome:
    """Return the lists in the best order whose prefixes have enough items of the group."""
    n_items, n_protected = lists.mask.sum(-1), (lists.group == settings.group).sum(-1)
    # Lists of one length, or of one length and share, have one table of counts.
    keys = torch.stack([n_items.clamp(max=k), n_protected, n_items], dim=-1)
    if settings.p is not None:
        keys[:, 1:] = 0
    distinct, row = np.unique(keys.numpy(), axis=0, return_inverse=True)
    row, rule, work = row.reshape(-1), RULES[settings.adjust], []
    for length, protected, items in distinct.tolist():
        p = settings.p if settings.p is not None else protected / max(items, 1)
        work.append(partial(adjusted_counts, length, p, settings.alpha, rule))
    tables = run_all(work)
    counts = np.zeros((len(tables), int(keys[:, 0].max())), np.int64)
    for number, (values, _) in enumerate(tables):
        counts[number, : len(values)] = values

    def why(query: int) -> str:
        needed = counts[row[query]].max()
        return (
            f"has {n_protected[query]} items of {lists.called(settings.group)} where its top "
            f"{min(k, int(n_items[query]))} needs {needed}; lower p, alpha or k"
        )

    slot, met = reordered(
        lists,
        lambda places, order: fill_fair_prefixes(
            places.scores,
            places.group == settings.group,
            places.n_items,
            *(counts, row[places.rows], order),
        ),
    )
    return Outcome(slot, met, why)
