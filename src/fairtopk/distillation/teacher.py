"""The lesson of a teacher: items and scores of each user, in a fair order.

A teacher's order of all items that a user has not rated in training is made fair at its head,
and the student's scores are dealt out in it: the item at place r gets the r-th best. The
teacher is the student as it was, or any other system: only its order is read, never its scores.
For each user the head is kept, and a sample of the items behind it; no table has a cell for
each user and item.
"""

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.lists.batch import rank
from fairtopk.lists.users import Ratings
from fairtopk.models.scoring import catalogue_scores
from fairtopk.objectives.methods import DistillSettings
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


# From users, [B], and the student's scores of all items, -inf where rated, [B, n_items], to the
# scores that a teacher orders the items by, as a new tensor.
Order = Callable[[NDArray[np.int64], Tensor], Tensor]


class Teaching(NamedTuple):
    """What makes the order to learn."""

    group: NDArray[np.int32]  # number of each item's group, -1 unknown, [n_items]
    settings: DistillSettings
    strength: float  # how fair the order is, from 0 to 1
    seed: int  # of what is drawn
    order: Order | None = None  # that of a teacher; None: the student's own


class TaughtBlock(NamedTuple):
    """The heads of the orders that some users are due, with the scores to deal out."""

    users: NDArray[np.int64]  # [B]
    scores: Tensor  # the student's of all items, -inf where rated, [B, n_items]
    item: Tensor  # items from the first place on, -1 where there are fewer, [B, M]
    own_item: Tensor  # the student's own from the first place on, [B, M]
    own: Tensor  # its scores of those, falling, -inf where there are fewer, [B, M]


def frozen_copy(scorer: nn.Module) -> nn.Module:
    """Return a copy of a scorer without gradients; buffers outside its state are shared."""
    state = {id(kept) for kept in scorer.state_dict(keep_vars=True).values()}
    shared = {id(buffer): buffer for buffer in scorer.buffers() if id(buffer) not in state}
    return copy.deepcopy(scorer, shared).requires_grad_(False)


def lesson_of(student: nn.Module, rated: Ratings, teaching: Teaching) -> Lesson:
    """Return the lesson about every user.

    Args:
        student: The scorer whose scores are dealt out, as it is now.
        rated: The training ratings of each user; rated items are never shown again.
        teaching: What makes the order to learn.
    """
    settings, rng = teaching.settings, np.random.default_rng(teaching.seed)
    blocks = []
    for block in taught_blocks(student, rated, teaching):
        scores, there = block.scores, block.own.isfinite()
        behind = scores.isfinite()
        behind[there.nonzero()[:, 0], block.item[there]] = False
        count = behind.sum(-1).numpy()
        place = torch.from_numpy(evenly_spaced(count, settings.tail, rng))
        some = torch.searchsorted(behind.cumsum(-1), place + 1).masked_fill(place < 0, -1)
        # Behind the head an item keeps its score, unless it had to leave the head.
        lowest = block.own.masked_fill(~there, torch.inf).amin(-1, keepdim=True)
        due = scores.gather(-1, some.clamp(min=0)).minimum(lowest).masked_fill(some < 0, 0)
        blocks.append(
            (
                block.item.int().numpy(),
                block.own.masked_fill(~there, 0).float().numpy(),
                some.int().numpy(),
                due.float().numpy(),
                count,
                bool((block.item != block.own_item)[there].any()),
            )
        )
    *columns, changed = zip(*blocks, strict=True)
    head, head_score, tail, tail_score, n_behind = map(np.concatenate, columns)
    return Lesson(head, head_score, tail, tail_score, n_behind, any(changed))


def taught_blocks(
    student: nn.Module, rated: Ratings, teaching: Teaching
) -> Iterator[TaughtBlock]:
    """Yield the heads of the order to learn, for some users at a time; see `lesson_of`."""
    group, settings = teaching.group, teaching.settings
    offsets, k, label = rated.offsets, settings.head, torch.from_numpy(group)
    n_users = len(offsets) - 1
    # The linear program ranks the present head. The other re-rankers take, at most, as many of
    # the first items of each group as the head has.
    columns = [torch.arange(len(group))]
    if settings.reranker != "exposure-lp":
        columns = [torch.from_numpy(np.flatnonzero(group == one)) for one in np.unique(group)]
    shares = np.bincount(group[group >= 0]) / len(group)
    targets = dict(enumerate(shares.tolist()))
    for start in range(0, n_users, BLOCK):
        users = np.arange(start, min(start + BLOCK, n_users))
        scores = torch.from_numpy(catalogue_scores(student, users, len(group)))
        row = np.repeat(np.arange(len(users)), np.diff(offsets)[users])
        item = rated.item[offsets[start] : offsets[users[-1] + 1]]
        scores[row, item] = -torch.inf
        by = scores
        if teaching.order is not None:
            by = teaching.order(users, scores)
            by[row, item] = -torch.inf
        tops = [by[:, one].topk(min(k, len(one))) for one in columns]
        value = torch.cat([top.values for top in tops], dim=-1)
        found = torch.cat(
            [one[top.indices] for one, top in zip(columns, tops, strict=True)], -1
        )
        mask = value.isfinite()
        known = label[found].to(torch.int16).masked_fill(~mask, -1)
        lists = Candidates(value, mask, known, value, torch.from_numpy(users))
        slot = taught_order(
            lists,
            settings,
            k=k,
            strength=teaching.strength,
            seed=teaching.seed,
            targets=targets,
        )
        own, own_item = scores.topk(min(k, scores.shape[1]))
        there = own.isfinite()
        taught = found.gather(-1, slot)[:, : there.shape[1]].masked_fill(~there, -1)
        yield TaughtBlock(users, scores, taught, own_item, own)


def taught_order(
    lists: Candidates,
    settings: DistillSettings,
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
        settings: Their re-ranker puts the top `k` in a fair order.
        k: Length of that top.
        strength: From 0, the teacher's own order, to 1, the fair one.
        seed: For rankings and floors that are drawn.
        targets: The share of each group; None: its share of the list.
    """
    if settings.reranker == "exposure-lp":
        fair = exposure_lp(lists, k, ExposureProgram(seed=seed)).slot
    else:
        rounding = settings.rounding or "down"
        wanted = Floors(targets=targets, rounding=rounding, seed=seed)
        fair = floors(lists, k, wanted, method=settings.reranker).slot
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
