import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.objectives.dpr import bpr_loss, graded_pairs, list_pairs


def plain(scores: Tensor, relevance: Tensor, mask: Tensor) -> list[Tensor]:
    """Pair by pair, list by list."""
    found = []
    for one, grades, inside in zip(scores, relevance, mask, strict=True):
        slots = range(len(one))
        above = [slot for slot in slots if inside[slot] and grades[slot] > 0]
        below = [slot for slot in slots if inside[slot] and not grades[slot] > 0]
        losses = [
            -(one[above[turn % len(above)]] - one[slot]).sigmoid().log()
            for turn, slot in enumerate(below)
            if above
        ]
        found.append(torch.stack(losses).mean() if losses else 0 * one.sum())
    return found


@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.2, 0.6, 1.0]))
def test_loss_and_gradient_are_those_of_each_pair(seed: int, share: float) -> None:
    """Lists with any number of relevant items, none and all among them, and with padding."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 7, generator=rng, dtype=torch.float64).requires_grad_()
    relevance = 3.0 * (torch.rand(4, 7, generator=rng) < share)
    mask = torch.rand(4, 7, generator=rng) < 0.8
    expected = torch.stack(plain(scores, relevance, mask))
    (slope,) = torch.autograd.grad(expected.sum(), scores)
    loss, grad = bpr_loss(scores.detach(), list_pairs(relevance, mask))
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(grad, slope)


def test_every_relevant_item_has_its_share_of_the_others() -> None:
    relevance = torch.tensor([[5.0, 1, 0, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1]])
    pairs = list_pairs(relevance, torch.ones(2, 8, dtype=torch.bool))
    assert pairs.query.tolist() == [0] * 5 + [1] * 7
    assert pairs.below.tolist() == [2, 3, 4, 6, 7, 0, 1, 2, 3, 4, 5, 6]
    assert pairs.above.tolist() == [0, 1, 5, 0, 1] + [7] * 7


def test_scores_far_apart_give_finite_numbers() -> None:
    scores = torch.tensor([[0.0, 1e4], [1e4, 0.0]])
    pairs = list_pairs(torch.tensor([[1.0, 0.0]] * 2), torch.ones(2, 2, dtype=torch.bool))
    loss, grad = bpr_loss(scores, pairs)
    assert loss.tolist() == [1e4, 0.0]
    assert grad.tolist() == [[-1.0, 1.0], [0.0, 0.0]]


def by_grades(scores: Tensor, grades: Tensor, mask: Tensor) -> list[tuple[int, int]]:
    """The pairs (above, below) of a list: items of a grade take turns with those above it."""
    slots = [slot for slot in range(len(scores)) if mask[slot]]
    slots.sort(key=lambda slot: -float(grades[slot]))
    found = []
    for grade in sorted({float(grades[slot]) for slot in slots}):
        above = [slot for slot in slots if grades[slot] > grade]
        below = [slot for slot in slots if grades[slot] == grade]
        found += [(above[turn % len(above)], one) for turn, one in enumerate(below) if above]
    return found


@given(st.integers(0, 2**31), st.sampled_from([1, 2, 5]))
def test_by_grades_each_item_is_paired_with_one_of_a_higher_grade(
    seed: int, n_grades: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 7, generator=rng)
    grades = torch.randint(n_grades, (4, 7), generator=rng).float()
    mask = torch.rand(4, 7, generator=rng) < 0.8
    pairs = graded_pairs(grades, mask)
    found = sorted(zip(*(part.tolist() for part in pairs), strict=True))
    assert found == sorted(
        (query, *pair)
        for query in range(4)
        for pair in by_grades(scores[query], grades[query], mask[query])
    )
    if n_grades == 2:
        plain_pairs = list_pairs(grades, mask)
        assert found == sorted(zip(*(part.tolist() for part in plain_pairs), strict=True))
