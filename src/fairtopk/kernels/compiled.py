"""The decorator that turns a plain loop over arrays into machine code."""

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
