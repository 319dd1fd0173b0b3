"""Holm's correction: p-values of many tests, of which some are small by chance."""

from collections.abc import Sequence

import numpy as np

from fairtopk.errors import InputError
from fairtopk.metrics.inputs import Values
from fairtopk.statistics.inputs import Floats, doubles


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
