"""LETOR / SVMrank text, dense or sparse: ``2 qid:10 1:0.03 5:-1e-3 # docid = GX008-86``.

A feature that a line leaves out is 0. Features keep the numbers of the file: f1, f2, ... Blank
lines and lines that hold only a comment are passed over. A compiled loop measures each text and
then, given room, reads it. A text ends with a line break, at which every inner loop stops.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.data.archive import Archive
from fairtopk.data.columns import Origin
from fairtopk.data.features import FeatureRows, Features, features_from
from fairtopk.data.groups import GroupRule, Groups
from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.storage import MOST_FEATURE, refuse_large

LIMIT_BYTES = 8_000_000_000
SHOWN = 60  # characters of a bad line
FIRST_LINE = re.compile(rb"(?:[ \t\r]*(?:#[^\n]*)?\n)*[ \t]*[^\s#]+[ \t]+qid:")
FINE, BAD_LABEL, BAD_QUERY, BAD_PAIR, BAD_VALUE, NOT_RISING = 0, 1, 2, 3, 4, 5
FAULTS = {
    BAD_LABEL: "a line must start with its relevance, a finite number",
    BAD_QUERY: "the relevance must be followed by qid: and a whole number",
    BAD_PAIR: "the qid must be followed by pairs like 3:0.25",
    BAD_VALUE: "the value of a feature must be a finite number within float32",
    NOT_RISING: "the numbers of the features must rise within a line",
}

TAB, NEWLINE, RETURN, BLANK, HASH, COLON, EQUALS = b"\t\n\r #:="
PLUS, MINUS, POINT, ZERO, NINE, UPPER_E, LOWER_E = b"+-.09Ee"
SIGNS = (PLUS, MINUS)
BLANKS = (BLANK, TAB, RETURN)  # between words
ENDS = (NEWLINE, HASH)  # of a line's data
GAPS = (*BLANKS, *ENDS)  # after a word
QID = np.frombuffer(b"qid:", np.uint8)
DOCID = np.frombuffer(b"docid", np.uint8)

MANTISSA_DIGITS, WHOLE_DIGITS = 19, 18  # the most that always fit 64 and 63 bits
POWERS = np.array([float(f"1e{power}") for power in range(309)])


class Text(NamedTuple):
    """One file: what errors call its lines, its bytes, and what measuring them found."""

    origin: Origin
    content: bytes
    n_rows: int
    smallest: int  # number of a feature
    largest: int


def read_letor(path: str | Path, *, groups: Groups | GroupRule | None = None) -> Features:
    """Return the documents of a LETOR / SVMrank file, or of all such files of a zip or folder.

    A document's id is X of the comment ``# docid = X`` if every line has one, else its row.

    Args:
        path: A text file (``.gz`` too), or a zip or folder, whose files are joined in the order
            of their names.
        groups: A rule on a feature (column "f5"), which stays a feature, or labels by document
            id made by `groups_from`; left out, every document's group is unknown.

    Raises:
        InputError: A line is not of this format, files share a query, a document is twice in a
            query, the matrix would be past 8 GB, or the groups fit no document.
    """
    archive = Archive(path)
    origin = Origin(archive.path.name)
    files = archive.names
    # One alone is read whatever it is: the parser says what is wrong with it.
    if len(files) > 1:
        files = [file for file in files if FIRST_LINE.match(archive.head(file))]
    if not files:
        raise InputError(
            f"{archive.path} holds no LETOR text: none of its files starts with a line "
            f"like '2 qid:10 1:0.03 2:0.5'"
        )
    texts = [_measure(archive, file) for file in files]
    low, values = _zeros(texts, origin.name)
    n_rows = len(values)
    relevance = np.empty(n_rows, np.float32)
    query, spans = np.empty(n_rows, np.int64), np.empty((n_rows, 3), np.int64)

    # The rows of one file come after those of the other.
    bounds = np.cumsum([0, *(text.n_rows for text in texts)])
    parts = [slice(first, last) for first, last in pairwise(bounds.tolist())]
    home: dict[int, str] = {}
    for text, part in zip(texts, parts, strict=True):
        content = np.frombuffer(text.content, np.uint8)
        read_rows(content, low, values[part], relevance[part], query[part], spans[part])
        for number in np.unique(query[part]).tolist():
            if number in home:
                raise InputError(
                    f"query {number} is in {home[number]} and in {text.origin.name}; read the "
                    f"files of one fold, or a single file (other files may number their "
                    f"queries alike)"
                )
            home[number] = text.origin.name

    items = None
    n_named = int((spans[:, 2] > spans[:, 1]).sum())
    if n_named == n_rows:
        ids = [
            text.content[start:end].decode("utf-8", "backslashreplace")
            for text, part in zip(texts, parts, strict=True)
            for _, start, end in spans[part].tolist()
        ]
        items = pl.Series("item", ids)
    feature_names = tuple(f"f{column + low}" for column in range(values.shape[1]))
    ruled = None
    if isinstance(groups, GroupRule):
        if groups.column not in feature_names:
            raise InputError(
                f"{origin.name} has no feature {groups.column!r}: its features are "
                f"{feature_names[0]} to {feature_names[-1]}"
            )
        ruled = pl.Series(values[:, feature_names.index(groups.column)])

    def place(row: int) -> str:
        text = texts[int(np.searchsorted(bounds, row, side="right")) - 1]
        return text.origin.row(text.content.count(b"\n", 0, int(spans[row, 0])))

    rows = FeatureRows(
        values=values,
        relevance=relevance,
        query=pl.Series("query", query),
        item=items,
        ruled=ruled,
        feature_names=feature_names,
        origin=origin,
        place=place,
    )
    notes = [f"read {', '.join(files)}"]
    if left_out := [name for name in archive.names if name not in files]:
        notes.append(f"left out what is no LETOR text: {', '.join(left_out)}")
    if 0 < n_named < n_rows:
        notes.append(
            f"only {n_named:,} of {n_rows:,} lines name a document, so documents are called "
            f"by their row"
        )
    name = Path(archive.path.resolve().name.removesuffix(".gz")).stem
    return features_from(rows, groups, name=name, notes=tuple(notes))


def _measure(archive: Archive, name: str) -> Text:
    """Return one file with the number of its rows and the span of its features, checked."""
    content = archive.read(name)
    if not content.endswith(b"\n"):
        content += b"\n"
    n_rows, smallest, largest, fault, place = read_rows(
        np.frombuffer(content, np.uint8),
        0,
        np.empty((0, 0), np.float32),
        np.empty(0, np.float32),
        np.empty(0, np.int64),
        np.empty((0, 3), np.int64),
    )
    origin = Origin(archive.where(name), first_line=1)
    if fault != FINE:
        # Shown are the word and the beginning of its line. A line may be as long as the file:
        # little of it is looked at.
        start = content.rfind(b"\n", 0, place) + 1
        before = content[start : min(place, start + 4 * SHOWN)]
        after = content[place : place + 4 * SHOWN].partition(b"\n")[0]
        word = re.split(rb"[\s#]", after, maxsplit=1)[0]
        texts = (part.decode("utf-8", "replace").strip() for part in (word, before + after))
        got = " in ".join(repr(text[:SHOWN]) for text in texts)
        line = origin.row(content.count(b"\n", 0, place))
        raise InputError(f"{line}: {FAULTS[fault]}, got {got}")
    if n_rows == 0:
        raise InputError(f"{origin.name} holds no documents, only comments")
    return Text(origin, content, n_rows, smallest, largest)


def _zeros(texts: list[Text], name: str) -> tuple[int, NDArray[np.float32]]:
    """Return the number of the first feature, 0 or 1, and a dense matrix to be filled."""
    low = 0 if any(text.smallest == 0 for text in texts) else 1
    largest = max(text.largest for text in texts)
    n_rows, n_features = sum(text.n_rows for text in texts), largest - low + 1
    if n_features < 1:
        raise InputError(f"{name} holds no features, only relevance and queries")
    if largest > MOST_FEATURE:
        raise InputError(
            f"{name} has a feature with the number {largest:,}; numbers go up to "
            f"{MOST_FEATURE:,}, so number the features anew"
        )
    n_bytes = 4 * n_rows * n_features
    dense = f"{name} as a dense matrix of {n_rows:,} documents by {n_features:,} features"
    refuse_large(n_bytes, dense)
    if n_bytes > LIMIT_BYTES:
        raise InputError(
            f"{dense} would take {n_bytes / 1e9:,.1f} GB, past the limit of "
            f"{LIMIT_BYTES / 1e9:g} GB; keep fewer features"
        )
    return low, np.zeros((n_rows, n_features), np.float32)


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
        text: The bytes of a file, the last of them a line break.
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
        if text[place] not in ENDS:
            label, after = read_number(text, place)
            if after == place or text[after] not in GAPS:
                return row, smallest, largest, BAD_LABEL, place
            place = after_blanks(text, after)
            sign = after_word(text, place, QID)
            digits = sign + (text[sign] in SIGNS)
            number, after = read_whole(text, digits)
            if sign == place or after == digits or text[after] not in GAPS:
                return row, smallest, largest, BAD_QUERY, place
            slots = values[row] if fills else nowhere
            first, last, place, fault = read_pairs(text, after, low, slots)
            if first >= 0 and (smallest < 0 or first < smallest):
                smallest = first
            largest = max(largest, last)
            if fault != FINE:
                return row, smallest, largest, fault, place
            if fills:
                relevance[row] = label
                query[row] = -number if text[sign] == MINUS else number
                id_start = id_end = place
                if text[place] == HASH:  # it may be "# docid = X"
                    word = after_blanks(text, place + 1)
                    equals = after_blanks(text, after_word(text, word, DOCID))
                    if equals > word and text[equals] == EQUALS:
                        id_start = id_end = after_blanks(text, equals + 1)
                        while text[id_end] not in BLANKS and text[id_end] != NEWLINE:
                            id_end += 1
                spans[row, 0], spans[row, 1], spans[row, 2] = start, id_start, id_end
            row += 1
        while text[place] != NEWLINE:
            place += 1
        place += 1
    return row, smallest, largest, FINE, -1


@compiled
def read_pairs(
    text: NDArray[np.uint8], place: int, low: int, slots: NDArray[np.float32]
) -> tuple[int, int, int, int]:
    """Return (first index, last index, place, fault) of a line's ``index:value`` pairs.

    Values go to `slots`, whose first one belongs to index `low`, unless it is empty.
    """
    first = last = -1
    place = after_blanks(text, place)
    while text[place] not in ENDS:
        index, colon = read_whole(text, place)
        if colon == place or text[colon] != COLON:
            return first, last, place, BAD_PAIR
        if index <= last:
            return first, last, place, NOT_RISING
        value, after = read_number(text, colon + 1)
        if after == colon + 1 or text[after] not in GAPS:
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
    place = start + (text[start] in SIGNS)
    negative = text[start] == MINUS
    mantissa = np.uint64(0)
    kept = seen = power = 0
    in_fraction = False
    while True:
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
    if text[place] == LOWER_E or text[place] == UPPER_E:
        digits = place + 1 + (text[place + 1] in SIGNS)
        exponent, after = read_whole(text, digits)
        if after == digits:
            return 0.0, start
        power += -exponent if text[place + 1] == MINUS else exponent
        place = after
    # Right to some units in the last place.
    if mantissa == np.uint64(0) or power < 1 - len(POWERS):
        value = 0.0  # far below float32's smallest number
    elif power >= len(POWERS):
        return 0.0, start
    elif power < 0:
        value = float(mantissa) / float(POWERS[-power])
    else:
        value = float(mantissa) * float(POWERS[power])
    if np.isinf(np.float32(value)):
        return 0.0, start
    return -value if negative else value, place


@compiled
def read_whole(text: NDArray[np.uint8], start: int) -> tuple[int, int]:
    """Return the digits at `start` as a number and the byte after; `start` if none or many."""
    place = start
    whole = 0
    while ZERO <= text[place] <= NINE:
        if place - start == WHOLE_DIGITS:
            return 0, start
        whole = whole * 10 + int(np.int64(text[place]) - ZERO)
        place += 1
    return whole, place


@compiled
def after_word(text: NDArray[np.uint8], place: int, word: NDArray[np.uint8]) -> int:
    """Return the byte after `word` if it stands at `place`, else `place`."""
    for letter in range(len(word)):
        if text[place + letter] != word[letter]:
            return place
    return place + len(word)


@compiled
def after_blanks(text: NDArray[np.uint8], place: int) -> int:
    """Return the first byte from `place` on that is no blank."""
    while text[place] in BLANKS:
        place += 1
    return place
