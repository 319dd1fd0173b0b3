"""Lists whose known labels are shuffled: what their tops would be by chance.

Order, list sizes, group sizes and unknown slots stay as they are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.functional.ranking import order
from fairtopk.kernels.measures import Places
from fairtopk.kernels.shuffles import Key, Ranked, shuffled_sums
from fairtopk.kernels.threads import run_all
from fairtopk.kernels.urns import drawn_sums
from fairtopk.metrics.inputs import Values, blocks, checked_groups, checked_scores
from fairtopk.metrics.tops import Tops, tops_of_places

BLOCK_SUMS = 2**16  # of shuffled lists that are held at a time


class Labelled(NamedTuple):
    """Ranked lists that have at least two groups.

    Attributes:
        exposure: Softmax of the scores by place, as far as the longest top, ``[Q, H]``.
        group: Labels by place, -1 unknown and on padding, ``[Q, L]``.
        size: Items of each group in the whole list, ``[Q, G]``.
        whole: Whether `group` has all places; else it has those of the longest top.
        first: Number of the first list among all that are shuffled.
    """

    exposure: Tensor
    group: Tensor
    size: Tensor
    whole: bool = True
    first: int = 0


def labelled_lists(
    scores: Values, groups: Values, mask: Values | None, *, ks: Sequence[int], named: bool
) -> Labelled:
    """Return the lists that have two groups; `named` makes them group 0 and the rest."""
    given, valid = checked_scores(scores, mask)
    labels = checked_groups(groups, given, valid)
    group, n_groups = labels.group, labels.n_groups
    if named:
        group, n_groups = group.clamp(max=1), 2
    lowest = group.masked_fill(group < 0, n_groups).amin(-1)
    several = lowest < group.amax(-1)

    def block(scores: Tensor, mask: Tensor, group: Tensor) -> list[Tensor]:
        slot = order(scores, mask)
        by_place = scores.masked_fill(~mask, -torch.inf).gather(-1, slot)
        size = torch.stack([(group == one).sum(-1) for one in range(n_groups)], dim=-1)
        found = by_place.softmax(-1)[:, : ks[-1]], group.gather(-1, slot), size
        return [table.contiguous().cpu() for table in found]

    tables = given[several], valid[several], group[several]
    parts = run_all([partial(block, *rows) for rows in blocks(*tables, n_groups=n_groups)])
    exposure, by_place, size = map(torch.cat, zip(*parts, strict=True))
    return Labelled(exposure, by_place, size)


def labelled_heads(places: Places, size: NDArray[np.int64], *, first: int) -> Labelled:
    """Return the lists that have two groups, of which only the first places are there.

    Args:
        places: Those of the longest top; past the end of a list they have neither exposure nor
            group.
        size: Known items of each group in the whole list, ``[Q, G]``.
        first: Number of the first list among all that are shuffled.
    """
    several = (size > 0).sum(-1) > 1
    tables = (places.exposure, places.group, size)
    exposure, group, sizes = (torch.from_numpy(table[several]) for table in tables)
    return Labelled(exposure, group, sizes, whole=False, first=first)


def tops_of_labelled(lists: Labelled, ks: Sequence[int]) -> Tops:
    """Return the tops of lists, padding and all: it has neither exposure nor a group."""
    n_lists, n_places = lists.exposure.shape
    exposure, group = lists.exposure.numpy(), lists.group[:, :n_places].contiguous().numpy()
    nothing = np.zeros(exposure.shape, np.float32)
    places = Places(exposure, group, nothing, np.full(n_lists, n_places))
    return tops_of_places(places, lists.size.numpy(), np.zeros((n_lists, len(ks))), ks)


def shuffled_tops(lists: Labelled, ks: Sequence[int], *, rounds: int, key: Key) -> Tops:
    """Return the tops after each shuffle, an axis that comes second."""
    own = tops_of_labelled(lists, ks)
    ranked, size = Ranked(lists.exposure.numpy(), lists.group.numpy()), lists.size.numpy()
    if lists.whole:
        sums = shuffled_sums(ranked, size.shape[1], ks, rounds=rounds, key=key)
    else:
        sums = drawn_sums(ranked, size, ks, rounds=rounds, key=key)
    exposure, discount, members = map(torch.from_numpy, sums)
    return own._replace(
        exposure=exposure,
        discount=discount,
        members=members,
        everyone=own.everyone[:, None],
        size=own.size[:, None],
    )


def over_shuffles(
    measure: Callable[[Tops], Tensor],
    lists: Labelled,
    ks: Sequence[int],
    *,
    rounds: int,
    first_round: int,
    seed: int,
) -> list[Tensor]:
    """Return what `measure` makes of `rounds` shuffles of the lists, block by block."""
    n_lists, n_groups = lists.size.shape
    rows = max(1, BLOCK_SUMS // (rounds * n_groups * len(ks)))

    def piece(start: int) -> Tensor:
        part = slice(start, start + rows)
        some = lists._replace(
            exposure=lists.exposure[part], group=lists.group[part], size=lists.size[part]
        )
        key = Key(seed, lists.first + start, first_round)
        return measure(shuffled_tops(some, ks, rounds=rounds, key=key))

    return run_all([partial(piece, start) for start in range(0, n_lists, rows)])


def log_choose(n: Tensor, k: Tensor) -> Tensor:
    """Return the logarithm of the number of ways to choose `k` of `n`; -inf if k > n."""
    n, k = n.double(), k.double()
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
