"""Weighted lists with top items against the whole catalogue (methods.md, 8.6 and 8.8).

Over many draws, what is estimated from lists of 8 + 30 + 30 agrees with the values of the whole
catalogue of 200 items; were they to count as uniform samples, it would be far off.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.lists.batch import Batch
from fairtopk.objectives.methods import METHODS, ObjectiveSettings
from fairtopk.objectives.ndcg import Estimate, ListNet, surrogate_rank
from fairtopk.objectives.objective import Objective, list_spread
from fairtopk.objectives.threshold import Selection
from fairtopk.training.samplers import ListSampler, ListSizes

N_USERS, N_ITEMS, K, DRAWS = 60, 200, 20, 60
SIZES = ListSizes(rated=8, unrated=30, top=30, head=60)


class Scored(nn.Module):
    """Scores of a table, users by items: rated ones higher, those of one group lower."""

    def __init__(self, lists: ft.Lists) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        table = torch.randn(N_USERS, N_ITEMS, generator=generator)
        table[:, torch.from_numpy(lists.data.group) == 1] -= 0.5
        train = lists.train
        owner = np.repeat(np.arange(N_USERS), np.diff(train.offsets))
        table[owner, train.item] += 0.7
        self.table = table

    def forward(self, batch: Batch) -> Tensor:
        return self.table[batch.query[:, None], batch.item.long()]


@pytest.fixture(scope="module")
def lists() -> ft.Lists:
    return ft.split(ft.make_synthetic(ft.SyntheticShape(N_USERS, N_ITEMS, 3_000), seed=0).data)


@pytest.fixture(scope="module")
def scorer(lists: ft.Lists) -> Scored:
    return Scored(lists)


@pytest.fixture(scope="module")
def draws(lists: ft.Lists, scorer: Scored) -> list[Batch]:
    sampler = ListSampler(lists, SIZES, seed=0)
    sampler.refresh(scorer)
    return [sampler.draw(np.arange(N_USERS), epoch=epoch) for epoch in range(DRAWS)]


@pytest.fixture(scope="module")
def whole(lists: ft.Lists) -> Batch:
    """Every user's whole catalogue, in which each slot stands for itself."""
    everything = ListSizes(rated=N_ITEMS, unrated=N_ITEMS)
    sampler = ListSampler(lists, everything, seed=0, corrected=True)
    batch = sampler.draw(np.arange(N_USERS), epoch=0)
    assert (batch.weight[batch.mask] == 1).all()
    return batch


def flat(batch: Batch) -> Batch:
    """The same list, counted as a uniform sample."""
    return batch._replace(weight=batch.mask.float())


def objective_of(method: str = "kso-red", **settings: object) -> Objective:
    values = {"k": K, "k_of": "catalogue", "c_relative": 1.0, "gamma_0": 1.0, **settings}
    return Objective(
        METHODS[method],
        ObjectiveSettings.model_validate(values),
        n_queries=N_USERS,
        n_pairs=3_000,
        n_groups=2,
    )


def thresholds(scores: Tensor, batch: Batch) -> Tensor:
    return objective_of().thresholds[0](scores, batch).lam


def gaps(exposure: str, penalty_of: str) -> Callable[[Tensor, Batch], Tensor]:
    """The gap of each list in means over the catalogue."""

    def found(scores: Tensor, batch: Batch) -> Tensor:
        objective = objective_of(exposure=exposure, penalty_of=penalty_of, beta=3.0)
        seen = []
        objective.fairness[0].register_forward_hook(lambda *call: seen.append(call[2].gap))
        objective(scores, batch)
        compared = batch.unrated if penalty_of == "unrated" else batch
        return seen[0] * (compared.n_represented if exposure == "softmax" else 1)

    return found


def ranks(scores: Tensor, batch: Batch) -> Tensor:
    """The mean over each list's rated items of their smoothed rank, in logarithms."""
    rows = batch.pair.shape[1]
    mean = surrogate_rank(scores, batch.slot_weights, rows=rows, margin=1.0)
    rated = batch.mask[:, :rows]
    return (N_ITEMS * mean + 1).log2().masked_fill(~rated, 0).sum(-1) / rated.sum(-1)


ESTIMATES: dict[str, Callable[[Tensor, Batch], Tensor]] = {
    "lambda": thresholds,
    "lambda of unrated": lambda scores, batch: thresholds(scores, batch.unrated),
    "spread": lambda scores, batch: list_spread(scores, batch),
    "gap": gaps("softmax", "list"),
    "gap of unrated": gaps("softmax", "unrated"),
    "gap by rank": gaps("rank", "unrated"),
    "rank": ranks,
}


def scores_of(scorer: Scored, batch: Batch) -> Tensor:
    scores: Tensor = scorer(batch).masked_fill(~batch.mask, 0)
    return scores


@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_are_those_of_the_whole_catalogue(
    scorer: Scored, draws: list[Batch], whole: Batch, name: str
) -> None:
    """Means over users and draws: within 4 standard errors and a bias of a few per cent.

    That bias is of ratios and logarithms of means, and falls with the length of lists.
    """
    estimate = ESTIMATES[name]
    exact = float(estimate(scores_of(scorer, whole), whole).nanmean())
    found: dict[str, list[float]] = {"weighted": [], "flat": []}
    for batch in draws:
        scores = scores_of(scorer, batch)
        found["weighted"].append(float(estimate(scores, batch).nanmean()))
        found["flat"].append(float(estimate(scores, flat(batch)).nanmean()))
    off = {one: abs(np.mean(values) - exact) for one, values in found.items()}
    error = np.std(found["weighted"]) / np.sqrt(DRAWS)
    assert off["weighted"] < 4 * error + 0.05 * abs(exact)
    if name != "spread":  # which these lists happen to have as the catalogue does
        assert off["flat"] > max(2 * off["weighted"], 5 * error)


def test_the_threshold_is_the_catalogues_next_score(
    lists: ft.Lists, scorer: Scored, whole: Batch
) -> None:
    scores = scores_of(scorer, whole)
    ordered = scorer.table.sort(descending=True).values
    torch.testing.assert_close(thresholds(scores, whole), ordered[:, K])
    train = lists.train
    for user in range(N_USERS):
        owned = train.item[train.offsets[user] : train.offsets[user + 1]]
        rest = np.delete(scorer.table[user].numpy(), owned)
        found = thresholds(scores, whole.unrated)[user]
        assert float(found) == np.sort(rest)[::-1][K]


def item_grads(scorer: Scored, batch: Batch, of: Callable[[Tensor, Batch], Estimate]) -> Tensor:
    """The gradient of an estimate in the score of each item for each user, users by items."""
    grad = of(scores_of(scorer, batch), batch).grad * batch.mask
    return torch.zeros(N_USERS, N_ITEMS).scatter_add_(1, batch.item.long(), grad)


@pytest.mark.parametrize(
    "part", ["listnet", "sl-at-k", "ranking", "penalty", "penalty of unrated"]
)
def test_gradients_point_where_that_of_the_whole_catalogue_does(
    scorer: Scored, draws: list[Batch], whole: Batch, part: str
) -> None:
    def of(scores: Tensor, batch: Batch) -> Estimate:
        if part == "listnet":
            return ListNet()(scores, batch, Selection(torch.ones_like(scores)))
        if part == "sl-at-k":
            return objective_of("sl-at-k", tau_d=1.0)(scores, batch)
        penalty_of = "unrated" if "unrated" in part else "list"
        cost = 0.0 if part == "ranking" else 1e4
        return objective_of(c_relative=cost, penalty_of=penalty_of, beta=3.0)(scores, batch)

    exact = item_grads(scorer, whole, of).flatten()
    cosine = {}
    for name, change in (("weighted", lambda batch: batch), ("flat", flat)):
        mean = torch.stack([item_grads(scorer, change(batch), of) for batch in draws]).mean(0)
        cosine[name] = float(torch.cosine_similarity(mean.flatten(), exact, dim=0))
    assert cosine["weighted"] > 0.85
    assert cosine["weighted"] > cosine["flat"]


def test_the_penalty_may_go_through_what_the_ranking_part_does_not(
    scorer: Scored, whole: Batch
) -> None:
    def grad(**settings: object) -> Tensor:
        return objective_of(**settings)(scores_of(scorer, whole), whole).grad

    mixed = grad(c_relative=50.0, penalty_gradient="full")
    ranking = grad(c_relative=0.0)
    penalty = grad(c_relative=50.0, gradient="full") - grad(c_relative=0.0, gradient="full")
    torch.testing.assert_close(mixed, ranking + penalty, rtol=1e-4, atol=1e-7)
    frozen = grad(c_relative=50.0)
    assert (mixed - frozen).norm() > 0.1 * (frozen - ranking).norm()
