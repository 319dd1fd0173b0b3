from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairtopk as ft

COLUMNS = {"user": "user", "item": "item", "rating": "rating", "time": "time"}


def test_users_and_items_are_numbered_in_order_of_first_appearance(
    data: ft.Interactions,
) -> None:
    assert data.user_ids.to_list() == ["b", "a", "c"]
    assert data.item_ids.to_list() == [10, 20, 30, 40]
    assert data.offsets.tolist() == [0, 2, 4, 7]
    assert data.item.tolist() == [0, 1, 0, 2, 2, 3, 0]
    assert data.rating.tolist() == [5, 4, 3, 2, 1, 5, 4]
    assert data.rating.dtype == np.float32
    assert (data.n_users, data.n_items, data.n_ratings) == (3, 4, 7)


def test_an_item_without_a_label_is_unknown_and_counted(data: ft.Interactions) -> None:
    assert data.group_names == ("Horror", "other")
    assert data.group.tolist() == [0, 1, 1, -1]
    assert data.group_counts == {"Horror": 1, "other": 2}
    assert data.n_unknown == 1
    assert data.catalogue_counts == {"Horror": 2, "other": 2}


def test_polars_pandas_and_arrow_give_the_same(ratings: pl.DataFrame) -> None:
    frames = [ratings, ratings.to_pandas(), ratings.to_arrow()]
    assert isinstance(frames[1], pd.DataFrame)
    assert isinstance(frames[2], pa.Table)
    checksums = {ft.Interactions.from_frame(frame, **COLUMNS).checksum for frame in frames}
    assert len(checksums) == 1


def test_the_checksum_tells_data_apart(ratings: pl.DataFrame, data: ft.Interactions) -> None:
    plain = ft.Interactions.from_frame(ratings, **COLUMNS)
    other = ft.Interactions.from_frame(ratings.with_columns(rating=pl.lit(1.0)), **COLUMNS)
    assert len({plain.checksum, other.checksum, data.checksum}) == 3


def test_without_a_rating_column_every_row_is_a_rating_of_one(ratings: pl.DataFrame) -> None:
    data = ft.Interactions.from_frame(ratings, user="user", item="item")
    assert data.rating.tolist() == [1.0] * 7
    assert data.time is None


def test_sparse_ids_are_numbered_like_dense_ones() -> None:
    frame = pl.DataFrame({"user": [10**15, -5, 10**15], "item": [1, 1, 2**62]})
    data = ft.Interactions.from_frame(frame, user="user", item="item")
    assert data.user_ids.to_list() == [10**15, -5]
    assert data.item_ids.to_list() == [1, 2**62]
    assert data.item.tolist() == [0, 1, 0]


WHOLE, FRACTIONS = st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9)
DATES = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1))
NUMBERS, TEXTS = st.integers(-(2**40), 2**40) | st.integers(0, 9), st.text(max_size=3)


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    ids, times = (
        draw(st.sampled_from([NUMBERS, TEXTS])),
        draw(st.sampled_from([WHOLE, FRACTIONS, DATES])),
    )
    row = st.tuples(ids, ids, st.floats(0, 10), times)
    rows = draw(st.lists(row, min_size=1, max_size=20, unique_by=lambda row: row[:2]))
    return pl.DataFrame(rows, schema=list(COLUMNS), orient="row")


def test_the_way_out_carries_the_group_of_each_item(data: ft.Interactions) -> None:
    out = data.to_frame()
    assert dict(zip(out["item"], out["group"], strict=True)) == {
        10: "Horror", 20: "other", 30: "other", 40: None,
    }  # fmt: skip


def test_a_rule_on_the_frame_itself_makes_groups(ratings: pl.DataFrame) -> None:
    frame = ratings.with_columns(kind=pl.col("item") // 20)
    for rule in ({"column": "kind", "below": 1}, ft.GroupRule("kind", below=1)):
        data = ft.Interactions.from_frame(frame, user="user", item="item", groups=rule)
        assert data.group_counts == {"kind < 1": 1, "kind >= 1": 3}
    with pytest.raises(ft.InputError, match="groups must be a rule such as"):
        ft.Interactions.from_frame(frame, user="user", item="item", groups="kind")  # type: ignore[arg-type]


def test_truth_values_are_ratings_of_one_and_zero() -> None:
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "liked": [True, False]})
    data = ft.Interactions.from_frame(frame, user="user", item="item", rating="liked")
    assert data.rating.tolist() == [1, 0]


def test_ids_that_run_together_have_another_checksum() -> None:
    frames = [
        pl.DataFrame({"u": ["a", "b"], "i": ["c", "d"]}),
        pl.DataFrame({"u": ["a", "bc"], "i": ["", "d"]}),
        pl.DataFrame({"u": ["a", "b"], "i": ["cd", ""]}),
    ]
    assert (
        len({ft.Interactions.from_frame(f, user="u", item="i").checksum for f in frames}) == 3
    )


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (
            pl.DataFrame({"user": [1], "item": [[1]], "time": [1]}),
            "item must hold ids, text or",
        ),
        (
            pl.DataFrame({"user": [1], "item": [b"x"], "time": [1]}),
            "item must hold ids, text or",
        ),
        (
            pl.DataFrame({"user": [1], "item": [1], "time": [2**63 + 1]}),
            "time must lie within 64",
        ),
        (
            pl.DataFrame({"user": [1], "item": [1], "time": [True]}),
            "time must hold numbers or d",
        ),
        (pl.DataFrame({"user": [1], "item": [1], "time": [1]}).lazy(), r"by \.collect\(\)"),
        (
            pd.DataFrame([[1, 1, 1, 1]], columns=["user", "user", "item", "time"]),
            "cannot be read",
        ),
    ],
)
def test_a_frame_that_cannot_be_used_is_refused_in_one_sentence(
    frame: object, sentence: str
) -> None:
    with pytest.raises(ft.InputError, match=sentence) as error:
        ft.Interactions.from_frame(frame, user="user", item="item", time="time")  # type: ignore[type-var]
    assert "\n" not in str(error.value)


@given(tables())
def test_a_table_comes_out_as_it_went_in_user_by_user(table: pl.DataFrame) -> None:
    data = ft.Interactions.from_frame(table, **COLUMNS)
    out = data.to_frame().drop("group")

    order = {user: place for place, user in enumerate(dict.fromkeys(table["user"]))}
    expected = table.sort(pl.col("user").replace_strict(order), maintain_order=True)
    assert out.cast({"rating": pl.Float64}).equals(expected)
    assert out.schema["time"] == table.schema["time"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"user": None}, "row 2 of the table: user is missing; mend or remove the 1 such row"),
        ({"rating": None}, "row 2 of the table: rating is missing"),
        ({"rating": float("nan")}, "row 2 of the table: rating is missing"),
        ({"rating": float("inf")}, "row 2 of the table: rating is inf"),
        ({"rating": 11.0}, "row 2 of the table: rating must lie between 0 and 10, got 11"),
        ({"rating": -1.0}, "row 2 of the table: rating must lie between 0 and 10, got -1"),
        ({"time": None}, "row 2 of the table: time is missing"),
        ({"item": 10}, "row 2 of the table: user 'b' rates item 10 again (first in row 0"),
    ],
)
def test_a_bad_value_is_refused_with_its_row(
    ratings: pl.DataFrame, change: dict[str, object], sentence: str
) -> None:
    rows = ratings.rows(named=True)
    rows[2] |= change
    with pytest.raises(ft.InputError) as error:
        ft.Interactions.from_frame(pl.DataFrame(rows), **COLUMNS)
    assert str(error.value).startswith(sentence)


def test_text_where_a_rating_should_be_is_refused(ratings: pl.DataFrame) -> None:
    frame = ratings.with_columns(rating=pl.Series(["1", "2", "x", "4", "5", "1", "2"]))
    with pytest.raises(
        ft.InputError, match=r"row 2 of the table: rating must be a number.*'x'"
    ):
        ft.Interactions.from_frame(frame, **COLUMNS)


def test_an_absent_column_is_named_with_those_that_are_there(ratings: pl.DataFrame) -> None:
    with pytest.raises(ft.InputError, match="no column 'stars': its columns are user, item"):
        ft.Interactions.from_frame(ratings, user="user", item="item", rating="stars")


def test_a_table_without_rows_is_refused(ratings: pl.DataFrame) -> None:
    with pytest.raises(ft.InputError, match="empty: it has columns but no rows"):
        ft.Interactions.from_frame(ratings.head(0), **COLUMNS)


def test_something_that_is_no_frame_is_refused() -> None:
    with pytest.raises(
        ft.InputError, match=r"must be a polars, pandas or Arrow frame.*got list"
    ):
        ft.Interactions.from_frame([1, 2], **COLUMNS)  # type: ignore[type-var]
