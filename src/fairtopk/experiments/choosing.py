"""Which epoch of a run is kept: the rule, stated once.

Without a penalty (no fairness part, or C = 0) the epoch with the best NDCG is kept. With one,
an epoch replaces the kept one if its NDCG is within the tolerance of the best so far, and
either its gap is smaller or the kept one's NDCG no longer is. An undefined gap is the largest.
With an adversary the last epoch is kept: a game has no best epoch, and in the first ones, where
NDCG is high, the adversary has not been heard yet.
"""

import math
from collections.abc import Callable
from typing import Any


def chooser(
    ndcg: str, gap: str | None, *, tolerance: float
) -> Callable[[list[dict[str, Any]], int | None], bool]:
    """Return a function that says whether a history's last record replaces the chosen one.

    Args:
        ndcg: Name of the NDCG in a record.
        gap: Name of the gap, or None to go by NDCG alone.
        tolerance: Share of the best NDCG that may be lost.
    """

    def prefers(history: list[dict[str, Any]], chosen: int | None) -> bool:
        new = history[-1]
        if chosen is None:
            return True
        old = history[chosen]
        if gap is None:
            return bool(new[ndcg] > old[ndcg])
        window = (1 - tolerance) * max(record[ndcg] for record in history if ndcg in record)
        if new[ndcg] < window:
            return False
        smaller = new[gap] < old[gap] or (math.isnan(old[gap]) and not math.isnan(new[gap]))
        return bool(old[ndcg] < window or smaller)

    return prefers


def latest(history: list[dict[str, Any]], chosen: int | None) -> bool:
    """Return True: a history's last record replaces the chosen one."""
    return True
