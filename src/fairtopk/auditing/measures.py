"""What is measured of each list, and what each place of all lists holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.auditing.attributes import Attribute
from fairtopk.auditing.blocks import Block, blocks_of
from fairtopk.auditing.chance import Chance, ChanceSums
from fairtopk.auditing.pairing import Labelled
from fairtopk.auditing.rankings import Rankings
from fairtopk.auditing.ties import Ties, ties_of_block
from fairtopk.kernels.measures import discounts
from fairtopk.metrics.grouped import NOTIONS, rank_exposure, representation
from fairtopk.metrics.inputs import Labels
from fairtopk.metrics.scale import score_spread
from fairtopk.metrics.summary import summarise_tops
from fairtopk.metrics.tops import Tops, measured_lists

BY_RANK = ("rank_exposure_gap", "representation_gap")
SHARES = {"rank_exposure": rank_exposure, "representation": representation}

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]  # what compact scores give
Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


def gaps_of(scored: bool) -> tuple[str, ...]:
    """Return the gaps that can be measured; softmax exposure needs scores."""
    return tuple(name for name in NOTIONS if scored or name in BY_RANK)


@dataclass(frozen=True, eq=False)
class Measured:
    """What is known of rankings by one attribute.

    Attributes:
        attribute: The groups.
        gaps: Values of each list by name, such as ``rank_exposure_gap_signed@10``, ``[Q]``.
        shares: What each group gets in each list, by name, such as ``rank_exposure@10``,
            ``[Q, G]``; NaN where a list lacks the group.
        at_rank: Lists that have each group at each place, ``[G, H]``.
        reach: Lists that have each place, ``[H]``.
        ties: Lists with equal scores of items in different groups.
        chance: Floors and p-values of the gaps by name.
    """

    attribute: Attribute
    gaps: dict[str, Floats]
    shares: dict[str, Floats]
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
    """What is known of rankings.

    Attributes:
        rankings: The lists.
        lists: Values of each list whatever its groups, by name, such as ``ndcg@10``, ``[Q]``.
        by_attribute: The rest, by each attribute.
        ties: Lists with equal scores.
        relevance_ties: Lists with equal scores of items with different grades.
    """

    rankings: Rankings
    lists: dict[str, Floats]
    by_attribute: tuple[Measured, ...]
    ties: Ties
    relevance_ties: Ties | None


def measure(
    labelled: Labelled, ks: Sequence[int], *, shuffles: int, seed: int, progress: Progress
) -> Findings:
    """Return what is found in rankings; `shuffles` = 0 leaves chance out.

    Lists are measured block by block, so that besides the rankings themselves only the values
    of each list are held.
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


def _unmeasured(rankings: Rankings, attribute: Attribute, ks: Sequence[int]) -> Measured:
    """Return room for what will be measured by an attribute."""
    n_queries, n_groups = len(rankings.query_ids), len(attribute.names)
    n_places = min(ks[-1], int(rankings.length.max()))
    gaps = [
        f"{gap}{form}@{k}"
        for form in ("", "_signed")
        for gap in gaps_of(rankings.scored)
        for k in ks
    ]
    shares = [f"{name}@{k}" for name in SHARES for k in ks]
    return Measured(
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
    block: Block, number: int, found: Measured, lists: dict[str, Floats], ks: Sequence[int]
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


def _add_places(block: Block, number: int, found: Measured) -> None:
    n_groups, n_places = found.at_rank.shape
    group = block.groups[number][:, :n_places].numpy().astype(np.int64)
    cell = (group + 1) * n_places + np.arange(group.shape[1])
    counts = np.bincount(cell.ravel(), minlength=(n_groups + 1) * n_places)
    found.at_rank[:] += counts.reshape(-1, n_places)[1:]
    reached = block.mask[:, :n_places].sum(0).numpy()
    found.reach[: len(reached)] += reached
