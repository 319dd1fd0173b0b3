"""Sums over lists of what tells who is favoured: signed gaps, and what each group gets.

A group gets, with n its items in the whole list: the softmax exposure of its items in the top
over n (Eq. 9); their share of the exposure of the top over their number, 0 without one (the
released code); the worth of their places over n; their number over n. A signed gap is what
group 0 gets less what all other groups get as one.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.measures import Doubles
from fairtopk.kernels.shuffles import GroupSums

NOTIONS = 4


def gap_totals(sums: GroupSums, everyone: Doubles, size: NDArray[np.int64]) -> Doubles:
    """Return sums over lists, for each of R versions of them, ``[R, (4 + G) * K]``.

    Signed gaps come first, notion by notion; then the worth of places that each group gets. A
    list without group 0 or without another adds nothing to gaps, one without a group nothing
    to what that gets.

    Args:
        sums: Over the items of each group in each top, ``[Q, R, G, K]`` each.
        everyone: Exposure of all items in each top, ``[Q, K]``.
        size: Items of each group in the whole list, ``[Q, G]``.
    """
    _, n_versions, n_groups, n_cuts = sums.members.shape
    totals = np.zeros((n_versions, NOTIONS + n_groups, n_cuts))
    _add_totals(sums, everyone, size, totals)
    return totals.reshape(n_versions, -1)


@compiled
def _add_totals(
    sums: GroupSums, everyone: Doubles, size: NDArray[np.int64], totals: Doubles
) -> None:
    n_lists, n_versions, n_groups, n_cuts = sums.members.shape
    for row in range(n_lists):
        named, rest = size[row, 0], size[row, 1:].sum()
        for version in range(n_versions):
            for cut in range(n_cuts):
                exposure, worth, members = 0.0, 0.0, 0.0
                for group in range(n_groups):
                    found = sums.discount[row, version, group, cut]
                    if size[row, group] > 0:
                        totals[version, NOTIONS + group, cut] += found / size[row, group]
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
