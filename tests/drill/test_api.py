"""Wrong calls of the Python API: each is refused in one sentence that names the argument.

A row is a valid call in which one argument is changed. What is wrong about the value is told by
its label; values that are rightly taken are in `TAKEN`, and give what the plain call gives.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from drill.wrong import (
    NO_FLAG,
    NO_NUMBER,
    NO_SHAPE,
    NO_SIZE,
    NO_VALUES,
    NO_WHOLE,
    NO_WORD,
    NOT_FINITE,
    Call,
    Maker,
    checked,
    rows,
    without,
)

import fairtopk as ft

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ARRAY = NO_VALUES | NO_SHAPE | NOT_FINITE
GRADES = ARRAY | {
    "negative": lambda: np.full((3, 4), -1),
    "past the bound": lambda: np.full((3, 4), 101.0),
    "int8 negative": lambda: np.full((3, 4), -1, np.int8),
}
LABELS = (
    NO_VALUES
    | NO_SHAPE
    | {
        "floats": lambda: np.zeros((3, 4)),
        "below -1": lambda: np.full((3, 4), -2),
        "too many": lambda: np.full((3, 4), 1_000),
        "int8 below -1": lambda: np.full((3, 4), -128, np.int8),
        "uint64": lambda: np.full((3, 4), 2**64 - 1, np.uint64),
    }
)
MASK = (
    without(NO_VALUES, "None")
    | NO_SHAPE
    | {
        "numbers": lambda: np.ones((3, 4)),
        "whole numbers": lambda: torch.ones(3, 4, dtype=torch.int32),
    }
)
KS = without(NO_SIZE, "a list", "a set", "a generator") | {
    "none": list,
    "a list of text": lambda: ["2"],
    "a list of lists": lambda: [[2]],
    "a list with 0": lambda: [2, 0],
    "a list with True": lambda: [2, True],
}

SCORES = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 2.0, 3.0]])
GROUPS = torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
RELEVANCE = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 3], [1, 1, 0, 0]])
WRONG = {
    "scores": ARRAY,
    "relevance": GRADES,
    "groups": LABELS,
    "mask": MASK,
    "k": NO_SIZE,
    "ks": KS,
    "seed": without(NO_WHOLE, "zero"),
    "shuffles": NO_SIZE,
    "metric": NO_WORD,
    "variant": NO_WORD,
    "signed": NO_FLAG,
    "p": NO_NUMBER,
    "target": NO_NUMBER,
}
PLAIN = {
    "scores": SCORES,
    "relevance": RELEVANCE,
    "groups": GROUPS,
    "mask": torch.ones(3, 4, dtype=torch.bool),
    "k": 2,
    "ks": [1, 2],
    "seed": 0,
    "shuffles": 9,
}


def metric_calls() -> Iterator[Call]:
    import inspect

    for name in ft.metrics.__all__:
        function = getattr(ft.metrics, name)
        if isinstance(function, type) or "scores" not in inspect.signature(function).parameters:
            continue
        taken = list(inspect.signature(function).parameters)
        given = {one: PLAIN[one] for one in taken if one in PLAIN}
        if "target" in taken:
            given["target"] = 1.0
        wrong = {one: WRONG[one] for one in taken}
        yield Call(f"metrics.{name}", function, partial(dict, given), wrong)
    values = {"values": np.array([0.1, 0.2, np.nan])}
    columns = without(NO_VALUES, "ragged lists") | {
        "a number": lambda: 1.0,
        "two dimensions": lambda: np.zeros((2, 2)),
        "nothing": list,
        "an infinity": lambda: [0.0, np.inf],
    }
    yield Call(
        "metrics.mean_with_interval",
        ft.metrics.mean_with_interval,
        partial(dict, values),
        {"values": columns, "seed": WRONG["seed"]},
    )


IDS = (
    without(NO_VALUES, "None", "lists of text", "texts", "huge whole numbers")
    | NO_SHAPE
    | {
        "floats": lambda: np.zeros((3, 4)),
        "NaN": lambda: np.full((3, 4), np.nan),
        "truth values": lambda: np.ones((3, 4), np.bool_),
        "past 64 bits": lambda: [[2**70] * 4] * 3,
        "a null among them": lambda: [["a", "b", None, "d"]] * 3,
        "decimals": lambda: [[Decimal(1)] * 4] * 3,
        "bytes among them": lambda: [[b"a"] * 4] * 3,
        "the same twice": lambda: np.zeros((3, 4), np.int64),
    }
)
QUERIES = without(NO_VALUES, "None") | {
    "a number": lambda: 7,
    "no dimension": lambda: np.array(7),
    "two dimensions": lambda: np.arange(3)[:, None],
    "one too many": lambda: [1, 2, 3, 4],
    "one twice": lambda: [1, 2, 2],
    "floats": lambda: [1.0, 2.0, 3.0],
    "truth values": lambda: [True, False, True],
    "a null among them": lambda: ["a", None, "c"],
    "past 64 bits": lambda: [1, 2, 2**70],
    "dates": lambda: np.array([1, 2, 3], "M8[s]"),
    "a meta tensor of its shape": lambda: torch.arange(3, device="meta"),
    "a sparse tensor of its shape": lambda: torch.arange(3).to_sparse(),
}


def state(change: Callable[[dict[str, Any]], Any]) -> Maker:
    """Return a maker of what a loss saved, changed."""

    def made() -> Any:
        loss = ft.losses.KsoRed(k=2, c=1.0, gamma_u=0.5)
        loss(SCORES.clone().requires_grad_(), RELEVANCE, GROUPS, query=[1, 2, 3]).backward()
        saved = dict(loss.state_dict())
        changed = change(saved)
        return saved if changed is None else changed

    return made


def first_table(saved: dict[str, Any]) -> str:
    return next(name for name, table in saved.items() if table.is_floating_point())


def keys(saved: dict[str, Any]) -> str:
    return next(name for name in saved if name.endswith("queries.key"))


STATES: dict[str, Maker] = {
    "None": lambda: None,
    "text": lambda: "state",
    "a list": list,
    "of something else": lambda: torch.nn.Linear(2, 2).state_dict(),
    "of a pickle": lambda: {"memory.about": b"about"},
    "a table gone": state(
        lambda saved: {name: saved[name] for name in saved if name != first_table(saved)}
    ),
    "a table more": state(lambda saved: saved.update({"memory.other": torch.zeros(2)})),
    "a table cut": state(
        lambda saved: saved.update({first_table(saved): saved[first_table(saved)][:2]})
    ),
    "a table of text": state(lambda saved: saved.update({first_table(saved): "text"})),
    "a table of None": state(lambda saved: saved.update({first_table(saved): None})),
    "a table as an array": state(
        lambda saved: saved.update({first_table(saved): saved[first_table(saved)].numpy()})
    ),
    "a table of whole numbers": state(
        lambda saved: saved.update({first_table(saved): saved[first_table(saved)].long()})
    ),
    "a table of complex numbers": state(
        lambda saved: saved.update({first_table(saved): saved[first_table(saved)] * 1j})
    ),
    "a table without values": state(
        lambda saved: saved.update({first_table(saved): saved[first_table(saved)].to("meta")})
    ),
    "a sparse table": state(
        lambda saved: saved.update({first_table(saved): saved[first_table(saved)].to_sparse()})
    ),
    "keys of text": state(lambda saved: saved.update({keys(saved): "key"})),
    "keys cut": state(lambda saved: saved.update({keys(saved): saved[keys(saved)][:3]})),
    "numbers of nobody": state(
        lambda saved: saved.update({"memory.queries.number": saved[keys(saved)] * 0 + 10**9})
    ),
    "keys of fractions": state(
        lambda saved: saved.update({keys(saved): saved[keys(saved)].double()})
    ),
    "another version": state(
        lambda saved: saved.update({"memory.about": saved["memory.about"] + 1})
    ),
    "a version of text": state(lambda saved: saved.update({"memory.about": "1"})),
    "a version without values": state(
        lambda saved: saved.update({"memory.about": saved["memory.about"].to("meta")})
    ),
}


def loss_calls() -> Iterator[Call]:
    loss = ft.losses.KsoRed
    settings = {"k": 2, "c": 1.0, "n_queries": 10, "n_groups": 2, "preset": "default"}
    wrong = {
        "k": without(NO_SIZE, "a list", "a set", "a generator")
        | {"none": list, "a list of 0": lambda: [0]},
        "c": without(NO_NUMBER, "None"),
        "n_queries": without(NO_SIZE, "None"),
        "n_groups": NO_SIZE | {"one": lambda: 1},
        "preset": NO_WORD,
    }
    yield Call("losses.KsoRed", loss, partial(dict, settings), wrong)
    for name in ("c_relative", "gamma_0", "gamma_u", "tau_1", "epsilon", "alpha"):
        kinds = (
            NO_NUMBER
            if name in ("gamma_0", "tau_1", "epsilon", "alpha")
            else without(NO_NUMBER, "None")
        )
        given = {"k": 2} | ({"c": 1.0} if name != "c_relative" else {})
        yield Call("losses.KsoRed", loss, partial(dict, given), {name: kinds})
    for name in ("start", "gradient", "k_of", "threshold", "colour"):
        yield Call("losses.KsoRed", loss, partial(dict, k=2, c=1.0), {name: NO_WORD})
    values = {
        "scores": SCORES.clone().requires_grad_(),
        "relevance": RELEVANCE,
        "groups": GROUPS,
        "query": [1, 2, 3],
        "item": np.arange(12).reshape(3, 4),
        "mask": PLAIN["mask"],
    }
    of_values = {
        "scores": ARRAY
        | {"lists": lambda: [[0.0] * 4] * 3, "an array": lambda: np.ones((3, 4))},
        "relevance": GRADES,
        "groups": LABELS | {"a third": lambda: np.full((3, 4), 2)},
        "query": QUERIES,
        "item": IDS,
        "mask": MASK
        | {"hiding a list": lambda: PLAIN["mask"] & torch.tensor([[0], [1], [1]]) > 0},
    }
    yield Call("losses.forward", loss(k=2, c=1.0), partial(dict, values), of_values)
    load = loss(k=2, c=1.0, gamma_u=0.5).load_state_dict
    yield Call("losses.load", load, dict, {"state_dict": STATES})


def rerank_calls() -> Iterator[Call]:
    arrays = {"scores": ARRAY, "groups": LABELS, "mask": MASK, "k": without(NO_SIZE, "None")}
    given = {name: PLAIN[name] for name in ("scores", "groups", "mask", "k")}
    others = {"method": NO_WORD, "infeasible": NO_WORD, "relevance": {"any": lambda: RELEVANCE}}
    det = given | {"method": "det-greedy", "infeasible": "mark"}
    yield Call("rerank.det", ft.rerank, partial(dict, det), arrays | others)
    drawn = det | {"rounding": "random"}
    of_drawn = {"rounding": NO_WORD, "seed": NO_WHOLE}
    yield Call("rerank.rounding", ft.rerank, partial(dict, drawn), of_drawn)
    targets: dict[str, Maker] = {
        "text": lambda: "half",
        "a number": lambda: 0.5,
        "past 1": lambda: [0.9, 0.9],
        "negative": lambda: [-0.5, 0.5],
        "NaN": lambda: [float("nan"), 0.5],
        "a list of text": lambda: ["a", "b"],
        "names": lambda: {"a": 0.5},
        "an object": object,
        "a meta tensor": lambda: torch.zeros(2, device="meta"),
    }
    yield Call("rerank.targets", ft.rerank, partial(dict, det), {"targets": targets})
    fair = given | {"method": "fa-ir", "infeasible": "mark"}
    yield Call(
        "rerank.fa-ir",
        ft.rerank,
        partial(dict, fair),
        {
            "p": without(NO_NUMBER, "None") | {"one": lambda: 1.0},
            "alpha": NO_NUMBER | {"two": lambda: 2.0},
            "adjust": NO_WORD,
            "group": NO_WHOLE,
            "colour": NO_WORD,
        },
    )
    program = given | {"method": "exposure-lp", "infeasible": "mark"}
    yield Call(
        "rerank.exposure-lp",
        ft.rerank,
        partial(dict, program),
        {
            "relevance": without(GRADES, "None"),
            "notion": NO_WORD,
            "slack": NO_NUMBER,
            "seed": NO_WHOLE,
        },
    )
    bonus = given | {"method": "group-bonus", "bonus": 1.0}
    kinds = without(NO_NUMBER, "negative")
    yield Call("rerank.bonus", ft.rerank, partial(dict, bonus), {"bonus": kinds})


def statistic_calls() -> Iterator[Call]:
    s, points = ft.statistics, {"ndcg": [0.5, 0.4], "gap": [0.2, 0.1]}
    column = without(NO_VALUES, "ragged lists") | {
        "a number": lambda: 1.0,
        "three dimensions": lambda: np.zeros((2, 2, 2)),
        "one too many": lambda: [0.1, 0.2, 0.3],
        "an infinity": lambda: [0.1, np.inf],
        "huge": lambda: [10**400, 1.0],
    }
    gap = column | {"negative": lambda: [-0.1, 0.1]}
    corner: dict[str, Maker] = {
        "None": lambda: None,
        "text": lambda: "ab",
        "one number": lambda: (1.0,),
        "three": lambda: (1.0, 2.0, 3.0),
        "NaN": lambda: (float("nan"), 1.0),
        "a set": lambda: {1.0, 2.0},
        "texts": lambda: ("0.1", "0.2"),
        "a meta tensor": lambda: torch.zeros(2, device="meta"),
        "5,000 digits": lambda: (10**5000, 1),
        "an object": object,
    }
    kinds = {"ndcg": column, "gap": gap, "reference": corner, "seed": NO_WHOLE}
    given = partial(dict, points, reference=(0.1, 0.9))
    yield Call("statistics.hypervolume", s.hypervolume, given, without(kinds, "seed"))  # type: ignore[arg-type]
    two = {name: [values, values] for name, values in points.items()}
    rows_of = {name: without(kinds[name], "three dimensions") for name in ("ndcg", "gap")}
    yield Call(
        "statistics.front", s.front, partial(dict, two, reference=(0.1, 0.9)), kinds | rows_of
    )
    yield Call("statistics.non_dominated", s.non_dominated, partial(dict, points), rows_of)
    yield Call(
        "statistics.cut_at_loss",
        s.cut_at_loss,
        partial(dict, points, loss=0.1, base=(0.5, 0.2)),
        rows_of
        | {
            "loss": NO_NUMBER | {"one": lambda: 1.0},
            "base": corner | {"no gap": lambda: (0.5, 0.0)},
        },
    )
    yield Call(
        "statistics.holm",
        s.holm,
        partial(dict, p_values=[0.1, 0.2]),
        {"p_values": without(column, "one too many") | {"past 1": lambda: [1.5]}},
    )
    yield Call(
        "statistics.paired_difference",
        s.paired_difference,
        partial(dict, a=[0.1, 0.2], b=[0.2, 0.4]),
        {"a": column, "b": column, "seed": NO_WHOLE},
    )
    maps: dict[str, Maker] = {
        "None": lambda: None,
        "a list": lambda: [0.1, 0.2],
        "text": lambda: "ab",
        "nothing": dict,
        "another metric": lambda: {"gap@5": [0.1, 0.2]},
        "a value of None": lambda: {"ndcg@5": None},
        "too few": lambda: {"ndcg@5": [0.1]},
        "a number": lambda: 3,
    }
    values = {"ndcg@5": [0.1, 0.2]}
    yield Call(
        "statistics.paired_differences",
        s.paired_differences,
        partial(dict, a=values, b=values),
        {"a": maps, "b": maps, "seed": NO_WHOLE},
    )
    yield Call(
        "metrics.means_with_intervals",
        ft.metrics.means_with_intervals,
        partial(dict, metrics=values),
        {
            "metrics": without(maps, "another metric", "too few", "a value of None"),
            "seed": NO_WHOLE,
        },
    )


def read_only(values: Any) -> Any:
    array = np.array(values)
    array.flags.writeable = False
    return array


TAKEN: dict[str, dict[str, Callable[[Any], Any]]] = {
    "scores": {
        "float16": lambda scores: scores.half(),
        "bfloat16": lambda scores: scores.bfloat16(),
        "float64": lambda scores: scores.double(),
        "whole numbers": lambda scores: scores.long(),
        "int8": lambda scores: scores.to(torch.int8),
        "an array": lambda scores: scores.numpy().copy(),
        "read-only": read_only,
        "columns first": lambda scores: np.asfortranarray(scores.numpy()),
        "a turned view": lambda scores: scores.t().contiguous().t(),
        "reversed twice": lambda scores: np.array(scores)[:, ::-1].copy()[:, ::-1],
        "lists": lambda scores: scores.tolist(),
        "pandas": lambda scores: pd.DataFrame(scores.numpy()),
        "polars": lambda scores: pl.DataFrame(scores.numpy()),
        "with a graph": lambda scores: scores.clone().requires_grad_(),
        "of inference": lambda scores: torch.inference_mode()(scores.clone)(),
    },
    "groups": {
        "int8": lambda groups: groups.to(torch.int8),
        "uint8": lambda groups: groups.numpy().astype(np.uint8),
        "uint64": lambda groups: groups.numpy().astype(np.uint64),
        "True for 0": lambda groups: groups == 0,
        "lists": lambda groups: groups.tolist(),
        "read-only": read_only,
        "pandas": lambda groups: pd.DataFrame(groups.numpy()),
    },
    "relevance": {
        "float16": lambda grades: grades.half(),
        "float64": lambda grades: grades.double(),
        "lists": lambda grades: grades.tolist(),
        "read-only": read_only,
    },
    "mask": {
        "None": lambda mask: None,
        "lists": lambda mask: mask.tolist(),
        "read-only": read_only,
    },
    "k": {
        "numpy": np.int64,
        "uint8": np.uint8,
        "a tensor": torch.tensor,
        "no dimension": np.array,
    },
    "ks": {
        "a set": set,
        "a generator": iter,
        "an array": np.array,
        "a tensor": torch.tensor,
        "a range": lambda ks: range(1, 3),
        "twice": lambda ks: [*ks, *ks],
    },
    "seed": {"numpy": np.uint64},
    "shuffles": {"numpy": np.int16},
    "signed": {"numpy": np.bool_},
}


def numbers(found: Any) -> list[float]:
    """Return all numbers of a result, in order."""
    if isinstance(found, torch.Tensor):
        return found.detach().double().flatten().tolist()
    if isinstance(found, dict):
        return [number for one in found.values() for number in numbers(one)]
    if isinstance(found, tuple | list):
        return [number for one in found for number in numbers(one)]
    return [float(found)]


def array_calls() -> list[Call]:
    loss = next(call for call in loss_calls() if call.name == "losses.forward")
    every = [*metric_calls(), loss, *rerank_calls()]
    return [call for call in every if "scores" in call.given()]


@pytest.mark.parametrize("call", array_calls(), ids=lambda call: call.name)
def test_what_holds_the_same_values_gives_the_same_result(call: Call) -> None:
    expected = numbers(call.function(**call.given()))
    assert expected
    assert np.isfinite(expected).all()
    for argument, value in call.given().items():
        if call.name == "losses.forward" and argument == "scores":
            continue  # which must be a tensor with a graph
        for label, changed in TAKEN.get(argument, {}).items():
            arguments = call.given() | {argument: changed(value)}
            np.testing.assert_allclose(
                numbers(call.function(**arguments)),
                expected,
                rtol=1e-5,
                atol=1e-8,
                err_msg=f"{argument} as {label}",
            )


CALLS = [*metric_calls(), *loss_calls(), *rerank_calls(), *statistic_calls()]


@pytest.mark.parametrize(("call", "argument", "value"), rows(CALLS))
def test_a_wrong_value_is_refused_in_one_sentence(
    call: Call, argument: str, value: Maker
) -> None:
    assert checked(call, argument, value) == ""
