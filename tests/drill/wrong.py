"""Wrong values of every kind, and how a call that gets one must end."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from fairtopk.errors import InputError

LONGEST = 300  # characters of a sentence
Maker = Callable[[], Any]


class Call(NamedTuple):
    """A function, valid arguments made anew, and which kinds of wrong value each may get.

    A sentence names the argument, or has one of the words in `says`, as in ``a|b``.
    """

    name: str
    function: Callable[..., Any]
    given: Callable[[], dict[str, Any]]
    wrong: dict[str, dict[str, Maker]]
    says: dict[str, str] = {}  # noqa: RUF012


# Values that are wrong for an argument of a kind, each made anew for its call.

NO_VALUES: dict[str, Maker] = {
    "None": lambda: None,
    "text": lambda: "text",
    "bytes": lambda: b"bytes",
    "an object": object,
    "a set": lambda: {1, 2},
    "a generator": lambda: (one for one in (1, 2)),
    "a dict": lambda: {"a": 1},
    "a class": lambda: int,
    "ragged lists": lambda: [[1.0, 2.0], [3.0]],
    "a list of None": lambda: [[None] * 4] * 3,
    "lists of text": lambda: [["a"] * 4] * 3,
    "complex": lambda: np.full((3, 4), 1j),
    "objects": lambda: np.full((3, 4), object()),
    "dates": lambda: np.zeros((3, 4), "M8[s]"),
    "durations": lambda: np.zeros((3, 4), "m8[s]"),
    "records": lambda: np.zeros((3, 4), [("a", "f4"), ("b", "f4")]),
    "texts": lambda: np.full((3, 4), "a"),
    "raw bytes": lambda: np.full((3, 4), b"a"),
    "huge whole numbers": lambda: [[10**30] * 4] * 3,
    "a frame of text": lambda: pd.DataFrame({name: ["x"] * 3 for name in "abcd"}),
    "a lazy frame": lambda: pl.DataFrame({name: [0] * 3 for name in "abcd"}).lazy(),
    "a meta tensor": lambda: torch.zeros(3, 4, device="meta"),
    "a sparse tensor": lambda: torch.zeros(3, 4).to_sparse(),
    "a CSR tensor": lambda: torch.zeros(3, 4).to_sparse_csr(),
    "a quantized tensor": lambda: torch.quantize_per_tensor(
        torch.zeros(3, 4), 0.1, 0, torch.quint8
    ),
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.zeros(4)] * 3),
    "a complex tensor": lambda: torch.zeros(3, 4, dtype=torch.complex64),
}

NO_SHAPE: dict[str, Maker] = {
    "a number": lambda: 1.0,
    "no dimension": lambda: torch.tensor(1.0),
    "one dimension": lambda: np.zeros(4, np.int64),
    "three dimensions": lambda: np.zeros((3, 4, 1), np.int64),
    "nothing": lambda: [],
    "no rows": lambda: np.zeros((0, 4), np.int64),
    "no columns": lambda: np.zeros((3, 0), np.int64),
    "a row too few": lambda: np.zeros((2, 4), np.int64),
    "a column too many": lambda: np.zeros((3, 5), np.int64),
    "turned": lambda: np.zeros((4, 3), np.int64),
}

NOT_FINITE: dict[str, Maker] = {
    "a NaN": lambda: torch.full((3, 4), torch.nan),
    "an infinity": lambda: torch.full((3, 4), torch.inf),
    "a negative infinity": lambda: torch.full((3, 4), -torch.inf),
    "an infinite half": lambda: torch.full((3, 4), torch.inf, dtype=torch.float16),
}

NO_WHOLE: dict[str, Maker] = {
    "None": lambda: None,
    "text": lambda: "5",
    "bytes": lambda: b"5",
    "an object": object,
    "a float": lambda: 2.0,
    "half": lambda: 2.5,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "True": lambda: True,
    "a numpy bool": lambda: np.True_,
    "a numpy float": lambda: np.float64(2),
    "a decimal": lambda: Decimal(2),
    "complex": lambda: 2 + 0j,
    "a set": lambda: {2},
    "a dict": lambda: {2: 2},
    "a generator": lambda: (one for one in (1, 2)),
    "negative": lambda: -3,
    "huge": lambda: 2**63,
    "5,000 digits": lambda: 10**5000,
    "a float tensor": lambda: torch.tensor(2.0),
    "a meta tensor": lambda: torch.tensor(2, device="meta"),
    "an array of two": lambda: np.array([1, 2, 3]).reshape(1, 3),
}

NO_SIZE = NO_WHOLE | {"zero": lambda: 0, "a list": lambda: [2]}

NO_FLAG: dict[str, Maker] = {
    "None": lambda: None,
    "text": lambda: "no",
    "a number": lambda: 1,
    "a list": list,
    "an object": object,
    "an array": lambda: np.array([True, False]),
    "a meta tensor": lambda: torch.zeros(2, device="meta"),
}

NO_NUMBER: dict[str, Maker] = {
    "None": lambda: None,
    "text": lambda: "half",
    "a number as text": lambda: "0.5",
    "bytes": lambda: b"0.5",
    "an object": object,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "negative": lambda: -0.5,
    "True": lambda: True,
    "complex": lambda: 0.5j,
    "a list": lambda: [0.5],
    "two numbers": lambda: np.array([0.5, 0.5]),
    "5,000 digits": lambda: 10**5000,
    "a meta tensor": lambda: torch.tensor(0.5, device="meta"),
}

NO_WORD: dict[str, Maker] = {
    "None": lambda: None,
    "another": lambda: "another",
    "nothing": lambda: "",
    "bytes": lambda: b"paper",
    "a number": lambda: 1,
    "an object": object,
    "a list": lambda: ["paper"],
    "a set": lambda: {"paper"},
    "a NUL": lambda: "pa\0per",
    "a long text": lambda: "x" * 10_000,
    "lines": lambda: "a\nb",
}


NO_TEXT: dict[str, Maker] = {
    "bytes": lambda: b"text",
    "a number": lambda: 1,
    "an object": object,
    "a list": lambda: ["text"],
    "a set": lambda: {"text"},
    "a dict": lambda: {"text": 1},
    "a meta tensor": lambda: torch.zeros(2, device="meta"),
    "an array": lambda: np.array(["a", "b"]),
}
NO_COLUMN = NO_TEXT | {
    "None": lambda: None,
    "nothing": lambda: "",
    "absent": lambda: "absent",
    "a NUL": lambda: "a\0b",
    "a long text": lambda: "x" * 10_000,
}
NO_PATH: dict[str, Maker] = {
    "None": lambda: None,
    "bytes": lambda: b"path",
    "a number": lambda: 1,
    "True": lambda: True,
    "an object": object,
    "a list": lambda: ["path"],
    "nothing": lambda: "",
    "a NUL": lambda: "a\0b",
    "a long text": lambda: "x" * 5_000,
    "absent": lambda: "absent/absent.file",
    "a folder": lambda: "/",
    "a device": lambda: "/dev/null",
    "a surrogate": lambda: "\udcff",
}


def without(kinds: dict[str, Maker], *labels: str) -> dict[str, Maker]:
    return {label: value for label, value in kinds.items() if label not in labels}


def checked(row: Call, argument: str, value: Maker) -> str:
    """Return what is wrong with how a call is refused, nothing if it is as it should be."""
    arguments = row.given() | {argument: value()}
    try:
        found = row.function(**arguments)
    except InputError as error:
        said = str(error)
        if "\n" in said or not said or len(said) > LONGEST:
            return f"{len(said)} characters, {said.count(chr(10))} breaks: {said[:200]!r}"
        words = (argument.split("_")[0].lower(), *row.says.get(argument, argument).split("|"))
        if not any(word in said.lower() for word in words):
            return f"does not name {argument}: {said}"
        return ""
    except Exception as error:
        return f"raw {type(error).__name__}: {str(error)[:150]!r}"
    return f"accepted: {str(found)[:100]!r}"


def rows(calls: Iterable[Call]) -> list[Any]:
    """Return a parameter set for every wrong value of every argument."""
    return [
        pytest.param(call, argument, value, id=f"{call.name}-{argument}-{label}")
        for call in calls
        for argument, kinds in call.wrong.items()
        for label, value in kinds.items()
    ]
