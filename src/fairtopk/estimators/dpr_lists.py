"""What DPR reads of lists: pairs, scores that are drawn to N(0, 1), scores that are heard.

A list of a user is a sample of the catalogue, made to be learnt from: what is heard of it are
the two items of each pair, as in the original. A list of documents is what will be ranked: each
document counts once, and grades tell relevant ones apart too.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fairtopk.batches import Batch
from fairtopk.estimators.methods import Adversarial
from fairtopk.functional.bpr import ListPairs, graded_pairs, list_pairs
from fairtopk.functional.normality import LEAST_VARIANCE

# Of a list of documents: a few that are all but alike would be torn apart for nothing.
LEAST_OF_WHOLE = 1e-2


class Reading(NamedTuple):
    """What is read of the lists of a batch.

    Attributes:
        pairs: What BPR compares.
        drawn: Slots whose scores are drawn to N(0, 1) where no moments are given, ``[Q, L]``.
        heard: Slots of all lists, one after the other, that the adversary may hear, ``[n]``.
        least: What a smaller variance of drawn scores counts as.
    """

    pairs: ListPairs
    drawn: Tensor
    heard: Tensor
    least: float = LEAST_VARIANCE


Reads = Callable[[Batch, Adversarial], Reading]


def read_samples(batch: Batch, method: Adversarial) -> Reading:
    """Return what is read of samples of a catalogue.

    Drawn are the list's other items, a uniform sample of all but the relevant. A slot is heard
    once for each of its pairs.
    """
    pairs = list_pairs(batch.relevance, batch.mask)
    start = pairs.query * batch.mask.shape[1]
    heard = start + pairs.above
    if method.hears == "pairs":
        heard = torch.cat([heard, start + pairs.below])
    return Reading(pairs, batch.mask & (batch.relevance <= 0), heard)


def read_whole(batch: Batch, method: Adversarial) -> Reading:
    """Return what is read of whole lists: all their items, or all relevant ones.

    One item by itself has no distribution that could be drawn to another.
    """
    pairs = graded_pairs(batch.relevance, batch.mask)
    heard = batch.mask if method.hears == "pairs" else batch.mask & (batch.relevance > 0)
    drawn = batch.mask & (batch.mask.sum(-1, keepdim=True) > 1)
    return Reading(pairs, drawn, heard.flatten().nonzero()[:, 0], LEAST_OF_WHOLE)
