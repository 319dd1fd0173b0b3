import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.data.tables import first_short_row

FIELDS = st.text(st.sampled_from('ab",\n '), max_size=4)


def short_row(text: str, n_fields: int) -> int:
    return int(first_short_row(np.frombuffer(text.encode(), np.uint8), ord(","), n_fields))


@given(st.lists(st.lists(FIELDS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_the_first_row_with_too_few_fields_is_found(rows: list[list[str]]) -> None:
    parts = []
    for row in rows:
        written = io.StringIO()
        csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(row)
        parts.append(written.getvalue())
    short = [place for place, row in enumerate(rows) if len(row) < 3]
    wanted = sum(map(len, parts[: short[0]])) if short else -1
    assert short_row("".join(parts), 3) == wanted


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a,b\n\n\r\nc,d\n", -1),  # blank lines are no rows
        ('a,5" pipe\nb,c\n', -1),  # a quote within a field is a letter
        ("a,b\nc", 4),
        ("a,b\r\nc\r\nd,e", 5),
        ("", -1),
    ],
)
def test_odd_rows_are_told_apart(text: str, place: int) -> None:
    assert short_row(text, 2) == place
