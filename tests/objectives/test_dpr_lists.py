"""What DPR reads of whole lists of documents."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives.dpr import LEAST_OF_WHOLE, Dpr, read_whole
from fairtopk.objectives.methods import METHODS, DprSettings, methods_of

GRADES = torch.tensor([[2.0, 1, 1, 0, 0, 0], [1, 1, 1, 1, 3, 0], [4, 0, 0, 0, 0, 0]]).double()
MASK = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]]).bool()


def dpr(method: str, *, c: float, normal: float = 1.0) -> Dpr:
    return Dpr(
        METHODS[method],
        DprSettings(normal=normal, samples=500, batches=1),
        c=c,
        member=torch.eye(2),
        count=torch.tensor([6, 6]),
        generator=torch.Generator().manual_seed(0),
        reads=read_whole,
    ).double()


def lists() -> tuple[Tensor, Batch]:
    draw = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 6, generator=draw, dtype=torch.float64)
    group = torch.randint(2, (3, 6), generator=draw, dtype=torch.int32)
    return scores, list_batch(torch.arange(3), GRADES, group, MASK)


@pytest.mark.parametrize("method", methods_of("adversary"))
def test_at_alpha_0_it_is_bpr_by_grades_and_the_divergence_of_whole_lists(method: str) -> None:
    scores, batch = lists()
    value, grad = dpr(method, c=0.0, normal=0.7)(scores, batch)
    scores.requires_grad_()

    def loss(query: int, pairs: list[tuple[int, int]]) -> Tensor:
        behind = [softplus(scores[query, low] - scores[query, high]) for high, low in pairs]
        return torch.stack(behind).mean()

    ranking = (
        loss(0, [(0, 1), (0, 2), (0, 3), (1, 4)])
        + loss(1, [(4, 0), (4, 1), (4, 2), (4, 3), (4, 5)])
    )  # fmt: skip
    normal = torch.zeros((), dtype=torch.float64)
    for query in (0, 1):  # one document by itself has no distribution
        own = scores[query][MASK[query]]
        mean, variance = own.mean(), own.var(correction=0)
        normal = normal + (mean**2 + variance - variance.log() - 1) / 2
    expected = (ranking + 0.7 * normal) / 3
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(grad, torch.autograd.grad(expected, scores)[0])


def test_rsp_hears_every_document_once_and_reo_every_relevant_one() -> None:
    _, batch = lists()
    slots = MASK.flatten().nonzero()[:, 0]
    heard = read_whole(batch, METHODS["dpr-rsp"]).heard
    assert heard.tolist() == slots.tolist()
    relevant = (MASK & (GRADES > 0)).flatten().nonzero()[:, 0]
    assert read_whole(batch, METHODS["dpr-reo"]).heard.tolist() == relevant.tolist()


def test_documents_that_are_all_but_alike_are_not_torn_apart() -> None:
    scores, batch = lists()
    alike = 1e-5 * scores
    _, grad = dpr("dpr-rsp", c=0.0)(alike, batch)
    _, apart = dpr("dpr-rsp", c=0.0, normal=0.0)(alike, batch)
    assert (grad - apart).abs().max() < LEAST_OF_WHOLE**-0.5
