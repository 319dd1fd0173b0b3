"""What losses remember: by ids of any kind, in tables that grow, and are saved and moved."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.losses import Deltr, KSong, KsoRed, ListNet, RankingLoss, Song
from fairtopk.losses._memory import checked_ids
from fairtopk.objectives.methods import PRESETS

N_QUERIES, N_ITEMS, LENGTH = 9, 20, 8
VALUES: dict[str, Any] = {"k": 3, "c": 100.0}
# Averages of everything that can be remembered.
ALL: dict[str, Any] = {**VALUES, "preset": "paper"}


def lists(seed: int, *, n_queries: int = N_QUERIES, n_lists: int = 5) -> dict[str, Tensor]:
    """A batch that shares queries and items with those of other seeds, ids as numbers."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n_lists, LENGTH)
    return {
        "scores": torch.randn(shape, generator=generator),
        "relevance": torch.randint(0, 3, shape, generator=generator),
        "groups": torch.randint(0, 2, shape, generator=generator),
        "query": torch.randperm(n_queries, generator=generator)[:n_lists],
        "item": torch.rand(n_lists, N_ITEMS, generator=generator).topk(LENGTH).indices,
    }


def step(loss: RankingLoss, batch: dict[str, Any]) -> Tensor:
    """The value, and the gradient behind it."""
    scores = batch["scores"].clone().requires_grad_()
    value = loss(**{**batch, "scores": scores})
    value.backward()
    return torch.cat([value.detach()[None], scores.grad.flatten()])


def saved(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def unchanged(module: nn.Module, before: dict[str, Tensor]) -> None:
    after = module.state_dict()
    assert list(after) == list(before)
    for name, value in after.items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


def as_strings(numbers: Tensor) -> Any:
    return np.char.add("película-", numbers.numpy().astype(str)).tolist()


def as_mixed(numbers: Tensor) -> Any:
    """Strings beside numbers, which are not the strings of the same digits."""
    flat = [(str(n // 2) if n % 2 else n // 2) for n in numbers.flatten().tolist()]
    return np.array(flat, dtype=object).reshape(numbers.shape).tolist()


def as_frame(numbers: Tensor) -> Any:
    strings = np.asarray(as_strings(numbers), dtype=object)
    return pd.Series(strings) if strings.ndim == 1 else pl.DataFrame(strings)


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "negative": lambda numbers: -numbers - 1,
    "large": lambda numbers: numbers * 7919 + 2**62,
    "unsigned": lambda numbers: numbers.numpy().astype(np.uint64) + np.uint64(2**63 + 1),
    "narrow": lambda numbers: numbers.to(torch.int16),
    "tensor": lambda numbers: torch.from_numpy(KINDS["unsigned"](numbers)),
    "strings": as_strings,
    "array": lambda numbers: np.array(as_strings(numbers)),
    "mixed": as_mixed,
    "frame": as_frame,
}


@pytest.mark.parametrize("n_queries", [None, 4, N_QUERIES])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_any_kind_are_remembered_as_numbers_are(
    kind: str, n_queries: int | None
) -> None:
    plain, loss = KsoRed(**ALL, n_queries=N_QUERIES), KsoRed(**ALL, n_queries=n_queries)
    for seed in range(8):
        batch = lists(seed)
        given = {name: KINDS[kind](batch[name]) for name in ("query", "item")}
        assert step(plain, batch).equal(step(loss, batch | given))
    own = sum(
        isinstance(one, int) and 0 <= one < (n_queries or 0)
        for one in np.asarray(KINDS[kind](torch.arange(N_QUERIES)), dtype=object).tolist()
    )
    assert loss.memory.queries.n_taken == N_QUERIES - own


@pytest.mark.parametrize("preset", list(PRESETS))
def test_tables_grow_as_queries_appear_and_a_grown_state_goes_on_elsewhere(preset: str) -> None:
    values: dict[str, Any] = {**VALUES, "preset": preset}
    n_queries = 5_000
    dense, loss = KsoRed(**values, n_queries=n_queries), KsoRed(**values)
    batches = [lists(seed, n_queries=n_queries, n_lists=900) for seed in range(6)]
    for batch in batches[:2]:
        assert step(dense, batch).equal(step(loss, batch))
    middle = saved(loss)
    larger = KsoRed(**values)
    step(larger, lists(9, n_queries=10**6, n_lists=9_000))
    for other in (KsoRed(**values), larger):
        other.load_state_dict(middle)
        unchanged(other, middle)
    for batch in batches[2:]:
        expected = step(loss, batch)
        assert all(expected.equal(step(one, batch)) for one in (dense, other))
    unchanged(other, saved(loss))
    rows = [len(one["memory.queries.key"]) for one in (middle, saved(loss))]
    assert 1024 < rows[0] < rows[1]
    if preset != "default":
        assert len(middle["memory.objective.thresholds.0.lam"]) == 2048
        assert len(middle["memory.objective.fairness.0.log_u_g.value"]) == 2 * 2048


@pytest.mark.parametrize("n_queries", [None, N_QUERIES])
@pytest.mark.parametrize("preset", list(PRESETS))
def test_under_eval_and_no_grad_new_ids_are_as_at_a_first_visit_and_leave_no_trace(
    preset: str, n_queries: int | None
) -> None:
    values: dict[str, Any] = {**VALUES, "preset": preset, "n_queries": n_queries}
    loss = KsoRed(**values)
    for seed in range(4):
        step(loss, lists(seed))
    before, batch = saved(loss), lists(50)
    new = batch | {"query": list("abcde"), "item": as_strings(batch["item"])}
    fresh, first = step(KsoRed(**values).eval(), new), step(KsoRed(**values), new)
    with torch.no_grad():
        assert loss(**new).equal(fresh[0])
    loss.eval()
    assert step(loss, new).equal(fresh)
    assert not loss(**batch).equal(fresh[0])
    unchanged(loss, before)
    loss.train()
    assert step(loss, new).equal(first)
    after = saved(loss)
    for name in ("queries.key", "items.key", "objective.ranking.u_qi.key"):
        assert not after[f"memory.{name}"].equal(before[f"memory.{name}"])


@pytest.mark.parametrize("loss", [ListNet(), Deltr(c=1.0), KsoRed(**VALUES, gamma_0=1.0)])
def test_a_method_without_averages_remembers_no_ids(loss: RankingLoss) -> None:
    before = saved(loss)
    step(loss, lists(0))
    unchanged(loss, before)


def test_only_ids_of_relevant_items_are_read() -> None:
    batch, loss = lists(0), KsoRed(**ALL)
    names = np.array(as_strings(batch["item"]), dtype=object)
    names[batch["relevance"].numpy() == 0] = None
    expected = step(KsoRed(**ALL), batch)
    assert step(loss, batch | {"item": names}).equal(expected)
    nothing = torch.zeros_like(batch["relevance"])
    step(loss, batch | {"relevance": nothing, "item": np.full(nothing.shape, None)})
    assert loss.memory.items.n_taken == len({name for name in names.flat if name})


def test_a_string_has_the_same_word_everywhere() -> None:
    """Or a state could not be loaded by another process."""
    words = checked_ids("query", ["", "user-1"], torch.ones(2, dtype=torch.bool), shape=(2,))
    assert words.tolist() == [-7046029254386353131, 7426020449292339383]


@pytest.mark.parametrize("way", ["torch", "safetensors", "copy"])
def test_a_loss_inside_a_model_is_saved_with_it(way: str, tmp_path: Path) -> None:
    def made() -> nn.Module:
        return nn.ModuleDict({"tower": nn.Linear(3, 3), "loss": KsoRed(**ALL)})

    model, other = made(), made()
    for seed in range(3):
        batch = lists(seed)
        step(model["loss"], batch | {"query": as_strings(batch["query"])})
    path = tmp_path / "model"
    if way == "torch":
        torch.save(model.state_dict(), path)
        other.load_state_dict(torch.load(path))
    elif way == "safetensors":
        save_file(model.state_dict(), path)
        other.load_state_dict(load_file(path))
    else:
        other = copy.deepcopy(model)
    unchanged(other, saved(model))
    batch = lists(7)
    batch["query"] = as_strings(batch["query"])
    assert step(model["loss"], batch).equal(step(other["loss"], batch))


def test_a_model_loads_without_the_state_of_its_loss_where_that_is_allowed() -> None:
    model = nn.ModuleDict({"tower": nn.Linear(3, 3), "loss": KsoRed(**ALL)})
    step(model["loss"], lists(0))
    before = saved(model)
    weights = {name: value for name, value in before.items() if "tower" in name}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert set(missing) == before.keys() - weights.keys()
    assert not unexpected
    unchanged(model, before)
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict(weights)


def without(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: value for key, value in state.items() if key != f"memory.{name}"}


def cut(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return state | {f"memory.{name}": state[f"memory.{name}"][:100]}


U_QI, LAM = "objective.ranking.u_qi", "objective.thresholds.0.lam"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: without(state, "about"), "not saved by this version of fairtopk, or is"),
        (
            lambda state: state | {"memory.about": torch.tensor([99, 0, 2])},
            "not saved by this version of fairtopk, or is truncated",
        ),
        (lambda state: without(state, f"{U_QI}.key"), f"it lacks {U_QI}.key, as if truncated"),
        (lambda state: cut(state, f"{U_QI}.key"), r"u_qi.key has the shape \[100\] i"),
        (lambda state: cut(state, f"{U_QI}.value"), r"u_qi.value has the shape \[100\]"),
        (lambda state: cut(state, "queries.number"), r"queries.number has the shape \[100\]"),
        (lambda state: cut(state, LAM), r"lam has the shape \[100\] instead of \[1024\]"),
        (
            lambda state: state | {"memory.items.key": torch.arange(1024)},
            r"items.key has the shape \[1024\] instead of \[2048\]",
        ),
        (
            lambda state: saved(KsoRed(**ALL, n_queries=7)),
            "it was saved with n_queries=7 and n_groups=2; make the loss with the same",
        ),
        (
            lambda state: saved(KsoRed(**ALL, n_groups=3)),
            "it was saved with n_queries=None and n_groups=3; make the loss with the same",
        ),
        (lambda state: saved(KSong(k=3)), f"it lacks {LAM}, as if truncated or saved with"),
        (lambda state: saved(KsoRed(**ALL | {"k": [2, 3]})), "has objective.thresholds.1.lam"),
        (lambda state: saved(KsoRed(**ALL, gamma_0=1.0)), r"u_qi.key has the shape \[0\]"),
        (lambda state: saved(KsoRed(**ALL, gamma_u=1.0)), r"log_u_g.value has the shape \[0\]"),
    ],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_refused_in_one_sentence_and_nothing_is_lost(
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]], message: str
) -> None:
    loss = KsoRed(**ALL)
    step(loss, lists(0))
    before = saved(loss)
    with pytest.raises(ft.InputError, match=message) as caught:
        loss.load_state_dict(change(saved(loss)))
    assert "\n" not in str(caught.value)
    unchanged(loss, before)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "double"])
def test_state_follows_a_cast_but_never_below_float32(cast: str) -> None:
    loss = KsoRed(**ALL)
    step(loss, lists(0))
    before = saved(loss)
    model = getattr(nn.ModuleList([nn.Linear(2, 2), loss]), cast)()
    wide = torch.float64 if cast == "double" else torch.float32
    assert model[0].weight.dtype == getattr(torch, cast)
    for name, value in loss.state_dict().items():
        assert value.dtype in (wide, torch.int64)
        torch.testing.assert_close(value, before[name].to(value.dtype), equal_nan=True)


def test_state_follows_to_a_device() -> None:
    loss = KsoRed(**ALL).to("meta")
    assert {value.device.type for value in loss.state_dict().values()} == {"meta"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("outside", [False, True])
def test_a_loop_under_autocast_learns_and_its_state_stays_in_float32(
    dtype: torch.dtype, outside: bool
) -> None:
    torch.manual_seed(0)
    features, relevance = torch.randn(6, LENGTH, 5), lists(0, n_lists=6)["relevance"]
    groups = (features[..., 0] > 0).long()
    model, loss = nn.Linear(5, 1), KsoRed(**{**ALL, "c": 5.0})
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    values = []
    for _ in range(30):
        with torch.autocast("cpu", dtype=dtype):
            scores = model(features)[..., 0]
            scores.retain_grad()
            with torch.autocast("cpu", enabled=not outside):
                value = loss(scores, relevance, groups, query=range(6), item=[range(8)] * 6)
        optimizer.zero_grad()
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        values.append(float(value.detach()))
        assert value.dtype == torch.float32
        assert scores.dtype == scores.grad.dtype == dtype
    assert min(values[-5:]) < values[0] - 0.05
    kinds = {value.dtype for value in loss.state_dict().values()}
    assert kinds == {torch.float32, torch.int64}


def test_lists_of_one_group_have_no_penalty_and_are_counted() -> None:
    batch, loss = lists(0), KsoRed(**VALUES)
    batch["groups"][1:] = 1
    batch["groups"][0] = torch.arange(LENGTH) % 2
    step(loss, batch)
    assert loss.report()["without_gap"] == pytest.approx(4 / 5)
    assert loss.report()["penalty"] > 0
    step(loss, batch | {"groups": torch.ones_like(batch["groups"])})
    assert loss.report()["without_gap"] == 1
    assert loss.report()["penalty"] == 0
    assert math.isnan(loss.report()["gap_signed"])


def test_the_report_has_the_parts_of_the_last_call() -> None:
    batch, loss = lists(0), KsoRed(**ALL)
    value = step(loss, batch)[0]
    report = loss.report()
    assert report["ranking"] + report["penalty"] == pytest.approx(float(value), rel=1e-5)
    assert report["ranking"] == pytest.approx(float(KSong(**ALL)(**batch)), rel=1e-5)
    assert report["threshold_error"] == pytest.approx(0, abs=0.02)  # starts at the exact one
    assert Song().report() == {}
