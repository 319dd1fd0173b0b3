"""The re-rankers of Geyik, Ambler and Kenthapadi (2019), for any number of groups.

A group with target share p has at least floor(i p) items in every prefix of i items of the top
K, as far as it has so many. Once there are four groups DetGreedy may miss floors that can be
met; DetConstSort never does, and the other two did not in all that was tried.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.kernels.floors import (
    CONSERVATIVE,
    GREEDY,
    RELAXED,
    ROUNDING,
    fill_by_bounds,
    fill_by_sorting,
    floor_of,
)
from fairtopk.reranking.lists import Candidates, Outcome, Places, group_sizes, reordered
from fairtopk.reranking.settings import Floors

BOUND_RULES = {"det-greedy": GREEDY, "det-cons": CONSERVATIVE, "det-relaxed": RELAXED}
Method = Literal["det-greedy", "det-cons", "det-relaxed", "det-const-sort"]


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
