"""The lesson of a teacher: items and scores of each user, in a fair order.

The teacher's order of all items that a user has not rated in training is made fair at its head,
and its scores are dealt out anew: the item at place r gets the r-th best. For each user the
head is kept, and a sample of the items behind it; no table has a cell for each user and item.
"""

import copy
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.lists.batch import rank
from fairtopk.lists.users import Ratings
from fairtopk.models.scoring import catalogue_scores
from fairtopk.objectives.methods import DistillSettings, Reranker
from fairtopk.reranking.det import floors
from fairtopk.reranking.exposure_lp import exposure_lp
from fairtopk.reranking.lists import Candidates, ExposureProgram, Floors

BLOCK = 256  # users whose catalogue is scored at once
FALL = 3.0  # how fast an item's weight falls with its place

Values = TypeVar("Values", NDArray[np.float64], Tensor)


class Lesson(NamedTuple):
    """What the student learns about each user."""

    head: NDArray[np.int32]  # items from the first place on, -1 where there are fewer, [U, M]
    head_score: NDArray[np.float32]  # the scores to learn for them, [U, M]
    tail: NDArray[np.int32]  # some items behind the head, -1 where there are fewer, [U, T]
    tail_score: NDArray[np.float32]  # the scores to learn for them, [U, T]
    n_behind: NDArray[np.int64]  # number of items behind the head, [U]
    changed: bool  # whether any order differs from the teacher's own


def frozen_copy(scorer: nn.Module) -> nn.Module:
    """Return a copy of a scorer without gradients; buffers outside its state are shared."""
    state = {id(kept) for kept in scorer.state_dict(keep_vars=True).values()}
    shared = {id(buffer): buffer for buffer in scorer.buffers() if id(buffer) not in state}
    return copy.deepcopy(scorer, shared).requires_grad_(False)


def lesson_of(
    teacher: nn.Module,
    group: NDArray[np.int32],
    rated: Ratings,
    settings: DistillSettings,
    *,
    strength: float,
    seed: int,
) -> Lesson:
    """Return the lesson about every user.

    Args:
        teacher: The scorer to learn from.
        group: Group number of each item, -1 unknown, ``[n_items]``.
        rated: The training ratings of each user; rated items are never shown again.
        settings: Of the lesson.
        strength: How fair it is, from 0 to 1.
        seed: For what is drawn.
    """
    offsets, k, label = rated.offsets, settings.head, torch.from_numpy(group)
    n_users, rng = len(offsets) - 1, np.random.default_rng(seed)
    # The linear program ranks the present head. The other re-rankers take, at most, as many of
    # the first items of each group as the head has.
    columns = [torch.arange(len(group))]
    if settings.reranker != "exposure-lp":
        columns = [torch.from_numpy(np.flatnonzero(group == one)) for one in np.unique(group)]
    shares = np.bincount(group[group >= 0]) / len(group)
    targets = dict(enumerate(shares.tolist()))
    blocks = []
    for start in range(0, n_users, BLOCK):
        users = np.arange(start, min(start + BLOCK, n_users))
        scores = torch.from_numpy(catalogue_scores(teacher, users, len(group)))
        row = np.repeat(np.arange(len(users)), np.diff(offsets)[users])
        scores[row, rated.item[offsets[start] : offsets[users[-1] + 1]]] = -torch.inf
        tops = [scores[:, one].topk(min(k, len(one))) for one in columns]
        value = torch.cat([top.values for top in tops], dim=-1)
        item = torch.cat([one[top.indices] for one, top in zip(columns, tops, strict=True)], -1)
        mask = value.isfinite()
        known = label[item].to(torch.int16).masked_fill(~mask, -1)
        lists = Candidates(value, mask, known, value, torch.from_numpy(users))
        slot = taught_order(
            lists, settings.reranker, k=k, strength=strength, seed=seed, targets=targets
        )

        own, own_item = scores.topk(min(k, scores.shape[1]))
        there = own.isfinite()
        taught = item.gather(-1, slot)[:, : there.shape[1]].masked_fill(~there, -1)
        behind = scores.isfinite()
        behind[there.nonzero()[:, 0], taught[there]] = False
        count = behind.sum(-1).numpy()
        place = torch.from_numpy(evenly_spaced(count, settings.tail, rng))
        some = torch.searchsorted(behind.cumsum(-1), place + 1).masked_fill(place < 0, -1)
        # Behind the head an item keeps its score, unless it had to leave the head.
        lowest = own.masked_fill(~there, torch.inf).amin(-1, keepdim=True)
        due = scores.gather(-1, some.clamp(min=0)).minimum(lowest).masked_fill(some < 0, 0)
        blocks.append(
            (
                taught.int().numpy(),
                own.masked_fill(~there, 0).float().numpy(),
                some.int().numpy(),
                due.float().numpy(),
                count,
                bool((taught != own_item)[there].any()),
            )
        )
    *columns, changed = zip(*blocks, strict=True)
    head, head_score, tail, tail_score, n_behind = map(np.concatenate, columns)
    return Lesson(head, head_score, tail, tail_score, n_behind, any(changed))


def taught_order(
    lists: Candidates,
    reranker: Reranker,
    *,
    k: int,
    strength: float,
    seed: int,
    targets: dict[int, float] | None = None,
) -> Tensor:
    """Return the slots of each list in the order to learn, padding last, ``[Q, L]``.

    An item's place is between its own, r, and its fair one, s: items are in the order of
    (1 - strength) log r + strength log s, which moves exposure about evenly.

    Args:
        lists: The teacher's lists.
        reranker: Puts their top `k` in a fair order.
        k: Length of that top.
        strength: From 0, the teacher's own order, to 1, the fair one.
        seed: For rankings that are drawn.
        targets: The share of each group; None: its share of the list.
    """
    if reranker == "exposure-lp":
        fair = exposure_lp(lists, k, ExposureProgram(seed=seed)).slot
    else:
        fair = floors(lists, k, Floors(targets=targets), method=reranker).slot
    if strength == 1:
        return fair
    places = torch.arange(1, fair.shape[1] + 1)
    new = torch.empty_like(fair).scatter_(-1, fair, places.expand_as(fair))
    old = rank(lists.scores, lists.mask)
    between = (1 - strength) * old.double().log() + strength * new.double().log()
    return between.argsort(dim=-1, stable=True)


def evenly_spaced(
    length: NDArray[np.int64], n: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return `n` places of each list, -1 where it has fewer, ``[Q, n]``.

    They are evenly spaced from a random start: every place is drawn equally often, and none
    twice. If a list has no more than `n`, all are drawn.

    Args:
        length: Length of each list, ``[Q]``.
        n: Number of places.
        rng: Source of random numbers.
    """
    length = length[:, None]
    chance = rng.random((len(length), 1)) * (length > n)
    place = ((np.arange(n) + chance) * np.maximum(length / n, 1)).astype(np.int64)
    return np.where(np.arange(n) < length, np.minimum(place, length - 1), -1)


def place_weight(place: Values, reach: float) -> Values:
    """Return the weights of items at places from 0: (1 + place / reach)^-3."""
    return (1 + place / reach) ** -FALL


def weight_behind(
    first: NDArray[np.int64], length: NDArray[np.int64], reach: float
) -> NDArray[np.float64]:
    """Return the total weight of all items from a place on, as an integral for the sum."""
    power = 1 - FALL
    return reach / -power * ((1 + first / reach) ** power - (1 + length / reach) ** power)
