"""SONG and K-SONG step by step beside LibAUC's `NDCGLoss`, which `make oracles` installs.

LibAUC differs in four ways, which the tests form by themselves: its psi' lacks the factor
alpha, it steps lambda by the fresh derivative instead of an average, it selects by the lambda
from before the step, and its value is a scalar that has the right gradient, not the objective.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives.methods import ObjectiveSettings
from fairtopk.objectives.ndcg import (
    Estimate,
    NdcgSurrogate,
    ndcg_slope,
    ndcg_term,
    surrogate_rank,
)
from fairtopk.objectives.threshold import Selection, Threshold, TopThreshold, select

libauc = pytest.importorskip("libauc.losses")

N_QUERIES, N_PAIRS, N_ITEMS = 6, 30, 40
N_RELEVANT, LENGTH = 3, 12
ALPHA, TOP_K = 2.0, 10


def drawn(step: int) -> tuple[Tensor, Batch]:
    """Lists of four queries; queries and pairs come back in later steps."""
    generator = torch.Generator().manual_seed(step)
    query = torch.randperm(N_QUERIES, generator=generator)[:4]
    relevance = torch.zeros(4, LENGTH, dtype=torch.float64)
    relevance[:, :N_RELEVANT] = torch.randint(1, 6, (4, N_RELEVANT), generator=generator)
    own = torch.stack([torch.randperm(5, generator=generator)[:N_RELEVANT] for _ in query])
    batch = list_batch(
        query, relevance, torch.full((4, LENGTH), -1), torch.ones(4, LENGTH, dtype=torch.bool)
    )._replace(
        pair=query[:, None] * 5 + own,
        n_items=torch.full((4,), N_ITEMS),
        n_relevant=torch.tensor([5, 7, 5, 3]),
        ideal_dcg=torch.tensor([4.0, 8.0, 16.0, 5.5], dtype=torch.float64),
    )
    return torch.randn(4, LENGTH, dtype=torch.float64, generator=generator), batch


def oracle(**values: Any) -> Any:
    loss = libauc.NDCGLoss(
        N=N_PAIRS,
        num_user=N_QUERIES,
        num_item=N_ITEMS,
        num_pos=N_RELEVANT,
        gamma0=0.3,
        **values,
    )
    for name in ("u", "lambda_q", "s_q"):
        setattr(loss, name, getattr(loss, name).double())
    return loss


def oracle_step(loss: Any, scores: Tensor, batch: Batch) -> Estimate:
    leaf = scores.clone().requires_grad_()
    inputs = {
        "rating": batch.relevance,
        "user_id": batch.query,
        "user_item_id": batch.pair,
        "num_pos_items": batch.n_relevant,
        "ideal_dcg": batch.ideal_dcg,
    }
    value = loss(leaf, inputs)
    value.backward()
    assert leaf.grad is not None
    return Estimate(value.detach(), leaf.grad)


def gains(batch: Batch) -> Tensor:
    """What each sampled relevant item counts: G / Z, times those it stands for, a mean."""
    gain = (2 ** batch.relevance[:, :N_RELEVANT] - 1) / batch.ideal_dcg[:, None]
    return gain * batch.n_relevant[:, None] / (N_RELEVANT * len(batch.query))


def scalar(scores: Tensor, batch: Batch, u: Tensor, selection: Selection) -> Tensor:
    """LibAUC's value: psi f'(u) g + psi' f(u) (h - what lambda moves by), from our parts."""
    gain, length = gains(batch), batch.n_items[:, None]
    share = batch.weight / LENGTH
    fresh = surrogate_rank(scores, share, rows=N_RELEVANT, margin=1.0)
    value = (selection.psi[:, :N_RELEVANT] * ndcg_slope(u, gain, length) * fresh).sum()
    if selection.slope is None or selection.lam_slope is None:
        return value
    slope = selection.slope[:, :N_RELEVANT]
    moved = scores[:, :N_RELEVANT] - (selection.lam_slope * scores).sum(-1, keepdim=True)
    return value + (slope * ndcg_term(u, gain, length) * moved).sum()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_song_has_the_same_surrogate_ranks_values_and_gradients() -> None:
    theirs, ours = oracle(topk=-1), NdcgSurrogate(N_PAIRS, gamma_0=0.3, start=0.0).double()
    for step in range(10):
        scores, batch = drawn(step)
        whole = Selection(torch.ones_like(scores))
        found, expected = ours(scores, batch, whole), oracle_step(theirs, scores, batch)
        close(found.grad, expected.grad)
        close(ours.u_qi.value, theirs.u)
        close(scalar(scores, batch, ours.u_qi.value[batch.pair], whole), expected.value)
        ranks = N_ITEMS * theirs.u[batch.pair]
        close(found.value, -(gains(batch) / (1 + ranks).log2()).sum())
    assert (theirs.u > 0).sum() > 20


@pytest.mark.parametrize("version", ["prac", "theo"])
@pytest.mark.parametrize("tau_1", [0.01, 0.5])
def test_k_song_has_the_same_ranks_thresholds_curvatures_values_and_gradients(
    version: str, tau_1: float
) -> None:
    theirs = oracle(
        topk=TOP_K, topk_version=version, gamma1=0.9, eta0=0.1, tau_1=tau_1, tau_2=1e-2,
        sigmoid_alpha=ALPHA,
    )  # fmt: skip
    ours = NdcgSurrogate(N_PAIRS, gamma_0=0.3, start=0.0).double()
    settings = ObjectiveSettings(
        threshold="tracked", k_of="catalogue", eta_0=0.1, tau_1=tau_1, tau_2=1e-2, epsilon=0.0
    )
    threshold = TopThreshold(TOP_K, settings, N_QUERIES, start=0.0).double()
    threshold.v_q.gamma = 1.0  # a plain step
    compared = values = 0
    for step in range(10):
        scores, batch = drawn(step)
        before = threshold.lam[batch.query].clone()
        cut = threshold(scores, batch)
        sharpness = torch.full_like(before, ALPHA)
        psi, slope, _ = select(scores, Threshold(before, before), sharpness, "psi")
        theo = version == "theo"
        selection = Selection(
            psi=psi,
            slope=slope / ALPHA * theo,
            lam_slope=cut.lam_slope * theo,
        )
        found, expected = ours(scores, batch, selection), oracle_step(theirs, scores, batch)
        # LibAUC does not keep d lambda / d h within the simplex; where it left it, we differ.
        inside = selection.lam_slope.sum(-1) < 1 - 1e-9
        compared += int(inside.sum())
        close(found.grad[inside], expected.grad[inside])
        u = ours.u_qi.value[batch.pair]
        if inside.all():
            values += 1
            close(scalar(scores, batch, u, selection), expected.value)
        chosen = torch.sigmoid(ALPHA * (scores[:, :N_RELEVANT] - before[:, None]))
        ranks = N_ITEMS * theirs.u[batch.pair]
        close(found.value, -(chosen * gains(batch) / (1 + ranks).log2()).sum())
        close(ours.u_qi.value, theirs.u)
        close(threshold.lam, theirs.lambda_q[:N_QUERIES])
        if theo:
            close(threshold.s_q.value, theirs.s_q[:N_QUERIES])
    assert compared > 20  # of 40 lists
    assert values > 0  # of 10 steps
    assert (theirs.lambda_q[:N_QUERIES] != 0).all()
