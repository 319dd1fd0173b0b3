"""Other metrics of lists: AWRF, NDKL, the AUC of a group, and how widely scores are spread.

Attention-weighted rank fairness: whoever has come to a place gives it the share p of the
attention that is left, so that the place of rank r has p (1 - p)^(r - 1).

NDKL: how far the groups in each prefix of a list are from those in the whole list.

Group AUC: how well the scores of a list tell one group from the others.

Softmax exposure shrinks when scores get flatter, with the order unchanged. So a softmax gap is
read together with the spread of the scores, or at a temperature that gives two models one
entropy.
"""

import math
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.checks import checked_number, checked_whole
from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.ranking import Work, rank_row, room_for, top_of
from fairtopk.kernels.sums import Doubles, Floats, Whole, discounts
from fairtopk.metrics.gaps import checked_lists, largest_gap, measured_at, rank_exposure
from fairtopk.tensors import Values, by_blocks, checked_scores
from fairtopk.terminal import shown

SMALLEST_SPREAD = 1e-6
# exp(-30) of the widest list's range: past it, temperatures change nothing float64 could hold.
LOG_REACH = 30.0
LOG_PRECISION = 1e-10


def awrf(
    scores: Values, groups: Values, *, k: int, p: float = 0.5, mask: Values | None = None
) -> Tensor:
    """Return the difference between groups in mean attention in the top `k`, per list.

    A group's mean attention is the sum of p (1 - p)^(rank - 1) over its items in the top `k`,
    over its size in the whole list. The target is that all groups have the same, so that
    attention is shared as items are. With three or more groups it is the largest difference
    between two that the list has. For the whole list, times 100, this is AWRF (Sapiezynski and
    others, 2019) as the package FairRankTune has it with ``MaxMinDiff``.

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the top of the list; from L on it is the whole list.
        p: Share of attention that the first place has, above 0 and at most 1.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``, in [0, p]; NaN where a list lacks two groups.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> awrf(scores, groups, k=3)
        tensor([0.2500])
    """
    lists = checked_lists(scores, groups, mask)
    worth = _attention(p, lists.scores.shape[1])
    return measured_at(lambda tops: largest_gap(rank_exposure(tops)), lists, k, worth=worth)


def group_attentions(
    scores: Values, groups: Values, *, k: int, p: float = 0.5, mask: Values | None = None
) -> Tensor:
    """Return each group's mean attention in the top `k`, ``[Q, G]``; NaN where absent.

    Definition and arguments are those of `awrf`. Items of unknown group, if there are any, have
    one more column, the last, as in `group_exposures`.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> group_attentions(scores, groups, k=3)
        tensor([[0.1250, 0.3750]])
    """
    lists = checked_lists(scores, groups, mask, count_unknown=True)
    worth = _attention(p, lists.scores.shape[1])
    return measured_at(rank_exposure, lists, k, worth=worth)


def _attention(p: float, places: int) -> Doubles:
    rule = "a number above 0 and at most 1"
    share = checked_number("p", p, rule=rule)
    if not 0 < share <= 1:
        raise InputError(f"p must be {rule}, got {shown(p)}")
    return share * np.power(1 - share, np.arange(places), dtype=np.float64)


@compiled
def _mean_divergences(
    scores: Floats,
    mask: NDArray[np.bool_],
    group: Whole,
    n_groups: int,
    worth: Doubles,
    work: Work,
) -> Doubles:
    """Return the mean divergence of the prefixes of each list; `worth` is what each weighs."""
    n_queries, n_slots = scores.shape
    found = np.full(n_queries, np.nan)
    size, inside = np.zeros(n_groups, np.int64), np.zeros(n_groups, np.int64)
    log = np.zeros(n_slots + 2)  # of 0 it is 0: a group that is not there adds nothing
    for number in range(2, len(log)):
        log[number] = math.log(number)
    for row in range(n_queries):
        size[:], inside[:], n_known = 0, 0, 0
        for slot in range(n_slots):
            work.row[slot] = scores[row, slot] if mask[row, slot] else -np.inf
            if group[row, slot] >= 0:
                size[group[row, slot]] += 1
                n_known += 1
        if size.max() == n_known:
            continue
        total, weight, surprise, m = 0.0, 0.0, 0.0, 0
        for place in range(rank_row(work, n_slots, len(worth))):
            one = group[row, work.column[0, place]]
            if one >= 0:
                # With m_g of m items, the divergence is
                # sum_g m_g (log m_g - log share_g) / m - log m: only one term changes.
                before = inside[one]
                surprise += (before + 1) * log[before + 1] - before * log[before]
                surprise -= log[size[one]] - log[n_known]
                inside[one] += 1
                m += 1
            if m > 0:
                total += worth[place] * max(surprise / m - log[m], 0.0)
                weight += worth[place]
        if weight > 0:
            found[row] = total / weight
    return found


def ndkl(scores: Values, groups: Values, *, k: int, mask: Values | None = None) -> Tensor:
    """Return the normalised discounted divergence of the first `k` prefixes of each list.

    With D_i the shares of the groups among the first i items and D those in the whole list,
    which are the target,

        NDKL = (1 / Z) sum over i up to k of KL(D_i, D) / log2(1 + i),

    where KL is the sum of D_i log(D_i / D) over groups, in nats, and Z the sum of
    1 / log2(1 + i). It is 0 where every prefix has the groups of the whole list (Geyik, Ambler
    and Kenthapadi, 2019). The package FairRankTune adds 1e-7 to every share, which changes it
    by some 1e-6.

    An item of unknown group takes its rank and counts in no share; prefixes without a known
    item are left out, of Z too.

    Args:
        scores: Model scores, ``[Q, L]``; of equal scores the earlier slot ranks first.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        k: Length of the longest prefix; from L on it is the whole list.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``, from 0 to the logarithm of one over the smallest group's share; NaN where a
        list lacks two groups or its top `k` a known item.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
        >>> ndkl(scores, groups, k=3)
        tensor([0.3103])
    """
    lists, depth = checked_lists(scores, groups, mask), checked_whole("k", k, least=1)
    n_slots = lists.scores.shape[1]
    worth = discounts(min(depth, n_slots))

    def block(*tensors: Tensor) -> Tensor:
        scores, mask, group = (tensor.contiguous().cpu().numpy() for tensor in tensors)
        work = room_for(n_slots, scores.dtype)
        found = _mean_divergences(scores, mask, group, lists.n_groups, worth, work)
        return torch.from_numpy(found).to(tensors[0])

    return by_blocks(block, lists.scores, lists.mask, lists.group)


def group_auc(scores: Values, groups: Values, *, mask: Values | None = None) -> Tensor:
    """Return how well each list's scores tell the named group from the rest, ``[Q]``.

    It is the area under the ROC curve of the scores as a guess of the group: the share of pairs
    of an item of group 0 and one of another known group in which the first has the higher
    score, equal scores counting half. At 0.5 scores tell nothing; at 1 the named group is on
    top, at 0 at the bottom, and both give it away alike. Only the order of scores counts.

    Args:
        scores: Model scores, ``[Q, L]``.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark the named group.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``, in [0, 1]; NaN where group 0 or the rest is absent.

    Example:
        >>> import torch
        >>> scores, groups = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 1]])
        >>> group_auc(scores, groups), group_auc(torch.zeros(1, 3), groups)
        (tensor([1.]), tensor([0.5000]))
    """
    lists = checked_lists(scores, groups, mask)
    n_slots = lists.scores.shape[1]

    def block(*tensors: Tensor) -> Tensor:
        scores, mask, group = (tensor.contiguous().cpu().numpy() for tensor in tensors)
        known = np.where(mask & (group >= 0), scores, scores.dtype.type(-np.inf))
        top = top_of(known, n_slots, log_sums=False)
        there = top.column >= 0
        named = there & (np.take_along_axis(group, np.maximum(top.column, 0), -1) == 0)
        others = there & ~named
        # Of each place, the first and the last one with an equal score.
        place, begins = np.arange(n_slots), np.ones(named.shape, np.bool_)
        begins[:, 1:] = top.scores[:, 1:] != top.scores[:, :-1]
        ends = np.append(begins[:, 1:], np.ones((len(scores), 1), np.bool_), axis=-1)
        first = np.maximum.accumulate(np.where(begins, place, 0), axis=-1)
        last = np.minimum.accumulate(np.where(ends, place, n_slots)[:, ::-1], axis=-1)[:, ::-1]
        through = named.cumsum(-1)
        ahead = np.take_along_axis(through - named, first, -1)
        won = ahead + np.take_along_axis(through, last, -1)  # halves of pairs
        pairs = named.sum(-1) * others.sum(-1)
        found = (won * others).sum(-1) / np.where(pairs > 0, 2.0 * pairs, np.nan)
        return torch.from_numpy(found).to(tensors[0])

    return by_blocks(block, lists.scores, lists.mask, lists.group)


def score_spread(scores: Values, *, mask: Values | None = None) -> Tensor:
    """Return the population standard deviation of each list's scores, at least 1e-6, ``[Q]``.

    Args:
        scores: Model scores, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Returns:
        ``[Q]``; NaN for a list without items.

    Example:
        >>> import torch
        >>> score_spread(torch.tensor([[1.0, 3.0], [2.0, 2.0]]))
        tensor([1.0000e+00, 1.0000e-06])
    """
    return by_blocks(_spread, *checked_scores(scores, mask))


def entropy(scores: Values, *, mask: Values | None = None) -> Tensor:
    """Return the entropy of each list's softmax in nats, ``[Q]``; NaN without items.

    It goes from 0, one item has all exposure, to log n, all n items have the same.

    Example:
        >>> import torch
        >>> entropy(torch.tensor([[5.0, 5.0], [900.0, 0.0]]))
        tensor([0.6931, 0.0000])
    """
    return by_blocks(
        lambda held, valid: torch.special.entr(
            held.masked_fill(~valid, -torch.inf).softmax(-1)
        ).sum(-1),
        *checked_scores(scores, mask),
    )


def matched_temperature(scores: Values, *, target: float, mask: Values | None = None) -> float:
    """Return the temperature t for which the mean entropy of ``scores / t`` is `target`.

    One temperature for all lists keeps every order. Mean entropy rises with t, so log t is
    found by Newton's steps within an interval, to ten digits. Lists without items are left out.

    Args:
        scores: Model scores, ``[Q, L]``.
        target: Mean entropy to reach, for example ``entropy(other_scores).mean()``.
        mask: False on padding, ``[Q, L]``; left out, there is none.

    Raises:
        InputError: No temperature gives `target`: it is not above the mean log number of items
            that share the highest score, or not below the mean log n.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[1.0, 0.5, -2.0]])
        >>> round(matched_temperature(scores / 4, target=float(entropy(scores))), 4)
        0.25
    """
    lists, valid = checked_scores(scores, mask)
    target = checked_number("target", target)
    if not valid.any():
        raise InputError("mask must leave an item in at least one list, got only False")
    held = lists.double()
    high_score = held.masked_fill(~valid, -torch.inf).amax(-1)
    low_score = held.masked_fill(~valid, torch.inf).amin(-1)
    widest = float((high_score - low_score).amax())
    centre = math.log(widest) if widest > 0 else 0.0
    low, high = centre - LOG_REACH, centre + LOG_REACH

    def mean_entropy(log_temperature: float) -> tuple[float, float]:
        measure = partial(_entropy_and_slope, temperature=math.exp(log_temperature))
        found, slope = by_blocks(measure, held, valid).nanmean(0).tolist()
        return found, slope

    least, most = mean_entropy(low)[0], mean_entropy(high)[0]
    if not least < target < most:
        raise InputError(
            f"target must lie between {least:g} and {most:g}, the mean entropies that "
            f"temperatures can give these lists, got {target:g}"
        )
    guess = min(max(0.0, low), high)
    while high - low > LOG_PRECISION:
        found, slope = mean_entropy(guess)
        step = (target - found) / slope if slope > 0 else math.inf
        if abs(step) <= LOG_PRECISION:
            break
        low, high = (guess, high) if found < target else (low, guess)
        guess = guess + step if low < guess + step < high else (low + high) / 2
    return math.exp(guess)


def _spread(scores: Tensor, mask: Tensor) -> Tensor:
    n = mask.sum(-1, keepdim=True)  # 0 / 0 is NaN
    mean = scores.masked_fill(~mask, 0).sum(-1, keepdim=True) / n
    deviation = (scores - mean).masked_fill(~mask, 0)
    return ((deviation**2).sum(-1) / n[:, 0]).sqrt().clamp(min=SMALLEST_SPREAD)


def _entropy_and_slope(scores: Tensor, mask: Tensor, *, temperature: float) -> Tensor:
    """Return the entropy of each list, and its slope along the log of t, ``[Q, 2]``.

    With x = h / t and exposure e = softmax(x), dH / d log t is the variance of x under e.
    """
    scaled = (scores / temperature).masked_fill(~mask, -torch.inf)
    exposure = scaled.softmax(-1)
    held = scaled.masked_fill(~mask, 0)
    mean = (exposure * held).sum(-1, keepdim=True)
    variance = (exposure * (held - mean) ** 2).sum(-1)
    return torch.stack([torch.special.entr(exposure).sum(-1), variance], -1)
