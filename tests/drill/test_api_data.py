"""Wrong frames, splits, samplers, paths and settings of the Python API's data."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from drill.wrong import (
    NO_COLUMN,
    NO_FLAG,
    NO_NUMBER,
    NO_PATH,
    NO_SIZE,
    NO_TEXT,
    NO_VALUES,
    NO_WHOLE,
    NO_WORD,
    Call,
    Maker,
    checked,
    rows,
    without,
)

import fairtopk as ft

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("elsewhere"),
]

CLICKS = pl.DataFrame(
    {
        "user": [1, 1, 1, 2, 2, 2, 3, 3, 3],
        "item": [1, 2, 3, 1, 2, 4, 2, 3, 4],
        "rating": [5.0, 3.0, 1.0, 4.0, 2.0, 5.0, 1.0, 2.0, 3.0],
        "time": [1, 2, 3, 1, 2, 3, 1, 2, 3],
        "genre": list("abcabcbca"),
    }
)
ITEMS = pl.DataFrame(
    {"item": [1, 2, 3, 4], "genre": list("abab"), "year": [1980, 1990, 2000, None]}
)
ROWS = pl.DataFrame(
    {
        "query": [1, 1, 1, 1, 2, 2, 2, 2],
        "doc": list("abcdabcd"),
        "score": [4.0, 3.0, 2.0, 1.0, 1.0, 4.0, 3.0, 2.0],
        "grade": [1, 0, 2, 0, 0, 1, 0, 1],
        "sex": list("mmffmmff"),
        "age": [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0],
    }
)


def with_column(frame: pl.DataFrame, name: str, values: Any) -> Maker:
    return lambda: frame.with_columns(pl.Series(name, values, strict=False))


def frames(frame: pl.DataFrame) -> dict[str, Maker]:
    """Return what is no frame to read, whatever its columns."""
    first = frame.columns[0]
    return without(NO_VALUES, "a frame of text", "a lazy frame") | {
        "a lazy frame": frame.lazy,
        "no rows": lambda: frame.head(0),
        "no columns": lambda: frame.select([]),
        "a column gone": lambda: frame.drop(first),
        "a series": lambda: frame[first],
        "pandas, a column twice": lambda: pd.concat(
            [frame.to_pandas(), frame.to_pandas()[[first]]], axis=1
        ),
        "Arrow, a column twice": lambda: pa.table(
            [frame[name].to_arrow() for name in (*frame.columns, first)],
            names=[*frame.columns, first],
        ),
        "pandas of no rows": lambda: frame.to_pandas().head(0),
        "a null id": lambda: frame.with_columns(pl.lit(None).alias(first)),
        "one null id": lambda: frame.with_columns(pl.col(first).shift()),
        "ids of lists": lambda: frame.with_columns(pl.concat_list(first)),
        "ids of records": lambda: frame.with_columns(pl.struct(first).alias(first)),
        "ids of bytes": lambda: frame.with_columns(pl.lit(b"a").alias(first)),
        "NaN ids": lambda: frame.with_columns(pl.lit(float("nan")).alias(first)),
        "pandas, mixed ids": lambda: frame.to_pandas().assign(
            **{first: [1, "a", 2.5, None, object(), b"x", *"abc"][: len(frame)]}
        ),
        "pandas, two levels": lambda: pd.concat({"a": frame.to_pandas()}, axis=1),
        "pandas, columns of numbers": lambda: frame.to_pandas().rename(columns={first: 0}),
    }


def from_frame_calls() -> Iterator[Call]:
    names = {"user": "user", "item": "item", "rating": "rating", "time": "time"}
    given = {"frame": CLICKS, **names}
    grouped = given | {"groups": {"column": "year", "below": 1990}}
    grouped["frame"] = CLICKS.join(ITEMS, on="item")
    columns = {"user": NO_COLUMN, "item": NO_COLUMN}
    columns |= {name: without(NO_COLUMN, "None") for name in ("rating", "time")}
    rules: dict[str, Maker] = {
        "text": lambda: "genre",
        "a list": lambda: ["genre"],
        "an object": object,
        "a frame": lambda: ITEMS,
        "no column": lambda: {"contains": "a"},
        "an unknown key": lambda: {"column": "genre", "colour": "a"},
        "a key of no text": lambda: {1: 2, "column": "genre"},
        "an absent column": lambda: {"column": "absent"},
        "two conditions": lambda: {"column": "year", "below": 1, "at_least": 2},
        "a condition of None": lambda: {"column": None},
        "a bound of text": lambda: {"column": "year", "below": "1990"},
        "a bound of NaN": lambda: {"column": "year", "below": float("nan")},
        "a bound of True": lambda: {"column": "year", "below": True},
        "a bound on text": lambda: {"column": "genre_right", "below": 3},
        "an empty separator": lambda: {"column": "genre", "contains": "a", "separator": ""},
        "of nobody": lambda: {"column": "genre_right", "equals": "z"},
        "of everybody": lambda: {"column": "year", "below": 9999},
    }
    says = {name: "table" for name in given} | {"frame": "row|table", "groups": "rule|column"}
    yield Call("Interactions", ft.Interactions.from_frame, partial(dict, given), columns, says)
    yield Call(
        "Interactions",
        ft.Interactions.from_frame,
        partial(dict, given),
        {
            "frame": frames(CLICKS)
            | {
                "a pair twice": lambda: pl.concat([CLICKS, CLICKS.head(1)]),
                "ratings of text": with_column(CLICKS, "rating", ["x"] * 9),
                "numbers as text": with_column(CLICKS, "rating", ["1"] * 9),
                "a null rating": with_column(CLICKS, "rating", [None] + [1.0] * 8),
                "a NaN rating": with_column(CLICKS, "rating", [float("nan")] + [1.0] * 8),
                "an infinite rating": with_column(CLICKS, "rating", [float("inf")] * 9),
                "a negative rating": with_column(CLICKS, "rating", [-1.0] * 9),
                "a rating of 11": with_column(CLICKS, "rating", [11] * 9),
                "times of text": with_column(CLICKS, "time", ["soon"] * 9),
                "a null time": with_column(CLICKS, "time", [None] + [1] * 8),
                "infinite times": with_column(CLICKS, "time", [float("inf")] * 9),
                "times past 64 bits": with_column(CLICKS, "time", [1e30] * 9),
                "times of lists": lambda: CLICKS.with_columns(pl.concat_list("time")),
                "ratings of lists": lambda: CLICKS.with_columns(pl.concat_list("rating")),
                "ratings of dates": lambda: CLICKS.with_columns(
                    pl.lit("2020-01-01").str.to_date().alias("rating")
                ),
            }
        },
        says | {"frame": "table"},
    )
    yield Call(
        "Interactions",
        ft.Interactions.from_frame,
        partial(dict, grouped),
        {"groups": rules},
        says,
    )
    of_items = {"frame": ITEMS, "item": "item", "column": "genre"}
    yield Call(
        "groups_from",
        ft.groups_from,
        partial(dict, of_items),
        {
            "frame": frames(ITEMS),
            "item": NO_COLUMN,
            "column": NO_COLUMN,
            "contains": NO_TEXT,
            "separator": NO_TEXT | {"None": lambda: None, "nothing": lambda: ""},
            "equals": without(NO_TEXT, "a number") | {"nobody": lambda: "z"},
            "below": without(NO_NUMBER, "None") | {"a bound on text": lambda: 3},
            "at_least": without(NO_NUMBER, "None") | {"a bound on text": lambda: 3},
        },
        {
            "frame": "table",
            "item": "table",
            "equals": "rule",
            "below": "bound",
            "at_least": "bound",
        },
    )
    of_rows = {
        "frame": ROWS,
        "query": "query",
        "relevance": "grade",
        "item": "doc",
        "group": "sex",
    }
    columns = {name: without(NO_COLUMN, "None") for name in ("item", "group")}
    columns |= {"query": NO_COLUMN, "relevance": NO_COLUMN}
    features: dict[str, Maker] = {
        "text": lambda: "age",
        "none": list,
        "an absent one": lambda: ["absent"],
        "one twice": lambda: ["age", "age"],
        "one of text": lambda: ["sex"],
        "of numbers": lambda: [1, 2],
        "a number": lambda: 3,
        "an object": object,
        "bytes": lambda: b"age",
        "the relevance": lambda: ["grade"],
        "a dict": lambda: {"age": 1},
        "None among them": lambda: ["age", None],
    }
    yield Call(
        "Features",
        ft.Features.from_frame,
        partial(dict, of_rows),
        columns
        | {
            "features": features,
            "groups": {"as well": lambda: ft.GroupRule("sex"), **rules},
            "frame": frames(ROWS)
            | {
                "a document twice": lambda: pl.concat([ROWS, ROWS.head(1)]),
                "a null grade": with_column(ROWS, "grade", [None] + [1] * 7),
                "grades of text": with_column(ROWS, "grade", ["x"] * 8),
                "an infinite feature": with_column(ROWS, "age", [float("inf")] * 8),
                "a feature past float32": with_column(ROWS, "age", [1e300] * 8),
                "one group": with_column(ROWS, "sex", ["f"] * 8),
                "no group": lambda: ROWS.with_columns(sex=pl.lit(None, pl.String)),
                "groups of lists": lambda: ROWS.with_columns(pl.concat_list("sex")),
            },
        },
        {name: "table" for name in of_rows}
        | {"features": "table", "frame": "row|table", "groups": "rule|column"},
    )


@cache
def data() -> ft.Interactions:
    return ft.make_synthetic(ft.SyntheticShape(30, 60, 800)).data


@cache
def lists() -> ft.Lists:
    return ft.split(data(), test=3, validation=3)


@cache
def documents() -> ft.Features:
    return ft.Features.from_frame(
        pl.DataFrame({"q": np.repeat(np.arange(10), 4), "y": 1, "x": np.arange(40.0)}),
        query="q",
        relevance="y",
    )


NO_DATA: dict[str, Maker] = {
    "None": lambda: None,
    "a frame": lambda: CLICKS,
    "text": lambda: "data",
    "an array": lambda: np.zeros((3, 4)),
    "features": documents,
    "a class": lambda: ft.Interactions,
}


def split_calls() -> Iterator[Call]:
    counts = {
        "data": NO_DATA,
        "test": NO_SIZE | {"more than anybody has": lambda: 10**6},
        "validation": NO_WHOLE | {"more than anybody has": lambda: 10**6},
        "min_ratings": without(NO_WHOLE, "None") | {"more than anybody has": lambda: 10**6},
    }
    given = partial(lambda: {"data": data(), "test": 3, "validation": 3})
    says = dict.fromkeys(counts, "ratings")
    yield Call("split", ft.split, given, counts, says)
    yield Call("split_random", ft.split_random, given, {"seed": NO_WHOLE, **counts}, says)
    shares = NO_NUMBER | {"one": lambda: 1.0, "tiny": lambda: 1e-9}
    yield Call(
        "split_queries",
        ft.split_queries,
        lambda: {"features": documents()},
        {
            "features": without(NO_DATA, "features") | {"interactions": data},
            "test": shares,
            "validation": shares,
            "seed": NO_WHOLE,
        },
        dict.fromkeys(("test", "validation"), "shares"),
    )
    yield Call(
        "save_split",
        ft.save_split,
        lambda: {"lists": lists(), "path": "unused"},
        {
            "lists": NO_DATA,
            "path": without(NO_PATH, "absent", "a device"),
        },
        {"path": "/"},
    )
    yield Call(
        "load_split",
        ft.load_split,
        lambda: {"path": "unused", "data": data()},
        {
            "path": NO_PATH,
        },
        {"path": ""},
    )
    yield Call(
        "sampled",
        lambda **given: lists().test.sampled(**given),
        dict,
        {
            "unrated": NO_SIZE,
            "seed": NO_WHOLE,
        },
    )
    sizes = {
        "rated": NO_SIZE,
        "unrated": NO_SIZE,
        "per_group": NO_WHOLE,
        "top": NO_WHOLE,
        "head": NO_WHOLE,
    }
    yield Call("ListSizes", ft.ListSizes, dict, sizes)
    yield Call(
        "ListSampler",
        ft.ListSampler,
        lambda: {"lists": lists(), "sizes": ft.ListSizes(3, 10), "seed": 0},
        {
            "lists": NO_DATA,
            "sizes": {"None": lambda: None, "a number": lambda: 3, "a tuple": lambda: (3, 10)},
            "seed": NO_WHOLE,
            "ideal_k": without(NO_SIZE, "None"),
            "corrected": NO_FLAG,
        },
    )
    sampler = lambda: ft.ListSampler(lists(), ft.ListSizes(3, 10), seed=0)  # noqa: E731
    users = without(NO_VALUES, "a dict") | {
        "a number": lambda: 1,
        "negative": lambda: [-1],
        "too large": lambda: [30],
        "floats": lambda: [1.0],
        "truth values": lambda: [True],
        "two dimensions": lambda: [[1]],
    }
    yield Call(
        "draw",
        lambda **given: sampler().draw(**given),
        lambda: {"users": [0], "epoch": 0},
        {
            "users": users,
            "epoch": NO_WHOLE,
        },
    )
    yield Call(
        "epoch",
        lambda **given: list(sampler().epoch(**given)),
        lambda: {"epoch": 0, "batch_size": 8},
        {"epoch": NO_WHOLE, "batch_size": NO_SIZE, "first": NO_WHOLE},
    )


def synthetic_calls() -> Iterator[Call]:
    shape = ft.SyntheticShape(30, 60, 800)
    shares: dict[str, Maker] = {
        "None": lambda: None,
        "text": lambda: "half",
        "a number": lambda: 0.5,
        "one": lambda: (1.0,),
        "past 1": lambda: (0.9, 0.9),
        "NaN": lambda: (float("nan"), 0.5),
        "negative": lambda: (-0.5, 1.5),
        "texts": lambda: ("0.5", "0.5"),
        "tiny": lambda: (0.001, 0.999),
        "a set": lambda: {0.4, 0.6},
    }
    yield Call(
        "SyntheticShape",
        ft.SyntheticShape,
        lambda: {"n_users": 30, "n_items": 60, "n_ratings": 800},
        {"n_users": NO_SIZE, "n_items": NO_SIZE, "n_ratings": NO_SIZE, "group_shares": shares},
    )
    yield Call(
        "make_synthetic",
        ft.make_synthetic,
        lambda: {"shape": shape},
        {
            "shape": NO_DATA | {"a tuple": lambda: (30, 60, 800)},
            "bias": NO_NUMBER | {"11": lambda: 11.0},
            "seed": NO_WHOLE,
        },
    )
    yield Call(
        "make_documents",
        ft.make_documents,
        dict,
        {
            "n_lists": NO_SIZE,
            "length": NO_SIZE,
            "bias": without(NO_NUMBER, "negative"),
            "seed": NO_WHOLE,
        },
    )
    yield Call(
        "load",
        ft.load,
        lambda: {"name": "csv", "path": "unused.csv", "user": "user", "item": "item"},
        {
            "name": NO_WORD,
            "path": NO_PATH,
            "groups": {"text": lambda: "genre", "an object": object},
            "colour": {"text": lambda: "red"},
        },
        {"name": "data set", "path": ""},
    )
    yield Call(
        "load.synthetic",
        ft.load,
        lambda: {"name": "synthetic"},
        {
            "size": NO_WORD,
            "bias": NO_NUMBER,
            "seed": NO_WHOLE,
            "path": {"a file": lambda: "some.csv"},
        },
    )


def audit_calls() -> Iterator[Call]:
    given = {
        "rankings": ROWS,
        "query": "query",
        "item": "doc",
        "groups": "sex",
        "k": 2,
        "score": "score",
    }
    many = partial(dict, given | {"groups": ["sex", "age"]})
    columns = {"query": NO_COLUMN, "item": NO_COLUMN, "score": NO_COLUMN}
    ks = without(NO_SIZE, "a list", "a set", "a generator") | {"none": list, "0": lambda: [0]}
    names = without(NO_COLUMN, "a list") | {
        "none": list,
        "one twice": lambda: ["sex", "sex"],
        "of numbers": lambda: [1],
        "the queries": lambda: "query",
    }
    of_files: dict[str, Maker] = without(NO_PATH, "None", "a device", "a list")
    rules: dict[str, Maker] = {
        "a number": lambda: 1,
        "words": lambda: "unfair",
        "of numbers": lambda: [1],
        "None": lambda: None,
        "an object": object,
        "bytes": lambda: b"impact_ratio@2 < 0.8",
        "another K": lambda: "impact_ratio@7 < 0.8",
        "a long text": lambda: "x" * 10_000,
    }
    says = dict.fromkeys(
        (*columns, "relevance", "groups", "rankings", "items"), "table|column|row"
    ) | {
        "fail_if": "rule",
        "score": "rank",
    }
    yield Call(
        "audit",
        ft.audit,
        partial(dict, given),
        columns
        | {
            "groups": names,
            "k": ks,
            "relevance": without(NO_COLUMN, "None"),
            "rank": without(NO_COLUMN, "None"),
            "local_items": NO_FLAG,
            "min_group": NO_WHOLE,
            "fail_if": rules,
            "seed": NO_WHOLE,
            "separator": without(NO_TEXT, "a list") | {"nothing": lambda: ""},
            "rankings": without(frames(ROWS), "text")
            | {
                "scores of text": with_column(ROWS, "score", ["x"] * 8),
                "a NaN score": with_column(ROWS, "score", [float("nan")] + [1.0] * 7),
                "one group": with_column(ROWS, "sex", ["f"] * 8),
                "two labels": with_column(ROWS, "sex", list("mmffffmm")),
                "an item twice": lambda: pl.concat([ROWS, ROWS.head(1)]),
            },
            "items": without(frames(ROWS.select("doc", "sex").unique()), "None", "text"),
        },
        says,
    )
    yield Call("audit.many", ft.audit, many, {"intersections": NO_FLAG})
    yield Call(
        "audit.path", ft.audit, partial(dict, given), {"rankings": of_files}, {"rankings": ""}
    )
    finished = lambda: {"run_a": "absent", "run_b": "absent"}  # noqa: E731
    yield Call(
        "compare",
        ft.compare,
        finished,
        {"run_a": NO_PATH, "run_b": NO_PATH},
        {
            "run_a": "",
            "run_b": "",
        },
    )
    yield Call(
        "report",
        ft.report,
        lambda: {"folder": "absent"},
        {"folder": without(NO_PATH, "a folder")},
        {"folder": ""},
    )


CALLS = [*from_frame_calls(), *split_calls(), *synthetic_calls(), *audit_calls()]


@pytest.mark.parametrize(("call", "argument", "value"), rows(CALLS))
def test_a_wrong_value_is_refused_in_one_sentence(
    call: Call, argument: str, value: Maker
) -> None:
    assert checked(call, argument, value) == ""
