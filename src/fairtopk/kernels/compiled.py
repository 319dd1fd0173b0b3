"""Decorators that compile a plain loop over arrays to machine code.

With ``NUMBA_DISABLE_JIT=1`` the loops run as ordinary Python and a debugger can step through
them; `make plain-kernels` tests them that way.
"""

import gc
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import config, event

P = ParamSpec("P")
R = TypeVar("R")


class _GarbagePause(event.Listener):
    """Stops the search for cyclic garbage while anything is compiled.

    Compiling makes many objects, most of which stay: a tenth of its time went into looking
    through them again and again.
    """

    def __init__(self) -> None:
        self.lock, self.under_way, self.was_on = threading.Lock(), 0, False

    def on_start(self, event: event.Event) -> None:
        with self.lock:
            if not self.under_way:
                self.was_on = gc.isenabled()
                gc.disable()
            self.under_way += 1

    def on_end(self, event: event.Event) -> None:
        with self.lock:
            self.under_way -= 1
            if not self.under_way and self.was_on:
                gc.enable()


event.register("numba:compile", _GarbagePause())  # type: ignore[no-untyped-call]


def compiled(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """Return `function` compiled on first call, cached on disk, run without the GIL.

    The signature stays visible to type checkers, which numba's own decorator hides. The options
    are numba's.
    """
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        # Words wrap around; compiled loops do not warn of it.
        return np.errstate(all="ignore")(function)
    options |= {"nogil": True, "no_cfunc_wrapper": True}  # a wrapper for C that nobody calls
    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written to
        made = numba.njit(**options)(function)
    return cast(Callable[P, R], made)


def summing(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` compiled like `compiled` does, but free to reorder sums in its loops.

    Only so are they vectorised. The order is fixed when the loop is compiled: it depends on the
    kind of machine, and not on the number of threads. It is compiled into its callers: on its
    own and as part of what a caller keeps on disk, sums could be in different orders, and the
    first run after installing would end with other last digits than the next.
    """
    return compiled(function, fastmath={"reassoc", "contract", "nsz"}, forceinline=True)


def dividing(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` compiled like `compiled` does, but dividing by 0 as arrays do.

    Loops that would have to stop there with an error are not vectorised.
    """
    return compiled(function, error_model="numpy")


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` as a part of the compiled loops that call it, not compiled by itself.

    For what one or two loops call: to compile a function takes some time however short it is.
    Divisions and sums are those of the loop.
    """
    return compiled(function, inline="always")
