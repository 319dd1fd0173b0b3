"""Generated documents with features, whose grades are biased against one group."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.arguments import checked_number, checked_whole

MINOR_SHARE = 0.3
LARGEST = 4.0  # grade
MOST_DOCUMENTS = 10**8


class Documents(NamedTuple):
    """Documents as arrays, a row each, the way `FairRanker.fit` takes them.

    Attributes:
        x: Features, ``[n, 4]``.
        y: Grades from 0 to 4, ``[n]``.
        qid: The list of each document, ``[n]``.
        groups: ``minor`` or ``major``, ``[n]``.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    qid: NDArray[np.int64]
    groups: NDArray[np.str_]


def make_documents(
    n_lists: int = 40, length: int = 30, *, bias: float = 2.0, seed: int = 0
) -> Documents:
    """Return lists whose grades are quality, but `bias` grades less for the minor group.

    Two features make the quality, the third tells the groups apart, so that a ranker learns the
    bias from it, and the fourth says nothing. Three of ten documents are of the minor group.

    Args:
        n_lists: Number of lists.
        length: Documents of each.
        bias: What the grades of the minor group are short of its quality.
        seed: Of everything random.
    """
    checked_whole("n_lists", n_lists, least=1, most=MOST_DOCUMENTS)
    checked_whole("length", length, least=1, most=MOST_DOCUMENTS // n_lists)
    checked_number("bias", bias)
    checked_whole("seed", seed, least=0)
    rng = np.random.default_rng(seed)
    n = n_lists * length
    minor = rng.random(n) < MINOR_SHARE
    x = rng.normal(size=(n, 4))
    x[:, 2] = minor + 0.1 * rng.normal(size=n)
    quality = x[:, 0] + 0.5 * x[:, 1] + 0.3 * rng.normal(size=n)
    y = np.round(quality + LARGEST / 2 - bias * minor).clip(0, LARGEST)
    qid = np.repeat(np.arange(n_lists), length)
    return Documents(x, y, qid, np.where(minor, "minor", "major"))
