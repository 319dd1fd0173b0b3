"""One list worked out elsewhere, and two steps of SONG and K-SONG by another package."""

import math

import pytest
import torch
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives.exposure import ExposureDisparity
from fairtopk.objectives.methods import ObjectiveSettings
from fairtopk.objectives.ndcg import ListNet, NdcgSurrogate
from fairtopk.objectives.threshold import (
    Selection,
    Threshold,
    TopThreshold,
    select,
    threshold_derivatives,
)

SCORES = torch.tensor([[2, 1, 0.5, 0, -1]], dtype=torch.float64)
LAM = 0.49905229455739386


def batch() -> Batch:
    return list_batch(
        query=torch.tensor([0]),
        relevance=torch.tensor([[0, 2, 1, 0, 3]], dtype=torch.float64),
        group=torch.tensor([[1, 0, 1, 0, 1]]),
        mask=torch.ones(1, 5, dtype=torch.bool),
    )


def close(found: Tensor, expected: list[float] | float) -> None:
    wanted = torch.tensor(expected, dtype=torch.float64).reshape(found.shape)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-14)


def test_the_ndcg_surrogate() -> None:
    found = NdcgSurrogate(1, gamma_0=1.0)(SCORES, batch(), Selection(torch.ones_like(SCORES)))
    close(found.value, -0.29467061931127475)
    close(found.grad, [
        0.05675209893284661, -0.04272798213452149, 0.004891504391740161, 0.005455579140634771,
        -0.024371200330700067,
    ])  # fmt: skip


def test_listnet() -> None:
    found = ListNet()(SCORES, batch(), Selection(torch.ones_like(SCORES)))
    close(found.value, 2.8644816202051473)
    close(found.grad, [
        0.5319584576866335, -0.022400644489426275, 0.04118964316921571, 0.04513386374824829,
        -0.5958813201146713,
    ])  # fmt: skip


def test_the_exposure_penalty_of_the_whole_list() -> None:
    part = ExposureDisparity(1, 2, gamma=1.0).double()
    found = part(
        SCORES, batch(), Selection(torch.ones_like(SCORES)), torch.ones(1, dtype=torch.float64)
    )
    gap = found.gap
    close(gap, -0.09723285499728457)
    close(found.value, 0.004727114045461484)
    close(found.grad, [
        0.012925122785523333, -0.012027822759212797, 0.0028839847170719405,
        -0.00442478871516836, 0.0006435039717858863,
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "grad"),
    [
        ("frozen", [0.0130741018532679, -0.011349488213578337, 0.0007551241172587897,
                    -0.0021649701034616303, -0.00031476765348672575]),
        ("psi", [0.015006959957653495, -0.015995250225979703, 0.003145845190046087,
                 -0.003877047033040098, -0.00021820555344758807]),
        ("full", [0.015006962183481434, -0.015946871031956668, 0.004982193970454142,
                  -0.003827754616977048, -0.00021820328502872855]),
    ],
)  # fmt: skip
def test_the_exposure_penalty_of_the_top(mode: str, grad: list[float]) -> None:
    lam, beta = (
        torch.tensor([LAM], dtype=torch.float64),
        torch.tensor([2.0], dtype=torch.float64),
    )
    psi, slope, _ = select(SCORES, Threshold(lam, lam), beta, "psi")
    close(psi, [
        0.952659681739232, 0.7314310757814351, 0.5004738525794402, 0.2693142449352398,
        0.047511575000738146,
    ])  # fmt: skip
    share = torch.full_like(SCORES, 0.2)
    top = torch.tensor([0.5], dtype=torch.float64)
    _, curvature, cross = threshold_derivatives(SCORES, share, lam, top, tau_1=0.1, tau_2=1e-3)
    selection = Selection(
        psi=psi,
        slope=slope * (mode != "frozen"),
        lam_slope=cross / curvature * (mode == "full"),
    )
    part = ExposureDisparity(1, 2, gamma=1.0).double()
    found = part(SCORES, batch(), selection, torch.ones(1, dtype=torch.float64))
    gap = found.gap
    close(gap, -0.1141819617434556)
    close(found.value, 0.006518760193791979)
    close(found.grad, grad)


@pytest.mark.slow
def test_the_tracked_threshold_converges_to_the_smooth_root() -> None:
    settings = ObjectiveSettings(
        threshold="tracked", eta_0=0.1, gamma_4=0.9, tau_1=0.1, tau_2=1e-3, epsilon=0.5
    )
    tracked = TopThreshold(2, settings, 1, start=0.0).double()
    for _ in range(2_000):
        cut = tracked(SCORES, batch())
    close(cut.lam, LAM)
    close(cut.exact, 0.5)


@pytest.mark.parametrize(("tau_2", "above"), [(1e-4, 72), (1e-6, 51)])
def test_the_quadratic_term_moves_the_effective_k(tau_2: float, above: int) -> None:
    n = 27_000
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, n, dtype=torch.float64, generator=generator) + 5
    lists = list_batch(
        torch.tensor([0]), torch.zeros_like(scores), torch.zeros(1, n, dtype=torch.int64),
        torch.ones(1, n, dtype=torch.bool),
    )  # fmt: skip
    settings = ObjectiveSettings(
        threshold="tracked", eta_0=2.0, gamma_4=1.0, tau_1=1e-3, tau_2=tau_2, epsilon=0.5
    )
    tracked = TopThreshold(50, settings, 1).double()
    for _ in range(400):
        cut = tracked(scores, lists)
    assert abs(int((scores > cut.lam).sum()) - above) <= 2


class TestAgainstLibauc:
    """Two lists of two relevant and two other items, as LibAUC's `NDCGLoss` steps on them."""

    scores = torch.tensor([[0.5, -0.2, 0.1, 0.9], [1.0, 0.3, -0.4, 0.0]])

    def lists(self) -> Batch:
        relevance = torch.tensor([[3.0, 1, 0, 0], [2, 4, 0, 0]])
        whole = list_batch(
            torch.tensor([0, 1]),
            relevance,
            torch.full((2, 4), -1),
            torch.ones(2, 4, dtype=torch.bool),
        )
        return whole._replace(
            pair=torch.tensor([[0, 1], [2, 3]]),
            n_relevant=torch.tensor([5, 2]),
            ideal_dcg=torch.tensor([4.0, 8.0]),
        )

    def test_surrogate_ranks_and_gradient_of_song(self) -> None:
        song = NdcgSurrogate(4, gamma_0=0.3, start=0.0)
        found = song(self.scores, self.lists(), Selection(torch.ones_like(self.scores)))
        expected = torch.tensor([0.25575, 0.74925, 0.08175, 0.33525])
        torch.testing.assert_close(song.u_qi.value, expected)
        torch.testing.assert_close(
            found.grad,
            torch.tensor([[-6.849031, 0.617932, 1.885138, 4.345961],
                          [0.570368, -1.337724, 0.230207, 0.537149]]),
        )  # fmt: skip
        song(self.scores, self.lists(), Selection(torch.ones_like(self.scores)))
        expected = torch.tensor([0.434775, 1.273725, 0.138975, 0.569925])
        torch.testing.assert_close(song.u_qi.value, expected)

    def test_threshold_and_curvature_of_k_song(self) -> None:
        settings = ObjectiveSettings(threshold="tracked", tau_1=0.01, epsilon=0.0)
        tracked = TopThreshold(1, settings, 2, start=0.0)
        tracked(self.scores, self.lists())
        torch.testing.assert_close(tracked.s_q.value, torch.tensor([0.0011119215, 5.6250901]))
        # LibAUC steps by the fresh derivative; Algorithm 1 by its average, which starts at 0.
        fresh = torch.tensor([0.0049998867, 0.00375])
        torch.testing.assert_close(-tracked.lam, -0.9 * fresh)


def test_a_table_started_at_zero_is_steeper_than_one_started_at_its_first_value() -> None:
    lists = TestAgainstLibauc().lists()
    scores = TestAgainstLibauc.scores
    zero, first = (
        NdcgSurrogate(4, gamma_0=0.3, start=start)(
            scores, lists, Selection(torch.ones_like(scores))
        ).grad.norm()
        for start in (0.0, math.nan)
    )
    assert zero > 3 * first
