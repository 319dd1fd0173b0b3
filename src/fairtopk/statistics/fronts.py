"""Trade-offs between relevance and fairness: points of (NDCG, gap), and the best of them.

A point dominates another if it has no less NDCG and no larger gap, and is better in one of
them. What no other dominates is the front.
"""

import math
from collections.abc import Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.arguments import checked_number, checked_whole, shown
from fairtopk.errors import InputError, KindError
from fairtopk.metrics.inputs import Values
from fairtopk.metrics.intervals import LEVELS, RESAMPLES
from fairtopk.statistics.inputs import Floats, doubles

ROUNDING = 1e-12  # by which the NDCG that is asked for may lie past the end of a front


class Front(NamedTuple):
    """Points that are means over seeds, and the front that they make.

    Attributes:
        ndcg: Mean over seeds, ``[P]``.
        gap: Mean over seeds, ``[P]``.
        ndcg_ci95: A 95 % interval of each, by bootstrap over seeds, ``[P, 2]``.
        gap_ci95: The same, ``[P, 2]``.
        on_front: Whether no other point dominates it, ``[P]``.
        share: Of the resamples, those in which it is on their front, ``[P]``.
        hypervolume: The area that the points dominate.
        ci95: A 95 % interval of it, by bootstrap over seeds.
        n_seeds: How many seeds all this rests on.
    """

    ndcg: Floats
    gap: Floats
    ndcg_ci95: Floats
    gap_ci95: Floats
    on_front: NDArray[np.bool_]
    share: Floats
    hypervolume: float
    ci95: tuple[float, float]
    n_seeds: int


def non_dominated(ndcg: Values, gap: Values) -> NDArray[np.bool_]:
    """Return which points are on the front, ``[P]``; equal points are so together.

    Args:
        ndcg: The higher the better, ``[P]``.
        gap: From 0, the lower the better, ``[P]``. A point with a NaN is never on the front.

    Example:
        >>> non_dominated([0.5, 0.4, 0.4], [0.2, 0.1, 0.3]).tolist()
        [True, True, False]
    """
    return _non_dominated(*_checked_points(ndcg, gap, dimensions=1))


def hypervolume(ndcg: Values, gap: Values, *, reference: tuple[float, float]) -> float:
    """Return the area between the points and a reference that is worse than they are.

    That is the area of all (NDCG, gap) that lie between the reference and at least one point.
    A point that is not better than the reference in both, or has a NaN, adds nothing.

    Args:
        ndcg: The higher the better, ``[P]``.
        gap: From 0, the lower the better, ``[P]``.
        reference: An NDCG and a gap; areas compare only where it is the same.

    Example:
        >>> hypervolume([4.0, 3.0], [2.0, 1.0], reference=(1.0, 3.0))
        5.0
    """
    points = _checked_points(ndcg, gap, dimensions=1)
    return float(_area(*points, reference=_checked_point("reference", reference)))


def cut_at_loss(ndcg: Values, gap: Values, *, loss: float, base: tuple[float, float]) -> float:
    """Return by which share of the base's gap a front cuts it, for a given loss of NDCG.

    The gap where NDCG is (1 - `loss`) times the base's is read off the straight lines between
    neighbours on the front. NaN where that NDCG is above the front's highest or below its
    lowest: nothing is extrapolated. The base is on the front only if it is one of the points.

    Args:
        ndcg: The higher the better, ``[P]``.
        gap: From 0, the lower the better, ``[P]``.
        loss: Share of the base's NDCG, 0.01 for 1 %.
        base: NDCG and gap of what is to be made fairer, both above 0.

    Example:
        >>> cut_at_loss([1.0, 0.5], [0.5, 0.25], loss=0.25, base=(1.0, 0.5))
        0.25
    """
    points = _checked_points(ndcg, gap, dimensions=1)
    base_ndcg, base_gap = _checked_point("base", base)
    if not (base_ndcg > 0 and base_gap > 0):
        raise InputError(f"base must have an NDCG and a gap above 0, got {base!r}")
    loss = checked_number("loss", loss, rule="a share from 0 to below 1")
    if not 0 <= loss < 1:
        raise InputError(f"loss must be a share from 0 to below 1, got {loss!r}")
    on_front = _non_dominated(*points)
    if not on_front.any():
        return math.nan
    # Falling NDCG is rising order of its negative, and equal points are one.
    negative, height = np.unique(np.stack([-points[0], points[1]])[:, on_front], axis=1)
    wanted = -base_ndcg * (1 - loss)
    if not negative[0] - ROUNDING <= wanted <= negative[-1] + ROUNDING:
        return math.nan
    return float(1 - np.interp(wanted, negative, height) / base_gap)


def front(ndcg: Values, gap: Values, *, reference: tuple[float, float], seed: int = 0) -> Front:
    """Return the front of points that are means over seeds, and what other seeds could give.

    Seeds are resampled whole, with all their points, 1,000 times. Few of them tell little: the
    interval of a mean over 2, 3, 5 or 10 seeds holds the true mean in about 50, 75, 84 or 90 %
    of all cases, not in 95 %, and with up to 3 seeds it is the range of what was seen. One seed
    tells nothing: intervals and shares are NaN.

    Args:
        ndcg: By seed and point, such as a value of C; the higher the better, ``[S, P]``.
        gap: From 0, the lower the better, ``[S, P]``. A point that is NaN for some seed is NaN.
        reference: As of `hypervolume`.
        seed: Of the resamples.
    """
    columns = _checked_points(ndcg, gap, dimensions=2)
    worst = _checked_point("reference", reference)
    seed = checked_whole("seed", seed, least=0)
    mean_ndcg, mean_gap = (values.mean(0) for values in columns)
    n_seeds = len(columns[0])
    chances = np.full(n_seeds, 1 / n_seeds)
    drawn = np.random.default_rng(seed).multinomial(n_seeds, chances, RESAMPLES) / n_seeds
    ndcgs, gaps = (drawn @ values for values in columns)
    areas = _area(ndcgs, gaps, reference=worst)
    known = 1.0 if n_seeds > 1 else np.nan
    low, high = (known * np.quantile(areas, LEVELS)).tolist()
    return Front(
        ndcg=mean_ndcg,
        gap=mean_gap,
        ndcg_ci95=known * np.quantile(ndcgs, LEVELS, axis=0).T,
        gap_ci95=known * np.quantile(gaps, LEVELS, axis=0).T,
        on_front=_non_dominated(mean_ndcg, mean_gap),
        share=known * _non_dominated(ndcgs, gaps).mean(0),
        hypervolume=float(_area(mean_ndcg, mean_gap, reference=worst)),
        ci95=(low, high),
        n_seeds=n_seeds,
    )


def _non_dominated(ndcg: Floats, gap: Floats) -> NDArray[np.bool_]:
    """Return which points are on the front of their row, ``[..., P]``."""
    given = ~np.isnan(ndcg + gap)
    loss, gap = np.where(given, -ndcg, np.inf), np.where(given, gap, np.inf)
    # From the highest NDCG down, of equal ones from the lowest gap up, a point is on the front
    # if its gap is lower than all before it, or if it equals one that is.
    order = np.lexsort((gap, loss), axis=-1)
    loss, gap = (np.take_along_axis(values, order, -1) for values in (loss, gap))
    lowest = np.minimum.accumulate(gap, axis=-1)
    first, is_new = np.isfinite(gap), np.ones_like(given)
    first[..., 1:] = gap[..., 1:] < lowest[..., :-1]
    is_new[..., 1:] = (gap[..., 1:] != gap[..., :-1]) | (loss[..., 1:] != loss[..., :-1])
    equal = np.maximum.accumulate(np.where(is_new, np.arange(gap.shape[-1]), 0), axis=-1)
    on_front = np.empty_like(given)
    np.put_along_axis(on_front, order, np.take_along_axis(first, equal, -1), -1)
    return on_front


def _area(ndcg: Floats, gap: Floats, *, reference: tuple[float, float]) -> Floats:
    """Return the area that the points of each row dominate, ``[...]``."""
    worst_ndcg, worst_gap = reference
    given = ~np.isnan(ndcg + gap)
    ndcg = np.where(given, np.maximum(ndcg, worst_ndcg), worst_ndcg)
    gap = np.where(given, np.minimum(gap, worst_gap), worst_gap)
    falling = np.argsort(-ndcg, axis=-1)
    ndcg, gap = (np.take_along_axis(values, falling, -1) for values in (ndcg, gap))
    # Between the NDCG of a point and that of the next lower one, the area reaches down to the
    # smallest gap of the points so far.
    width = -np.diff(ndcg, axis=-1, append=worst_ndcg)
    height = worst_gap - np.minimum.accumulate(gap, axis=-1)
    area: Floats = (width * height).sum(-1)
    return area


def _checked_points(ndcg: Values, gap: Values, *, dimensions: int) -> tuple[Floats, Floats]:
    first, second = doubles(ndcg, "ndcg"), doubles(gap, "gap")
    if first.shape != second.shape or first.ndim != dimensions or first.size == 0:
        wanted = (
            "one value per point" if dimensions == 1 else "a row per seed, a value per point"
        )
        raise InputError(
            f"ndcg and gap must have {wanted}, got shapes {list(first.shape)} and "
            f"{list(second.shape)}"
        )
    if np.isinf(first).any() or np.isinf(second).any():
        raise InputError("ndcg and gap must be finite, or NaN where undefined, got inf")
    if (second < 0).any():
        lowest = np.nanmin(second)
        raise InputError(f"gap must be at least 0, not signed, got {lowest:g}")
    return first, second


def _checked_point(name: str, given: tuple[float, float]) -> tuple[float, float]:
    rule = "an NDCG and a gap, such as (0.3, 0.1)"
    try:
        ndcg, gap = () if isinstance(given, Set | str | bytes) else tuple(given)
    except (TypeError, ValueError, RuntimeError):
        raise KindError(f"{name} must be {rule}, got {shown(given)}") from None
    return checked_number(name, ndcg, rule=rule), checked_number(name, gap, rule=rule)
