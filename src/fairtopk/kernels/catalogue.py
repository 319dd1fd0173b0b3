"""What is to be known of lists that hold the whole catalogue but for some items of the user.

The items of each user are CSR arrays, no item twice for one user.
"""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled


@compiled
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
    whole = np.zeros(n_groups, np.int64)
    for one in group:
        if one >= 0:
            whole[one] += 1
    sizes = np.empty((len(users), n_groups), np.int64)
    for row in range(len(users)):
        for one in range(n_groups):
            sizes[row, one] = whole[one]
        for slot in range(offsets[users[row]], offsets[users[row] + 1]):
            if group[item[slot]] >= 0:
                sizes[row, group[item[slot]]] -= 1
    return sizes


@compiled
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
    for row in range(len(users)):
        start, stop = offsets[users[row]], offsets[users[row] + 1]
        for slot in range(start, stop):
            rated[item[slot]] = rating[slot]
        for place in range(listed.shape[1]):
            if listed[row, place] >= 0:
                relevance[row, place] = rated[listed[row, place]]
        for slot in range(start, stop):
            rated[item[slot]] = 0
    return relevance
