"""The order that a teacher's lists are given: its own, a fair one, or one between the two."""

import torch
from torch import Tensor

from fairtopk.distilling.settings import Reranker
from fairtopk.functional.ranking import rank
from fairtopk.reranking.exposure_lp import exposure_lp
from fairtopk.reranking.floors import floors
from fairtopk.reranking.lists import Candidates
from fairtopk.reranking.settings import ExposureProgram, Floors


def taught_order(
    lists: Candidates,
    reranker: Reranker,
    *,
    k: int,
    strength: float,
    seed: int,
    targets: dict[int, float] | None = None,
) -> Tensor:
    """Return the slots of each list in the order that is taught, padding last, ``[Q, L]``.

    An item's place is between its own, r, and its fair one, s: items are in the order of
    (1 - strength) log r + strength log s, which moves exposure about evenly.

    Args:
        lists: The teacher's lists.
        reranker: Puts their top `k` in a fair order.
        k: Length of that top.
        strength: From 0, the teacher's own order, to 1, the fair one.
        seed: Of rankings that are drawn.
        targets: The share of each group; None is its share of the list.
    """
    if reranker == "exposure-lp":
        fair = exposure_lp(lists, k, ExposureProgram(seed=seed)).slot
    else:
        fair = floors(lists, k, Floors(targets=targets), method=reranker).slot
    if strength == 1:
        return fair
    places = torch.arange(1, fair.shape[1] + 1)
    new = torch.empty_like(fair).scatter_(-1, fair, places.expand_as(fair))
    old = rank(lists.scores, lists.mask)
    between = (1 - strength) * old.double().log() + strength * new.double().log()
    return between.argsort(dim=-1, stable=True)
