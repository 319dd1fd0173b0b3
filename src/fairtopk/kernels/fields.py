"""Looking at the fields of delimited text without parsing it."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

NEWLINE, RETURN, QUOTE, PLUS, MINUS, ZERO, NINE = b'\n\r"+-09'


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


@compiled
def first_short_row(text: NDArray[np.uint8], separator: int, n_fields: int) -> int:
    """Return where the first row with fewer than `n_fields` begins, -1 if there is none.

    A separator or a line break between quotes belongs to its field; blank lines are no rows.
    """
    start = 0
    fields = 1
    quoted = False
    starts = True  # whether a field begins here
    for place in range(len(text)):
        byte = text[place]
        if byte == QUOTE and (starts or quoted):
            quoted = not quoted
            # What follows a closing quote may be its double, which opens again.
            starts = not quoted
            continue
        starts = False
        if quoted:
            continue
        if byte == separator:
            fields += 1
            starts = True
        elif byte == NEWLINE:
            if fields < n_fields and not is_blank(text, start, place):
                return start
            start, fields, starts = place + 1, 1, True
    if not quoted and fields < n_fields and not is_blank(text, start, len(text)):
        return start
    return -1


@compiled
def is_blank(text: NDArray[np.uint8], start: int, end: int) -> bool:
    """Return whether a line holds nothing but a carriage return."""
    return end == start or (end == start + 1 and text[start] == RETURN)
