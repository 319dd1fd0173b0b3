"""The decorators that turn a plain loop over arrays into machine code."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` compiled on first call, cached on disk, run without the GIL.

    The signature stays visible to type checkers, which numba's own decorator hides.
    """
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True)(function))


def summing(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` compiled like `compiled` does, but free to reorder sums in its loops.

    Only so are they vectorised. The order is fixed when the loop is compiled: it depends on the
    kind of machine, and not on the number of threads.
    """
    flags = {"reassoc", "contract", "nsz"}
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, fastmath=flags)(function))
