"""Every metric of a scorer on held-out lists, sampled or full, with its chance level.

A full list is the whole catalogue without what the user rated in other parts. Only the top of
it is held; sizes of groups in the rest are counted from CSR arrays (user -> items).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from fairtopk.checks import checked_ks
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.csr import ideal_dcg
from fairtopk.kernels.ranking import UserItems
from fairtopk.kernels.sums import Places
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import HeldOut
from fairtopk.metrics import chance, intervals
from fairtopk.metrics.gaps import checked_lists, summarise, summarise_tops, tops_of_places
from fairtopk.metrics.other import SMALLEST_SPREAD, score_spread
from fairtopk.models.scoring import score, top_blocks

ENOUGH_SHUFFLES = 100_000  # of all lists together; a third usually gives a chance floor to 1 %


def evaluate(
    scorer: nn.Module, blocks: Iterator[Batch], ks: Sequence[int]
) -> dict[str, Tensor]:
    """Return every metric by name, one value per query, ``[Q]``."""
    return _joined(
        summarise(score(scorer, batch), batch.relevance, batch.group, ks=ks, mask=batch.mask)
        for batch in blocks
    )


def wholly_in_top(lengths: NDArray[np.int64], ks: Sequence[int]) -> list[str]:
    """Return a warning if half of the lists or more have no item outside the top at some K."""
    counts = {k: int((lengths <= k).sum()) for k in ks}
    short = {k: count for k, count in counts.items() if 2 * count >= len(lengths)}
    if not short:
        return []
    least, n_lists = min(short.values()), len(lengths)
    which = "all" if least == n_lists else f"{least:,} or more of"
    return [
        f"at K = {', '.join(map(str, short))} all items are in the top of {which} {n_lists:,} "
        f"lists, whose gaps show nobody left out; choose a smaller K"
    ]


class GapContext(NamedTuple):
    """Chance level, spread and parity of the lists that gaps were measured on."""

    floors: dict[str, chance.Floor]  # of every gap at each K, as `chance_floors` names them
    spread: Tensor  # standard deviation of the scores of each list, [Q]
    overall: dict[str, intervals.Overall]  # RSP and REO at each K, as `parities` names them


def gap_context(
    scorer: nn.Module,
    blocks: Sequence[Batch],
    ks: Sequence[int],
    *,
    seed: int,
    member: Tensor | None = None,
) -> GapContext:
    """Return what tells gaps from chance and from flat scores; all lists are held at once.

    `member` is the argument of `parities_of_counts`.
    """
    ks = checked_ks(ks)
    longest = max(batch.mask.shape[1] for batch in blocks)
    scored = [(score(scorer, one), one.group, one.mask, one.relevance) for one in blocks]
    scores, group, mask, relevance = (
        torch.cat([pad(one, (0, longest - one.shape[1]), value=padding) for one in column])
        for column, padding in zip(
            zip(*scored, strict=True), (0.0, -1, False, 0.0), strict=True
        )
    )
    shuffles = min(chance.MOST_SHUFFLES, max(2, ENOUGH_SHUFFLES // len(scores)))
    floors = chance.chance_floors(scores, group, ks=ks, mask=mask, shuffles=shuffles, seed=seed)
    lists = checked_lists(scores, group, mask, relevance=relevance)
    counts = intervals.parity_counts(lists, ks)
    overall = intervals.parities_of_counts(counts, ks, seed=seed, member=member)
    return GapContext(floors, score_spread(scores, mask=mask), overall)


def evaluate_full(
    scorer: nn.Module,
    part: HeldOut,
    ks: Sequence[int],
    *,
    users: NDArray[np.int64] | None = None,
) -> dict[str, Tensor]:
    """Return the same if each user's list is the whole catalogue.

    What a user rated in another part is left out, as it is from sampled lists. `users` are some
    of the part's users; None: all.
    """
    ks = checked_ks(ks)
    users = part.user if users is None else users
    blocks = _full(scorer, part, ks, users)
    return _joined(
        summarise_tops(tops_of_places(block.places, block.size, block.ideal, ks), ks)
        for block in blocks
    )


def evaluate_full_with_context(
    scorer: nn.Module,
    part: HeldOut,
    ks: Sequence[int],
    *,
    seed: int,
    member: Tensor | None = None,
    users: NDArray[np.int64] | None = None,
) -> tuple[dict[str, Tensor], GapContext]:
    """Return `evaluate_full` and the context of its gaps, scoring each user once."""
    users = part.user if users is None else users
    ks, first = checked_ks(ks), 0
    shuffles = min(chance.MOST_SHUFFLES, max(2, ENOUGH_SHUFFLES // len(users)))
    values, floors, spreads = [], [], []
    counts: dict[str, list[Tensor]] = {"rsp": [], "reo": []}
    for block in _full(scorer, part, ks, users):
        places = block.places
        tops = tops_of_places(places, block.size, block.ideal, ks)
        values.append(summarise_tops(tops, ks))
        counts["rsp"].append(intervals.group_counts(tops))
        # The same lists with the labels of relevant items alone.
        places = places._replace(group=np.where(places.relevance > 0, places.group, -1))
        tops = tops_of_places(places, block.relevant, block.ideal, ks)
        counts["reo"].append(intervals.group_counts(tops))
        more = chance.floors_of_places(
            block.places, block.size, ks, first=first, shuffles=shuffles, seed=seed
        )
        floors.append(more)
        spreads.append(torch.from_numpy(block.spread).clamp(min=SMALLEST_SPREAD))
        first += len(block.size)
    whole = {name: torch.cat(parts) for name, parts in counts.items()}
    overall = intervals.parities_of_counts(whole, ks, seed=seed, member=member)
    context = GapContext(chance.joined_floors(floors), torch.cat(spreads), overall)
    return _joined(values), context


class FullBlock(NamedTuple):
    """Lists of the whole catalogue, of which only the top is there."""

    places: Places  # those of the longest top
    size: NDArray[np.int64]  # items of each group in the whole list, [Q, G]
    relevant: NDArray[np.int64]  # the same of relevant items, [Q, G]
    ideal: NDArray[np.float64]  # ideal DCG at each K, [Q, K]
    spread: NDArray[np.float64]  # standard deviation of the scores of the whole list, [Q]


def _full(
    scorer: nn.Module, part: HeldOut, ks: Sequence[int], of: NDArray[np.int64]
) -> Iterator[FullBlock]:
    data, own, others = part.data, part.ratings, part.others
    n_groups, k = max(2, len(data.group_names)), min(ks[-1], data.n_items)
    ideal = np.stack([ideal_dcg(own.offsets, own.rating, k) for k in ks], axis=-1)
    # Relevant items of each group that each user has, [n_users, G]
    n_users, group = len(own.offsets) - 1, data.group[own.item]
    counts = (own.rating > 0) & (group >= 0)
    user = np.repeat(np.arange(n_users), np.diff(own.offsets))[counts]
    cell = user * n_groups + group[counts]
    relevant = np.bincount(cell, minlength=n_users * n_groups).reshape(n_users, n_groups)
    first, room = 0, np.zeros(data.n_items, own.rating.dtype)
    for top in top_blocks(scorer, of, k=k, n_items=data.n_items, excluded=others):
        users, there = of[first : first + len(top.scores)], top.column >= 0
        first += len(users)
        relevance = np.zeros(top.column.shape, own.rating.dtype)
        rated = UserItems(users, own.offsets, own.item)
        fill_relevance(top.column, rated, own.rating, room, relevance)
        places = Places(
            exposure=np.exp(top.scores - top.log_sum[:, None]),
            group=np.where(there, data.group[top.column], -1),
            relevance=relevance,
            length=there.sum(-1),
        )
        size = sizes_without(users, others.offsets, others.item, data.group, n_groups)
        yield FullBlock(places, size, relevant[users], ideal[users], top.spread)


def sizes_without(
    users: NDArray[np.int64],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    group: NDArray[np.int32],
    n_groups: int,
) -> NDArray[np.int64]:
    """Return how many items of each group are left for each user, ``[Q, G]``.

    Args:
        users: Whose lists, ``[Q]``.
        offsets: CSR offsets of the items that a user's list lacks.
        item: Those items.
        group: Group numbers of all items, -1 unknown, ``[n_items]``.
        n_groups: How many groups there are, G.
    """
    lacking = offsets[users + 1] - offsets[users]
    row = np.repeat(np.arange(len(users)), lacking)
    slot = np.arange(len(row)) - np.repeat(
        np.cumsum(lacking) - lacking - offsets[users], lacking
    )
    label = group[item[slot]]
    known = label >= 0
    place = row[known] * n_groups + label[known]
    lacked = np.bincount(place, minlength=len(users) * n_groups).reshape(-1, n_groups)
    return np.bincount(group[group >= 0], minlength=n_groups) - lacked


@compiled
def fill_relevance(
    listed: NDArray[np.int32],
    rated: UserItems,
    rating: NDArray[np.floating],
    room: NDArray[np.floating],
    relevance: NDArray[np.floating],
) -> None:
    """Fill `relevance` with what each user rated the items of a list, 0 where it did not.

    Args:
        listed: Item numbers, -1 for none, ``[Q, H]``.
        rated: The users, and the items they rated.
        rating: How.
        room: For one user at a time, 0 before and after, ``[n_items]``.
        relevance: Filled where an item is listed, ``[Q, H]``.
    """
    for row in range(len(rated.user)):
        start, stop = rated.offsets[rated.user[row]], rated.offsets[rated.user[row] + 1]
        for slot in range(start, stop):
            room[rated.item[slot]] = rating[slot]
        for place in range(listed.shape[1]):
            if listed[row, place] >= 0:
                relevance[row, place] = room[listed[row, place]]
        for slot in range(start, stop):
            room[rated.item[slot]] = 0


def _joined(blocks: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the metrics of blocks of queries as those of all."""
    found: dict[str, list[Tensor]] = {}
    for values in blocks:
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return {name: torch.cat(parts) for name, parts in found.items()}
