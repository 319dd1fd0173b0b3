"""Wrong parameters, data and files of `FairRanker`."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from drill import wrong
from drill.wrong import Call, Maker, checked, rows, without

import fairtopk as ft
from fairtopk.storage import load_tensors, save_tensors

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("elsewhere"),
]

SHORT = {"k": 5, "epochs": 1, "batch_size": 64}


@cache
def documents() -> ft.Documents:
    return ft.make_documents(6, 8)


@cache
def lists() -> ft.Lists:
    return ft.split(
        ft.make_synthetic(ft.SyntheticShape(30, 60, 800)).data, test=3, validation=3
    )


@cache
def of_features() -> ft.FairRanker:
    x, y, qid, groups = documents()
    return ft.FairRanker(**SHORT).fit(x, y, qid=qid, groups=groups)


@cache
def of_ids() -> ft.FairRanker:
    return ft.FairRanker(method="k-song", model="mf", **SHORT).fit(lists())


def fit_features(**params: Any) -> Any:
    x, y, qid, groups = documents()
    return ft.FairRanker(**(SHORT | params)).fit(x, y, qid=qid, groups=groups)


def fit_ids(**params: Any) -> Any:
    return ft.FairRanker(**(SHORT | {"model": "mf"} | params)).fit(lists())


def table(change: Callable[[Any], Any]) -> Maker:
    return lambda: change(np.array(documents().x))


def column(values: Any) -> Maker:
    return lambda: np.resize(np.array(values, dtype=object), 48)


X_VALUES = without(wrong.NO_VALUES, "a frame of text", "huge whole numbers") | {
    "a number": lambda: 1.0,
    "one dimension": table(lambda x: x[:, 0]),
    "three dimensions": table(lambda x: x[None]),
    "no rows": table(lambda x: x[:0]),
    "no columns": table(lambda x: x[:, :0]),
    "a NaN": table(lambda x: np.where(x > 1, np.nan, x)),
    "an infinity": table(lambda x: x / 0),
    "past float32": table(lambda x: x * 1e200),
    "texts in a frame": lambda: pl.DataFrame({"a": ["x"] * 48}),
    "a null in a frame": lambda: pl.DataFrame({"a": [None] + [1.0] * 47}),
    "a lazy frame": lambda: pl.DataFrame({"a": [1.0] * 48}).lazy(),
    "a column twice": lambda: pd.DataFrame(np.ones((48, 2)), columns=["a", "a"]),
    "a frame of lists": lambda: pl.DataFrame({"a": [[1.0]] * 48}),
    "an empty frame": lambda: pl.DataFrame(),
    "decimals": lambda: np.full((48, 4), Decimal("NaN")),
}
Y_VALUES: dict[str, Maker] = {
    "None": lambda: None,
    "text": lambda: "y",
    "a number": lambda: 1.0,
    "an object": object,
    "a set": lambda: {1},
    "a dict": lambda: {"a": 1},
    "too short": lambda: np.ones(47),
    "two columns": lambda: np.ones((48, 2)),
    "texts": lambda: ["a"] * 48,
    "a null": column([None, 1.0]),
    "a NaN": lambda: np.full(48, np.nan),
    "an infinity": lambda: np.full(48, np.inf),
    "negative": lambda: np.full(48, -1.0),
    "past the bound": lambda: np.full(48, 1e9),
    "complex": lambda: np.full(48, 1j),
    "mixed": column([1, "a"]),
    "ragged": lambda: [[1], [1, 2]] * 24,
    "dates": lambda: np.zeros(48, "M8[s]"),
    "a meta tensor": lambda: torch.ones(48, device="meta"),
    "a sparse tensor": lambda: torch.ones(48).to_sparse(),
}
LABELS = without(
    Y_VALUES, "None", "texts", "a NaN", "an infinity", "negative", "past the bound", "a null"
) | {"one group": lambda: ["a"] * 48, "no group": lambda: [None] * 48}
QIDS = without(Y_VALUES, "None", "texts", "negative", "past the bound", "dates")


def parameter_calls() -> Iterator[Call]:
    spoilt = {
        "method": without(wrong.NO_WORD, "None"),
        "model": without(wrong.NO_WORD, "None", "nothing"),
        "k": without(wrong.NO_SIZE, "a list", "a set", "a generator")
        | {"none": list, "0": lambda: [0]},
        "c": without(wrong.NO_NUMBER, "None"),
        "c_relative": without(wrong.NO_NUMBER, "None"),
        "epochs": without(wrong.NO_SIZE, "None"),
        "rate": without(wrong.NO_NUMBER, "None") | {"zero": lambda: 0.0},
        "batch_size": without(wrong.NO_SIZE, "None"),
        "hidden": {
            "None": lambda: None,
            "text": lambda: "64",
            "a number": lambda: 64,
            "none": tuple,
            "zero": lambda: (0,),
            "a float": lambda: (6.5,),
            "True": lambda: (True,),
            "a set": lambda: {64},
            "huge": lambda: (10**12,),
            "a list of text": lambda: ["64"],
        },
        "dropout": without(wrong.NO_NUMBER, "None") | {"one": lambda: 1.0},
        "seed": wrong.NO_WHOLE,
        "options": {
            "text": lambda: "fast",
            "a number": lambda: 1,
            "a list": lambda: ["a"],
            "an unknown one": lambda: {"colour": 1},
            "k": lambda: {"k": 5},
            "a key of no text": lambda: {1: 2},
            "gamma_0 of text": lambda: {"gamma_0": "high"},
        },
    }
    says = {"options": "fairranker|method", "hidden": "model", "epochs": "training"}
    yield Call("fit(X)", fit_features, dict, spoilt, says)
    yield Call("fit(lists)", fit_ids, dict, spoilt, says)


def data_calls() -> Iterator[Call]:
    x, y, qid, groups = documents()
    given = partial(lambda: {"X": x, "y": y, "qid": qid, "groups": groups})
    fit = ft.FairRanker(**SHORT).fit
    spoilt = {"X": X_VALUES, "y": Y_VALUES, "qid": QIDS, "groups": LABELS}
    yield Call("fit", fit, given, spoilt, {"X": "data", "qid": "queries"})
    extra: dict[str, Maker] = {"something": lambda: [1]}
    yield Call(
        "fit(lists)",
        ft.FairRanker(**SHORT).fit,
        lambda: {"X": lists()},
        {"y": extra, "qid": extra, "groups": extra, "item_groups": extra},
    )
    own = X_VALUES | {"a feature too few": table(lambda x: x[:, :3])}
    yield Call("predict", of_features().predict, lambda: {"X": x}, {"X": own}, {"X": "data"})
    yield Call(
        "rank",
        of_features().rank,
        lambda: {"X": x, "qid": qid},
        {"X": own, "qid": QIDS, "k": without(wrong.NO_SIZE, "None")},
        {"X": "data"},
    )
    yield Call(
        "evaluate",
        of_features().evaluate,
        given,
        {
            "X": own | {"a split": lists},
            "y": Y_VALUES,
            "qid": QIDS,
            "groups": without(LABELS, "no group"),
            "k": without(wrong.NO_SIZE, "None", "a list", "a set", "a generator"),
        },
        {"X": "data|split"},
    )
    users = without(wrong.NO_VALUES, "None", "text", "bytes", "a set", "a generator") | {
        "none": list,
        "a null": lambda: [1, None],
        "a NaN": lambda: [1.0, float("nan")],
        "lists": lambda: [[1], [2]],
        "no column of users": lambda: pl.DataFrame({"who": [1]}),
        "a number": lambda: 1,
        "mixed": lambda: [1, "a"],
    }
    yield Call(
        "recommend",
        of_ids().recommend,
        lambda: {"users": [0, 1]},
        {"users": users, "k": wrong.NO_SIZE, "include_rated": wrong.NO_FLAG},
    )
    yield Call(
        "evaluate(part)",
        of_ids().evaluate,
        lambda: {"X": lists().test},
        {
            "protocol": wrong.NO_WORD,
            "unrated": wrong.NO_SIZE,
            "k": without(wrong.NO_SIZE, "None", "a list", "a set", "a generator"),
        },
    )
    yield Call("score", of_features().score, lambda: {"X": x, "y": y}, {"y": Y_VALUES})
    yield Call(
        "set_params",
        lambda **given: ft.FairRanker().set_params(**given),
        dict,
        {"colour": {"any": lambda: 1}},
    )
    yield Call(
        "save", of_features().save, dict, {"path": without(wrong.NO_PATH, "absent", "a device")}
    )
    yield Call("load", ft.FairRanker.load, dict, {"path": wrong.NO_PATH}, {"path": "file"})


CALLS = [*parameter_calls(), *data_calls()]


@pytest.mark.parametrize(("call", "argument", "value"), rows(CALLS))
def test_a_wrong_value_is_refused_in_one_sentence(
    call: Call, argument: str, value: Maker
) -> None:
    assert checked(call, argument, value) == ""


def edited(about: Callable[[dict[str, Any]], Any]) -> Callable[[Any], Any]:
    return lambda saved: about(saved.about)


def first(saved: Any) -> str:
    return next(name for name in sorted(saved.tensors) if "weight" in name)


DAMAGE: dict[str, Callable[[Any], Any]] = {
    "no kind": edited(lambda about: about.pop("kind")),
    "another kind": edited(lambda about: about.update(kind="other")),
    "params of text": edited(lambda about: about.update(params="text")),
    "an unknown parameter": edited(lambda about: about["params"].update(colour=1)),
    "group names of numbers": edited(lambda about: about.update(group_names=[1, 2])),
    "notes of None": edited(lambda about: about.update(notes=None)),
    "one word more": edited(lambda about: about.update(more=1)),
    "a tensor gone": lambda saved: saved.tensors.pop(first(saved)),
    "a tensor more": lambda saved: saved.tensors.update(more=torch.zeros(1)),
    "another type": lambda saved: saved.tensors.update(
        {first(saved): saved.tensors[first(saved)].double()}
    ),
    "another shape": lambda saved: saved.tensors.update(
        {first(saved): saved.tensors[first(saved)][:1, :1].clone()}
    ),
    "NaN": lambda saved: saved.tensors[first(saved)].fill_(float("nan")),
}
OF_FEATURES: dict[str, Callable[[Any], Any]] = {
    "no features": edited(lambda about: about.update(names=[])),
    "features of numbers": edited(lambda about: about.update(names=[1])),
    "a feature more": edited(lambda about: about["names"].append("more")),
    "a width of text": edited(lambda about: about.update(hidden=["64"])),
    "a huge width": edited(lambda about: about.update(hidden=[10**12])),
    "another model": edited(lambda about: about.update(model="tree")),
    "a path for a model": edited(lambda about: about.update(model="../mlp")),
    "by_name of text": edited(lambda about: about.update(by_name="yes")),
    "a robust part": edited(lambda about: about.update(robust={"settings": {}})),
}
OF_IDS: dict[str, Callable[[Any], Any]] = {
    "no users": edited(lambda about: about.update(user_ids=[])),
    "a user less": edited(lambda about: about["user_ids"].pop()),
    "items of lists": edited(lambda about: about.update(item_ids=[[1]])),
    "mixed items": edited(lambda about: about["item_ids"].append("a")),
    "a config of text": edited(lambda about: about.update(config="text")),
    "a wrong config": edited(lambda about: about["config"].update(seed="x")),
    "another model": edited(lambda about: about["config"]["model"].update(name="tree")),
    "ratings gone": lambda saved: saved.tensors.pop("rated.item"),
    "an item too large": lambda saved: saved.tensors["rated.item"].fill_(10**6),
    "a negative item": lambda saved: saved.tensors["rated.item"].fill_(-1),
    "offsets that fall": lambda saved: saved.tensors["rated.offsets"].copy_(
        saved.tensors["rated.offsets"].flip(0)
    ),
    "popularity of floats": lambda saved: saved.tensors.update(
        popularity=saved.tensors["popularity"].float()
    ),
}


@pytest.mark.parametrize(
    ("ranker", "damage"),
    [
        pytest.param(ranker, damage, id=f"{kind}-{label}")
        for kind, ranker, more in (
            ("features", of_features, OF_FEATURES),
            ("ids", of_ids, OF_IDS),
        )
        for label, damage in (DAMAGE | more).items()
    ],
)
def test_a_saved_ranker_that_was_edited_is_refused_in_one_sentence(
    ranker: Callable[[], ft.FairRanker], damage: Callable[[Any], Any]
) -> None:
    path = Path("ranker.safetensors")
    ranker().save(path)
    assert ft.FairRanker.load(path).group_names_ == ranker().group_names_
    saved = load_tensors(path)
    damage(saved)
    save_tensors(path, *saved)  # with a checksum that fits
    with pytest.raises(ft.InputError, match="ranker") as caught:
        ft.FairRanker.load(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_a_saved_ranker_that_is_cut_or_foreign_is_refused_in_one_sentence() -> None:
    path = Path("ranker.safetensors")
    of_features().save(path)
    whole = path.read_bytes()
    for content in (b"", whole[:7], whole[:100], whole[:-1], b"\xff" * 8 + whole, b"PK\3\4"):
        path.write_bytes(content)
        with pytest.raises(ft.InputError, match=r"damaged|not written by"):
            ft.FairRanker.load(path)
