"""Measuring a scorer on held-out lists."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch, candidate_batch
from fairtopk.lists import Candidates, HeldOut
from fairtopk.metrics.summary import summarise

BLOCK = 1_024  # lists scored at once


def evaluate(
    scorer: nn.Module, blocks: Iterator[Batch], ks: Sequence[int]
) -> dict[str, Tensor]:
    """Return every metric by name, one value per query, ``[Q]``."""
    found: dict[str, list[Tensor]] = {}
    for batch in blocks:
        scores = score(scorer, batch)
        values = summarise(scores, batch.relevance, batch.group, ks=ks, mask=batch.mask)
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return {name: torch.cat(parts) for name, parts in found.items()}


@torch.no_grad()
def score(scorer: nn.Module, batch: Batch) -> Tensor:
    """Return the scores of a batch without dropout, ``[Q, L]``."""
    was_training = scorer.training
    scorer.eval()
    scores: Tensor = scorer(batch)
    scorer.train(was_training)
    return scores


def sampled_blocks(part: HeldOut, *, unrated: int, seed: int) -> list[Batch]:
    """Return the sampled lists of a part in blocks; the same for every model."""
    lists = part.sampled(unrated=unrated, seed=seed)
    blocks = []
    for start in range(0, len(lists.user), BLOCK):
        rows = slice(start, start + BLOCK)
        block = Candidates(
            lists.user[rows], lists.item[rows], lists.relevance[rows], lists.mask[rows]
        )
        blocks.append(candidate_batch(block, part.data.group))
    return blocks


def full_blocks(part: HeldOut, *, block: int = 128) -> Iterator[Batch]:
    """Yield the whole catalogue as every user's list, in blocks of users."""
    for lists in part.full(block=block):
        yield candidate_batch(lists, part.data.group)
