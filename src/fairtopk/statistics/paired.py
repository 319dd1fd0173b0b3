"""Two runs compared query by query: what changes, how surely, and whether chance could do it.

The paired randomisation test (Fisher) asks how often the mean difference would be as far from 0
if it did not matter which of the two values came from which run: each query's difference keeps
its size, and its sign is drawn at random.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.arguments import shown
from fairtopk.errors import InputError, KindError
from fairtopk.kernels.flips import picked_sums
from fairtopk.kernels.threads import run_all
from fairtopk.metrics.inputs import Values
from fairtopk.metrics.intervals import means_with_intervals
from fairtopk.statistics.inputs import Floats, doubles

FLIPS = 10_000
FLIPPED_AT_ONCE = 2**22  # signs that come from one stream
DRAWS_AT_ONCE = 512  # that share the work of adding up, at least
ROUNDING = 1e-12  # of the sum of sizes, by which the order of summing may change a sum


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

    With up to 13 queries all signs are tried, else 10,000 draws of them: then `p` is at least
    1 / 10,001.

    Args:
        a: One value per query, finite, NaN where undefined, ``[Q]``.
        b: The same of the other result, ``[Q]``.
        seed: Of the resamples and of the signs.

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
        seed: Of the resamples and of the signs.
    """
    for side, given in (("a", a), ("b", b)):
        if not isinstance(given, Mapping) or not given:
            raise KindError(
                f"{side} must map names of metrics to their values, got {shown(given)}"
            )
    if set(a) != set(b):
        lone = min(set(a) ^ set(b), key=str)
        raise InputError(f"a and b must hold the same metrics, only one of them has {lone!r}")
    pairs = {name: _checked_pair(name, values, b[name]) for name, values in a.items()}
    differences = {name: second - first for name, (first, second) in pairs.items()}
    changes = means_with_intervals(differences, seed=seed)
    p_values = _p_values(np.stack(list(differences.values()), axis=-1), seed)
    found = {}
    for (name, change), p in zip(changes.items(), p_values.tolist(), strict=True):
        defined, n = ~np.isnan(differences[name]), change.n or math.nan
        mean_a, mean_b = (float(values[defined].sum() / n) for values in pairs[name])
        found[name] = Difference(mean_a, mean_b, *change[:2], p, *change[2:])
    return found


def _checked_pair(name: str, a: Values, b: Values) -> tuple[Floats, Floats]:
    first, second = doubles(a, f"{name} of a"), doubles(b, f"{name} of b")
    if first.shape != second.shape:
        raise InputError(
            f"{name} must be of the same queries in a and b, got shapes {list(first.shape)} "
            f"and {list(second.shape)}"
        )
    for side, values in (("a", first), ("b", second)):
        if np.isinf(values).any():
            raise InputError(
                f"{name} of {side} must be finite, or NaN where undefined, got inf"
            )
    return first, second


def _p_values(differences: Floats, seed: int) -> Floats:
    """Return the p-value of each column, ``[M]``; an undefined row changes no sum."""
    undefined = np.isnan(differences)
    sizes = np.where(undefined, 0.0, differences)
    total, slack = sizes.sum(0), ROUNDING * np.abs(sizes).sum(0)

    def as_far(flipped: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return how many draws of rows, as bits, leave a sum as far from 0 if flipped."""
        lost = picked_sums(sizes, flipped)
        far: NDArray[np.bool_] = np.abs(total - 2 * lost) >= np.abs(total) - slack
        count: NDArray[np.int64] = far.sum(0)
        return count

    def drawn(pieces: Sequence[int]) -> NDArray[np.int64]:
        return as_far(np.concatenate([bits(piece) for piece in pieces]))

    def bits(piece: int) -> NDArray[np.uint8]:
        draws = min(most, FLIPS - piece * most)
        # The 1 keeps these streams apart from those of the bootstrap.
        generator = np.random.default_rng([seed, piece, 1])
        random = np.frombuffer(generator.bytes(draws * -(-n // 8)), np.uint8)
        return random.reshape(draws, -1)

    n = len(sizes)
    if 2**n <= FLIPS:
        every = np.arange(2**n)[:, None] >> np.arange(n) & 1
        p = as_far(np.packbits(every.astype(np.uint8), axis=-1)) / 2**n
    else:
        most = max(1, FLIPPED_AT_ONCE // n)
        pieces, together = range(-(-FLIPS // most)), -(-DRAWS_AT_ONCE // most)
        starts = range(0, len(pieces), together)
        counts = run_all([partial(drawn, pieces[start : start + together]) for start in starts])
        # What was observed counts as one draw more, so that p is valid whatever their number.
        p = (1 + np.sum(counts, axis=0)) / (1 + FLIPS)
    return np.where(undefined.all(0), np.nan, p)
