"""Exponentials of scores, in loops that are vectorised.

The exponential of a float32 is put together from a power of two, written as bits, and a short
series. Neither numba nor LLVM vectorises the library's function: it takes 10 times as long.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import summing

Floats = NDArray[np.floating]

LOG2_E, LN_2 = np.float32(math.log2(math.e)), np.float32(math.log(2))
LEAST = np.float32(-126)  # exponent of the smallest power of two
ONE, FRACTION = 127, 23  # float32: the bits of 2^n are (127 + n) << 23


@summing
def fill_exponentials(
    scores: Floats, high: float, bits: NDArray[np.signedinteger], power: Floats, out: Floats
) -> float:
    """Return the sum of the exponentials of scores less `high`, which fill `out`.

    `high` is the largest score, so that nothing overflows; scores far below it have next to 0.
    `bits` is room, and `power` the same memory read as floats.
    """
    total = 0.0
    if scores.itemsize == 8:
        for place in range(len(scores)):
            out[place] = math.exp(scores[place] - high)
            total += out[place]
        return total
    for place in range(len(scores)):
        log2 = max(np.float32(scores[place] - high) * LOG2_E, LEAST)
        whole = np.floor(log2 + np.float32(0.5))
        bits[place] = (np.int32(whole) + ONE) << FRACTION
        x = (log2 - whole) * LN_2
        value = np.float32(1 / 720)
        value = value * x + np.float32(1 / 120)
        value = value * x + np.float32(1 / 24)
        value = value * x + np.float32(1 / 6)
        value = value * x + np.float32(1 / 2)
        value = value * x + np.float32(1)
        out[place] = value * x + np.float32(1)
    for place in range(len(scores)):
        out[place] *= power[place]
        total += out[place]
    return total
