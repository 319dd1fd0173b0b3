"""The re-rankers of Geyik, Ambler and Kenthapadi (2019), for any number of groups.

A group with target share p has at least floor(i p) items in every prefix of i items of the top
K, as far as it has so many, and at most ceil(i p), as far as floors allow. Items of no group
with a share are the last group: it gets the rest, and has no floor. Scores are not needed: a
place in the old order says which of two items is better.

Rounded down, a group with a share below 1 / K is due nothing. Rounded at random, each rank
raises one floor by one, every floor is one of the two whole numbers next to i p, and i p in
expectation (`random_floors`).

With four or more groups DetGreedy may miss floors that can be met; DetConstSort never does, and
the other two did not in any test.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, inlined
from fairtopk.kernels.random import advance, stream, uniform
from fairtopk.reranking.lists import Candidates, Floors, Outcome, Places, reordered

ROUNDING = 1e-9  # floor(0.29 * 100) is 28 in floating point
SETTLED = 1e-7  # from 0 or 1, a chance that is being rounded counts as that
GREEDY, CONSERVATIVE, RELAXED, SORTED = 0, 1, 2, 3
FLOORS = 2**37  # first key of the streams that round floors

RULES = {
    "det-greedy": GREEDY,
    "det-cons": CONSERVATIVE,
    "det-relaxed": RELAXED,
    "det-const-sort": SORTED,
}
Method = Literal["det-greedy", "det-cons", "det-relaxed", "det-const-sort"]


class Quotas(NamedTuple):
    """What the groups of some lists are due."""

    share: NDArray[np.float64]  # of each group, the last without a floor, [Q, G]
    # The group whose floor rises at each rank of the top, as `random_floors` gives it, [Q, K];
    # [Q, 0]: floors are rounded down.
    rising: NDArray[np.int64]


def floors(lists: Candidates, k: int, settings: Floors, *, method: Method) -> Outcome:
    """Return the lists in the order that one of the Det* family makes."""
    n_groups = max([int(lists.group.max()), *(settings.targets or ())]) + 1
    counts = torch.zeros(len(lists.group), n_groups + 1, dtype=torch.int64)  # unknown first
    one = torch.ones((), dtype=torch.int64)
    counts.scatter_add_(-1, lists.group.long() + 1, one.expand(lists.group.shape))
    sizes, n_items = counts[:, 1:], lists.mask.sum(-1)
    if settings.targets is None:
        shares = (sizes / n_items.clamp(min=1)[:, None].double()).numpy()
    else:
        row = np.zeros(n_groups)
        for group, share in settings.targets.items():
            row[group] = share if share > ROUNDING else 0.0
        shares = np.broadcast_to(row, sizes.shape)
    free = np.append((shares == 0).all(0), True)  # groups that no list has a share for
    left = np.maximum(1.0 - shares.sum(-1, keepdims=True), 0.0)
    wanted = np.hstack([shares, np.where(left > ROUNDING, left, 0.0)])
    drawn = lists.query.numpy() if settings.rounding == "random" else np.zeros(0, np.int64)

    def fill(places: Places, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        # Unknown, -1, is the last of all groups, and so are groups without a target.
        group = np.where(free[places.group], n_groups, places.group).astype(np.int16)
        share, top = wanted[places.rows], np.minimum(places.n_items, k)
        rising = np.zeros((len(top), k if len(drawn) else 0), np.int64)
        if len(drawn):
            fill_rising(share, top, settings.seed, drawn[places.rows], rising)
        quotas = Quotas(share, rising)
        return fill_lists(group, places.n_items, quotas, k, RULES[method], order)

    def why(query: int) -> str:
        length = min(k, int(n_items[query]))
        floor = [floor_of(length, share) for share in shares[query]]
        if len(drawn):
            rising = random_floors(wanted[query], length, settings.seed, int(drawn[query]))
            floor = np.bincount(rising, minlength=len(floor) + 1)[:-1].tolist()
        for group, (size, needed) in enumerate(zip(sizes[query].tolist(), floor, strict=True)):
            if size < needed:
                return (
                    f"has {size} items of {lists.called(group)} where its top {length} needs "
                    f"{needed}; lower its target or k"
                )
        return f"has a prefix where {method} missed a floor; use det-const-sort"

    slot, met = reordered(lists, fill)
    return Outcome(slot, met, why)


def floor_of(position: int, share: float) -> int:
    """Return floor(position * share)."""
    return math.floor(position * share + ROUNDING)


@compiled
def fill_lists(
    group: NDArray[np.int16],
    n_items: NDArray[np.int64],
    quotas: Quotas,
    k: int,
    rule: int,
    order: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Fill `order` rank by rank; return which lists have every floor in their top `k`.

    DetConstSort (`SORTED`) appends items when the floor of their group rises to them. Each then
    moves up past worse ones, as long as those stay within the rank where they are due.

    Args:
        group: By place, from 0, ``[Q, L]``.
        n_items: Places of each list that are not padding, ``[Q]``.
        quotas: What their groups are due.
        k: Length of the top; the rest follows in its old order.
        rule: `SORTED`, or one of the others, which `_next_group` explains.
        order: The old place of the item at each new place, ``[Q, L]``.
    """
    met = np.ones(len(n_items), np.bool_)
    n_slots, n_groups = group.shape[1], quotas.share.shape[1]
    # The best item left of each group, and the next one of its group after each item; -1: none.
    head, taken, present = np.empty((3, n_groups), np.int64)
    following, latest = np.empty((2, n_slots), np.int64)
    used = np.empty(n_slots, np.bool_)
    # The rank where the floor of a group first is 1, 2, ...; 0 without a share
    due = np.empty((n_groups, min(k, n_slots) + 1), np.int64)
    drawn = quotas.rising.shape[1] > 0
    for query in range(len(n_items)):
        n, share, row = n_items[query], quotas.share[query], order[query]
        top, n_present = min(k, n), 0
        for one in range(n_groups):  # loops compile in less time than head[:] = -1
            head[one], taken[one] = -1, 0
            for count in range(top + 1):
                due[one, count] = 0
                if share[one] > 0.0:
                    due[one, count] = math.ceil((count + 1 - ROUNDING) / share[one])
                    if drawn:  # behind the last rise
                        due[one, count] = max(due[one, count], top + 1)
        if drawn:
            for place in range(top):
                one = quotas.rising[query, place]
                due[one, taken[one]] = place + 1
                taken[one] += 1
            for one in range(n_groups):
                taken[one] = 0
        for place in range(n - 1, -1, -1):
            one, used[place] = group[query, place], False
            if head[one] < 0:
                present[n_present] = one
                n_present += 1
            following[place] = head[one]
            head[one] = place
        for appended in range(top):
            left = Left(share, present[:n_present], head, taken, due)
            one = _next_group(left, appended + 1, rule)
            item, place = head[one], appended
            if rule == SORTED:
                last = n  # the last rank that the item may have
                if one < n_groups - 1 and share[one] > 0.0:
                    last = due[one, taken[one]]
                while place > 0 and latest[place - 1] > place and row[place - 1] > item:
                    row[place], latest[place] = row[place - 1], latest[place - 1]
                    place -= 1
                latest[place] = last
            row[place] = item
            used[item] = True
            taken[one] += 1
            head[one] = following[item]
        rest = top
        for place in range(n):
            if not used[place]:
                row[rest] = place
                rest += 1
        for place in range(n, n_slots):
            row[place] = place
        # Each item of the top must be where it is due or before, and no floor be left open.
        for one in range(n_groups):
            taken[one] = 0
        for place in range(top):
            one = group[query, row[place]]
            if one < n_groups - 1 and share[one] > 0.0:
                met[query] &= place + 1 <= due[one, taken[one]]
            taken[one] += 1
        for one in range(n_groups - 1):
            met[query] &= share[one] <= 0.0 or due[one, taken[one]] > top
    return met


class Left(NamedTuple):
    """What is left of a list that is being filled, ``[G]``; `due` is ``[G, K + 1]``."""

    share: NDArray[np.float64]
    present: NDArray[np.int64]  # the groups that the list has, fewer than G perhaps
    head: NDArray[np.int64]  # place of the best item left, -1: none
    taken: NDArray[np.int64]  # items taken
    due: NDArray[np.int64]  # ranks where the floor first is 1, 2, ...; 0 without a share


@inlined
def _next_group(left: Left, rank: int, rule: int) -> int:
    """Return the group whose turn it is at `rank`; of several, the one with the best item.

    By `SORTED` it is the group whose next item is due first; groups without a share are never
    due, and come last. By the other rules groups below their floor come first, then those below
    their ceiling: the best item (`GREEDY`), or that of the group whose floor rises soonest,
    measured exactly (`CONSERVATIVE`) or in whole ranks (`RELAXED`). Groups at their ceiling
    come last.
    """
    best, best_stage, best_key = -1, 3, 0.0
    head = left.head
    for one in left.present:
        if head[one] < 0:
            continue
        share, stage, key = left.share[one], 2, 0.0
        if rule == SORTED:
            if share > 0.0:
                stage, key = 0, float(left.due[one, left.taken[one]])
        elif one < len(left.share) - 1 and 0 < left.due[one, left.taken[one]] <= rank:
            stage = 0
        else:
            high = math.ceil(rank * share - ROUNDING)
            if left.taken[one] < high:
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


@compiled
def fill_rising(
    share: NDArray[np.float64],
    top: NDArray[np.int64],
    seed: int,
    query: NDArray[np.int64],
    rising: NDArray[np.int64],
) -> None:
    """Fill in the first `top` of each row of `rising` by `random_floors`, list by list."""
    for row in range(len(top)):
        found = random_floors(share[row], top[row], seed, query[row])
        for rank in range(top[row]):
            rising[row, rank] = found[rank]


@compiled
def random_floors(
    share: NDArray[np.float64], top: int, seed: int, query: int | np.int64
) -> NDArray[np.int64]:
    """Return the group whose floor rises at each rank of a top, ``[top]``.

    Of two groups it is floor(i p + U), with one uniform U. For more we round all ranks together
    (Gölz, Peters and Procaccia, 2022). The share that a group earns up to rank i, i p, is cut
    into units: unit c is earned over the ranks from (c - 1) / p to c / p. What rank i adds to a
    unit is the chance that the unit falls to that rank. The chances of a rank add up to 1, and
    those of a unit too (the units that `top` cuts through have the rest at a rank behind it).
    Chances along a cycle of ranks and units are raised and lowered in turn, at random such that
    none changes in expectation, until one is 0 or 1; in the end all are.

    Args:
        share: Of each group, ``[G]``.
        top: Number of ranks.
        seed: Seed of all streams.
        query: Number of the list, whose stream it is.
    """
    rising, p, state = np.zeros(top, np.int64), share / share.sum(), stream(seed, FLOORS, query)
    present = np.flatnonzero(p > 0.0)
    if len(present) < 3:
        start = uniform(state)
        for rank in range(top):
            rose = math.floor((rank + 1) * p[present[0]] + start) > math.floor(
                rank * p[present[0]] + start
            )
            rising[rank] = present[0] if rose else present[-1]
        return rising
    # Nodes: ranks, one behind them, then units. Edges, rank by rank: chances above 0.
    n_edges, n_nodes = 0, top + 1
    most = 2 * top * len(present) + len(present)
    ends, of, chance = np.empty((2, most), np.int64), np.empty(most, np.int64), np.empty(most)
    for one in present:
        n_nodes += math.ceil(top * p[one] - ROUNDING)
    for rank in range(top + 1):
        unit = top + 1
        for one in present:
            n_units = math.ceil(top * p[one] - ROUNDING)
            low, high = rank * p[one], (rank + 1) * p[one]
            if rank == top:
                high = float(n_units)
            for c in range(math.floor(low), min(math.ceil(high), n_units)):
                part = min(high, c + 1.0) - max(low, float(c))
                if part > ROUNDING:
                    ends[0, n_edges], ends[1, n_edges] = rank, unit + c
                    of[n_edges], chance[n_edges] = one, part
                    n_edges += 1
            unit += n_units
    # The edges of each node, in order of rank.
    first = np.zeros(n_nodes + 1, np.int64)
    for edge in range(n_edges):
        first[ends[0, edge] + 1] += 1
        first[ends[1, edge] + 1] += 1
    for node in range(n_nodes):
        first[node + 1] += first[node]
    edges, stop = np.empty(2 * n_edges, np.int64), first[:-1].copy()
    for edge in range(n_edges):
        for side in range(2):
            edges[stop[ends[side, edge]]] = edge
            stop[ends[side, edge]] += 1
    # Walk over open edges until a node comes again: that is a cycle.
    place = np.full(n_nodes, -1, np.int64)  # of a node on the path
    nodes, path = np.empty(n_nodes + 1, np.int64), np.empty(n_nodes + 1, np.int64)
    for rank in range(top + 1):
        nodes[0], length = rank, 0
        place[rank] = 0
        while length >= 0:
            node, found = nodes[length], -1
            while first[node] < stop[node] and not _open(chance[edges[first[node]]]):
                first[node] += 1
            for slot in range(first[node], stop[node]):
                edge = edges[slot]
                if _open(chance[edge]) and (length == 0 or edge != path[length - 1]):
                    found = edge
                    break
            if found < 0:  # the start has no open edge left
                if length > 0:  # or, by errors of rounding alone, the end of the path
                    chance[path[length - 1]] = round(chance[path[length - 1]])
                place[node] = -1
                length -= 1
                continue
            other = ends[0, found] + ends[1, found] - node
            path[length] = found
            length += 1
            if place[other] < 0:
                nodes[length], place[other] = other, length
                continue
            since, up, down = place[other], 1.0, 1.0
            for slot in range(since, length):
                value = chance[path[slot]]
                if (slot - since) % 2:
                    value = 1.0 - value
                up, down = min(up, 1.0 - value), min(down, value)
            state = advance(state)
            step = up if uniform(state) * (up + down) < down else -down
            for slot in range(since, length):
                chance[path[slot]] += -step if (slot - since) % 2 else step
            for slot in range(since + 1, length):
                place[nodes[slot]] = -1
            length = since
    for edge in range(n_edges):
        if chance[edge] > 0.5 and ends[0, edge] < top:
            rising[ends[0, edge]] = of[edge]
    return rising


@inlined
def _open(chance: float) -> bool:
    """Return whether a chance still has to be rounded."""
    return SETTLED < chance < 1.0 - SETTLED
