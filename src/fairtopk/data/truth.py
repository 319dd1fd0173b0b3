"""What generated users feel about generated items, and how well known the items are.

The utility of item i for user u is ``taste_u · factors_i + quality_i``. No group is better than
another: an item's group tells nothing of its factors, its quality or its popularity.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.drawing import normals

N_FACTORS = 8
TASTE_VARIANCE = 0.7  # of a utility's variance of 1; the rest is quality
# Ratings per item in MovieLens are spread like |normal|^p: 1M fits p = 2, 20M about p = 4.
POPULARITY_POWER = 3.0
GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0

# First keys of the streams, far from the epochs that are keys elsewhere.
TASTES, FACTORS, QUALITY, POPULARITY, GROUPS = range(2**33, 2**33 + 5)


@dataclass(frozen=True, eq=False)
class Truth:
    """What users feel and how well known items are, before any bias.

    Attributes:
        user_factors: Tastes, ``[n_users, d]``.
        item_factors: What tastes are for, ``[n_items, d]``.
        quality: What everyone likes, ``[n_items]``; weighted by popularity, its mean is 0 in
            every group.
        log_popularity: Logarithm of how often people come across an item, ``[n_items]``.
        group: Group number of each item, ``[n_items]``.
    """

    user_factors: NDArray[np.float32]
    item_factors: NDArray[np.float32]
    quality: NDArray[np.float32]
    log_popularity: NDArray[np.float64]
    group: NDArray[np.int32]

    def utility(
        self, users: NDArray[np.integer], items: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        """Return how much users like items, about 0 with spread 1; the arrays broadcast."""
        tastes, factors = self.user_factors[users], self.item_factors[items]
        utility: NDArray[np.float32] = np.einsum("...d,...d->...", tastes, factors)
        utility += self.quality[items]
        return utility


def draw_truth(
    n_users: int, n_items: int, group_shares: tuple[float, ...], *, seed: int
) -> Truth:
    """Return users and items drawn at random, the items in groups of these shares."""
    tastes = normals(seed, TASTES, n_users * N_FACTORS)
    factors = normals(seed, FACTORS, n_items * N_FACTORS) * (TASTE_VARIANCE / N_FACTORS) ** 0.5
    quality = normals(seed, QUALITY, n_items) * (1.0 - TASTE_VARIANCE) ** 0.5
    popularity = np.abs(normals(seed, POPULARITY, n_items)) ** POPULARITY_POWER
    group = _spread_groups(popularity, group_shares, seed)
    # A few items are most of what is seen: left to chance, some group would have better ones.
    luck = np.bincount(group, popularity * quality) / np.bincount(group, popularity)
    return Truth(
        user_factors=tastes.reshape(-1, N_FACTORS).astype(np.float32),
        item_factors=factors.reshape(-1, N_FACTORS).astype(np.float32),
        quality=(quality - luck[group]).astype(np.float32),
        log_popularity=np.log(popularity),
        group=group,
    )


def _spread_groups(
    popularity: NDArray[np.float64], shares: tuple[float, ...], seed: int
) -> NDArray[np.int32]:
    """Return the group of each item, every group spread evenly over the order of popularity.

    Multiples of the golden ratio modulo 1 fill the unit interval evenly from the first on, so
    every run of items in that order has nearly its share of each group.
    """
    n_items = len(popularity)
    places = (normals(seed, GROUPS, 1) + GOLDEN_RATIO * np.arange(n_items)) % 1.0
    ends = np.round(np.cumsum(shares) * n_items)
    group = np.empty(n_items, np.int32)
    group[np.argsort(-popularity)[np.argsort(places)]] = np.searchsorted(
        ends[:-1], np.arange(n_items), "right"
    )
    return group
