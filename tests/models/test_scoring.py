from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk import InputError
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import Ratings
from fairtopk.models import scoring
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.models.scoring import catalogue_scores, score, top_blocks, top_items

N_USERS, N_ITEMS = 90, 70
USERS = np.random.default_rng(0).permutation(N_USERS)[:75]


class Table(nn.Module):
    """Scores from a table, which a batch looks up; it knows nothing but batches."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(scores)

    def forward(self, batch: Batch) -> Tensor:
        assert not self.training
        return self.scores[batch.query[:, None], batch.item]


def some_table() -> Table:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(-9, 9, (N_USERS, N_ITEMS), generator=generator) / 4  # with ties
    return Table(scores)


def some_excluded() -> Ratings:
    """Items of each user; user 3 has all of them, user 4 none."""
    rng = np.random.default_rng(0)
    counts = rng.integers(0, N_ITEMS, N_USERS)
    counts[3], counts[4] = N_ITEMS, 0
    item = np.concatenate([rng.permutation(N_ITEMS)[:count] for count in counts])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Ratings(offsets, item.astype(np.int32), np.ones(len(item)))


def model(name: str) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    makers = {"neumf": NeuMF, "mf": MatrixFactorization}
    found = makers[name](N_USERS, N_ITEMS, width=10, generator=generator)
    for parameter in found.parameters():
        nn.init.normal_(parameter, generator=generator)
    return found


def brute_force(
    scores: NDArray[np.floating], users: NDArray[np.int64], k: int, excluded: Ratings | None
) -> list[list[int]]:
    """The best items of each user by (score falling, item), -1 where there are no more."""
    found = []
    for row, user in zip(scores, users, strict=True):
        out: set[int] = set()
        if excluded is not None:
            out = set(excluded.item[slice(*excluded.offsets[user : user + 2])].tolist())
        left = sorted(set(range(N_ITEMS)) - out, key=lambda item: (-row[item], item))
        found.append((left + [-1] * k)[:k])
    return found


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("k", [1, 10, N_ITEMS, N_ITEMS + 5])
@pytest.mark.parametrize("excluding", [False, True])
@pytest.mark.parametrize("block", [1, 7, 500])
def test_the_best_items_are_those_of_a_full_sort(
    monkeypatch: pytest.MonkeyPatch, k: int, excluding: bool, block: int
) -> None:
    monkeypatch.setattr(scoring, "BLOCK", block)
    table, excluded = some_table(), some_excluded() if excluding else None
    found = top_items(table, USERS, k=k, n_items=N_ITEMS, excluded=excluded)
    scores = table.scores.detach().numpy()[USERS]
    assert found.item.tolist() == brute_force(scores, USERS, k, excluded)
    there = found.item >= 0
    expected = np.take_along_axis(scores, found.item.clip(0), -1)
    assert (found.scores[there] == expected[there]).all()
    assert (found.scores[~there] == -np.inf).all()


@pytest.mark.parametrize("name", ["neumf", "mf"])
def test_the_built_in_scorers_rank_by_what_they_score_in_batches(name: str) -> None:
    scorer, excluded = model(name).double(), some_excluded()
    lists = Table(torch.from_numpy(catalogue_scores(scorer, np.arange(N_USERS), N_ITEMS)))
    found = top_items(scorer, USERS, k=9, n_items=N_ITEMS, excluded=excluded)
    expected = top_items(lists, USERS, k=9, n_items=N_ITEMS, excluded=excluded)
    assert found.item.tolist() == expected.item.tolist()

    class Forward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scorer = scorer

        def forward(self, batch: Batch) -> Tensor:
            found: Tensor = self.scorer(batch)
            return found

    by_batches = top_items(Forward(), USERS, k=9, n_items=N_ITEMS, excluded=excluded)
    np.testing.assert_allclose(by_batches.scores, found.scores, rtol=1e-12)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("name", ["neumf", "mf"])
def test_blocks_and_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    scorer, excluded = model(name), some_excluded()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for block in (1, 33, 500):
            monkeypatch.setattr(scoring, "BLOCK", block)
            tops = top_blocks(scorer, USERS, k=20, n_items=N_ITEMS, excluded=excluded)
            columns = zip(*tops, strict=True)
            results.append([np.concatenate(parts) for parts in columns])
    for result in results[1:]:
        for found, expected in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(found, expected)


def test_one_user_is_enough() -> None:
    table = some_table()
    found = top_items(table, np.array([5], np.int32), k=3, n_items=N_ITEMS)
    assert found.item.tolist() == brute_force(
        table.scores.detach().numpy()[[5]], np.array([5]), 3, None
    )


def test_the_log_sum_exp_is_that_of_the_items_that_are_not_excluded() -> None:
    table, excluded = some_table(), some_excluded()
    (top,) = top_blocks(table, USERS, k=2, n_items=N_ITEMS, excluded=excluded)
    for row, user in enumerate(USERS):
        scores = table.scores[user].detach().double().clone()
        slots = slice(*excluded.offsets[user : user + 2])
        scores[torch.from_numpy(excluded.item[slots]).long()] = -torch.inf
        assert top.log_sum[row] == pytest.approx(float(scores.logsumexp(-1)), abs=1e-6)


def test_scoring_leaves_the_mode_of_a_scorer_and_its_scores_alone() -> None:
    class Everyone(Table):
        def score_all(self, users: Tensor) -> Tensor:
            assert not self.training
            assert not torch.is_grad_enabled()
            return self.scores[0].expand(len(users), -1)

    scorer = Everyone(some_table().scores.detach()).train()
    before = scorer.scores.clone()
    top_items(scorer, USERS, k=3, n_items=N_ITEMS, excluded=some_excluded())
    assert scorer.training
    assert torch.equal(scorer.scores, before)


def test_a_scorer_that_fails_is_left_in_its_mode() -> None:
    class Failing(nn.Module):
        def forward(self, batch: Batch) -> Tensor:
            raise RuntimeError

    scorer = Failing().train()
    with pytest.raises(RuntimeError):
        score(scorer, None)  # type: ignore[arg-type]
    assert scorer.training


@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
def test_scores_that_are_not_finite_are_refused(odd: float) -> None:
    table = some_table()
    with torch.no_grad():
        table.scores[7, [66, 68]], table.scores[8, 0] = odd, odd  # the first is named
    sentence = f"scores must be finite, got {odd:g} for user 7 and item 66; the model may have"
    with pytest.raises(InputError, match=sentence):
        top_items(table, np.arange(N_USERS), k=3, n_items=N_ITEMS)


def test_what_cannot_be_meant_is_refused_in_one_sentence() -> None:
    table, excluded = some_table(), some_excluded()
    for users in (np.array([], np.int64), np.array([-1]), np.array([1.0]), np.array([[1]])):
        with pytest.raises(
            InputError, match="users must be whole numbers from 0, at least one"
        ):
            top_items(table, users, k=1, n_items=N_ITEMS)
    with pytest.raises(InputError, match="are numbered from 0 to 89, got 90"):
        top_items(table, np.array([N_USERS]), k=1, n_items=N_ITEMS, excluded=excluded)
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        top_items(table, USERS, k=0, n_items=N_ITEMS)
    with pytest.raises(InputError, match=r"75 users a score for each of 71 items, got .* 70\]"):
        top_items(model("mf"), USERS, k=1, n_items=N_ITEMS + 1)
