"""Looking at the fields of delimited text without parsing it."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

NEWLINE, QUOTE, PLUS, MINUS, ZERO, NINE = b'\n"+-09'


@compiled
def has_padded_number(text: NDArray[np.uint8], separator: int) -> bool:
    """Return whether some field starts with a plus, or with a zero and another digit.

    Read as a number, such a field would lose what it is written with: 007 would be 7.
    """
    starts = True
    for place in range(len(text)):
        byte = text[place]
        if starts and byte != QUOTE and byte != MINUS:
            starts = False
            if byte == PLUS:
                return True
            following = text[place + 1] if place + 1 < len(text) else NEWLINE
            if byte == ZERO and ZERO <= following <= NINE:
                return True
        if byte in (separator, NEWLINE):
            starts = True
    return False
