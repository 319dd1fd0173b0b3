"""A constant added to one group's scores: the cheap trick that a fair method must beat."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.reranking.lists import Candidates, Outcome, Places, reordered
from fairtopk.reranking.settings import GroupBonus


def group_bonus(lists: Candidates, k: int, settings: GroupBonus) -> Outcome:
    """Return the lists in the order of scores with a bonus for the group, whatever `k` is.

    Two items whose scores are equal with the bonus stay in their old order.
    """

    def fill(places: Places, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        bonus = settings.bonus * (places.group == settings.group)
        falling = -(places.scores.astype(np.float64) + bonus)
        order[:] = falling.argsort(axis=-1, kind="stable")
        return np.ones(len(order), np.bool_)

    slot, met = reordered(lists, fill)
    return Outcome(slot, met, lambda _: "")
