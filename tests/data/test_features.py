from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.data.features import Features
from fairtopk.data.groups import GroupRule, groups_from
from fairtopk.errors import InputError

COLUMNS = {"query": "qid", "relevance": "grade", "item": "doc"}


@pytest.fixture
def table() -> pl.DataFrame:
    """Three queries, the rows of "b" and "a" in two places each."""
    return pl.DataFrame(
        {
            "qid": ["b", "a", "b", "c", "a"],
            "doc": [10, 10, 20, 30, 40],
            "length": [1.5, -2.0, 0.25, 3.0, 4.0],
            "clicks": [1, 0, 7, 2, 5],
            "grade": [0.5, 2.0, 1.0, 0.0, 3.25],
            "sex": ["f", "m", None, "m", "m"],
        }
    )


def test_rows_are_grouped_by_query_in_the_order_of_the_source(table: pl.DataFrame) -> None:
    data = Features.from_frame(table, **COLUMNS)

    assert data.query_ids.to_list() == ["b", "a", "c"]
    assert data.offsets.tolist() == [0, 2, 4, 5]
    assert data.row.tolist() == [0, 2, 1, 4, 3]
    assert data.item_ids.to_list() == [10, 20, 10, 40, 30]
    assert data.values.tolist() == [[1.5, 1], [0.25, 7], [-2, 0], [4, 5], [3, 2]]
    assert data.relevance.tolist() == [0.5, 1.0, 2.0, 3.25, 0.0]
    assert data.query_of_row().tolist() == [0, 0, 1, 1, 2]
    assert (data.n_queries, data.n_rows) == (3, 5)
    assert {data.values.dtype, data.relevance.dtype} == {np.dtype(np.float32)}


def test_features_are_the_numeric_columns_without_another_meaning(table: pl.DataFrame) -> None:
    plain = Features.from_frame(table, query="qid", relevance="grade")
    ruled = Features.from_frame(table, **COLUMNS, groups=GroupRule("clicks", below=3))
    named = Features.from_frame(
        table, **COLUMNS, features=["clicks"], groups=GroupRule("clicks", below=3)
    )

    assert plain.feature_names == ("doc", "length", "clicks")
    assert ruled.feature_names == ("length",)
    assert named.feature_names == ("clicks",)
    assert named.values[:, 0].tolist() == [1, 7, 0, 5, 2]


def test_features_keep_the_order_they_are_named_in(table: pl.DataFrame) -> None:
    data = Features.from_frame(table, **COLUMNS, features=["clicks", "length"])

    assert data.feature_names == ("clicks", "length")
    assert data.values[0].tolist() == [1.0, 1.5]


def test_without_document_ids_a_document_is_called_by_its_row(table: pl.DataFrame) -> None:
    data = Features.from_frame(table, query="qid", relevance="grade", features=["length"])

    assert data.item_ids.to_list() == data.row.tolist() == [0, 2, 1, 4, 3]


def test_a_column_of_labels_makes_the_groups_the_smallest_first(table: pl.DataFrame) -> None:
    data = Features.from_frame(table, **COLUMNS, group="sex")

    assert data.group_names == ("f", "m")
    assert data.group.tolist() == [0, -1, 1, 1, 1]
    assert data.group_counts == {"f": 1, "m": 3}
    assert data.n_unknown == 1


def test_a_rule_names_the_first_group_even_if_it_is_larger(table: pl.DataFrame) -> None:
    data = Features.from_frame(table, **COLUMNS, groups=GroupRule("length", at_least=0))

    assert data.group_names == ("length >= 0", "length < 0")
    assert data.group.tolist() == [0, 0, 1, 0, 0]


def test_labels_by_document_hold_in_every_query(table: pl.DataFrame) -> None:
    labels = pl.DataFrame({"doc": [10, 20, 30], "kind": ["x", "y", "y"]})
    groups = groups_from(labels, item="doc", column="kind", equals="y")

    data = Features.from_frame(table, **COLUMNS, groups=groups)

    assert data.group_names == ("y", "other")
    assert data.group.tolist() == [1, 0, 1, -1, 0]
    assert data.group_counts == {"y": 2, "other": 2}


def test_without_groups_every_row_is_unknown(table: pl.DataFrame) -> None:
    data = Features.from_frame(table, **COLUMNS, name="exams")

    assert (data.group_names, data.group_counts, data.n_unknown) == ((), {}, 5)
    assert repr(data) == "<Features exams: 3 queries, 5 documents, 2 features; (unknown) 5>"


def test_polars_pandas_and_arrow_give_the_same(table: pl.DataFrame) -> None:
    frames = [table, table.to_pandas(), table.to_arrow()]

    checksums = {Features.from_frame(f, **COLUMNS, group="sex").checksum for f in frames}

    assert len(checksums) == 1


@pytest.mark.parametrize(
    "change",
    [
        pl.col("length") + 1,
        pl.col("grade") + 1,
        pl.col("doc") + 1,
        pl.col("qid") + "x",
        pl.col("sex").replace("f", "w"),
        pl.col("sex").fill_null("f"),
    ],
)
def test_the_checksum_tells_data_apart(table: pl.DataFrame, change: pl.Expr) -> None:
    changed = table.with_columns(change)

    one, other = (Features.from_frame(f, **COLUMNS, group="sex") for f in (table, changed))

    assert one.checksum != other.checksum


def test_the_checksum_leaves_the_name_alone(table: pl.DataFrame) -> None:
    one, other = (Features.from_frame(table, **COLUMNS, name=name) for name in "ab")

    assert one.checksum == other.checksum


def test_booleans_are_features_when_they_are_named() -> None:
    table = pl.DataFrame({"qid": [1, 1], "grade": [0, 1], "new": [True, False]})

    data = Features.from_frame(table, query="qid", relevance="grade", features=["new"])

    assert data.values.tolist() == [[1.0], [0.0]]


IDS = st.integers(-3, 3) | st.integers(10**15, 10**15 + 3)
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)
GRADES = st.floats(0, 100, width=32)
TABLE_ROWS = st.lists(
    st.tuples(IDS, IDS, GRADES, NUMBERS, NUMBERS, st.sampled_from(["f", "m", None])),
    min_size=1,
    unique_by=lambda row: row[:2],
)


@given(TABLE_ROWS, st.booleans())
def test_the_way_back_loses_nothing(rows: list[tuple[Any, ...]], as_text: bool) -> None:
    names = ["query", "item", "relevance", "x", "y", "group"]
    dtypes = [pl.Int64, pl.Int64, pl.Float32, pl.Float32, pl.Float32, pl.String]
    table = pl.DataFrame(rows, schema=dict(zip(names, dtypes, strict=True)), orient="row")
    if as_text:
        table = table.with_columns(pl.col("query", "item").cast(pl.String))
    labelled = table["group"].drop_nulls().n_unique() == 2

    data = Features.from_frame(
        table,
        query="query",
        relevance="relevance",
        item="item",
        group="group" if labelled else None,
    )

    wanted = table if labelled else table.with_columns(group=pl.lit(None, pl.String))
    assert data.to_frame().equals(wanted)
    assert data.n_queries == table["query"].n_unique()


def replaced(table: pl.DataFrame, column: str, row: int, value: object) -> pl.DataFrame:
    values = table[column].to_list()
    values[row] = value
    return table.with_columns(pl.Series(column, values, dtype=table[column].dtype))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("length", None, "row 3 of the table: length is missing; .* 1 such row$"),
        ("length", float("nan"), "row 3 of the table: length is missing"),
        (
            "length",
            float("inf"),
            "row 3 of the table: length is inf, which float32 cannot hold",
        ),
        ("length", 1e300, "row 3 of the table: length is 1e\\+300, which float32 cannot hold"),
        ("clicks", None, "row 3 of the table: clicks is missing"),
        ("grade", float("nan"), "row 3 of the table: grade is missing"),
        ("grade", None, "row 3 of the table: grade is missing"),
        ("qid", None, "row 3 of the table: qid is missing"),
        ("doc", None, "row 3 of the table: doc is missing"),
    ],
)
def test_a_missing_or_endless_value_is_refused_with_its_row(
    table: pl.DataFrame, column: str, value: object, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Features.from_frame(replaced(table, column, 3, value), **COLUMNS)


def test_a_document_twice_in_a_query_is_refused_with_both_rows(table: pl.DataFrame) -> None:
    message = "row 4 of the table: query 'a' holds item 10 again \\(first in row 1 of the table"
    with pytest.raises(InputError, match=message):
        Features.from_frame(replaced(table, "doc", 4, 10), **COLUMNS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": "topic"}, "no column 'topic'"),
        ({"relevance": "stars"}, "no column 'stars'"),
        ({"features": ["depth"]}, "no column 'depth'"),
        ({"group": "age"}, "no column 'age'"),
        ({"groups": GroupRule("age")}, "no column 'age'"),
        ({"features": ["sex"]}, "row 0 of the table: sex must be a number, got 'f'"),
        ({"relevance": "sex"}, "row 0 of the table: sex must be a number, got 'f'"),
        ({"features": []}, "the table has no column of features"),
        ({"features": ["length", "length"]}, "must not name 'length', a column that is read"),
        ({"features": ["grade"]}, "must not name 'grade', a column that is read"),
        ({"group": "sex", "groups": GroupRule("sex")}, "give one of them"),
        ({"groups": GroupRule("sex", equals="x")}, "into one group \\('other'\\)"),
        ({"groups": GroupRule("clicks", below=99)}, "into one group \\('clicks < 99'\\)"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(
    table: pl.DataFrame, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Features.from_frame(table, **(COLUMNS | options))


def test_a_column_with_one_label_makes_no_groups(table: pl.DataFrame) -> None:
    with pytest.raises(InputError, match="into one group \\('m'\\)"):
        Features.from_frame(replaced(table, "sex", 0, "m"), **COLUMNS, group="sex")


def test_labels_by_document_need_the_documents_column(table: pl.DataFrame) -> None:
    labels = pl.DataFrame({"doc": [10, 20], "kind": ["x", "y"]})
    groups = groups_from(labels, item="doc", column="kind")

    with pytest.raises(InputError, match="give item"):
        Features.from_frame(table, query="qid", relevance="grade", groups=groups)


def test_a_feature_with_the_name_of_a_column_of_the_way_out_is_refused(
    table: pl.DataFrame,
) -> None:
    with pytest.raises(InputError, match="a feature of the table is called 'relevance'"):
        Features.from_frame(table.rename({"length": "relevance"}), **COLUMNS)


def test_the_law_students_have_their_women_as_the_smaller_group(real_data: Path) -> None:
    frame = pl.read_parquet(real_data / "ltr" / "law-students.gender.parquet")
    frame = frame.with_columns(pl.col("relevance").clip(0))  # one student has -0.01

    data = Features.from_frame(
        frame, query="query_id", relevance="relevance", group="protected"
    )

    assert data.feature_names == ("lsat", "ugpa")
    assert (data.n_queries, data.n_rows) == (1, 6_101)
    assert data.group_counts == {"1": 2_731, "0": 3_370}
    back = data.to_frame()
    for name in ("relevance", "lsat", "ugpa"):
        assert back[name].equals(frame[name].cast(pl.Float32))


def test_the_w3c_experts_have_the_published_share_of_women(real_data: Path) -> None:
    frame = pl.read_parquet(real_data / "ltr" / "w3c-experts.gender.parquet")

    data = Features.from_frame(
        frame,
        query="query_id",
        relevance="relevance",
        features=["f1", "f2", "f3", "f4", "f5"],
        groups=GroupRule("protected", equals=1),
    )

    assert (data.n_queries, data.n_rows) == (60, 12_190)
    assert data.group_names[0] == "1"
    assert data.group_counts["1"] / data.n_rows == pytest.approx(0.103, abs=5e-4)


@pytest.mark.parametrize("grade", [-0.5, 101.0])
def test_relevance_that_no_gain_can_be_taken_of_is_refused(
    table: pl.DataFrame, grade: float
) -> None:
    with pytest.raises(
        InputError, match="row 2 of the table: relevance must lie between 0 and"
    ):
        Features.from_frame(replaced(table, "grade", 2, grade), **COLUMNS)
