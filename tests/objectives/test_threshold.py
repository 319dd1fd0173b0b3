"""Thresholds: the exact one by plain selection, the tracked one by bisection."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives.threshold import ExactThreshold, TrackedThreshold


def lists(scores: list[list[float]], *, length: int | None = None) -> tuple[Tensor, Batch]:
    """Lists of different length, padded with what must not be read."""
    longest = max(len(one) for one in scores)
    padded = torch.tensor([one + [1e9] * (longest - len(one)) for one in scores])
    mask = torch.tensor([[slot < len(one) for slot in range(longest)] for one in scores])
    batch = list_batch(
        torch.arange(len(scores)), torch.zeros(mask.shape).double(), 0 * mask.long(), mask
    )
    if length is not None:
        batch = batch._replace(n_items=torch.full((len(scores),), length))
    return padded.double().masked_fill(~mask, 0), batch


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=9), min_size=1, max_size=4),
    st.integers(1, 10),
)
def test_exactly_the_k_plus_first_largest_score_also_among_ties(
    grades: list[list[int]], k: int
) -> None:
    scores, batch = lists([[float(grade) for grade in one] for one in grades])
    cut = ExactThreshold(k, through=True)(scores, batch)
    assert torch.equal(cut.lam, cut.exact)
    assert cut.lam_slope is not None
    for row, one in enumerate(grades):
        falling = sorted(one, reverse=True)
        slope = cut.lam_slope[row]
        if k >= len(one):
            assert cut.lam[row] == -math.inf
            assert (slope == 0).all()
        else:
            assert cut.lam[row] == falling[k]
            # One item holds the threshold: d lambda / d h is 1 there.
            assert slope.sum() == slope.max() == 1
            assert scores[row, slope.argmax()] == falling[k]


@pytest.mark.parametrize(("k", "place"), [(10, 1), (15, 1), (20, 2), (39, 3), (40, None)])
def test_a_catalogues_k_is_scaled_to_the_list_at_hand(k: int, place: int | None) -> None:
    """A list of 4 that stands for 40 has K / 10 of them in its top."""
    scores, batch = lists([[3.0, 1.0, 2.0, 0.0]], length=40)
    lam = ExactThreshold(k, of_catalogue=True)(scores, batch).lam
    assert lam.tolist() == [-math.inf if place is None else [3, 2, 1, 0][place]]
    assert ExactThreshold(k)(scores, batch).lam.tolist() == [-math.inf]
    share = ExactThreshold(k, of_catalogue=True).top_share(batch)
    assert share.tolist() == pytest.approx([k / 40])


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_weights_say_how_many_items_a_slot_stands_for(seed: int, k: int) -> None:
    """With whole weights it is the threshold of the list with each slot repeated."""
    generator = torch.Generator().manual_seed(seed)
    scores, batch = lists([[0.0] * 7, [0.0] * 5])
    scores = torch.randn(2, 7, dtype=torch.float64, generator=generator)
    weight = torch.randint(1, 9, (2, 7), generator=generator).double() * batch.mask
    batch = batch._replace(weight=weight, n_items=weight.sum(-1).long())
    found = ExactThreshold(k, of_catalogue=True)(scores, batch).lam
    for row in range(2):
        repeated = (
            scores[row].repeat_interleave(weight[row].long()).sort(descending=True).values
        )
        expected = float(repeated[k]) if k < len(repeated) else -math.inf
        assert float(found[row]) == expected


def tracked(k: int, *, start: float = math.nan, of_catalogue: bool = False) -> TrackedThreshold:
    exact = ExactThreshold(k, of_catalogue=of_catalogue)
    return TrackedThreshold(
        exact, 6, eta_0=0.3, gamma_4=0.9, tau_1=0.1, tau_2=1e-3, epsilon=0.25, start=start
    ).double()


def root(scores: Tensor, share: Tensor, top: float) -> float:
    """The zero of G' by bisection; G' rises."""
    low, high = -1e3, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        above = torch.sigmoid((scores - middle) / 0.1)
        slope = top + 1e-3 * middle - float((share * above).sum())
        low, high = (middle, high) if slope < 0 else (low, middle)
    return (low + high) / 2


def test_tracking_starts_at_the_lists_own_quantile_and_steps_from_there() -> None:
    scores, batch = lists([[3.0, 1.0, 2.0, 0.5], [0.1, 0.2, 0.4]])
    part = tracked(2)
    cut = part(scores, batch)
    for row, (exact, n) in enumerate([(1.0, 4), (0.1, 3)]):
        kept = scores[row, batch.mask[row]]
        above = torch.sigmoid((kept - exact) / 0.1)
        slope = 2.25 / n + 1e-3 * exact - float(above.mean())
        assert float(cut.exact[row]) == pytest.approx(exact)
        assert float(cut.lam[row]) == pytest.approx(exact - 0.3 * slope, rel=1e-6)
    torch.testing.assert_close(part.lam[:2], cut.lam)


@pytest.mark.slow
@pytest.mark.parametrize("start", [math.nan, 0.0])
@pytest.mark.parametrize("of_catalogue", [False, True])
def test_on_fixed_scores_it_comes_to_the_root_and_its_slope_to_the_derivative(
    start: float, of_catalogue: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, batch = lists([[0.0] * 12, [0.0] * 9, [0.0] * 10], length=40)
    scores = torch.randn(3, 12, dtype=torch.float64, generator=generator)
    weight = torch.rand(3, 12, dtype=torch.float64, generator=generator) + 0.5
    batch = batch._replace(weight=weight * batch.mask)
    part = tracked(3, start=start, of_catalogue=of_catalogue)
    for _ in range(600):
        cut = part(scores, batch)
    step = 1e-5
    for row in range(3):
        kept = batch.mask[row]
        share = batch.weight[row, kept] / batch.weight[row].sum()
        top = 3.25 / (40 if of_catalogue else int(kept.sum()))
        found = root(scores[row, kept], share, top)
        assert float(cut.lam[row]) == pytest.approx(found, abs=1e-9)
        for slot in (0, 4):
            moved = scores[row].clone()
            moved[slot] += step
            change = (root(moved[kept], share, top) - found) / step
            assert float(cut.lam_slope[row, slot]) == pytest.approx(change, abs=1e-3)
        assert (cut.lam_slope[row, ~kept] == 0).all()


def test_thresholds_of_absent_queries_and_of_lists_within_k_stay_put() -> None:
    scores, batch = lists([[3.0, 1.0, 2.0, 0.5], [0.1, 0.2, 0.4], [1.0, 2.0]])
    part = tracked(2)
    cut = part(scores, batch)
    assert cut.lam[2] == -math.inf
    assert (cut.lam_slope[2] == 0).all()
    assert part.lam[2:].isnan().all()
    before = {name: value.clone() for name, value in part.state_dict().items()}
    one = Batch(*(tensor[:1] for tensor in batch))
    part(scores[:1] + 1, one)
    for name, value in part.state_dict().items():
        torch.testing.assert_close(value[1:], before[name][1:], rtol=0, atol=0, equal_nan=True)
        assert value[0] != before[name][0]


def test_a_stale_curvature_gives_no_more_than_the_simplex() -> None:
    """s from a visit far from any score is near tau_2; then a score comes near."""
    part = tracked(1, start=0.0)
    scores, batch = lists([[1e3, -1e3]])
    part(scores, batch)
    assert float(part.s_q.value[0]) == pytest.approx(0.9e-3)
    cut = part(scores + 1e3, batch)
    assert cut.lam_slope.tolist() == [[0, 1]]


def test_without_curvature_lambda_does_not_move_with_the_scores() -> None:
    """No score is near and tau_2 is 0; the second list is no longer than K."""
    exact = ExactThreshold(1)
    part = TrackedThreshold(exact, 2, tau_1=1e-3, tau_2=0.0, start=0.0).double()
    scores, batch = lists([[9.0, 5.0, -4.0], [3.0]])
    cut = part(scores, batch)
    assert cut.lam_slope.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert cut.lam[0].isfinite()
