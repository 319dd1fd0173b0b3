"""The losses against the objective they stand for, their memory, and a plain training loop."""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.lists.batch import list_batch
from fairtopk.losses import Deltr, KSong, KsoRed, ListNet, NgDe, RankingLoss, SlAtK, Song, SoRed
from fairtopk.objectives.methods import METHODS, PRESETS, ObjectiveSettings, methods_of
from fairtopk.objectives.ndcg import Estimate
from fairtopk.objectives.objective import Objective

LOSSES = {one.method: one for one in (Song, KSong, ListNet, SlAtK, Deltr, NgDe, SoRed, KsoRed)}
N_QUERIES, N_ITEMS = 7, 12


class Drawn(NamedTuple):
    scores: Tensor
    relevance: Tensor
    groups: Tensor | None
    query: Any
    item: Tensor
    mask: Tensor

    def given(self, *left_out: str) -> dict[str, Tensor]:
        """What a loss takes by name."""
        names = {"query", "item", "mask"}.difference(left_out)
        return {name: getattr(self, name) for name in names}


def drawn(seed: int, *, n_groups: int = 2, length: int = 9, n_items: int = N_ITEMS) -> Drawn:
    """Lists of different length that share queries and items with those of other seeds."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, length + 1, (4, 1), generator=generator)
    item = [torch.randperm(n_items, generator=generator)[:length] for _ in range(4)]
    return Drawn(
        scores=torch.randn(4, length, generator=generator),
        relevance=torch.randint(0, 4, (4, length), generator=generator),
        groups=torch.randint(-1, n_groups, (4, length), generator=generator),
        query=torch.randperm(N_QUERIES, generator=generator)[:4],
        item=torch.stack(item),
        mask=torch.arange(length) < sizes,
    )


def step(loss: RankingLoss, data: Drawn, *left_out: str) -> Estimate:
    """The value and gradient that a loop would see."""
    scores = data.scores.clone().requires_grad_()
    value = loss(scores, data.relevance, data.groups, **data.given(*left_out))
    value.backward()
    assert scores.grad is not None
    return Estimate(value.detach(), scores.grad)


def objective(method: str, *, n_items: int = N_ITEMS, **values: object) -> Objective:
    settings = ObjectiveSettings.model_validate(values)
    n_pairs = N_QUERIES * n_items
    return Objective(
        METHODS[method], settings, n_queries=N_QUERIES, n_pairs=n_pairs, n_groups=2
    )


def plain_step(part: Objective, data: Drawn, *, n_items: int = N_ITEMS) -> Estimate:
    """The same by the objective itself, with a table of users x items."""
    batch = list_batch(
        data.query,
        data.relevance.to(data.scores.dtype),
        data.groups,
        data.mask,
        ideal_k=part.settings.ks[-1] if part.method.selects else None,
    )
    pair = (data.query[:, None] * n_items + data.item)[:, : batch.pair.shape[1]]
    return part(data.scores, batch._replace(pair=pair))


def same(one: Estimate, other: Estimate) -> None:
    assert torch.equal(one.value, other.value)
    assert torch.equal(one.grad, other.grad)


def saved(loss: RankingLoss) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in loss.state_dict().items()}


def unchanged(loss: RankingLoss, before: dict[str, Tensor]) -> None:
    for name, value in loss.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("method", methods_of("objective"))
@pytest.mark.parametrize("preset", list(PRESETS))
def test_value_and_gradient_are_the_objectives_call_after_call(
    method: str, preset: str
) -> None:
    values = {"k": 3, "c": 100.0}
    loss = LOSSES[method](**values, preset=preset, n_queries=N_QUERIES)
    part = objective(method, **PRESETS[preset] | values)
    for seed in range(12):
        data = drawn(seed)
        same(step(loss, data), plain_step(part, data))
        found, expected = loss.report(), part.report()
        assert found.keys() == expected.keys()
        assert all(found[one] == pytest.approx(expected[one], nan_ok=True) for one in found)


def test_the_gradient_is_multiplied_by_what_comes_from_above() -> None:
    data = drawn(0)
    loss = KsoRed(k=3, c=100.0, gamma_0=1.0, n_queries=N_QUERIES)
    once = step(loss, data)
    scores = data.scores.clone().requires_grad_()
    value = loss(scores, data.relevance, data.groups, **data.given())
    (3 * value + scores.sum()).backward()
    torch.testing.assert_close(scores.grad, 3 * once.grad + 1)


@pytest.mark.parametrize("method", ["song", "so-red", "kso-red"])
def test_without_items_each_surrogate_rank_is_fresh(method: str) -> None:
    values: dict[str, Any] = {"k": 3, "c": 100.0, "gamma_u": 0.2}
    loss = LOSSES[method](**values, n_queries=N_QUERIES)
    part = objective(method, **values, gamma_0=1.0)
    remembering = LOSSES[method](**values, n_queries=N_QUERIES)
    for seed in range(8):
        data = drawn(seed)
        found = step(loss, data, "item")
        same(found, plain_step(part, data))
        with_items = step(remembering, data)
    assert not torch.allclose(found.grad, with_items.grad)


@pytest.mark.parametrize("method", methods_of("objective"))
@pytest.mark.parametrize("preset", list(PRESETS))
def test_without_queries_every_call_is_as_a_first_one(method: str, preset: str) -> None:
    values = {"k": 3, "c": 100.0, "preset": preset, "start": "first"}
    loss = LOSSES[method](**values | {"start": PRESETS[preset].get("start", "first")})
    before = saved(loss)
    for seed in range(4):
        data = drawn(seed)
        first = LOSSES[method](**values, n_queries=N_QUERIES)
        same(step(loss, data, "query", "item"), step(first, data))
        assert loss.report()["ranking"] == first.report()["ranking"]
    unchanged(loss, before)


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("n_items", [N_ITEMS, 4_000])
def test_state_saved_midway_goes_on_with_the_same_bits(preset: str, n_items: int) -> None:
    """With 4000 items the table of pairs grows before and after."""
    values: dict[str, Any] = {"k": 3, "c": 100.0, "preset": preset, "n_queries": N_QUERIES}
    loss, other = KsoRed(**values), KsoRed(**values)
    length = 9 if n_items == N_ITEMS else 400
    lists = [drawn(seed, length=length, n_items=n_items) for seed in range(12)]
    for data in lists[:6]:
        step(loss, data)
    middle = saved(loss)
    other.load_state_dict(middle)
    for data in lists[6:]:
        same(step(loss, data), step(other, data))
    for name, value in loss.state_dict().items():
        torch.testing.assert_close(
            value, other.state_dict()[name], rtol=0, atol=0, equal_nan=True
        )
    rows = [len(one["memory.objective.ranking.u_qi.key"]) for one in (middle, saved(loss))]
    assert (n_items == N_ITEMS and rows == [1024, 1024]) or 1024 < rows[0] < rows[1]


def test_the_table_of_pairs_has_rows_for_relevant_pairs_alone() -> None:
    loss = KsoRed(k=3, c=1.0, n_queries=10**6)
    data = drawn(0)
    spread = data._replace(query=data.query * 10**5, item=data.item * 10**8)
    step(loss, spread)
    relevant = int(((data.relevance > 0) & data.mask).sum())
    table = loss.state_dict()["memory.objective.ranking.u_qi.value"]
    assert int((~table.isnan()).sum()) == relevant
    assert len(table) == 1024


def test_nothing_is_remembered_under_eval_or_no_grad_but_all_is_read() -> None:
    loss = KsoRed(k=3, c=100.0, preset="paper", n_queries=N_QUERIES)
    for seed in range(6):
        step(loss, drawn(seed))
    before, data = saved(loss), drawn(50)
    with torch.no_grad():
        quiet = loss(data.scores, data.relevance, data.groups, **data.given())
    with torch.inference_mode():
        scores = data.scores + 0
        value = loss(scores, data.relevance + 0, data.groups, **data.given())
        assert torch.equal(value, quiet)
    loss.eval()
    assert torch.equal(step(loss, data).value, quiet)
    unchanged(loss, before)
    loss.train()
    assert torch.equal(step(loss, data).value, quiet)
    fresh = KsoRed(k=3, c=100.0, preset="paper", n_queries=N_QUERIES)
    assert not torch.equal(step(fresh, data).value, quiet)
    name = "memory.objective.ranking.u_qi.value"
    assert not loss.state_dict()[name].equal(before[name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", methods_of("objective"))
def test_half_precision_scores_are_taken_in_float32(method: str, dtype: torch.dtype) -> None:
    values: dict[str, Any] = {"k": 3, "c": 100.0, "n_queries": N_QUERIES}
    half, full = LOSSES[method](**values), LOSSES[method](**values)
    for seed in range(3):
        data = drawn(seed)
        data = data._replace(scores=data.scores.to(dtype))
        found, expected = (
            step(half, data),
            step(full, data._replace(scores=data.scores.float())),
        )
        assert found.value.dtype == torch.float32
        assert torch.equal(found.value, expected.value)
        assert torch.equal(found.grad, expected.grad.to(dtype))


def test_a_scaled_loss_keeps_gradients_that_half_precision_would_lose() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float16, requires_grad=True)
    groups = torch.tensor([[0, 1, 0, 1]])
    loss = SoRed(c=1e-6)
    (loss(scores, torch.zeros(1, 4), groups) * 2.0**16).backward()
    full = scores.detach().float().requires_grad_()
    loss(full, torch.zeros(1, 4), groups).backward()
    assert scores.grad is not None
    assert full.grad is not None
    assert (full.grad.half() == 0).any()
    torch.testing.assert_close(scores.grad.float() / 2**16, full.grad, rtol=1e-3, atol=0)


def test_under_autocast_the_numbers_stay_the_same() -> None:
    values: dict[str, Any] = {"k": 3, "c": 100.0, "exposure": "rank", "n_queries": N_QUERIES}
    inside, outside, data = KsoRed(**values), KsoRed(**values), drawn(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = step(inside, data)
    same(found, step(outside, data))


@pytest.mark.parametrize("method", methods_of("objective"))
@pytest.mark.parametrize("preset", list(PRESETS))
def test_scores_and_state_may_be_of_different_precision(method: str, preset: str) -> None:
    """In float64 throughout; and with one of the two in float32, which is then close to it."""
    values: dict[str, Any] = {"k": 3, "c": 10.0, "preset": preset, "n_queries": N_QUERIES}
    results = {}
    for of_scores in (torch.float32, torch.float64):
        for of_state in (torch.float32, torch.float64):
            loss = LOSSES[method](**values).to(of_state)
            for seed in range(4):
                data = drawn(seed)
                found = step(loss, data._replace(scores=data.scores.to(of_scores)))
            assert found.grad.dtype == of_scores
            results[of_scores, of_state] = found.grad.double()
    exact = results.pop((torch.float64, torch.float64))
    for one in results.values():
        torch.testing.assert_close(one, exact, rtol=1e-3, atol=1e-5)


def test_what_stands_on_padding_is_not_read() -> None:
    data = drawn(3)
    expected = step(KsoRed(k=3, c=100.0, n_queries=N_QUERIES), data)
    rubbish = data._replace(
        scores=data.scores.masked_fill(~data.mask, math.nan),
        relevance=data.relevance.masked_fill(~data.mask, -7),
        groups=data.groups.masked_fill(~data.mask, 1),
        item=data.item.masked_fill(~data.mask, -1),
    )
    found = step(KsoRed(k=3, c=100.0, n_queries=N_QUERIES), rubbish)
    same(found, expected)
    assert (found.grad[~data.mask] == 0).all()


def test_without_a_mask_all_slots_are_items() -> None:
    data = drawn(1)
    full = data._replace(mask=torch.ones_like(data.mask))
    same(
        step(KsoRed(k=3, c=100.0, n_queries=N_QUERIES), data, "mask"),
        step(KsoRed(k=3, c=100.0, n_queries=N_QUERIES), full),
    )


def test_booleans_mark_group_0_and_the_signed_gap_is_that_group_less_the_rest() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    relevance, named = torch.zeros(1, 4), torch.tensor([[True, False, True, False]])
    exposure = scores.softmax(-1)[0]
    gap = float((exposure[0] + exposure[2] - exposure[1] - exposure[3]) / 2)
    loss = SoRed(k=2, c=8.0)
    for groups in (named, torch.tensor([[0, 1, 0, 1]])):
        assert float(loss(scores, relevance, groups)) == pytest.approx(4 * gap**2)
        assert loss.report()["gap_signed"] == pytest.approx(gap)


def test_more_than_two_groups_are_allowed() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    groups = torch.tensor([[0, 1, 2, 2]])
    exposure = scores.softmax(-1)[0]
    a, b, c = exposure[0], exposure[1], (exposure[2] + exposure[3]) / 2
    value = Deltr(c=8.0, n_groups=3)(scores, torch.zeros(1, 4), groups)
    penalty = 4 * ((a - b) ** 2 + (a - c) ** 2 + (b - c) ** 2)
    assert float(value) == pytest.approx(float(penalty - scores.log_softmax(-1).mean()))


def test_arrays_of_numpy_and_lists_of_ids_are_taken() -> None:
    data = drawn(2)
    expected = KsoRed(k=3, c=100.0, n_queries=N_QUERIES)(
        data.scores, data.relevance, data.groups, **data.given()
    )
    mask, groups = data.mask.numpy(), np.flip(data.groups.flip(-1).numpy(), -1)
    query = data.query.numpy()
    query.flags.writeable = False
    found = KsoRed(k=3, c=100.0, n_queries=N_QUERIES)(
        data.scores, data.relevance.numpy(), groups,
        query=query, item=data.item.tolist(), mask=mask,
    )  # fmt: skip
    assert torch.equal(found, expected)


def test_relative_weight_is_c_over_the_squared_length() -> None:
    data = drawn(5)._replace(mask=torch.ones(4, 9, dtype=torch.bool))
    relative = step(KsoRed(k=3, c_relative=2.0, n_queries=N_QUERIES), data)
    absolute = step(KsoRed(k=3, c=2.0 * 81, n_queries=N_QUERIES), data)
    torch.testing.assert_close(relative.grad, absolute.grad)


class TwoLayers(nn.Module):
    """A scorer of one's own, which never sees a group."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 16), nn.Linear(16, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.outer(self.inner(features).tanh())[..., 0]


def biased_lists() -> tuple[Tensor, Tensor, Tensor]:
    """Features, grades and groups; the minority's grades are pulled down."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 25, 4, generator=generator)
    minority = torch.rand(40, 25, generator=generator) < 0.3
    features[..., 0] -= 1.5 * minority  # what gives the group away
    merit = features[..., 0] + features[..., 1]
    merit += 0.3 * torch.randn(40, 25, generator=generator)
    return features, (merit + 1.5).clamp(0, 4).round(), minority


def trained_gap(method: str, *, c_relative: float, adam: bool) -> float:
    """The mean softmax gap in the top (in the whole list) after a plain loop."""
    torch.manual_seed(1)
    features, relevance, minority = biased_lists()
    model = TwoLayers()
    loss = LOSSES[method](k=5, c_relative=c_relative, n_queries=40)
    optimizer = (
        torch.optim.Adam(model.parameters(), lr=0.01)
        if adam
        else torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    )
    items = torch.arange(25).expand(40, 25)
    for _ in range(15):
        for query in torch.randperm(40).split(10):
            value = loss(
                model(features[query]), relevance[query], minority[query],
                query=query, item=items[query],
            )  # fmt: skip
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    scores = model(features).detach()
    top = scores >= scores.sort(descending=True).values[:, 4:5]
    exposure = scores.softmax(-1) * (top if method == "kso-red" else 1)
    in_a, in_b = minority.float(), (~minority).float()
    gap = (exposure * in_a).sum(-1) / in_a.sum(-1) - (exposure * in_b).sum(-1) / in_b.sum(-1)
    return float(gap.abs().mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "adam"),
    [("deltr", False), ("ng-de", True), ("so-red", False), ("kso-red", True)],
)
def test_a_plain_loop_ends_fairer_with_the_penalty_than_without(
    method: str, adam: bool
) -> None:
    unfair, fair = (trained_gap(method, c_relative=c, adam=adam) for c in (0.0, 1.0))
    assert unfair > 0.01
    assert fair < 0.7 * unfair


K_RULE = "^KsoRed: k must be a whole number of at least 1, or several in a list"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kk": 3}, "KsoRed has no setting 'kk'; it has k, k_of, c, "),
        ({"k": 0}, f"{K_RULE}, got 0$"),
        ({"k": "ten"}, f"{K_RULE}, got 'ten'$"),
        ({"k": 1.5}, f"{K_RULE}, got 1.5$"),
        ({"k": True}, f"{K_RULE}, got True$"),
        ({"k": None}, f"{K_RULE}, got None$"),
        ({"k": [5, 0]}, rf"{K_RULE}, got \[5, 0\]$"),
        ({"k": []}, rf"{K_RULE}, got \[\]$"),
        ({"c": -1.0}, "KsoRed: c should be greater than or equal to 0, got -1.0"),
        ({"c_relative": 1.0}, "KsoRed: give c or c_relative, not both"),
        ({"c": None}, "KsoRed needs the weight of its penalty, c or c_relative; 0 switches"),
        ({"gamma_0": 1.5}, "KsoRed: gamma_0 should be less than or equal to 1, got 1.5"),
        ({"threshold": "best"}, "threshold should be 'exact' or 'tracked', got 'best'"),
        ({"preset": "new"}, "preset must be one of default, paper, released, got 'new'"),
        ({"preset": ["new"]}, r"preset must be one of default, paper, released, got \['new'\]"),
        ({"n_queries": 0}, "n_queries must be at least 1, got 0"),
        ({"n_queries": 2**30}, "n_queries must be at most 1073741823, got 1073741824"),
        ({"n_queries": True}, "n_queries must be a whole number, got True"),
        ({"n_queries": 2.5}, "n_queries must be a whole number, got 2.5"),
        ({"n_groups": 1}, "n_groups must be at least 2, got 1"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ft.InputError, match=message) as caught:
        KsoRed(**{"k": 5, "c": 1.0} | values)
    assert "\n" not in str(caught.value)


BAD = torch.zeros(4, 9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": None}, "scores must be a tensor, got NoneType"),
        ({"scores": [[0.0] * 9] * 4}, "scores must be a tensor, got list"),
        ({"scores": torch.zeros(9)}, "scores must have queries as rows and slots as columns"),
        ({"scores": BAD.index_fill(0, torch.tensor(2), math.nan)}, "finite.*nan in list 2"),
        ({"scores": BAD.index_fill(0, torch.tensor(1), math.inf)}, "finite.*inf in list 1"),
        ({"relevance": torch.zeros(4, 8)}, r"relevance must have the shape of scores"),
        ({"relevance": None}, "relevance must be a tensor or array of numbers, got None"),
        ({"relevance": BAD - 1}, "relevance must lie between 0 and 100, got -1"),
        ({"groups": torch.zeros(4)}, r"groups must have the shape of scores"),
        ({"groups": BAD}, "groups must be whole numbers from 0, and -1 where unknown"),
        ({"groups": BAD.long() - 2}, "and -1 where unknown, got -2 in list 0, slot 0"),
        ({"groups": [["a"] * 9] * 4}, "groups must be a tensor or array .* got 'a'"),
        ({"groups": None}, "KsoRed needs the group of each item"),
        ({"groups": torch.full((4, 9), 2)}, "0 to 1, got 2; make the loss with n_groups=3"),
        ({"mask": BAD}, "mask must be boolean"),
        ({"mask": BAD.bool()}, "list 0 has no item; leave out lists that are all padding"),
        ({"query": torch.tensor([0, 1, 2])}, r"query must have the shape \[4\], got \[3\]"),
        ({"query": torch.tensor([0, 1, 2, 0])}, "query has an id twice; give each query one"),
        ({"query": ["a", "b", "c", "a"]}, "query has an id twice; give each query one list"),
        ({"query": ["a", "b", None, "c"]}, "query must be whole numbers or strings, got None"),
        ({"query": ["a", "b", True, "c"]}, "query must be whole numbers or strings, got True"),
        ({"query": [0, 1, 2, 2**64]}, "fit into 64 bits, got 18446744073709551616; give it as"),
        ({"query": [0.5, 1, 2, 3]}, "query must be whole numbers or strings, got float64"),
        ({"query": "abcd"}, r"query must have the shape \[4\], got \[\]"),
        ({"query": None}, "item needs query"),
        ({"item": torch.zeros(4, 9)}, "item must be whole .* got torch.float32"),
        ({"item": [[0]] * 4}, r"item must have the shape \[4, 9\], got \[4, 1\]"),
        ({"item": [[0]] * 3 + [[1, 2]]}, "item must be whole .* got list that is no array"),
        ({"item": [["x"] * 9] * 4}, "a relevant item twice in one list"),
        ({"item": torch.zeros(4, 9, dtype=torch.int64)}, "a relevant item twice in one list"),
    ],
)  # fmt: skip
def test_wrong_batches_are_refused_in_one_sentence(
    change: dict[str, Any], message: str
) -> None:
    data = drawn(0)
    given = {**data._asdict(), "mask": torch.ones(4, 9, dtype=torch.bool), **change}
    loss = KsoRed(k=3, c=1.0, n_queries=N_QUERIES)
    scores, relevance, groups = (given.pop(name) for name in ("scores", "relevance", "groups"))
    with pytest.raises(ft.InputError, match=message) as caught:
        loss(scores, relevance, groups, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("weight", ["c", "c_relative"])
@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("method", methods_of("objective"))
def test_without_a_penalty_groups_may_be_left_out(
    method: str, preset: str, weight: str
) -> None:
    values: dict[str, Any] = {"k": 3, "preset": preset, "n_queries": N_QUERIES, weight: 0}
    loss, other = LOSSES[method](**values), LOSSES[method](**values)
    for seed in range(3):
        data = drawn(seed)
        same(step(loss, data._replace(groups=None)), step(other, data))
    assert loss.report()["penalty"] == 0


def test_ids_in_a_series_are_taken_whatever_its_labels() -> None:
    data, loss = drawn(0), KsoRed(k=3, c=100.0, n_queries=N_QUERIES)
    other = KsoRed(k=3, c=100.0, n_queries=N_QUERIES)
    query = pd.Series(data.query.numpy(), index=[12, 10, 13, 11])
    same(step(loss, data._replace(query=query)), step(other, data))
    unchanged(loss, saved(other))


@pytest.mark.parametrize("gamma_0", [0.3, 1.0])
def test_a_loss_loads_what_it_saved(gamma_0: float) -> None:
    def made() -> RankingLoss:
        return KSong(k=2, n_queries=3, gamma_0=gamma_0)

    scores, relevance = torch.tensor([[0.1, 0.7, 0.3]]), torch.tensor([[1, 0, 2]])
    query, item = torch.tensor([1]), torch.tensor([[5, 6, 7]])
    loss, other = made(), made()
    loss(scores, relevance, query=query, item=item)
    other.load_state_dict(loss.state_dict())
    again = (one(scores + 1, relevance, query=query, item=item) for one in (loss, other))
    assert torch.equal(*again)
