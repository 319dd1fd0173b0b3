"""The measures of an audit, block by block of lists: metrics, ties, positions and chance.

A block is a padded table of bounded size, best item first. A tie is a run of equal scores in
which items differ: there row order decides. Chance levels and p-values shuffle the labels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.auditing.rankings import Attribute, Labelled, Rankings
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.sums import Doubles, Floats, GroupSums
from fairtopk.lists.batch import order
from fairtopk.metrics import chance, gaps
from fairtopk.metrics.gaps import Tops
from fairtopk.metrics.other import score_spread
from fairtopk.terminal import Progress

BLOCK_CELLS = 2**22  # of a padded table, unless one list is longer
LOWEST = -1e18  # its exponential is 0, and float32 holds its square
BY_RANK = ("rank_exposure_gap", "representation_gap")  # gaps that need no scores
SHARES = {"rank_exposure": gaps.rank_exposure, "representation": gaps.representation}
N_NOTIONS = len(gaps.NOTIONS)  # as compiled loops can read it
NEXT_SEED = 2**32  # from a block to the next, so that no two lists share their shuffles

Counts = NDArray[np.int64]
Compact = NDArray[np.float32]


class Ties(NamedTuple):
    """Lists with equal scores of items that differ, at each K."""

    across: list[int]  # on both sides of the cut: row order decides who is in the top
    within: list[int]  # in the top, across the cut or not: row order decides who comes first


class Likelihood(NamedTuple):
    """How likely chance alone makes a value this far from what it should be."""

    p: float  # from 1 / (shuffles + 1) to 1; NaN where the value is
    expected: float  # the average over shuffled labels
    deviations: float  # how many standard deviations of the shuffled values the own is above
    shuffles: int  # of each list


@dataclass(eq=False)
class AttributeMeasures:
    """The measures of rankings by one attribute."""

    attribute: Attribute  # the groups
    gaps: dict[str, Compact]  # values of each list, such as `exposure_gap_signed@10`, [Q]
    # Exposure and selection rate of each group in each list, by name, such as
    # `rank_exposure@10`, [Q, G]; NaN where a list lacks the group.
    shares: dict[str, Compact]
    at_rank: Counts  # lists that have each group at each place, [G, H]
    reach: Counts  # lists that have each place, [H]
    ties: Ties = field(init=False)  # lists with equal scores of items in different groups
    floors: dict[str, chance.Floor] = field(default_factory=dict)  # `exposure_gap_floor@10`
    p_values: dict[str, Likelihood] = field(default_factory=dict)  # `impact_ratio_p@10`


@dataclass(frozen=True, eq=False)
class Findings:
    """All measures of rankings."""

    rankings: Rankings  # the lists
    lists: dict[str, Compact]  # values of each list that need no groups, such as `ndcg@10`, [Q]
    by_attribute: list[AttributeMeasures]  # the measures by each attribute
    ties: Ties  # lists with equal scores
    relevance_ties: Ties | None  # lists with equal scores of items with different grades


def measure(
    labelled: Labelled, ks: Sequence[int], *, shuffles: int, seed: int, progress: Progress
) -> Findings:
    """Return the measures of rankings; `shuffles` = 0 leaves out chance levels and p-values.

    Lists are measured block by block, so that besides the rankings themselves only the values
    of each list are in memory.
    """
    rankings, attributes, _ = labelled
    n_queries, n_places = len(rankings.query_ids), min(ks[-1], int(rankings.length.max()))
    names = [f"ndcg@{k}" for k in ks] if rankings.relevance is not None else []
    names += ["score_spread"] if rankings.scored else []
    lists = {name: np.empty(n_queries, np.float32) for name in names}
    notions = gaps.NOTIONS if rankings.scored else BY_RANK
    of_gaps = [f"{gap}{form}@{k}" for form in ("", "_signed") for gap in notions for k in ks]
    shares = [f"{share}@{k}" for share in SHARES for k in ks]
    found = [
        AttributeMeasures(
            attribute=one,
            gaps={name: np.empty(n_queries, np.float32) for name in of_gaps},
            shares={name: np.empty((n_queries, len(one.names)), np.float32) for name in shares},
            at_rank=np.zeros((len(one.names), n_places), np.int64),
            reach=np.zeros(n_places, np.int64),
        )
        for one in attributes
    ]
    sums = [ChanceSums(len(one.names), ks, shuffles, seed) for one in attributes]
    # Items can differ at all, in each attribute, and in relevance.
    ties = np.zeros((len(attributes) + 2, 2, len(ks)), np.int64)
    what, total = f"measuring {rankings.table.origin.name}", len(rankings.item) * len(found)
    done, cuts = 0, np.array(ks)
    for query, mask, row in padded_lists(rankings):
        block = _ranked_block(rankings, attributes, mask, row)
        rows, length = int(mask.sum()), mask.sum(-1)
        labels: list[NDArray[Any]] = [np.tile(np.arange(mask.shape[1]), (len(mask), 1))]
        labels += [group.numpy() for group in block.groups]
        labels += [block.relevance.numpy()] if block.relevance is not None else []
        for counts, differing in zip(ties, labels, strict=False):
            # Groups and grades are exact in float64: one loop serves all.
            differing = differing.astype(np.float64)
            counts += count_ties(block.exact.numpy(), length, differing, cuts)
        if rankings.scored:
            lists["score_spread"][query] = score_spread(block.scores, mask=block.mask)
        for number, one in enumerate(found):
            # NDCG depends on no group, so it is measured once.
            _add_values(block, query, number, one, lists if number == 0 else {}, ks)
            if shuffles:
                tables = block.scores, block.groups[number], block.mask
                for share in sums[number].add(*tables):
                    progress(what, done + int(share * rows), total)
            done += rows
            progress(what, done, total)
    every, *by_attribute, by_relevance = (Ties(*counts) for counts in ties.tolist())
    for one, tied, summed in zip(found, by_attribute, sums, strict=True):
        one.ties = tied
        if shuffles:
            one.floors, one.p_values = summed.result(notions, one.shares)
    relevance_ties = by_relevance if rankings.relevance is not None else None
    return Findings(rankings, lists, found, every, relevance_ties)


def padded_lists(rankings: Rankings) -> Iterator[tuple[Counts, NDArray[np.bool_], Counts]]:
    """Yield blocks of up to `BLOCK_CELLS`, the shortest lists first, so that little is padding.

    Each is the numbers of its lists, ``[Q]``, a mask, False on padding, and the row of the
    rankings in each cell, ``[Q, L]``.
    """
    length, start = rankings.length, 0
    by_length = np.argsort(length, kind="stable")
    while start < len(by_length):
        # As many as fit if the longest of them sets the width.
        following = length[by_length[start:]]
        cells = following * np.arange(1, len(following) + 1)
        count = max(1, int(np.searchsorted(cells, BLOCK_CELLS, side="right")))
        # In the order of the table, so that one block of all lists is just the table.
        query = np.sort(by_length[start : start + count])
        place = np.arange(length[query].max())
        mask = place < length[query][:, None]
        yield query, mask, np.where(mask, rankings.offsets[query][:, None] + place, 0)
        start += count


class Block(NamedTuple):
    """Lists of about the same length, in ranked order, ``[Q, L]`` each."""

    scores: Tensor  # falling from 0, the best of each list; 0 on padding
    mask: Tensor  # False on padding, which comes last
    relevance: Tensor | None  # grades, or None
    groups: list[Tensor]  # group numbers by each attribute, -1 unknown and on padding
    exact: Tensor  # the original scores, to find ties; 0 on padding


def _ranked_block(
    rankings: Rankings, attributes: Sequence[Attribute], mask: NDArray[np.bool_], row: Counts
) -> Block:
    def padded(values: NDArray[Any], padding: float) -> Tensor:
        return torch.from_numpy(np.where(mask, values[row], values.dtype.type(padding)))

    scores, valid = padded(rankings.score, 0), torch.from_numpy(mask)
    slot = order(scores, valid)
    groups = [padded(one.group, -1).gather(-1, slot) for one in attributes]
    relevance = None
    if rankings.relevance is not None:
        relevance = padded(rankings.relevance, 0).float().gather(-1, slot)
    # Padding comes last in either order, so that the mask is the same.
    exact = scores.gather(-1, slot)
    # Less the best of their list, in float32, which is sorted far faster. Rounding can make
    # scores equal, not swap them, and ties keep row order.
    below = (exact.double() - exact[:, :1].double()).clamp(min=LOWEST)
    return Block(below.masked_fill(~valid, 0.0).float(), valid, relevance, groups, exact)


@compiled
def count_ties(
    scores: Floats, length: Counts, labels: NDArray[np.float64], ks: Counts
) -> Counts:
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
    return counts


def _add_values(
    block: Block,
    query: Counts,
    number: int,
    found: AttributeMeasures,
    lists: dict[str, Compact],
    ks: Sequence[int],
) -> None:
    """Add the metrics of a block by one attribute, and NDCG if `lists` has it."""
    (n_groups, n_places), group = found.at_rank.shape, block.groups[number]
    wanted = {name: values for name, values in lists.items() if name.startswith("ndcg@")}
    relevance = block.relevance if wanted else None
    wanted |= found.gaps

    def columns(tops: Tops) -> Tensor:
        values = gaps.summarise_tops(tops, ks)
        shares = [share(tops).permute(0, 2, 1).flatten(1) for share in SHARES.values()]
        return torch.cat([torch.stack([values[name] for name in wanted], dim=1), *shares], 1)

    grades = block.scores.new_zeros(1, 1) if relevance is None else relevance
    checked = gaps.CheckedLists(block.scores, block.mask, grades, group, n_groups)
    table = gaps.measured(columns, checked, ks).numpy()
    for column, values in enumerate(wanted.values()):
        values[query] = table[:, column]
    for place, values in enumerate(found.shares.values()):
        first = len(wanted) + place * n_groups
        values[query] = table[:, first : first + n_groups]

    at_top = group[:, :n_places].numpy().astype(np.int64)
    cell = (at_top + 1) * n_places + np.arange(at_top.shape[1])
    counts = np.bincount(cell.ravel(), minlength=(n_groups + 1) * n_places)
    found.at_rank[:] += counts.reshape(-1, n_places)[1:]  # the first row is of no group
    reached = block.mask[:, :n_places].sum(0).numpy()
    found.reach[: len(reached)] += reached


class ChanceSums:
    """Adds up what `chance_floors` and `gap_p_values` say of all lists together.

    Of one block of lists it says just what they do; with three or more groups the shuffles of
    the p-values, `shuffles` of each list, are others than theirs, since they serve the impact
    ratio too.
    """

    def __init__(self, n_groups: int, ks: Sequence[int], shuffles: int, seed: int) -> None:
        self.ks, self.shuffles, self.seed = list(ks), shuffles, seed
        self.cells = [(gap, k) for gap in gaps.NOTIONS for k in ks]
        self.floor = torch.zeros(3, len(self.cells), dtype=torch.float64)
        self.with_two = self.with_named = 0
        # Sums over lists: observed, and of each shuffle; what is expected is known without.
        self.gaps = torch.zeros(1 + shuffles, len(self.cells), dtype=torch.float64)
        self.shares = torch.zeros(1 + shuffles, n_groups, len(ks), dtype=torch.float64)
        self.expected = torch.zeros(len(self.cells), dtype=torch.float64)

    def add(self, scores: Tensor, groups: Tensor, mask: Tensor) -> Iterator[float]:
        """Add the lists of a block, ``[Q, L]`` each, and yield the share that is done."""
        lists = chance.labelled_lists(scores, groups, mask, ks=self.ks, named=False)
        n, ks = len(lists.group), self.ks
        if n == 0:
            return
        floors = chance.floors_of_lists(lists, ks, seed=self.seed)
        value, error, rounds = torch.tensor(list(floors.values()), dtype=torch.float64).T
        self.floor[0] += n * value
        self.floor[1] += (n * error) ** 2
        self.floor[2] = torch.maximum(self.floor[2], rounds)
        self.with_two += n
        # Signed gaps are those of group 0 and all others together.
        size = torch.stack([lists.size[:, 0], lists.size[:, 1:].sum(1)], dim=1)
        both = (size > 0).all(1)
        if n_both := int(both.sum()):
            named = lists.group[both].clamp(max=1)
            two = lists._replace(exposure=lists.exposure[both], group=named, size=size[both])
            two_tops = chance.tops_of_labelled(two, ks)
            self.expected += n_both * chance.expected_gaps(two_tops, gaps.NOTIONS)
            self.with_named += n_both
        sums = [gap_totals(chance.tops_of_labelled(lists, ks))]
        for first in range(0, self.shuffles, chance.SHUFFLES_AT_ONCE):
            at_once = min(chance.SHUFFLES_AT_ONCE, self.shuffles - first)
            parts = chance.over_shuffles(
                gap_totals, lists, ks, rounds=at_once, first_round=first, seed=self.seed
            )
            sums.append(torch.stack(parts).sum(0))
            yield (first + at_once) / self.shuffles
        of_gaps, shares = torch.cat(sums).tensor_split([len(self.cells)], dim=1)
        self.gaps += of_gaps
        # Groups that no list of the block has may be missing at the end.
        self.shares[:, : lists.size.shape[1]] += shares.reshape(len(of_gaps), -1, len(ks))
        self.seed += NEXT_SEED

    def result(
        self, notions: Iterable[str], shares: Mapping[str, Compact]
    ) -> tuple[dict[str, chance.Floor], dict[str, Likelihood]]:
        """Return floors and p-values by name, those of the impact ratio too.

        `shares` are those of `AttributeMeasures`.
        """
        floors: dict[str, chance.Floor] = {}
        p_values: dict[str, Likelihood] = {}
        two, named = self.with_two or torch.nan, self.with_named or torch.nan
        means, expected = self.gaps / named, self.expected / named
        for cell, (gap, k) in enumerate(self.cells):
            if gap in notions:
                total, squares, rounds = self.floor[:, cell].tolist()
                error = squares**0.5 / two
                floors[f"{gap}_floor@{k}"] = chance.Floor(total / two, error, int(rounds))
                distance = (means[:, cell] - expected[cell]).abs()
                as_far = distance[1:] >= distance[0] - chance.ROUNDING
                p_values[f"{gap}_p@{k}"] = _likelihood(means[:, cell], as_far, expected[cell])
        for place, k in enumerate(self.ks):
            values = torch.from_numpy(shares[f"rank_exposure@{k}"]).double()
            count = (~values.isnan()).sum(0)
            # Lists with one group are not shuffled, and what they have stays.
            left = values.nansum(0) - self.shares[0, :, place]
            exposure = ((self.shares[:, :, place] + left) / count)[:, count > 0]
            ratios = torch.full((len(exposure),), torch.nan, dtype=torch.float64)
            if exposure.shape[1] > 1:
                ratios = exposure.amin(-1) / exposure.amax(-1)
            as_low = ratios[1:] <= ratios[0] + chance.ROUNDING
            p_values[f"impact_ratio_p@{k}"] = _likelihood(ratios, as_low, ratios[1:].mean())
        return floors, p_values


def gap_totals(tops: Tops) -> Tensor:
    """Return sums over lists, for each of R versions of them, ``[R, (4 + G) * K]``.

    Signed gaps come first, definition by definition as `NOTIONS` has them; then the exposure by
    rank of each group. A list without group 0 or without another adds nothing to gaps, one
    without a group nothing to what that gets. Versions, if any, are the tops' second axis.
    """
    n, n_groups, n_cuts = len(tops.size), *tops.members.shape[-2:]
    tables = tops.exposure, tops.discount, tops.members
    by_group = GroupSums(*(table.reshape(n, -1, n_groups, n_cuts).numpy() for table in tables))
    everyone, size = tops.everyone.reshape(n, -1).numpy(), tops.size.reshape(n, -1).numpy()
    totals = np.zeros((by_group.members.shape[1], N_NOTIONS + n_groups, n_cuts))
    _add_totals(by_group, everyone, size, totals)
    return torch.from_numpy(totals.reshape(len(totals), -1))


@compiled
def _add_totals(sums: GroupSums, everyone: Doubles, size: Counts, totals: Doubles) -> None:
    """Add up what `gap_totals` returns, ``[R, 4 + G, K]``."""
    n_lists, n_versions, n_groups, n_cuts = sums.members.shape
    for row in range(n_lists):
        named, rest = size[row, 0], size[row, 1:].sum()
        for version in range(n_versions):
            for cut in range(n_cuts):
                exposure, worth, members = 0.0, 0.0, 0.0
                for group in range(n_groups):
                    found = sums.discount[row, version, group, cut]
                    if size[row, group] > 0:
                        totals[version, N_NOTIONS + group, cut] += found / size[row, group]
                    if group > 0:
                        exposure += sums.exposure[row, version, group, cut]
                        worth += found
                        members += sums.members[row, version, group, cut]
                if named == 0 or rest == 0:
                    continue
                own = sums.exposure[row, version, 0, cut]
                own_worth = sums.discount[row, version, 0, cut]
                own_members = sums.members[row, version, 0, cut]
                shown = own / max(own_members, 1.0) - exposure / max(members, 1.0)
                totals[version, 0, cut] += own / named - exposure / rest
                totals[version, 1, cut] += shown / everyone[row, cut]
                totals[version, 2, cut] += own_worth / named - worth / rest
                totals[version, 3, cut] += own_members / named - members / rest


def _likelihood(values: Tensor, as_far: Tensor, expected: Tensor) -> Likelihood:
    """Return how likely the first of `values` is, of which the others are shuffles."""
    if values[0].isnan():
        return Likelihood(torch.nan, torch.nan, torch.nan, 0)
    # Where shuffles change nothing the deviations are NaN or infinite.
    deviations = (values[0] - expected) / values[1:].std()
    p = (1 + int(as_far.sum())) / (1 + len(as_far))
    return Likelihood(p, float(expected), float(deviations), len(as_far))
