"""Measuring a scorer on held-out lists."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairtopk.batches import Batch, candidate_batch
from fairtopk.kernels.catalogue import relevance_of, sizes_without
from fairtopk.kernels.ideal import ideal_dcg
from fairtopk.kernels.measures import Places
from fairtopk.kernels.threads import run_all
from fairtopk.lists import HeldOut
from fairtopk.metrics.floor import Floor, chance_floors
from fairtopk.metrics.inputs import checked_ks
from fairtopk.metrics.scale import score_spread
from fairtopk.metrics.summary import summarise, summarise_tops
from fairtopk.metrics.tops import Tops, tops_of_places
from fairtopk.scoring import score, top_blocks

BLOCK = 4_096  # lists scored at once
SHUFFLES = 20  # of a list; over a thousand lists that is enough for 1 %


def evaluate(
    scorer: nn.Module, blocks: Iterator[Batch], ks: Sequence[int]
) -> dict[str, Tensor]:
    """Return every metric by name, one value per query, ``[Q]``."""
    return _joined(
        summarise(score(scorer, batch), batch.relevance, batch.group, ks=ks, mask=batch.mask)
        for batch in blocks
    )


class Beside(NamedTuple):
    """What belongs beside the gaps of a model.

    Attributes:
        floors: The chance floor of every gap at each K, as `chance_floors` names them.
        spread: Standard deviation of the scores of each list, ``[Q]``.
    """

    floors: dict[str, Floor]
    spread: Tensor


def beside_gaps(
    scorer: nn.Module, blocks: Sequence[Batch], ks: Sequence[int], *, seed: int
) -> Beside:
    """Return what tells gaps from chance and from flat scores; all lists are held at once."""
    scores = torch.cat([score(scorer, batch) for batch in blocks])
    group = torch.cat([batch.group for batch in blocks])
    mask = torch.cat([batch.mask for batch in blocks])
    floors = chance_floors(scores, group, ks=ks, mask=mask, shuffles=SHUFFLES, seed=seed)
    return Beside(floors, score_spread(scores, mask=mask))


def evaluate_full(scorer: nn.Module, part: HeldOut, ks: Sequence[int]) -> dict[str, Tensor]:
    """Return the same where each user's list is the whole catalogue.

    What a user rated in another part is left out, as it is left out of sampled lists. Only the
    top of each list is ever held, whatever the number of users.
    """
    ks = checked_ks(ks)
    return _joined(summarise_tops(tops, ks) for tops in _tops(scorer, part, ks))


def sampled_blocks(part: HeldOut, *, unrated: int, seed: int) -> list[Batch]:
    """Return the sampled lists of a part in blocks; the same for every model."""

    def block(start: int) -> Batch:
        users = part.user[start : start + BLOCK]
        lists = part.sampled_of(users, unrated=unrated, seed=seed)
        return candidate_batch(lists, part.data.group)

    return run_all([partial(block, start) for start in range(0, len(part.user), BLOCK)])


def _tops(scorer: nn.Module, part: HeldOut, ks: Sequence[int]) -> Iterator[Tops]:
    data, own, others = part.data, part.ratings, part.others
    n_groups, k = max(2, len(data.group_names)), min(ks[-1], data.n_items)
    ideal = np.stack([ideal_dcg(own.offsets, own.rating, k) for k in ks], axis=-1)
    first = 0
    for top in top_blocks(scorer, part.user, k=k, n_items=data.n_items, excluded=others):
        users, there = part.user[first : first + len(top.scores)], top.column >= 0
        first += len(users)
        places = Places(
            exposure=np.exp(top.scores - top.log_sum[:, None]),
            group=np.where(there, data.group[top.column], -1),
            relevance=relevance_of(
                top.column, users, own.offsets, own.item, own.rating, data.n_items
            ),
            length=there.sum(-1),
        )
        size = sizes_without(users, others.offsets, others.item, data.group, n_groups)
        yield tops_of_places(places, size, ideal[users], ks)


def _joined(blocks: Iterator[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the metrics of blocks of queries as those of all."""
    found: dict[str, list[Tensor]] = {}
    for values in blocks:
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return {name: torch.cat(parts) for name, parts in found.items()}
