"""Where equal scores leave a value to the order of rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.auditing.blocks import Block
from fairtopk.kernels.ties import count_ties

# What places are worth counts in these; in all others only who is in the top.
BY_PLACE = ("ndcg", "impact_ratio", "rank_exposure")

Counts = NDArray[np.int64]


class Ties(NamedTuple):
    """Lists with equal scores of items that differ, at each K.

    Attributes:
        across: On both sides of the cut: the order of rows decides who is in the top.
        within: In the top, across the cut or not: it decides who comes first.
    """

    across: list[int]
    within: list[int]

    def touching(self, metric: str, place: int) -> int:
        """Return the lists in which the order of rows decides a metric at one K."""
        return (self.within if metric.startswith(BY_PLACE) else self.across)[place]


def ties_of_block(block: Block, ks: Sequence[int]) -> Counts:
    """Return across and within, counted anew for each way in which items can differ.

    These are: at all; by each attribute; in relevance, if there is any: ``[ways, 2, len(ks)]``.
    """
    scores, length = block.exact.numpy(), block.mask.sum(-1).numpy()
    labels: list[NDArray[Any]] = [
        np.tile(np.arange(scores.shape[1]), (len(scores), 1)),
        *(group.numpy() for group in block.groups),
    ]
    if block.relevance is not None:
        labels.append(block.relevance.numpy())
    return np.stack([count_ties(scores, length, one, ks) for one in labels])
