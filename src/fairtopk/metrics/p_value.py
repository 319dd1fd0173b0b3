"""Whether a systematic gap could be chance: a permutation test.

The signed gap, averaged over lists, tells who is favoured. If labels had nothing to do with the
order, shuffling the known ones within each list would give means like it. p is how often they
are at least as far from what shuffling gives on average, add-one: the observed mean is counted
as one of the shuffled.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fairtopk.arguments import checked_choice, checked_ks, checked_whole
from fairtopk.metrics.grouped import NOTIONS, named_gap
from fairtopk.metrics.inputs import Values
from fairtopk.metrics.shuffled import (
    Labelled,
    labelled_lists,
    log_choose,
    over_shuffles,
    tops_of_labelled,
)
from fairtopk.metrics.tops import Tops

RELEASED = "exposure_gap_released"
SHUFFLES = 999
SHUFFLES_AT_ONCE = 64
ROUNDING = 1e-12  # gaps are at most 1; closer ones are the same


class PValue(NamedTuple):
    """How likely chance alone makes a mean signed gap this far from what it should be.

    Attributes:
        p: From 1 / (shuffles + 1) to 1; NaN where no list has both sides.
        gap: The mean signed gap: group 0 minus the rest.
        expected: Its exact mean under shuffled labels: 0, but for the released gap, which
            favours the larger group by itself.
        shuffles: Of each list; 0 where no list has both sides.
    """

    p: float
    gap: float
    expected: float
    shuffles: int


def gap_p_value(
    scores: Values,
    groups: Values,
    *,
    k: int,
    mask: Values | None = None,
    metric: str = "exposure_gap",
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> PValue:
    """Return the p-value that a mean signed gap this large in size is chance.

    The gap is that of `exposure_gap` and its kin with ``signed=True``: group 0 minus all other
    known groups taken together. Lists without both sides are left out. The test is two-sided:
    with T the mean over lists, T_1 to T_B those of the shuffles, and c what is expected of them
    (0, but for the released gap), p = (1 + number of b with |T_b - c| >= |T - c|) / (1 + B).

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the top of the list; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.
        metric: "exposure_gap", "exposure_gap_released", "rank_exposure_gap" or
            "representation_gap".
        shuffles: B; p is never below 1 / (B + 1).
        seed: Of the shuffles.

    Example:
        >>> import torch
        >>> scores, groups = torch.arange(40.0).expand(5, 40), torch.ones(5, 40).long()
        >>> groups[:, 30:] = 0  # the ten best
        >>> found = gap_p_value(scores, groups, k=10, metric="representation_gap")
        >>> found.p, found.gap
        (0.001, 1.0)
    """
    checked_choice("metric", metric, NOTIONS)
    ks = (checked_whole("k", k, least=1),)
    lists = labelled_lists(scores, groups, mask, ks=ks, named=True)
    return _p_values(lists, [metric], ks, shuffles, seed)[0]


def gap_p_values(
    scores: Values,
    groups: Values,
    *,
    ks: Sequence[int],
    mask: Values | None = None,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> dict[str, PValue]:
    """Return `gap_p_value` of every gap at every K, from one set of shuffles.

    The keys are names like ``exposure_gap_p@50``.
    """
    distinct = checked_ks(ks)
    lists = labelled_lists(scores, groups, mask, ks=distinct, named=True)
    names = [f"{metric}_p@{k}" for metric in NOTIONS for k in distinct]
    found = _p_values(lists, list(NOTIONS), distinct, shuffles, seed)
    return dict(zip(names, found, strict=True))


def _p_values(
    lists: Labelled, metrics: Sequence[str], ks: Sequence[int], shuffles: int, seed: int
) -> list[PValue]:
    """Return the p-value of each metric at each of `ks`, metric by metric."""
    seed = checked_whole("seed", seed, least=0)
    shuffles = checked_whole("shuffles", shuffles, least=1)
    n_lists = len(lists.group)
    if n_lists == 0:
        return [PValue(torch.nan, torch.nan, torch.nan, 0)] * (len(metrics) * len(ks))

    def total(tops: Tops) -> Tensor:
        gaps = [named_gap(NOTIONS[metric](tops)) for metric in metrics]
        return torch.cat(gaps, dim=-1).sum(0)

    own = tops_of_labelled(lists, ks)
    observed = total(own) / n_lists
    expected = torch.cat([_expected(metric, own) for metric in metrics])
    means = []
    for first in range(0, shuffles, SHUFFLES_AT_ONCE):
        rounds = min(SHUFFLES_AT_ONCE, shuffles - first)
        parts = over_shuffles(total, lists, ks, rounds=rounds, first_round=first, seed=seed)
        means.append(torch.stack(parts).sum(0) / n_lists)
    distance = (torch.cat(means) - expected).abs()
    as_far = distance >= (observed - expected).abs() - ROUNDING
    p = (1 + as_far.sum(0)).double() / (1 + shuffles)
    rows = zip(p.tolist(), observed.tolist(), expected.tolist(), strict=True)
    return [PValue(*row, shuffles) for row in rows]


def _expected(metric: str, tops: Tops) -> Tensor:
    """Return the mean over all shuffles and lists of a signed gap, at each K.

    Each known item is as likely as any to be in group 0, so the groups' means are expected to
    be the same. But the released exposure is 0 for a group with no item in the top, which is
    likelier for the smaller one; else it is expected to be the mean over known items there.
    """
    if metric != RELEASED:
        return torch.zeros(tops.members.shape[-1], dtype=torch.float64)
    known, total = tops.members.sum(1), tops.size.sum(1)
    mean = tops.exposure.sum(1) / tops.everyone[:, 0] / known.clamp(min=1)
    # Of the items of both groups, all in the top are of the other.
    absent = log_choose(tops.size.flip(1), known[:, None]) - log_choose(total, known)[:, None]
    return -named_gap(absent.exp() * mean[:, None]).mean(0)
