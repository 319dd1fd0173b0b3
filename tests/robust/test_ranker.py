import numpy as np
import pytest
import torch
from torch import Tensor

import fairtopk as ft
from fairtopk.lists.batch import Batch, list_batch
from fairtopk.metrics import exposure_gap, rank_exposure_gap
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.objectives.methods import RobustSettings
from fairtopk.robust._kernels import discounts
from fairtopk.robust.ranker import RobustRanker, features, n_features

N_USERS, N_ITEMS = 6, 30


def batch_of(length: int = 12, *, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    item = torch.stack(
        [torch.randperm(N_ITEMS, generator=draw)[:length] for _ in range(N_USERS)]
    )
    group = torch.where(item < 8, 0, torch.where(item < 24, 1, 2)).int()
    group[item == 29] = -1
    mask = torch.rand(item.shape, generator=draw) < 0.9
    return list_batch(
        torch.arange(N_USERS), torch.zeros(item.shape), group, mask, item=item.int()
    )


def ranker(*, share: float = 1.0, **settings: object) -> RobustRanker:
    """One whose theta is the score of a random scorer: items of group 0 score low."""
    draw = torch.Generator().manual_seed(1)
    base = MatrixFactorization(N_USERS, N_ITEMS, width=4, generator=draw)
    with torch.no_grad():
        base.bias.weight.normal_(generator=draw)
        base.bias.weight[:8] -= 1.0
    made = RobustRanker(base, RobustSettings(**settings), share=share, seed=0)  # type: ignore[arg-type]
    made.theta[-2:] = torch.tensor([-0.3, -0.6])
    return made


def ranks(scores: Tensor) -> Tensor:
    return scores.argsort(dim=-1, descending=True, stable=True).argsort(-1) + 1


def test_a_score_is_the_log_of_the_exposure_of_the_place() -> None:
    batch, model = batch_of(), ranker()
    model.calibrate([batch])
    scores = model(batch)
    place = torch.from_numpy(discounts(12)).float()
    falling = scores.sort(-1, descending=True).values
    torch.testing.assert_close(falling, place.log().expand_as(scores))
    whole = batch._replace(mask=torch.ones_like(batch.mask))
    scores = model(whole)
    torch.testing.assert_close(scores.softmax(-1), place[ranks(scores) - 1] / place.sum())
    gap = exposure_gap(scores, whole.group, k=5)
    by_rank = rank_exposure_gap(scores, whole.group, k=5)
    torch.testing.assert_close(gap * place.sum(), by_rank)


def test_padding_has_the_last_places_and_without_a_bonus_the_appeal_decides() -> None:
    batch, model = batch_of(), ranker(share=0.0)
    scores = model(batch)
    appeal = torch.from_numpy(model._game(batch)[0].appeal)
    appeal = appeal.masked_fill(~batch.mask, -torch.inf)
    order = appeal.argsort(dim=-1, descending=True, stable=True)
    n_items = batch.mask.sum(-1)
    for row in range(N_USERS):
        inside = slice(int(n_items[row]))
        found = scores[row].argsort(descending=True)[inside]
        assert found.tolist() == order[row, inside].tolist()


@pytest.mark.parametrize("multiplier", ["data", "list"])
def test_groups_get_the_same_in_expectation(multiplier: str) -> None:
    """Of each list, or of all; and with a share of 0 group 0 gets less."""
    batch, found = batch_of(), {}
    for share in (0.0, 1.0):
        model = ranker(share=share, multiplier=multiplier, mu=0.3)
        model.calibrate([batch])
        game, lam, _ = model._game(batch)
        found[share] = game.play(lam).gap
    assert found[0.0].mean() < -0.05
    assert abs(found[1.0].mean()) < 1e-6
    assert (np.abs(found[1.0]).max() < 1e-6) == (multiplier == "list")


def test_a_list_is_ranked_alike_in_any_batch() -> None:
    batch, model = batch_of(), ranker(multiplier="list")
    alone = [Batch(*(value[row : row + 1] for value in batch)) for row in range(N_USERS)]
    assert torch.equal(model(batch), torch.cat([model(one) for one in alone]))


def test_sampled_rankings_give_groups_the_same_in_expectation() -> None:
    batch, model = batch_of(8), ranker(ranking="sampled", multiplier="list", mu=0.3)
    place, game = torch.from_numpy(discounts(8)), model._game(batch)[0]
    for row, policy in enumerate(model.policies(batch)):
        exposure = (policy.matrix() @ place).numpy()
        gap = (game.rate[row, game.kind[row]] * exposure).sum()
        assert gap == pytest.approx(0, abs=1e-6)
        assert not policy.matrix()[~batch.mask[row], : int(batch.mask[row].sum())].any()


def test_a_sampled_ranking_is_one_of_its_policy_and_the_same_each_time() -> None:
    batch, drawn = batch_of(8), set()
    for seed in range(4):
        model = ranker(ranking="sampled", mu=0.3)
        model.seed = seed
        scores = model(batch)
        assert torch.equal(scores, model(batch))
        order = scores.argsort(-1, descending=True)
        for row, policy in enumerate(model.policies(batch)):
            assert (policy.slot == order[row]).all(-1).any()
        drawn.add(tuple(order.flatten().tolist()))
    assert len(drawn) > 1


def test_what_cannot_be_ranked_is_refused() -> None:
    batch, model = batch_of(), ranker()
    with pytest.raises(ft.InputError, match="robust needs the groups of items when it ranks"):
        model(batch._replace(group=torch.full_like(batch.group, -1)))
    long = torch.zeros(1, 101, dtype=torch.int32)
    mask = torch.ones(1, 101, dtype=torch.bool)
    too_long = list_batch(torch.zeros(1).long(), torch.zeros(1, 101), long, mask, item=long)
    with pytest.raises(ft.InputError, match="rankings of at most 100 items, got a list of 101"):
        model.policies(too_long)
    with pytest.raises(ft.InputError, match="features from one of the models, got Linear"):
        n_features(torch.nn.Linear(3, 1))


@pytest.mark.parametrize("ranking", ["assignment", "sampled"])
@pytest.mark.parametrize("multiplier", ["data", "list"])
def test_lists_of_one_item_of_one_group_and_of_none_are_ranked(
    ranking: str, multiplier: str
) -> None:
    mask = torch.tensor([[1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
    group = torch.tensor([[0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 1, -1]], dtype=torch.int32)
    item = torch.tensor([[0, 1, 2], [9, 10, 11], [3, 4, 5], [6, 12, 29]], dtype=torch.int32)
    batch = list_batch(torch.arange(4), torch.zeros(4, 3), group, mask, item=item)
    model = ranker(ranking=ranking, multiplier=multiplier)
    model.calibrate([batch])
    scores = model(batch)
    assert scores.isfinite().all()
    assert ranks(scores)[0, 0] == 1
    assert all(set(row.tolist()) == {1, 2, 3} for row in ranks(scores))


@pytest.mark.parametrize("hidden", [(5,), (5, 3)])
def test_the_last_feature_is_the_score_less_its_mean(hidden: tuple[int, ...]) -> None:
    batch, draw = batch_of(), torch.Generator().manual_seed(2)
    neumf = NeuMF(N_USERS, N_ITEMS, width=4, hidden=hidden, dropout=0.5, generator=draw)
    mf = MatrixFactorization(N_USERS, N_ITEMS, width=4, generator=draw)
    for scorer in (neumf.eval(), mf):
        with torch.no_grad():
            for weight in scorer.parameters():
                weight.normal_(generator=draw)
            found, scores = features(scorer, batch), scorer(batch)
        assert found.shape[-1] == n_features(scorer)
        for row, inside in enumerate(batch.mask):
            mine = scores[row, inside]
            torch.testing.assert_close(found[row, inside, -1], mine - mine.mean())
            assert (found[row, ~inside] == 0).all()
            torch.testing.assert_close(
                found[row].sum(0), torch.zeros(found.shape[-1]), atol=1e-4, rtol=0
            )
