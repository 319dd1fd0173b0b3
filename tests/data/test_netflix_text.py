"""The text of the Netflix Prize, parsed and sampled by compiled loops."""

from calendar import monthrange
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk.data.netflix import (
    Parsed,
    count_ratings,
    month_length,
    parse_ratings,
    sample_rows,
)

without_deadline = settings(deadline=None)  # the first example may wait for the compiler
GOOD = "1:\n12,3,2005-09-06\n"


def text(lines: str) -> NDArray[np.uint8]:
    return np.frombuffer(lines.encode(), np.uint8)


def rows(parsed: Parsed) -> list[tuple[int, int, float, int]]:
    assert parsed.bad == -1
    columns = (parsed.user, parsed.item, parsed.rating, parsed.day)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_rating_belongs_to_the_movie_named_last() -> None:
    parsed = parse_ratings(
        text("8:\n12,3,1970-01-02\n7,5,1969-12-31\n9:\n10:\n12,1,1970-01-01\n")
    )

    assert rows(parsed) == [(12, 8, 3.0, 1), (7, 8, 5.0, -1), (12, 10, 1.0, 0)]
    assert [column.dtype for column in parsed[:-1]] == [
        np.int32,
        np.int32,
        np.float32,
        np.int32,
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.replace("\n", "\r\n"),
        lambda lines: lines.rstrip("\n"),
        lambda lines: lines.replace("\n", "\r\n").rstrip("\n"),
        lambda lines: "\n" + lines.replace("\n", "\n\n") + "\r\n\n",
    ],
    ids=["windows", "no final newline", "a final return", "blank lines"],
)
def test_line_ends_and_blank_lines_change_nothing(change) -> None:
    lines = "1:\n12,3,2005-09-06\n7,5,1999-12-31\n2:\n3,4,2000-02-29\n"

    changed = text(change(lines))

    assert count_ratings(changed) == 3
    assert rows(parse_ratings(changed)) == rows(parse_ratings(text(lines)))


@without_deadline
@given(st.lists(st.dates(), min_size=1, max_size=20))
def test_dates_round_trip(dates: list[date]) -> None:
    lines = "1:\n" + "".join(f"7,4,{day.isoformat()}\n" for day in dates)

    days = parse_ratings(text(lines)).day

    assert np.array_equal(days.astype("datetime64[D]"), np.array(dates, "datetime64[D]"))


def test_months_are_as_long_as_the_calendar_says() -> None:
    for year in range(1600, 2401):  # one whole turn of the Gregorian calendar, both ends
        for month in range(1, 13):
            assert month_length(year, month) == monthrange(year, month)[1]


@pytest.mark.parametrize(
    "line",
    [
        "12",
        "12,2005-09-06",
        "12,3",
        "12,3,2005-9-6",
        "12,3,2005/09/06",
        "12,3,2005-09-06 ",
        "12,3,2005-09-06,",
        "12,3,4,2005-09-06",
        "12,,2005-09-06",
        ",3,2005-09-06",
        "12,3.5,2005-09-06",
        "-12,3,2005-09-06",
        "12, 3,2005-09-06",
        "1234567890,3,2005-09-06",
        "12,3,2005-00-06",
        "12,3,2005-13-06",
        "12,3,2005-09-00",
        "12,3,2005-09-31",
        "12,3,2005-02-29",
        "12,3,20x5-02-28",
        "12,3,2005-02-2x",
        ":",
        "x:",
        "1,2:",
        "user,rating,date",
    ],
)
@pytest.mark.parametrize("after", ["", "\n", "\r\n", "\n13,3,2005-09-06\n"])
def test_a_malformed_line_is_pointed_at(line: str, after: str) -> None:
    assert parse_ratings(text(GOOD + line + after)).bad == len(GOOD)


def test_a_rating_before_any_movie_is_malformed() -> None:
    assert parse_ratings(text("12,3,2005-09-06\n" + GOOD)).bad == 0


@without_deadline
@given(st.text(alphabet="0123456789,-:\n\r", max_size=60))
def test_rows_are_counted_as_they_are_parsed(lines: str) -> None:
    parsed = parse_ratings(text(lines))

    filled = [line for line in lines.split("\n") if line.removesuffix("\r")]
    movies = [line for line in filled if line.removesuffix("\r").endswith(":")]
    assert count_ratings(text(lines)) == len(filled) - len(movies) == len(parsed.user)


@without_deadline
@given(st.integers(1, 200), st.data(), st.integers(-(2**63), 2**63 - 1))
def test_a_sample_has_its_size_and_no_row_twice(total: int, data: st.DataObject, seed) -> None:
    wanted = data.draw(st.integers(1, total))

    sample = sample_rows(total, wanted, seed)

    assert len(sample) == wanted
    assert sample.min() >= 0
    assert sample.max() < total
    assert (np.diff(sample) > 0).all()


def test_every_pair_of_rows_is_drawn_equally_often() -> None:
    draws = 6_000
    pairs = np.zeros((5, 5))
    for seed in range(draws):
        first, second = sample_rows(5, 2, seed)
        pairs[first, second] += 1

    seen = pairs[np.triu_indices(5, 1)]
    expected = draws / 10
    chi_square = ((seen - expected) ** 2 / expected).sum()
    assert seen.sum() == draws
    assert chi_square < 27.9  # 9 degrees of freedom, one in a thousand
