"""Large arrays that are used again once nobody holds them.

Fresh memory has to be cleared by the system page by page. At 27,000 items that was a fifth of
the time of a forward and backward pass.
"""

import math
import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGE = 2**20  # bytes; less is not worth keeping
ALIGNMENT = 64  # bytes
KEPT = 8  # arrays; those not asked for the longest are let go

_lock = threading.Lock()
_kept: list[tuple[NDArray[Any], weakref.ref[NDArray[Any]]]] = []


def recycled(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array with whatever content, in memory that may have been used before.

    The memory is in use for as long as the array lives, as itself or in a tensor made of it. A
    slice does not keep it alive: whoever uses one has to hold the array too.
    """
    if math.prod(shape) * np.dtype(dtype).itemsize < LARGE:
        return _aligned(shape, dtype)
    with _lock:
        for place, (memory, array) in enumerate(_kept):
            if array() is None and memory.shape == shape and memory.dtype == dtype:
                del _kept[place]
                break
        else:
            memory = _aligned(shape, dtype)
        lent = memory.view()
        _kept.append((memory, weakref.ref(lent)))
        del _kept[:-KEPT]
    return lent


def _aligned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return memory that starts at a multiple of 64 bytes, as torch's does.

    The last bits of a matrix product may depend on where its operands start.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)
