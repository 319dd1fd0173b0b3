"""Rankings as padded tables of bounded size, best item first."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.auditing.attributes import Attribute
from fairtopk.auditing.rankings import Rankings
from fairtopk.functional.ranking import order

BLOCK_CELLS = 2**22  # of a padded table, unless one list is longer
LOWEST = -1e18  # its exponential is 0, and float32 holds its square


class Block(NamedTuple):
    """Lists of about the same length, in ranked order, ``[Q, L]`` each.

    Attributes:
        query: Their numbers, ``[Q]``.
        scores: Falling from 0, the best of each list; 0 on padding.
        mask: False on padding, which comes last.
        relevance: Grades; None where there are none.
        groups: Group numbers by each attribute, -1 unknown and on padding.
        exact: Scores as they came, to tell which are equal; 0 on padding.
    """

    query: NDArray[np.int64]
    scores: Tensor
    mask: Tensor
    relevance: Tensor | None
    groups: tuple[Tensor, ...]
    exact: Tensor


def blocks_of(rankings: Rankings, attributes: Sequence[Attribute]) -> Iterator[Block]:
    """Yield all lists, the shortest first, so that little is padding."""
    length = rankings.length
    by_length = np.argsort(length, kind="stable")
    start = 0
    while start < len(by_length):
        # As many as fit if the longest of them sets the width.
        following = length[by_length[start:]]
        cells = following * np.arange(1, len(following) + 1)
        count = max(1, int(np.searchsorted(cells, BLOCK_CELLS, side="right")))
        # In the order of the table, so that one block of all lists is just the table.
        yield _block(rankings, attributes, np.sort(by_length[start : start + count]))
        start += count


def _block(
    rankings: Rankings, attributes: Sequence[Attribute], query: NDArray[np.int64]
) -> Block:
    place = np.arange(rankings.length[query].max())
    mask = place < rankings.length[query][:, None]
    row = np.where(mask, rankings.offsets[query][:, None] + place, 0)

    def padded(values: NDArray[Any], padding: float) -> Tensor:
        return torch.from_numpy(np.where(mask, values[row], values.dtype.type(padding)))

    scores, valid = padded(rankings.score, 0), torch.from_numpy(mask)
    slot = order(scores, valid)
    relevance = None
    if rankings.relevance is not None:
        relevance = padded(rankings.relevance, 0).float().gather(-1, slot)
    groups = (padded(one.group, -1).gather(-1, slot) for one in attributes)
    # Padding comes last in either order, so that the mask is the same.
    exact = scores.gather(-1, slot)
    return Block(query, _compact(exact, valid), valid, relevance, tuple(groups), exact)


def _compact(ranked: Tensor, mask: Tensor) -> Tensor:
    """Return scores less the best of their list, in float32, which is sorted far faster.

    Rounding can make scores equal, not swap them, and of equals the earlier is first.
    """
    below = (ranked.double() - ranked[:, :1].double()).clamp(min=LOWEST)
    return below.masked_fill(~mask, 0.0).float()
