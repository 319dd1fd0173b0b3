"""Which differences from the colour-blind model are more than chance over users.

For each user, the difference from the colour-blind run of the same seed is averaged over seeds;
then signs are drawn at random over users. So there is one test per point and metric, whatever
the number of seeds, and it tells whether these models differ, not whether other seeds would.
"""

from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.checkpoints import load_tensors
from fairtopk.reporting.curves import Point, View
from fairtopk.reporting.results import USER, Result
from fairtopk.statistics.holm import holm
from fairtopk.statistics.paired import FLIPS, Difference, paired_differences

LEVEL = 0.05
MOST = int(LEVEL * (FLIPS + 1))  # tests at once; with more, none could be below LEVEL

Tests = dict[str, dict[str, Difference]]


class Queries(NamedTuple):
    """The values of each user: their numbers, ``[Q]``, and name of a metric to ``[Q]``."""

    user: NDArray[np.int64]
    values: dict[str, NDArray[np.float32]]


def paired_tests(view: View, metrics: list[str]) -> Tests:
    """Return by name of a point what changes from the base to it; none where it cannot be told.

    Points without a file of each user's values, or without a seed in common with the base, are
    left out.
    """
    if view.base is None:
        return {}
    base = {result.run.seed: user_values(result, metrics) for result in view.base.results}
    found = {}
    for point in view.points:
        if point is not view.base and (changes := _changes(point, base, metrics)):
            found[point.name] = changes
    return found


def corrected(tests: Tests, metrics: list[str]) -> dict[tuple[str, str], float]:
    """Return by point and metric the p-values of the tests behind one table, by Holm."""
    keys = [(point, name) for point, of in tests.items() for name in metrics if name in of]
    p_values = holm(np.array([tests[point][name].p for point, name in keys], float))
    return dict(zip(keys, p_values.tolist(), strict=True))


def _changes(
    point: Point, base: dict[int, Queries | None], metrics: list[str]
) -> dict[str, Difference]:
    pair = paired_values(point, base, metrics)
    return paired_differences(*pair) if pair is not None else {}


def paired_values(
    point: Point, base: dict[int, Queries | None], metrics: list[str]
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]] | None:
    """Return the metrics of the base and of a point, user by user, means over seeds, ``[Q]``.

    Args:
        point: What is compared.
        base: By seed, what it is compared with.
        metrics: Names; those that a run lacks are left out.

    Returns:
        None where there are no users, or no metrics, that both have.
    """
    pairs = []
    for result in point.results:
        before, after = base.get(result.run.seed), user_values(result, metrics)
        if before is not None and after is not None:
            pairs.append((before, after))
    if not pairs:
        return None
    users = reduce(np.intersect1d, [one.user for pair in pairs for one in pair])
    names = [name for name in metrics if all(name in one.values for p in pairs for one in p)]
    if not len(users) or not names:
        return None
    a, b = (
        {name: _over_seeds([pair[side] for pair in pairs], users, name) for name in names}
        for side in (0, 1)
    )
    return a, b


def _over_seeds(
    found: list[Queries], users: NDArray[np.int64], name: str
) -> NDArray[np.float64]:
    """Return the mean over seeds for some users; NaN where a seed has none, ``[users]``."""
    rows = [
        one.values[name][np.argsort(one.user)[np.searchsorted(np.sort(one.user), users)]]
        for one in found
    ]
    mean: NDArray[np.float64] = np.stack(rows).astype(float).mean(0)
    return mean


def user_values(result: Result, metrics: list[str]) -> Queries | None:
    """Return the values of each user; None where no file has them."""
    found: Queries | None = None
    for path in result.per_query:
        tensors = load_tensors(path).tensors
        user = tensors[USER].numpy()
        values = {name: tensors[name].numpy() for name in metrics if name in tensors}
        if found is None:
            found = Queries(user, values)
        elif np.array_equal(found.user, user):
            found = Queries(user, values | found.values)
    return found
