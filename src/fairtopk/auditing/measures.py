"""The measures of an audit, block by block of lists: metrics, ties and groups by position.

A block is a padded table of bounded size, best item first. A tie is a run of equal scores in
which items differ: there row order decides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.auditing.chance import Chance, ChanceSums
from fairtopk.auditing.rankings import Attribute, Labelled, Rankings
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.sums import Floats, Whole, discounts
from fairtopk.lists.ranking import order
from fairtopk.metrics.gaps import NOTIONS, rank_exposure, representation
from fairtopk.metrics.scale import score_spread
from fairtopk.metrics.summary import summarise_tops
from fairtopk.metrics.tops import Tops, measured_lists
from fairtopk.tensors import Labels
from fairtopk.terminal import Progress

BLOCK_CELLS = 2**22  # of a padded table, unless one list is longer
LOWEST = -1e18  # its exponential is 0, and float32 holds its square
BY_PLACE = ("ndcg", "impact_ratio", "rank_exposure")  # metrics that weigh positions
BY_RANK = ("rank_exposure_gap", "representation_gap")
SHARES = {"rank_exposure": rank_exposure, "representation": representation}

Counts = NDArray[np.int64]
Doubles = NDArray[np.float64]
Compact = NDArray[np.float32]


class Block(NamedTuple):
    """Lists of about the same length, in ranked order, ``[Q, L]`` each.

    Attributes:
        query: Their numbers, ``[Q]``.
        scores: Falling from 0, the best of each list; 0 on padding.
        mask: False on padding, which comes last.
        relevance: Grades, or None.
        groups: Group numbers by each attribute, -1 unknown and on padding.
        exact: The original scores, to find ties; 0 on padding.
    """

    query: NDArray[np.int64]
    scores: Tensor
    mask: Tensor
    relevance: Tensor | None
    groups: tuple[Tensor, ...]
    exact: Tensor


def blocks_of(rankings: Rankings, attributes: Sequence[Attribute]) -> Iterator[Block]:
    """Yield all lists, the shortest first, so that little is padding."""
    for query in lists_by_length(rankings.length):
        yield _block(rankings, attributes, query)


def lists_by_length(length: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of lists in blocks of up to `BLOCK_CELLS`, the shortest first."""
    by_length = np.argsort(length, kind="stable")
    start = 0
    while start < len(by_length):
        # As many as fit if the longest of them sets the width.
        following = length[by_length[start:]]
        cells = following * np.arange(1, len(following) + 1)
        count = max(1, int(np.searchsorted(cells, BLOCK_CELLS, side="right")))
        # In the order of the table, so that one block of all lists is just the table.
        yield np.sort(by_length[start : start + count])
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

    Rounding can make scores equal, not swap them, and ties keep row order.
    """
    below = (ranked.double() - ranked[:, :1].double()).clamp(min=LOWEST)
    return below.masked_fill(~mask, 0.0).float()


def count_ties(
    scores: Floats, length: NDArray[np.int64], labels: Whole | Floats, ks: Sequence[int]
) -> NDArray[np.int64]:
    """Return how many lists have a tie across each cut, and how many one in the top.

    A tie is a run of equal scores whose labels differ: among items with one label the order
    does not matter. A tie across the cut has items on both sides of it; one in the top begins
    there, wherever it ends.

    Args:
        scores: In ranked order, ``[Q, L]``.
        length: Items of each list, ``[Q]``; what follows is padding.
        labels: In ranked order, ``[Q, L]``.
        ks: Where to cut.

    Returns:
        Numbers of lists, ``[2, len(ks)]``; the second are never below the first.
    """
    counts = np.zeros((2, len(ks)), np.int64)
    # Numbers of groups and grades of relevance are exact in float64: one loop serves all.
    _count(scores, length, labels.astype(np.float64), np.array(ks), counts)
    return counts


@compiled
def _count(
    scores: Floats,
    length: NDArray[np.int64],
    labels: NDArray[np.float64],
    ks: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    found = np.empty(counts.shape, np.bool_)
    for row in range(len(length)):
        found[:] = False
        start = 0
        while start < min(length[row], ks[-1]):
            stop, differ = start + 1, False
            while stop < length[row] and scores[row, stop] == scores[row, start]:
                differ = differ or labels[row, stop] != labels[row, start]
                stop += 1
            if differ:
                for cut in range(len(ks)):
                    found[0, cut] |= start < ks[cut] < stop
                    found[1, cut] |= start < ks[cut]
            start = stop
        counts += found


class Ties(NamedTuple):
    """Lists with equal scores of items that differ, at each K.

    Attributes:
        across: On both sides of the cut: row order decides who is in the top.
        within: In the top, across the cut or not: row order decides who comes first.
    """

    across: list[int]
    within: list[int]

    def touching(self, metric: str, place: int) -> int:
        """Return the number of lists in which row order decides a metric at one K."""
        return (self.within if metric.startswith(BY_PLACE) else self.across)[place]


def ties_of_block(block: Block, ks: Sequence[int]) -> Counts:
    """Return across and within for each way in which items can differ.

    These are: at all; in each attribute; in relevance, if there is any: ``[ways, 2, len(ks)]``.
    """
    scores, length = block.exact.numpy(), block.mask.sum(-1).numpy()
    labels: list[NDArray[Any]] = [
        np.tile(np.arange(scores.shape[1]), (len(scores), 1)),
        *(group.numpy() for group in block.groups),
    ]
    if block.relevance is not None:
        labels.append(block.relevance.numpy())
    return np.stack([count_ties(scores, length, one, ks) for one in labels])


def gaps_of(scored: bool) -> tuple[str, ...]:
    """Return the gaps that can be measured; softmax exposure needs scores."""
    return tuple(name for name in NOTIONS if scored or name in BY_RANK)


@dataclass(frozen=True, eq=False)
class AttributeMeasures:
    """The measures of rankings by one attribute.

    Attributes:
        attribute: The groups.
        gaps: Values of each list by name, such as ``rank_exposure_gap_signed@10``, ``[Q]``.
        shares: Exposure and selection rate of each group in each list, by name, such as
            ``rank_exposure@10``, ``[Q, G]``; NaN where a list lacks the group.
        at_rank: Lists that have each group at each place, ``[G, H]``.
        reach: Lists that have each place, ``[H]``.
        ties: Lists with equal scores of items in different groups.
        chance: Floors and p-values of the gaps by name.
    """

    attribute: Attribute
    gaps: dict[str, Compact]
    shares: dict[str, Compact]
    at_rank: NDArray[np.int64]
    reach: NDArray[np.int64]
    ties: Ties
    chance: Chance

    def exposure_to_rank(self) -> Doubles:
        """Return each group's share of the rank exposure of the first places, ``[G, H]``."""
        worth = discounts(len(self.reach))
        shares: Doubles = (self.at_rank * worth).cumsum(-1) / (self.reach * worth).cumsum(-1)
        return shares


@dataclass(frozen=True, eq=False)
class Findings:
    """All measures of rankings.

    Attributes:
        rankings: The lists.
        lists: Values of each list that do not depend on groups, such as ``ndcg@10``, ``[Q]``.
        by_attribute: The measures by each attribute.
        ties: Lists with equal scores.
        relevance_ties: Lists with equal scores of items with different grades.
    """

    rankings: Rankings
    lists: dict[str, Compact]
    by_attribute: tuple[AttributeMeasures, ...]
    ties: Ties
    relevance_ties: Ties | None


def measure(
    labelled: Labelled, ks: Sequence[int], *, shuffles: int, seed: int, progress: Progress
) -> Findings:
    """Return the measures of rankings; `shuffles` = 0 leaves out chance levels and p-values.

    Lists are measured block by block, so that besides the rankings themselves only the values
    of each list are in memory.
    """
    rankings, attributes = labelled
    lists = {
        name: np.empty(len(rankings.query_ids), np.float32)
        for name in _list_names(rankings, ks)
    }
    found = [_unmeasured(rankings, one, ks) for one in attributes]
    sums = [ChanceSums(len(one.names), ks, shuffles, seed) for one in attributes]
    what, total = f"measuring {rankings.table.origin.name}", len(rankings.item) * len(found)
    ties, done = [], 0

    def tell(before: int, rows: int, share: float) -> None:
        progress(what, before + int(share * rows), total)

    for block in blocks_of(rankings, attributes):
        ties.append(ties_of_block(block, ks))
        if rankings.scored:
            lists["score_spread"][block.query] = score_spread(block.scores, mask=block.mask)
        for number, one in enumerate(found):
            _add_values(block, number, one, lists, ks)
            _add_places(block, number, one)
            rows = int(block.mask.sum())
            if shuffles:
                tables = block.scores, block.groups[number], block.mask
                sums[number].add(*tables, partial(tell, done, rows))
            done += rows
            tell(done, rows, 0)
    every, *others = (Ties(*counts) for counts in np.sum(ties, axis=0).tolist())
    by_attribute = tuple(
        replace(one, ties=tied, chance=summed.result(gaps_of(rankings.scored), one.shares))
        for one, summed, tied in zip(found, sums, others[: len(found)], strict=True)
    )
    relevance_ties = others[-1] if rankings.relevance is not None else None
    return Findings(rankings, lists, by_attribute, every, relevance_ties)


def _unmeasured(
    rankings: Rankings, attribute: Attribute, ks: Sequence[int]
) -> AttributeMeasures:
    """Return empty arrays for the measures by an attribute."""
    n_queries, n_groups = len(rankings.query_ids), len(attribute.names)
    n_places = min(ks[-1], int(rankings.length.max()))
    gaps = [
        f"{gap}{form}@{k}"
        for form in ("", "_signed")
        for gap in gaps_of(rankings.scored)
        for k in ks
    ]
    shares = [f"{name}@{k}" for name in SHARES for k in ks]
    return AttributeMeasures(
        attribute=attribute,
        gaps={name: np.empty(n_queries, np.float32) for name in gaps},
        shares={name: np.empty((n_queries, n_groups), np.float32) for name in shares},
        at_rank=np.zeros((n_groups, n_places), np.int64),
        reach=np.zeros(n_places, np.int64),
        ties=Ties([], []),
        chance=Chance({}, {}),
    )


def _list_names(rankings: Rankings, ks: Sequence[int]) -> list[str]:
    names = [f"ndcg@{k}" for k in ks] if rankings.relevance is not None else []
    return [*names, "score_spread"] if rankings.scored else names


def _add_values(
    block: Block,
    number: int,
    found: AttributeMeasures,
    lists: dict[str, Compact],
    ks: Sequence[int],
) -> None:
    n_groups = len(found.attribute.names)
    wanted = [name for name in lists if name.startswith("ndcg@")] + list(found.gaps)

    def columns(tops: Tops) -> Tensor:
        values = summarise_tops(tops, ks)
        shares = [share(tops).permute(0, 2, 1).flatten(1) for share in SHARES.values()]
        return torch.cat([torch.stack([values[name] for name in wanted], dim=1), *shares], 1)

    labels = Labels(block.groups[number], n_groups)
    values = measured_lists(
        columns, block.scores, block.mask, ks, relevance=block.relevance, labels=labels
    ).numpy()
    for column, name in enumerate(wanted):
        (found.gaps if name in found.gaps else lists)[name][block.query] = values[:, column]
    for place, name in enumerate(found.shares):
        first = len(wanted) + place * n_groups
        found.shares[name][block.query] = values[:, first : first + n_groups]


def _add_places(block: Block, number: int, found: AttributeMeasures) -> None:
    n_groups, n_places = found.at_rank.shape
    group = block.groups[number][:, :n_places].numpy().astype(np.int64)
    cell = (group + 1) * n_places + np.arange(group.shape[1])
    counts = np.bincount(cell.ravel(), minlength=(n_groups + 1) * n_places)
    found.at_rank[:] += counts.reshape(-1, n_places)[1:]
    reached = block.mask[:, :n_places].sum(0).numpy()
    found.reach[: len(reached)] += reached
