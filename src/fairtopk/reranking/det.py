"""The re-rankers of Geyik, Ambler and Kenthapadi (2019), for any number of groups.

A group with target share p has at least floor(i p) items in every prefix of i items of the top
K, as far as it has so many, and at most ceil(i p), as far as floors allow. Items of no group
with a share are the last group: it gets what the shares leave, and has no floor. Scores are not
needed: a place in the old order says which of two items is better.

Once there are four groups DetGreedy may miss floors that can be met; DetConstSort never does,
and the other two did not in all that was tried.
"""

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.kernels.compiled import compiled, inlined
from fairtopk.reranking.lists import Candidates, Floors, Outcome, Places, group_sizes, reordered

ROUNDING = 1e-9  # floor(0.29 * 100) is 28 in floating point
GREEDY, CONSERVATIVE, RELAXED = 0, 1, 2

BOUND_RULES = {"det-greedy": GREEDY, "det-cons": CONSERVATIVE, "det-relaxed": RELAXED}
Method = Literal["det-greedy", "det-cons", "det-relaxed", "det-const-sort"]


@inlined
def floor_of(position: int, share: float) -> int:
    """Return floor(position * share)."""
    return math.floor(position * share + ROUNDING)


@compiled
def fill_by_bounds(
    group: NDArray[np.int16],
    n_items: NDArray[np.int64],
    shares: NDArray[np.float64],
    k: int,
    rule: int,
    order: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Fill `order` rank by rank; return which lists have every floor in their top `k`.

    At each rank the groups below their floor come first. If there is none, it is the turn of
    those below their ceiling: the best item (`GREEDY`), that of the group whose floor rises
    soonest, measured exactly (`CONSERVATIVE`) or in whole ranks (`RELAXED`). A group that ran
    out is left out; if there is no other, the best item is taken.

    Args:
        group: By place, from 0, ``[Q, L]``.
        n_items: Places of each list that are no padding, ``[Q]``.
        shares: Of each group, the last without a floor, ``[Q, G]``.
        k: Length of the top; the rest follows in its old order.
        rule: One of the three above.
        order: The old place of the item at each new place, ``[Q, L]``.
    """
    met = np.ones(len(n_items), np.bool_)
    n_slots, n_groups = group.shape[1], shares.shape[1]
    head, following = np.empty(n_groups, np.int64), np.empty(n_slots, np.int64)
    taken, used = np.empty(n_groups, np.int64), np.empty(n_slots, np.bool_)
    groups = np.empty(n_groups, np.int64)
    for query in range(len(n_items)):
        n = n_items[query]
        present = _queues(group[query], n, head, following, groups)
        taken[:], used[:] = 0, False
        for place in range(min(k, n)):
            one = _next_group(shares[query], present, head, taken, place + 1, rule)
            order[query, place] = head[one]
            used[head[one]] = True
            taken[one] += 1
            head[one] = following[head[one]]
        _fill_rest(used, n, min(k, n), order[query])
        met[query] = _has_floors(group[query], shares[query], order[query, : min(k, n)], taken)
    return met


def fill_by_sorting(
    group: NDArray[np.int16],
    n_items: NDArray[np.int64],
    shares: NDArray[np.float64],
    k: int,
    order: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Fill `order` by DetConstSort; return which lists have every floor in their top `k`.

    Items are appended when the floor of their group rises to them. Each then moves up past
    worse ones, as long as those stay within the rank where they are due. Arguments are those of
    `fill_by_bounds`.
    """
    met = np.ones(len(n_items), np.bool_)
    n_slots, n_groups = group.shape[1], shares.shape[1]
    by_group, by_slot = np.empty((3, n_groups), np.int64), np.empty((2, n_slots), np.int64)
    used = np.empty(n_slots, np.bool_)
    wanted = np.ascontiguousarray(shares)
    _sort_lists(group, n_items, wanted, k, by_group, by_slot, used, order, met)
    return met


@compiled
def _sort_lists(
    group: NDArray[np.int16],
    n_items: NDArray[np.int64],
    shares: NDArray[np.float64],
    k: int,
    by_group: NDArray[np.int64],
    by_slot: NDArray[np.int64],
    used: NDArray[np.bool_],
    order: NDArray[np.int64],
    met: NDArray[np.bool_],
) -> None:
    """Fill in `order` and `met`; the three before them are room for one list."""
    n_groups = shares.shape[1]
    head, taken, groups = by_group[0], by_group[1], by_group[2]
    # Beside the next item of a group: the last rank that the item at a new place may have.
    following, due = by_slot[0], by_slot[1]
    for query in range(len(n_items)):
        n, row = n_items[query], order[query]
        present = _queues(group[query], n, head, following, groups)
        for one in range(n_groups):
            taken[one] = 0
        for place in range(len(used)):
            used[place] = False
        for appended in range(min(k, n)):
            one = _next_due(shares[query], present, head, taken)
            item, last = head[one], n
            if one < n_groups - 1 and shares[query, one] > 0.0:
                last = _due(taken[one] + 1, shares[query, one])
            place = appended
            while place > 0 and due[place - 1] > place and row[place - 1] > item:
                row[place], due[place] = row[place - 1], due[place - 1]
                place -= 1
            row[place], due[place] = item, last
            used[item] = True
            taken[one] += 1
            head[one] = following[item]
        _fill_rest(used, n, min(k, n), row)
        met[query] = _has_floors(group[query], shares[query], row[: min(k, n)], taken)


@inlined
def _queues(
    group: NDArray[np.int16],
    n: int,
    head: NDArray[np.int64],
    following: NDArray[np.int64],
    present: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Fill in the best place of each group and the next one after each place; -1 is none.

    Returns the groups that the list has, in the front of `present`.
    """
    for one in range(len(head)):
        head[one] = -1
    count = 0
    for place in range(n - 1, -1, -1):
        if head[group[place]] < 0:
            present[count] = group[place]
            count += 1
        following[place] = head[group[place]]
        head[group[place]] = place
    return present[:count]


@inlined
def _next_group(
    shares: NDArray[np.float64],
    present: NDArray[np.int64],
    head: NDArray[np.int64],
    taken: NDArray[np.int64],
    rank: int,
    rule: int,
) -> int:
    """Return the group whose turn it is at `rank`."""
    best, best_stage, best_key = -1, 3, 0.0
    for one in present:
        if head[one] < 0:
            continue
        share, stage, key = shares[one], 2, 0.0
        high = math.ceil(rank * share - ROUNDING)
        if one < len(shares) - 1 and taken[one] < floor_of(rank, share):
            stage = 0
        elif taken[one] < high:
            stage = 1
            if rule != GREEDY:
                key = high / share
            if rule == RELAXED:
                key = math.ceil(key - ROUNDING)
        ahead = key - best_key
        if stage < best_stage or (
            stage == best_stage
            and (ahead < -ROUNDING or (ahead <= ROUNDING and head[one] < head[best]))
        ):
            best, best_stage, best_key = one, stage, key
    return best


@inlined
def _next_due(
    shares: NDArray[np.float64],
    present: NDArray[np.int64],
    head: NDArray[np.int64],
    taken: NDArray[np.int64],
) -> int:
    """Return the group whose next item is due first, of several the one with the best item.

    Groups without a share are never due, and come when no other has items left.
    """
    best, best_due = -1, 0
    for one in present:
        if head[one] < 0:
            continue
        due = np.iinfo(np.int64).max
        if shares[one] > 0.0:
            due = _due(taken[one] + 1, shares[one])
        if best < 0 or due < best_due or (due == best_due and head[one] < head[best]):
            best, best_due = one, due
    return best


@inlined
def _due(count: int, share: float) -> int:
    """Return the first rank where the floor of a group is `count`."""
    return math.ceil((count - ROUNDING) / share)


@inlined
def _fill_rest(used: NDArray[np.bool_], n: int, start: int, order: NDArray[np.int64]) -> None:
    """Put what is not used behind the top, in its old order, and padding behind that."""
    following = start
    for place in range(n):
        if not used[place]:
            order[following] = place
            following += 1
    for place in range(n, len(order)):
        order[place] = place


@inlined
def _has_floors(
    group: NDArray[np.int16],
    shares: NDArray[np.float64],
    top: NDArray[np.int64],
    taken: NDArray[np.int64],
) -> bool:
    """Return whether each item of `top` is where it is due or before; overwrites `taken`."""
    for one in range(len(taken)):
        taken[one] = 0
    for place in range(len(top)):
        one = group[top[place]]
        taken[one] += 1
        has_floor = one < len(shares) - 1 and shares[one] > 0.0
        if has_floor and place + 1 > _due(taken[one], shares[one]):
            return False
    for one in range(len(shares) - 1):  # noqa: SIM110 (a loop is what numba compiles well)
        if taken[one] < floor_of(len(top), shares[one]):
            return False
    return True


def floors(lists: Candidates, k: int, settings: Floors, *, method: Method) -> Outcome:
    """Return the lists in the order that one of the Det* family makes."""
    n_groups = max([int(lists.group.max()), *(settings.targets or ())]) + 1
    sizes, n_items = group_sizes(lists.group, n_groups), lists.mask.sum(-1)
    shares = _shares(sizes, n_items, settings.targets)
    free = np.append((shares == 0).all(0), True)  # groups that no list has a share for

    def fill(places: Places, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        # Unknown, -1, is the last of all groups, and so are groups without a target.
        group = np.where(free[places.group], n_groups, places.group).astype(np.int16)
        block = shares[places.rows]
        left = np.maximum(1.0 - block.sum(-1, keepdims=True), 0.0)
        wanted = np.hstack([block, np.where(left > ROUNDING, left, 0.0)])
        if method in BOUND_RULES:
            rule = BOUND_RULES[method]
            return fill_by_bounds(group, places.n_items, wanted, k, rule, order)
        return fill_by_sorting(group, places.n_items, wanted, k, order)

    def why(query: int) -> str:
        length = min(k, int(n_items[query]))
        for group, size in enumerate(sizes[query].tolist()):
            needed = floor_of(length, shares[query, group])
            if size < needed:
                return (
                    f"has {size} items of {lists.called(group)} where its top {length} needs "
                    f"{needed}; lower its target or k"
                )
        return f"has a prefix where {method} missed a floor; use det-const-sort"

    slot, met = reordered(lists, fill)
    return Outcome(slot, met, why)


def _shares(
    sizes: Tensor, n_items: Tensor, targets: dict[int, float] | None
) -> NDArray[np.float64]:
    """Return the share that each group is to have of a list, ``[Q, G]``; too little is none."""
    if targets is None:
        shares = sizes / n_items.clamp(min=1)[:, None].double()
    else:
        row = torch.zeros(sizes.shape[1], dtype=torch.float64)
        for group, share in targets.items():
            row[group] = share if share > ROUNDING else 0.0
        shares = row.expand(sizes.shape)
    return shares.numpy()
