"""How widely the scores of a list are spread.

Softmax exposure shrinks when scores get flatter, with the order unchanged. So a softmax gap is
read beside the spread of the scores, or at a temperature that gives two models one entropy.
"""

import math

import torch
from torch import Tensor

from fairtopk.checks import checked_number
from fairtopk.errors import InputError
from fairtopk.tensors import Values, by_blocks, checked_scores

SMALLEST_SPREAD = 1e-6
# exp(-30) of the widest list's range: past it, temperatures change nothing float64 could hold.
LOG_REACH = 30.0
LOG_PRECISION = 1e-10


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
    return by_blocks(_entropy, *checked_scores(scores, mask))


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
    least, most = (_mean_entropy(held, valid, end)[0] for end in (low, high))
    if not least < target < most:
        raise InputError(
            f"target must lie between {least:g} and {most:g}, the mean entropies that "
            f"temperatures can give these lists, got {target:g}"
        )
    guess = min(max(0.0, low), high)
    while high - low > LOG_PRECISION:
        found, slope = _mean_entropy(held, valid, guess)
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


def _entropy(scores: Tensor, mask: Tensor) -> Tensor:
    exposure = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    terms: Tensor = torch.special.entr(exposure)  # -e log e, and 0 at 0
    return terms.sum(-1)


def _mean_entropy(scores: Tensor, mask: Tensor, log_temperature: float) -> tuple[float, float]:
    """Return the mean entropy of lists, and its slope along the log of the temperature.

    With x = h / t and exposure e = softmax(x), dH / d log t is the variance of x under e.
    """

    def measure(scores: Tensor, mask: Tensor) -> Tensor:
        scaled = (scores / math.exp(log_temperature)).masked_fill(~mask, -torch.inf)
        exposure = scaled.softmax(-1)
        held = scaled.masked_fill(~mask, 0)
        mean = (exposure * held).sum(-1, keepdim=True)
        variance = (exposure * (held - mean) ** 2).sum(-1)
        return torch.stack([torch.special.entr(exposure).sum(-1), variance], -1)

    found, slope = by_blocks(measure, scores, mask).nanmean(0).tolist()
    return found, slope
