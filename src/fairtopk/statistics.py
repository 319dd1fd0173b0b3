"""Comparing results: two runs query by query, many tests at once, fronts of trade-offs.

The paired randomisation test (Fisher) asks how often the mean difference would be as far from 0
if it did not matter which of the two values came from which run: each query's difference keeps
its size, and its sign is drawn at random. Holm's correction is for p-values of many tests, some
of which are small by chance.

A point of (NDCG, gap) dominates another if it has no less NDCG and no larger gap, and is better
in one of them. Points that no other dominates are the front.
"""

import math
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.checks import checked_number, checked_whole
from fairtopk.errors import InputError, KindError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.threads import run_all
from fairtopk.metrics.intervals import LEVELS, RESAMPLES, means_with_intervals
from fairtopk.tensors import Floats, Values, doubles
from fairtopk.terminal import shown

PAST_END = 1e-12  # by which the wanted NDCG may lie past the end of a front
BITS, VALUES = 8, 256  # of a byte
FLIPS = 10_000
FLIPPED_AT_ONCE = 2**22  # signs that come from one stream
DRAWS_AT_ONCE = 512  # that share the work of adding up, at least
ROUNDING = 1e-12  # of the sum of sizes, by which the order of summing may change a sum
__all__ = [
    "Difference",
    "Front",
    "cut_at_loss",
    "front",
    "holm",
    "hypervolume",
    "non_dominated",
    "paired_difference",
    "paired_differences",
]


def holm(p_values: Values | Sequence[float]) -> Floats:
    """Return p-values corrected for their number, in their order, ``[M]``.

    The r-th smallest of M is multiplied by M - r + 1, is at least the one before it and at most
    1. Whoever calls those below 0.05 differences errs anywhere among them with a probability of
    at most 0.05, however the tests depend on each other.

    Args:
        p_values: One per test, ``[M]``. NaN is no test: it stays NaN and is not counted.

    Example:
        >>> holm([0.04, 0.01, 0.03]).tolist()
        [0.06, 0.03, 0.06]
    """
    given = doubles(p_values, "p_values")
    if given.ndim != 1:
        raise InputError(f"p_values must be one per test, got shape {list(given.shape)}")
    wrong = (given < 0) | (given > 1)
    if wrong.any():
        raise InputError(f"p_values must lie between 0 and 1, got {given[wrong][0]:g}")
    tests = np.flatnonzero(~np.isnan(given))
    rising = tests[given[tests].argsort()]
    corrected = np.full_like(given, np.nan)
    weighed = np.arange(len(rising), 0, -1) * given[rising]
    corrected[rising] = np.minimum(np.maximum.accumulate(weighed), 1.0)
    return corrected


class Front(NamedTuple):
    """Points that are means over seeds, and the front that they make.

    Attributes:
        ndcg: Mean over seeds, ``[P]``.
        gap: Mean over seeds, ``[P]``.
        ndcg_ci95: A 95 % interval of each, by bootstrap over seeds, ``[P, 2]``.
        gap_ci95: The same, ``[P, 2]``.
        on_front: Whether no other point dominates it, ``[P]``.
        share: Share of the resamples that have it on their front, ``[P]``.
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
    if not negative[0] - PAST_END <= wanted <= negative[-1] + PAST_END:
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
        seed: Seed of the resamples.
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


@compiled
def add_picked(rows: Floats, draws: NDArray[np.uint8], table: Floats, sums: Floats) -> None:
    """Add the rows that each draw picks to its sums.

    Eight rows are added at a time: the sums of all choices among them serve every draw.

    Args:
        rows: What is added up, ``[n, M]``.
        draws: Bits that pick rows, eight to a byte as `np.packbits` has them, ``[D, n / 8]``
            rounded up; bits past the last row pick nothing.
        table: Room for the sums of all choices; the first, of none, is 0, ``[256, M]``.
        sums: Added to, ``[D, M]``.
    """
    (n, width), (n_draws, n_bytes) = rows.shape, draws.shape
    for byte in range(n_bytes):
        filled = 1
        for row in range(BITS - 1, -1, -1):  # the last row has the lowest bit
            place = BITS * byte + row
            for value in range(filled):
                for column in range(width):
                    more = rows[place, column] if place < n else 0.0
                    table[filled + value, column] = table[value, column] + more
            filled *= 2
        for draw in range(n_draws):
            picked = draws[draw, byte]
            for column in range(width):
                sums[draw, column] += table[picked, column]


class Difference(NamedTuple):
    """What changes from a to b, over the queries for which both are defined.

    Attributes:
        mean_a: Mean of a; NaN if there are no such queries, as all that follows.
        mean_b: Mean of b.
        difference: `mean_b` less `mean_a`.
        ci95: A 95 % interval of it, by bootstrap over queries.
        p: How often it would be as far from 0 if the signs of the differences were chance.
        n: Queries for which both are defined.
        undefined: Queries for which one is not.
    """

    mean_a: float
    mean_b: float
    difference: float
    ci95: tuple[float, float]
    p: float
    n: int
    undefined: int


def paired_difference(a: Values, b: Values, *, seed: int = 0) -> Difference:
    """Return what changes from a to b, two results on the same queries.

    Up to 13 queries, all signs are counted; beyond, 10,000 draws of them: then `p` is at least
    1 / 10,001.

    Args:
        a: One value per query, finite, NaN where undefined, ``[Q]``.
        b: The same of the other result, ``[Q]``.
        seed: Seed of the resamples and of the signs.

    Example:
        >>> import numpy as np
        >>> before = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
        >>> found = paired_difference(before, before + 0.25)
        >>> found.difference, found.p  # 2 of the 32 ways to draw five signs
        (0.25, 0.0625)
    """
    return paired_differences({"values": a}, {"values": b}, seed=seed)["values"]


def paired_differences(
    a: Mapping[str, Values], b: Mapping[str, Values], *, seed: int = 0
) -> dict[str, Difference]:
    """Return `paired_difference` of several metrics, from one set of resamples and signs.

    Args:
        a: Name of each metric, and its values of the same queries, ``[Q]``.
        b: The same of the other result.
        seed: Seed of the resamples and of the signs.
    """
    for side, given in (("a", a), ("b", b)):
        if not isinstance(given, Mapping) or not given:
            raise KindError(
                f"{side} must map names of metrics to their values, got {shown(given)}"
            )
    if set(a) != set(b):
        lone = min(set(a) ^ set(b), key=str)
        raise InputError(f"a and b must hold the same metrics, only one of them has {lone!r}")
    pairs, differences = {}, {}
    for name in a:
        first, second = doubles(a[name], f"{name} of a"), doubles(b[name], f"{name} of b")
        if first.shape != second.shape:
            raise InputError(
                f"{name} must be of the same queries in a and b, got shapes "
                f"{list(first.shape)} and {list(second.shape)}"
            )
        for side, values in (("a", first), ("b", second)):
            if np.isinf(values).any():
                raise InputError(
                    f"{name} of {side} must be finite, or NaN where undefined, got inf"
                )
        pairs[name], differences[name] = (first, second), second - first
    changes = means_with_intervals(differences, seed=seed)
    p_values = _p_values(np.stack(list(differences.values()), axis=-1), seed)
    found = {}
    for (name, change), p in zip(changes.items(), p_values.tolist(), strict=True):
        defined, n = ~np.isnan(differences[name]), change.n or math.nan
        mean_a, mean_b = (float(values[defined].sum() / n) for values in pairs[name])
        found[name] = Difference(mean_a, mean_b, *change[:2], p, *change[2:])
    return found


def _p_values(differences: Floats, seed: int) -> Floats:
    """Return the p-value of each column, ``[M]``; an undefined row changes no sum."""
    undefined = np.isnan(differences)
    sizes = np.where(undefined, 0.0, differences)
    total, slack = sizes.sum(0), ROUNDING * np.abs(sizes).sum(0)
    n = len(sizes)
    most = max(1, FLIPPED_AT_ONCE // n)

    def as_far(flipped: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return how many draws of rows, as bits, leave a sum as far from 0 if flipped."""
        lost = np.zeros((len(flipped), sizes.shape[1]))
        add_picked(sizes, flipped, np.zeros((VALUES, sizes.shape[1])), lost)
        far: NDArray[np.bool_] = np.abs(total - 2 * lost) >= np.abs(total) - slack
        count: NDArray[np.int64] = far.sum(0)
        return count

    def drawn(pieces: Sequence[int]) -> NDArray[np.int64]:
        """Return the same of the draws of some pieces, each from a stream of its own."""
        draws = []
        for piece in pieces:
            # The 1 keeps these streams apart from those of the bootstrap.
            generator = np.random.default_rng([seed, piece, 1])
            n_draws, n_bytes = min(most, FLIPS - piece * most), -(-n // BITS)
            random = np.frombuffer(generator.bytes(n_draws * n_bytes), np.uint8)
            draws.append(random.reshape(n_draws, n_bytes))
        return as_far(np.concatenate(draws))

    if 2**n <= FLIPS:
        every = np.arange(2**n)[:, None] >> np.arange(n) & 1
        p = as_far(np.packbits(every.astype(np.uint8), axis=-1)) / 2**n
    else:
        pieces, together = range(-(-FLIPS // most)), -(-DRAWS_AT_ONCE // most)
        starts = range(0, len(pieces), together)
        counts = run_all([partial(drawn, pieces[start : start + together]) for start in starts])
        # What was observed counts as one draw more, so that p is valid whatever their number.
        p = (1 + np.sum(counts, axis=0)) / (1 + FLIPS)
    return np.where(undefined.all(0), np.nan, p)
