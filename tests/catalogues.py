"""Lists of the whole catalogue, written out, to compare sums over their tops with."""

from collections.abc import Iterator

import numpy as np

from fairtopk.lists.batch import Candidates
from fairtopk.lists.users import HeldOut


def full_lists(part: HeldOut, *, block: int = 256) -> Iterator[Candidates]:
    """Yield blocks of users with the whole catalogue as their list, ``[block, n_items]``.

    What the user rated in another part is masked, as it is left out of sampled lists.
    """
    catalogue = np.arange(part.data.n_items, dtype=np.int32)
    for start in range(0, len(part.user), block):
        users = part.user[start : start + block]
        item = np.broadcast_to(catalogue, (len(users), len(catalogue)))
        relevance = np.zeros(item.shape, np.float32)
        mask = np.ones(item.shape, np.bool_)
        for row, user in enumerate(users):
            own = slice(*part.ratings.offsets[user : user + 2])
            other = slice(*part.others.offsets[user : user + 2])
            relevance[row, part.ratings.item[own]] = part.ratings.rating[own]
            mask[row, part.others.item[other]] = False
        yield Candidates(users, item, relevance, mask)
