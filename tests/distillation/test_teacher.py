"""What a teacher shows of the catalogue, against re-ranking the catalogue as a whole."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.distillation.teacher import Lesson, Order, Teaching, frozen_copy, lesson_of
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import Ratings
from fairtopk.models.features import FeatureScorer, OfTable
from fairtopk.objectives.methods import DistillSettings

N_USERS, N_ITEMS = 40, 60
NO_RATINGS = Ratings(
    np.zeros(N_USERS + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
)


class Table(nn.Module):
    """Scores that are written down."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, batch: Batch) -> Tensor:
        return self.scores[batch.query[:, None], batch.item.long()]


def teacher() -> Table:
    return Table(torch.randn(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(1)))


def groups(n_groups: int = 2, *, unknown: int = 0) -> np.ndarray:
    group = np.random.default_rng(2).integers(0, n_groups, N_ITEMS).astype(np.int32)
    group[:unknown] = -1
    return group


def some_ratings() -> Ratings:
    rng = np.random.default_rng(3)
    items = [
        np.sort(rng.choice(N_ITEMS, rng.integers(0, 20), replace=False)) for _ in range(N_USERS)
    ]
    offsets = np.cumsum([0, *map(len, items)])
    item = np.concatenate(items).astype(np.int32)
    return Ratings(offsets, item, np.ones(len(item), np.float32))


def lesson(
    group: np.ndarray,
    rated: Ratings,
    *,
    strength: float = 1.0,
    seed: int = 0,
    order: Order | None = None,
    **settings: object,
) -> Lesson:
    told = DistillSettings.model_validate({"head": 25, "tail": 10} | settings)
    return lesson_of(teacher(), rated, Teaching(group, told, strength, seed, order))


@pytest.mark.parametrize(("n_groups", "unknown"), [(2, 0), (3, 0), (3, 9)])
@pytest.mark.parametrize("reranker", ["det-const-sort", "det-greedy"])
def test_the_head_is_that_of_the_whole_catalogue_re_ranked(
    n_groups: int, unknown: int, reranker: str
) -> None:
    group, ratings = groups(n_groups, unknown=unknown), some_ratings()
    found = lesson(group, ratings, reranker=reranker)
    shares = np.bincount(group[group >= 0]) / N_ITEMS
    scores = teacher().scores
    mask = torch.ones(scores.shape, dtype=torch.bool)
    for user in range(N_USERS):
        mask[user, ratings.item[ratings.offsets[user] : ratings.offsets[user + 1]]] = False
    fair = ft.rerank(
        scores,
        np.broadcast_to(group, scores.shape),
        method=reranker,
        k=25,
        mask=mask,
        infeasible="mark",
        targets=shares.tolist(),
    )
    np.testing.assert_array_equal(found.head, fair.slot[:, :25])
    due = scores.masked_fill(~mask, -torch.inf).sort(descending=True).values[:, :25]
    np.testing.assert_array_equal(found.head_score, due)
    assert found.changed


def test_behind_the_head_are_other_items_at_their_own_scores() -> None:
    ratings = some_ratings()
    found, scores = lesson(groups(), ratings), teacher().scores.numpy()
    for user in range(N_USERS):
        mine = ratings.item[ratings.offsets[user] : ratings.offsets[user + 1]]
        others = set(range(N_ITEMS)) - set(mine.tolist()) - set(found.head[user].tolist())
        tail = found.tail[user].tolist()
        assert len(set(tail)) == 10
        assert set(tail) <= others
        assert found.n_behind[user] == len(others)
        lowest = found.head_score[user].min()
        np.testing.assert_array_equal(
            found.tail_score[user], np.minimum(scores[user, tail], lowest)
        )


def test_a_short_catalogue_is_all_head() -> None:
    found = lesson(groups(), some_ratings(), head=100)
    n_left = N_ITEMS - np.diff(some_ratings().offsets)
    np.testing.assert_array_equal((found.head >= 0).sum(-1), n_left)
    assert (found.tail == -1).all()
    assert (found.n_behind == 0).all()


def test_another_teacher_gives_the_order_and_the_student_the_scores() -> None:
    group, ratings = groups(), some_ratings()
    other = torch.randn(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(7))
    found = lesson(group, ratings, order=lambda users, own: 100 * other[users])
    scores, shares = teacher().scores, np.bincount(group) / N_ITEMS
    mask = torch.ones(scores.shape, dtype=torch.bool)
    for user in range(N_USERS):
        mask[user, ratings.item[ratings.offsets[user] : ratings.offsets[user + 1]]] = False
    fair = ft.rerank(
        other,
        np.broadcast_to(group, other.shape),
        method="det-const-sort",
        k=25,
        mask=mask,
        infeasible="mark",
        targets=shares.tolist(),
    )
    np.testing.assert_array_equal(found.head, fair.slot[:, :25])
    due = scores.masked_fill(~mask, -torch.inf).sort(descending=True).values[:, :25]
    np.testing.assert_array_equal(found.head_score, due)


def test_the_students_own_scores_as_another_teachers_change_nothing() -> None:
    own, same = (
        lesson(groups(), some_ratings(), order=order)
        for order in (None, lambda users, own: teacher().scores[users])
    )
    for one, other in zip(own, same, strict=True):
        np.testing.assert_array_equal(one, other)


def test_random_floors_hang_on_the_seed_and_the_user() -> None:
    ratings = some_ratings()
    heads = [
        lesson(groups(4), ratings, seed=seed, rounding="random").head for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(heads[0], heads[1])
    assert (heads[0] != heads[2]).any()


@pytest.mark.parametrize("reranker", ["det-const-sort", "exposure-lp"])
def test_one_group_changes_nothing(reranker: str) -> None:
    assert not lesson(groups(1), NO_RATINGS, reranker=reranker).changed


def test_without_strength_nothing_changes() -> None:
    assert not lesson(groups(3), some_ratings(), strength=0.0).changed


def test_a_program_ranks_the_head_that_there_is() -> None:
    found = lesson(groups(), NO_RATINGS, reranker="exposure-lp")
    own = teacher().scores.topk(25).indices.sort().values
    np.testing.assert_array_equal(np.sort(found.head), own)
    assert found.changed


def test_rankings_that_are_drawn_hang_on_the_seed() -> None:
    heads = [
        lesson(groups(), NO_RATINGS, seed=seed, reranker="exposure-lp").head
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(heads[0], heads[1])
    assert (heads[0] != heads[2]).any()


def test_a_copy_shares_the_documents_and_nothing_that_is_saved() -> None:
    values = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    scorer = OfTable(FeatureScorer("mlp", 3, hidden=(4,), dropout=0.0, seed=0), values)
    copied = frozen_copy(scorer)
    assert copied.values is values
    state = copied.state_dict()
    for name, kept in scorer.state_dict().items():
        assert torch.equal(state[name], kept)
        assert state[name].data_ptr() != kept.data_ptr()
    assert not any(weight.requires_grad for weight in copied.parameters())
