"""Reading LETOR / SVMrank text: bytes to labels, queries and a dense matrix of features.

A line is ``2 qid:10 1:0.03 5:-1e-3 # docid = GX008-86``. Blank lines and lines that hold only a
comment are passed over. The same loop measures a text and, given room, reads it.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled

FINE, BAD_LABEL, BAD_QUERY, BAD_PAIR, BAD_VALUE, NOT_RISING = 0, 1, 2, 3, 4, 5

TAB, NEWLINE, RETURN, BLANK, HASH, COLON, EQUALS = b"\t\n\r #:="
PLUS, MINUS, POINT, ZERO, NINE, UPPER_E, LOWER_E = b"+-.09Ee"
QID = np.frombuffer(b"qid:", np.uint8)
DOCID = np.frombuffer(b"docid", np.uint8)

MANTISSA_DIGITS, WHOLE_DIGITS = 19, 18  # the most that always fit 64 and 63 bits
POWERS = np.array([float(f"1e{power}") for power in range(309)])


@compiled
def read_rows(
    text: NDArray[np.uint8],
    low: int,
    values: NDArray[np.float32],
    relevance: NDArray[np.float32],
    query: NDArray[np.int64],
    spans: NDArray[np.int64],
) -> tuple[int, int, int, int, int]:
    """Return (rows, smallest index, largest index, fault, place); an index of -1 is none.

    Reading stops at the first fault; `place` is then the byte where what is wrong begins.

    Args:
        text: The bytes of a file.
        low: Index of the first feature, column 0 of `values`.
        values: Zeros to be filled, ``[n_rows, n_features]``.
        relevance: Label of each row, filled, ``[n_rows]``; empty, the text is only measured.
        query: Query of each row, filled, ``[n_rows]``.
        spans: First byte of each row's line, first of its document id and the byte after
            that, filled, ``[n_rows, 3]``; an id that is not there has equal ends.
    """
    fills = len(relevance) > 0
    nowhere = np.empty(0, np.float32)
    row = place = 0
    smallest = largest = -1
    while place < len(text):
        start = place
        place = after_blanks(text, place)
        if not at_end(text, place):
            label, key, place, fault = read_head(text, place)
            if fault == FINE:
                slots = values[row] if fills else nowhere
                first, last, place, fault = read_pairs(text, place, low, slots)
                if first >= 0 and (smallest < 0 or first < smallest):
                    smallest = first
                largest = max(largest, last)
            if fault != FINE:
                return row, smallest, largest, fault, place
            if fills:
                relevance[row] = label
                query[row] = key
                spans[row, 0] = start
                spans[row, 1], spans[row, 2] = find_docid(text, place)
            row += 1
        while place < len(text) and text[place] != NEWLINE:
            place += 1
        place += 1
    return row, smallest, largest, FINE, -1


@compiled
def read_head(text: NDArray[np.uint8], place: int) -> tuple[float, int, int, int]:
    """Return (label, query, place, fault) of the line that starts at `place`."""
    label, after = read_number(text, place)
    if after == place or not at_gap(text, after):
        return label, 0, place, BAD_LABEL
    place = after_blanks(text, after)
    start = after_word(text, place, QID)
    digits = after_sign(text, start)
    key, after = read_whole(text, digits)
    if start == place or after == digits or not at_gap(text, after):
        return label, 0, place, BAD_QUERY
    return label, -key if text[start] == MINUS else key, after, FINE


@compiled
def read_pairs(
    text: NDArray[np.uint8], place: int, low: int, slots: NDArray[np.float32]
) -> tuple[int, int, int, int]:
    """Return (first index, last index, place, fault) of a line's ``index:value`` pairs.

    Values go to `slots`, whose first one belongs to index `low`, unless it is empty.
    """
    first = last = -1
    place = after_blanks(text, place)
    while not at_end(text, place):
        index, colon = read_whole(text, place)
        if colon == place or colon >= len(text) or text[colon] != COLON:
            return first, last, place, BAD_PAIR
        if index <= last:
            return first, last, place, NOT_RISING
        value, after = read_number(text, colon + 1)
        if after == colon + 1 or not at_gap(text, after):
            return first, last, place, BAD_VALUE
        if len(slots) > 0:
            slots[index - low] = value
        if first < 0:
            first = index
        last = index
        place = after_blanks(text, after)
    return first, last, place, FINE


@compiled
def read_number(text: NDArray[np.uint8], start: int) -> tuple[float, int]:
    """Return the decimal number at `start` and the byte after it.

    That byte is `start` itself where there is no number, or none that float32 can hold.
    """
    place = after_sign(text, start)
    negative = place > start and text[start] == MINUS
    mantissa = np.uint64(0)
    kept = seen = power = 0
    in_fraction = False
    while place < len(text):
        byte = text[place]
        if ZERO <= byte <= NINE:
            seen += 1
            if kept < MANTISSA_DIGITS:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - ZERO)
                kept += int(mantissa > np.uint64(0))  # leading zeros are no digits
                power -= int(in_fraction)
            else:
                power += int(not in_fraction)
        elif byte == POINT and not in_fraction:
            in_fraction = True
        else:
            break
        place += 1
    if seen == 0:
        return 0.0, start
    if place < len(text) and (text[place] == LOWER_E or text[place] == UPPER_E):
        digits = after_sign(text, place + 1)
        exponent, after = read_whole(text, digits)
        if after == digits:
            return 0.0, start
        power += -exponent if text[place + 1] == MINUS else exponent
        place = after
    value = scaled(mantissa, power)
    if np.isinf(np.float32(value)):
        return 0.0, start
    return -value if negative else value, place


@compiled
def scaled(mantissa: np.uint64, power: int) -> float:
    """Return mantissa times ten to the power, right to some units in the last place."""
    if mantissa == np.uint64(0) or power < 1 - len(POWERS):
        return 0.0  # far below float32's smallest number
    if power >= len(POWERS):
        return np.inf
    if power < 0:
        return float(mantissa) / float(POWERS[-power])
    return float(mantissa) * float(POWERS[power])


@compiled
def read_whole(text: NDArray[np.uint8], start: int) -> tuple[int, int]:
    """Return the digits at `start` as a number and the byte after; `start` if none or many."""
    place = start
    whole = 0
    while place < len(text) and ZERO <= text[place] <= NINE:
        if place - start == WHOLE_DIGITS:
            return 0, start
        whole = whole * 10 + int(np.int64(text[place]) - ZERO)
        place += 1
    return whole, place


@compiled
def find_docid(text: NDArray[np.uint8], place: int) -> tuple[int, int]:
    """Return where X of the comment ``# docid = X`` at `place` begins and ends."""
    if place >= len(text) or text[place] != HASH:
        return place, place
    word = after_blanks(text, place + 1)
    equals = after_blanks(text, after_word(text, word, DOCID))
    if equals == word or equals >= len(text) or text[equals] != EQUALS:
        return place, place
    start = end = after_blanks(text, equals + 1)
    while end < len(text) and not is_blank(text[end]) and text[end] != NEWLINE:
        end += 1
    return start, end


@compiled
def after_word(text: NDArray[np.uint8], place: int, word: NDArray[np.uint8]) -> int:
    """Return the byte after `word` if it stands at `place`, else `place`."""
    if place + len(word) > len(text):
        return place
    for letter in range(len(word)):
        if text[place + letter] != word[letter]:
            return place
    return place + len(word)


@compiled
def after_sign(text: NDArray[np.uint8], place: int) -> int:
    """Return the byte after the sign at `place`, or `place` if there is none."""
    return place + (place < len(text) and (text[place] == MINUS or text[place] == PLUS))


@compiled
def after_blanks(text: NDArray[np.uint8], place: int) -> int:
    """Return the first byte from `place` on that is no blank."""
    while place < len(text) and is_blank(text[place]):
        place += 1
    return place


@compiled
def is_blank(byte: int) -> bool:
    """Return whether a byte separates words; a carriage return counts as one."""
    return byte in (BLANK, TAB, RETURN)


@compiled
def at_end(text: NDArray[np.uint8], place: int) -> bool:
    """Return whether a line's data ends at `place`: by its end or by a comment."""
    return place >= len(text) or text[place] == NEWLINE or text[place] == HASH


@compiled
def at_gap(text: NDArray[np.uint8], place: int) -> bool:
    """Return whether a word ends at `place`."""
    return at_end(text, place) or is_blank(text[place])
