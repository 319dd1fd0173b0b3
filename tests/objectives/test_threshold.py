"""Thresholds: exact, smoothed (Eq. 13) and tracked (Eq. 23), and the selector psi."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives.methods import ObjectiveSettings
from fairtopk.objectives.threshold import (
    BITS,
    Threshold,
    TopThreshold,
    find_past_top,
    select,
    soft_threshold,
    threshold_derivatives,
    threshold_objective,
    topk_threshold,
)

TAU = {"tau_1": 0.3, "tau_2": 0.02}
ONE = torch.ones(1, dtype=torch.float64)


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
    found = TopThreshold(k, ObjectiveSettings(gradient="full"), 4)(scores, batch)
    assert torch.equal(found.lam, found.exact)
    assert found.lam_slope is not None
    for row, one in enumerate(grades):
        falling = sorted(one, reverse=True)
        slope = found.lam_slope[row]
        if k >= len(one):
            assert found.lam[row] == -math.inf
            assert (slope == 0).all()
        else:
            assert found.lam[row] == falling[k]
            # One item holds the threshold: d lambda / d h is 1 there.
            assert slope.sum() == slope.max() == 1
            assert scores[row, slope.argmax()] == falling[k]


@pytest.mark.parametrize(("k", "place"), [(10, 1), (15, 1), (20, 2), (39, 3), (40, None)])
def test_a_catalogues_k_is_scaled_to_the_list_at_hand(k: int, place: int | None) -> None:
    """A list of 4 that stands for 40 has K / 10 of them in its top."""
    scores, batch = lists([[3.0, 1.0, 2.0, 0.0]], length=40)
    found = TopThreshold(k, ObjectiveSettings(k_of="catalogue"), 1)(scores, batch)
    assert found.lam.tolist() == [-math.inf if place is None else [3, 2, 1, 0][place]]
    assert found.lam_slope is None
    found = TopThreshold(k, ObjectiveSettings(), 1)(scores, batch)
    assert found.lam.tolist() == [-math.inf]


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_weights_say_how_many_items_a_slot_stands_for(seed: int, k: int) -> None:
    """With whole weights it is the threshold of the list with each slot repeated."""
    generator = torch.Generator().manual_seed(seed)
    scores, batch = lists([[0.0] * 7, [0.0] * 5])
    scores = torch.randn(2, 7, dtype=torch.float64, generator=generator)
    weight = torch.randint(1, 9, (2, 7), generator=generator).double() * batch.mask
    batch = batch._replace(weight=weight, n_items=weight.sum(-1).long())
    found = TopThreshold(k, ObjectiveSettings(k_of="catalogue"), 2)(scores, batch).lam
    for row in range(2):
        repeated = (
            scores[row].repeat_interleave(weight[row].long()).sort(descending=True).values
        )
        expected = float(repeated[k]) if k < len(repeated) else -math.inf
        assert float(found[row]) == expected


def tracked(k: int, *, start: float = math.nan, k_of: str = "list") -> TopThreshold:
    settings = ObjectiveSettings(
        threshold="tracked", k_of=k_of, eta_0=0.3, tau_1=0.1, tau_2=1e-3
    )
    return TopThreshold(k, settings, 6, start=start).double()


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
    found = part(scores, batch)
    for row, (exact, n) in enumerate([(1.0, 4), (0.1, 3)]):
        kept = scores[row, batch.mask[row]]
        above = torch.sigmoid((kept - exact) / 0.1)
        slope = 2.25 / n + 1e-3 * exact - float(above.mean())
        assert float(found.exact[row]) == pytest.approx(exact)
        assert float(found.lam[row]) == pytest.approx(exact - 0.3 * slope, rel=1e-6)
    torch.testing.assert_close(part.lam[:2], found.lam)


@pytest.mark.slow
@pytest.mark.parametrize("start", [math.nan, 0.0])
@pytest.mark.parametrize("k_of", ["list", "catalogue"])
def test_on_fixed_scores_it_comes_to_the_root_and_its_slope_to_the_derivative(
    start: float, k_of: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, batch = lists([[0.0] * 12, [0.0] * 9, [0.0] * 10], length=40)
    scores = torch.randn(3, 12, dtype=torch.float64, generator=generator)
    weight = torch.rand(3, 12, dtype=torch.float64, generator=generator) + 0.5
    batch = batch._replace(weight=weight * batch.mask)
    part = tracked(3, start=start, k_of=k_of)
    for _ in range(600):
        found = part(scores, batch)
    step = 1e-5
    for row in range(3):
        kept = batch.mask[row]
        share = batch.weight[row, kept] / batch.weight[row].sum()
        top = 3.25 / (40 if k_of == "catalogue" else int(kept.sum()))
        lam = root(scores[row, kept], share, top)
        assert float(found.lam[row]) == pytest.approx(lam, abs=1e-9)
        for slot in (0, 4):
            moved = scores[row].clone()
            moved[slot] += step
            change = (root(moved[kept], share, top) - lam) / step
            assert float(found.lam_slope[row, slot]) == pytest.approx(change, abs=1e-3)
        assert (found.lam_slope[row, ~kept] == 0).all()


def test_thresholds_of_absent_queries_and_of_lists_within_k_stay_put() -> None:
    scores, batch = lists([[3.0, 1.0, 2.0, 0.5], [0.1, 0.2, 0.4], [1.0, 2.0]])
    part = tracked(2)
    found = part(scores, batch)
    assert found.lam[2] == -math.inf
    assert (found.lam_slope[2] == 0).all()
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
    found = part(scores + 1e3, batch)
    assert found.lam_slope.tolist() == [[0, 1]]


def test_without_curvature_lambda_does_not_move_with_the_scores() -> None:
    """No score is near and tau_2 is 0; the second list is no longer than K."""
    settings = ObjectiveSettings(threshold="tracked", tau_1=1e-3, tau_2=0.0)
    part = TopThreshold(1, settings, 2, start=0.0).double()
    scores, batch = lists([[9.0, 5.0, -4.0], [3.0]])
    found = part(scores, batch)
    assert found.lam_slope.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert found.lam[0].isfinite()


def minimiser(scores: Tensor, top: float, *, tau_1: float, tau_2: float) -> float:
    """The minimiser of G of Eq. 13 for one list, by Brent's method."""

    def objective(lam: float) -> float:
        weights = torch.full_like(scores, 1 / scores.shape[1])
        return float(
            threshold_objective(scores, weights, lam * ONE, top * ONE, tau_1=tau_1, tau_2=tau_2)
        )

    low, high = float(scores.min()) - 5, float(scores.max()) + 5
    found = minimize_scalar(
        objective, bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    return float(found.x)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_tracked_threshold_minimises_the_smoothed_problem(k: int) -> None:
    generator = torch.Generator().manual_seed(k)
    scores, batch = lists([[0.0] * 9])
    scores = torch.randn(1, 9, dtype=torch.float64, generator=generator)
    part = tracked(k)
    for _ in range(400):
        found = part(scores, batch)
    lam = minimiser(scores, (k + 0.25) / 9, tau_1=0.1, tau_2=1e-3)
    assert float(found.lam) == pytest.approx(lam, abs=1e-5)


def test_the_smoothed_problem_of_equal_scores_has_a_minimiser_in_closed_form() -> None:
    """Without tau_2, G' = 0 where sigmoid((h - lambda) / tau_1) = (K + eps) / n."""
    lam = minimiser(torch.full((1, 8), 0.7, dtype=torch.float64), 2.25 / 8, tau_1=0.3, tau_2=0)
    share = 2.25 / 8
    assert lam == pytest.approx(0.7 - 0.3 * math.log(share / (1 - share)), abs=1e-5)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_with_little_smoothing_the_minimiser_is_the_k_plus_first_largest_score(k: int) -> None:
    scores = torch.tensor([[0.4, 2.0, -1.0, 1.1, 0.0, -0.3]], dtype=torch.float64)
    lam = minimiser(scores, (k + 0.5) / 6, tau_1=1e-3, tau_2=0)
    assert lam == pytest.approx(float(scores.sort(descending=True).values[0, k]), abs=1e-3)


@given(seed=st.integers(0, 10**6), start=st.floats(-3, 3))
def test_slope_and_curvature_are_derivatives_of_the_smoothed_problem(
    seed: int, start: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(1, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    weights = torch.rand(1, 6, dtype=torch.float64, generator=generator)
    weights = weights / weights.sum()
    lam = torch.tensor([start], dtype=torch.float64, requires_grad=True)
    value = threshold_objective(scores, weights, lam, 0.4 * ONE, **TAU)
    (first,) = torch.autograd.grad(value, lam, create_graph=True)
    second, across = torch.autograd.grad(first, [lam, scores])
    given = (scores.detach(), weights, lam.detach())
    slope, curvature, cross = threshold_derivatives(*given, 0.4 * ONE, **TAU)
    torch.testing.assert_close(slope, first.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(curvature, second, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(cross, -across, rtol=1e-10, atol=1e-12)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=9),
    st.integers(1, 10),
)
def test_by_selection_and_by_sorting_the_threshold_is_one(
    slots: list[tuple[int, bool]], k: int
) -> None:
    """Whole slots are selected from; weights of 2 make it a sort, of twice K."""
    grades, mask = zip(*slots, strict=True)
    scores, weight = torch.tensor([grades]).double(), torch.tensor([mask]).double()
    alone, slot = topk_threshold(scores, weight, torch.tensor([float(k)]))
    twice, _ = topk_threshold(scores, 2 * weight, torch.tensor([2.0 * k]))
    assert alone[0] == twice[0]
    kept = sorted((one for one, there in slots if there), reverse=True)
    assert alone[0] == (kept[k] if k < len(kept) else -math.inf)
    assert k >= len(kept) or (scores[0, slot] == alone and mask[slot])


def slots_past_top(
    scores: NDArray[np.floating], weight: NDArray[np.floating], k: NDArray[np.int64]
) -> NDArray[np.int64]:
    found, bits = np.full(len(scores), -1), scores.view(BITS[scores.dtype])
    find_past_top(bits, weight, k, np.empty_like(bits[0]), found)
    return found


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_the_slot_is_the_first_that_holds_the_value_past_the_top(
    dtype: type, data: st.DataObject
) -> None:
    few = st.sampled_from([-np.inf, -1e30, -2.5, -1e-40, 0.0, 1e-40, 1.0, 2.5, 1e30])
    n_slots = data.draw(st.integers(1, 20))
    scores = data.draw(arrays.arrays(dtype, (3, n_slots), elements=few.map(dtype)))
    weight = data.draw(arrays.arrays(dtype, (3, n_slots), elements=st.sampled_from([0, 1])))
    k = data.draw(arrays.arrays(np.int64, 3, elements=st.integers(0, n_slots)))
    for row, slot in enumerate(slots_past_top(scores, weight, k)):
        kept = np.flatnonzero(weight[row])
        if len(kept) <= k[row]:
            assert slot == -1
        else:
            value = -np.sort(-scores[row, kept])[k[row]]
            assert slot == kept[np.flatnonzero(scores[row, kept] == value)[0]]


@pytest.mark.kernel
@pytest.mark.compiled
def test_long_lists_of_any_numbers_agree_with_a_sort() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((50, 999)) * 10.0 ** rng.integers(-9, 9, (50, 1))
    for k in (0, 1, 499, 998):
        slots = slots_past_top(scores, np.ones_like(scores), np.full(50, k))
        found = scores[np.arange(50), slots]
        assert (found == -np.sort(-scores, axis=1)[:, k]).all()


@pytest.mark.parametrize("other", [0.5, 2.0])
def test_one_weight_that_is_neither_0_nor_1_is_counted_too(other: float) -> None:
    """Among weights of 0 and 1 alone a list is selected from; any other needs a sort."""
    scores, weight = (
        torch.tensor([[3.0, 2.0, 1.0, 0.0]]),
        torch.tensor([[other, 1.0, 1.0, 1.0]]),
    )
    lam, slot = topk_threshold(scores, weight, torch.tensor([2.0]))
    assert (float(lam), int(slot)) == ((1.0, 2) if other == 0.5 else (2.0, 1))


@given(score=st.floats(-5, 5), lam=st.floats(-5, 5), beta=st.floats(0.1, 20))
def test_psi_is_a_sigmoid_and_comes_with_its_derivative(
    score: float, lam: float, beta: float
) -> None:
    leaf = torch.tensor([[score]], dtype=torch.float64, requires_grad=True)
    expected = torch.sigmoid(beta * (leaf - lam))
    (grad,) = torch.autograd.grad(expected, leaf)
    threshold = Threshold(lam * ONE, lam * ONE)
    psi, slope, _ = select(leaf.detach(), threshold, beta * ONE, "psi")
    assert psi.item() == pytest.approx(expected.item(), rel=1e-12)
    assert slope.item() == pytest.approx(grad.item(), rel=1e-9)


def test_no_threshold_selects_everything() -> None:
    scores = torch.tensor([[-1e4, 0.0, 1e4]]).double()
    everything = Threshold(-math.inf * ONE, -math.inf * ONE)
    psi, slope, _ = select(scores, everything, ONE, "psi")
    assert psi.tolist() == [[1, 1, 1]]
    assert slope.tolist() == [[0, 0, 0]]


def test_the_gradient_goes_through_what_it_is_told_to() -> None:
    scores = torch.tensor([[1.0, 0.0]]).double()
    threshold = Threshold(0 * ONE, 0 * ONE, lam_slope=torch.ones_like(scores))
    through = {name: select(scores, threshold, ONE, name) for name in ("frozen", "psi", "full")}
    assert [one.slope is not None for one in through.values()] == [False, True, True]
    assert [one.lam_slope is not None for one in through.values()] == [False, False, True]


@pytest.mark.parametrize("temperature", [2.0, 0.1, 1e-4])
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_a_soft_top_has_k_items(temperature: float, seed: int, ties: bool) -> None:
    """Also in lists with weights, slots off the list or ties, and for fractions of an item."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 9, dtype=torch.float64, generator=generator)
    scores = scores.round() if ties else scores
    weight = 3 * torch.rand(3, 9, dtype=torch.float64, generator=generator)
    weight[0, 4:], weight[1, ::2] = 0, 1
    k = torch.tensor([0.2, 1.0, 0.5, 0.9]).double() * weight.sum(-1, keepdim=True)
    k[:, 1] = 1.0
    b = soft_threshold(scores, weight, k, torch.full((3,), temperature, dtype=torch.float64))
    x = (scores[:, None] - b[..., None]) / temperature
    soft = torch.where(x > 0, 1 - (-x.abs()).exp() / 2, (-x.abs()).exp() / 2)
    torch.testing.assert_close((weight[:, None] * soft).sum(-1), k, rtol=1e-9, atol=1e-9)


def test_a_soft_top_as_long_as_the_list_holds_all_of_it() -> None:
    scores, weight = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    b = soft_threshold(scores, weight, torch.tensor([[2.0, 5.0]]), torch.ones(1))
    assert b.tolist() == [[-math.inf, -math.inf]]
