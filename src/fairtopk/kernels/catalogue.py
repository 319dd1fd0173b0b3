"""What is to be known of lists that hold the whole catalogue but for some items of the user.

The items of each user are CSR arrays, no item twice for one user.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled


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
        offsets: Of the items that a user's list lacks.
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


def relevance_of(
    listed: NDArray[np.int32],
    users: NDArray[np.int64],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    rating: NDArray[np.floating],
    n_items: int,
) -> NDArray[np.floating]:
    """Return what each user rated the items of a list, 0 where it did not.

    Args:
        listed: Item numbers, -1 for none, ``[Q, H]``.
        users: Whose lists, ``[Q]``.
        offsets: Of the users' ratings.
        item: The items they rated.
        rating: How.
        n_items: Size of the catalogue.
    """
    relevance = np.zeros(listed.shape, rating.dtype)
    rated = np.zeros(n_items, rating.dtype)
    _fill_relevance(listed, users, offsets, item, rating, rated, relevance)
    return relevance


@compiled
def _fill_relevance(
    listed: NDArray[np.int32],
    users: NDArray[np.int64],
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    rating: NDArray[np.floating],
    rated: NDArray[np.floating],
    relevance: NDArray[np.floating],
) -> None:
    """Fill in `relevance`; `rated` is room for a user's ratings, 0 before and after."""
    for row in range(len(users)):
        start, stop = offsets[users[row]], offsets[users[row] + 1]
        for slot in range(start, stop):
            rated[item[slot]] = rating[slot]
        for place in range(listed.shape[1]):
            if listed[row, place] >= 0:
                relevance[row, place] = rated[listed[row, place]]
        for slot in range(start, stop):
            rated[item[slot]] = 0
