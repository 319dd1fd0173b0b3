import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.data import letor as letor_text

pytestmark = pytest.mark.kernel


def read(text: str, *, low: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32], list]:
    """The matrix, the labels and the queries of a text without faults."""
    data = np.frombuffer(text.encode(), np.uint8)
    n_rows, _, largest, fault, _ = measure(text)
    assert fault == letor_text.FINE
    values = np.zeros((n_rows, largest - low + 1), np.float32)
    relevance, query = np.empty(n_rows, np.float32), np.empty(n_rows, np.int64)
    spans = np.empty((n_rows, 3), np.int64)
    assert letor_text.read_rows(data, low, values, relevance, query, spans)[0] == n_rows
    return values, relevance, query.tolist()


def measure(text: str) -> tuple[int, int, int, int, int]:
    return letor_text.read_rows(
        np.frombuffer(text.encode(), np.uint8),
        0,
        np.empty((0, 0), np.float32),
        np.empty(0, np.float32),
        np.empty(0, np.int64),
        np.empty((0, 3), np.int64),
    )


def number(text: str) -> tuple[float, int]:
    return letor_text.read_number(np.frombuffer(text.encode(), np.uint8), 0)


def float32_from_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


FLOATS = st.integers(0, 2**32 - 1).map(float32_from_bits).filter(np.isfinite)


@given(FLOATS, st.sampled_from(["{!r}", "{:.9e}", "{:.9E}", "{:+.12g}", "{:.60f}"]))
def test_any_float32_survives_being_written_and_read(value: float, form: str) -> None:
    text = form.format(value)

    got, end = number(text)

    assert end == len(text)
    assert np.float32(got).tobytes() == np.float32(text).tobytes()


@given(st.floats(-1e30, 1e30), st.integers(0, 40))
def test_a_number_of_many_digits_is_right_to_the_last_places_of_float64(
    value: float, digits: int
) -> None:
    text = f"{value:.{digits}f}"

    assert number(text)[0] == pytest.approx(float(text), rel=5e-16, abs=1e-300)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7.0),
        ("-.5", -0.5),
        ("+3.", 3.0),
        ("1e3", 1000.0),
        ("12345678901234567890123e-22", 1.2345678901234567),
        ("0.00000000000000000000000000000000000001e38", 1.0),
        ("0e999999", 0.0),
        ("1e-400", 0.0),
    ],
)
def test_these_spellings_are_numbers(text: str, value: float) -> None:
    got, end = number(text)

    assert (np.float32(got), end) == (np.float32(value), len(text))


@pytest.mark.parametrize(
    "text", ["", "-", ".", "e5", "1e", "1e+", "nan", "-inf", "Infinity", "1e39", "-4e38", "x"]
)
def test_these_spellings_are_no_numbers_that_float32_can_hold(text: str) -> None:
    assert number(text)[1] == 0


@given(
    st.lists(
        st.tuples(
            FLOATS,
            st.integers(-(10**17), 10**17),
            st.dictionaries(st.integers(0, 12), FLOATS, max_size=5),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["\n", "\r\n", " # a comment\n", "\n\n", "\t\n# between 1:2\n"]),
    st.booleans(),
)
def test_sparse_rows_written_as_text_are_read_back(
    rows: list[tuple[float, int, dict[int, float]]], line_end: str, final: bool
) -> None:
    lines = [
        " ".join(
            [repr(label), f"qid:{query}", *(f"{i}:{x!r}" for i, x in sorted(pairs.items()))]
        )
        for label, query, pairs in rows
    ]
    text = line_end.join(lines) + (line_end if final else "")
    wanted = np.zeros((len(rows), 13), np.float32)
    for place, (_, _, pairs) in enumerate(rows):
        wanted[place, list(pairs)] = list(pairs.values())
    indices = [index for _, _, pairs in rows for index in pairs]

    n_rows, smallest, largest, fault, _ = measure(text)
    values, relevance, query = read(text, low=0)

    assert (n_rows, fault) == (len(rows), letor_text.FINE)
    assert (smallest, largest) == (min(indices, default=-1), max(indices, default=-1))
    np.testing.assert_array_equal(values, wanted[:, : largest + 1])
    np.testing.assert_array_equal(relevance, np.array([row[0] for row in rows], np.float32))
    assert query == [row[1] for row in rows]


@pytest.mark.parametrize(
    ("line", "fault", "word"),
    [
        ("x qid:1 1:2", letor_text.BAD_LABEL, "x"),
        ("nan qid:1 1:2", letor_text.BAD_LABEL, "nan"),
        ("1qid:1 1:2", letor_text.BAD_LABEL, "1qid"),
        ("1 1:2", letor_text.BAD_QUERY, "1:2"),
        ("1 qid: 1:2", letor_text.BAD_QUERY, "qid: "),
        ("1 qid:a 1:2", letor_text.BAD_QUERY, "qid:a"),
        ("1 qid:1.5 1:2", letor_text.BAD_QUERY, "qid:1.5"),
        ("1 qid:9999999999999999999 1:2", letor_text.BAD_QUERY, "qid:9"),
        ("1", letor_text.BAD_QUERY, ""),
        ("1 qid:1 a:2", letor_text.BAD_PAIR, "a:2"),
        ("1 qid:1 1:2 3", letor_text.BAD_PAIR, "3"),
        ("1 qid:1 -1:2", letor_text.BAD_PAIR, "-1:2"),
        ("1 qid:1 1:2 2:nan", letor_text.BAD_VALUE, "2:nan"),
        ("1 qid:1 1:2 2:", letor_text.BAD_VALUE, "2:"),
        ("1 qid:1 1:2:3", letor_text.BAD_VALUE, "1:2:3"),
        ("1 qid:1 1:1e99", letor_text.BAD_VALUE, "1:1e99"),
        ("1 qid:1 2:1 2:1", letor_text.NOT_RISING, "2:1"),
        ("1 qid:1 3:1 2:1", letor_text.NOT_RISING, "2:1"),
    ],
)
@pytest.mark.parametrize("after", ["", "\n", "\n1 qid:1 1:1\n"])
def test_a_fault_is_told_apart_and_found_at_its_word(
    line: str, fault: int, word: str, after: str
) -> None:
    text = f"0 qid:1 1:5\n{line}{after}"

    n_rows, _, _, got, place = measure(text)

    assert (n_rows, got) == (1, fault)
    assert text[place:].startswith(word)
    assert place >= text.index(line)


@pytest.mark.parametrize(
    ("comment", "wanted"),
    [
        ("#docid = GX008-86 inc = 1", "GX008-86"),
        ("# docid=a", "a"),
        ("#\tdocid  =\tb\r", "b"),
        ("# docid =", ""),
        ("# docid", ""),
        ("# id = docid", ""),
        ("", ""),
    ],
)
@pytest.mark.parametrize("after", ["", "\n"])
def test_the_span_of_a_document_id_is_that_of_its_word(
    comment: str, wanted: str, after: str
) -> None:
    text = f"\n1 qid:1 1:2 {comment}{after}"
    spans = np.empty((1, 3), np.int64)

    letor_text.read_rows(
        np.frombuffer(text.encode(), np.uint8),
        1,
        np.zeros((1, 1), np.float32),
        np.empty(1, np.float32),
        np.empty(1, np.int64),
        spans,
    )

    line, start, end = spans[0].tolist()
    assert (line, text[start:end]) == (1, wanted)
