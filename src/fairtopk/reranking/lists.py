"""Lists before and after re-ranking, and the settings of each re-ranker."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field, NonNegativeFloat, model_validator
from torch import Tensor

from fairtopk.kernels.threads import run_all
from fairtopk.lists.batch import order

BLOCK_SLOTS = 2**19  # that a thread works on at a time

LARGEST_SUM = 1 + 1e-6  # of shares, by rounding in single precision
Chance = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Candidates(NamedTuple):
    """Lists to be put in a new order, on the CPU, ``[Q, L]`` each."""

    scores: Tensor  # float32 or float64, finite where the mask is True
    mask: Tensor  # False on padding
    group: Tensor  # int16 from 0, -1 where unknown and on padding
    relevance: Tensor  # what it is worth to expose an item; finite where the mask is True
    query: Tensor  # number of each list, [Q], which determines what is drawn at random for it
    names: tuple[str, ...] = ()  # of groups, by number; empty if they have numbers only

    def called(self, group: int) -> str:
        """Return what a group is called in a sentence."""
        return repr(self.names[group]) if self.names else f"group {group}"


class Places(NamedTuple):
    """Some lists by place, from the best score to the worst, padding last."""

    rows: slice  # which of all lists these are
    scores: NDArray[np.floating]  # [B, L]
    group: NDArray[np.int16]  # [B, L]
    n_items: NDArray[np.int64]  # [B]


class Policy(NamedTuple):
    """A list that is ranked at random: one of several rankings, each with its probability.

    Attributes:
        slot: The slots of each ranking in its order, padding last, ``[R, L]``.
        probability: Probability of each ranking, ``[R]`` float64.
    """

    slot: Tensor
    probability: Tensor

    def matrix(self) -> Tensor:
        """Return the probability of each slot to be at each place, ``[L, L]``."""
        length = self.slot.shape[1]
        weight = self.probability[:, None].expand(self.slot.shape)
        places = torch.arange(length, device=self.slot.device)
        found = weight.new_zeros(length * length)
        return found.index_add_(
            0, (self.slot * length + places).flatten(), weight.flatten()
        ).view(length, length)


class Outcome(NamedTuple):
    """What a re-ranker makes of lists."""

    slot: Tensor  # the slots in their new order, padding last, [Q, L]
    met: Tensor  # which lists have what was requested, [Q]
    why: Callable[[int], str]  # for a list that has not: the reason and what to do, a clause
    policies: tuple[Policy, ...] = ()  # one for each list, where its order was drawn


def reordered(
    lists: Candidates, fill: Callable[[Places, NDArray[np.int64]], NDArray[np.bool_]]
) -> tuple[Tensor, Tensor]:
    """Return the slots of lists in a new order, ``[Q, L]``, and which lists are met, ``[Q]``.

    Args:
        lists: All of them.
        fill: Takes some lists by place, and fills in the old place of the item at each new one.
            Runs on several threads at once.
    """
    slot = torch.empty(lists.mask.shape, dtype=torch.int64)
    met = torch.empty(len(slot), dtype=torch.bool)

    def work(rows: slice) -> None:
        mask = lists.mask[rows]
        old = order(lists.scores[rows], mask)
        scores = lists.scores[rows].masked_fill(~mask, -torch.inf).gather(-1, old)
        group, new = lists.group[rows].gather(-1, old), torch.empty_like(old)
        places = Places(rows, scores.numpy(), group.numpy(), mask.sum(-1).numpy())
        met[rows] = torch.from_numpy(fill(places, new.numpy()))
        torch.gather(old, -1, new, out=slot[rows])

    _by_blocks(work, lists.mask)
    return slot, met


def dealt(lists: Candidates, slot: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rank of each slot in a new order, and the score that is its due, ``[Q, L]``.

    A list keeps its scores, and the item at rank r gets the r-th best of them. Equal scores are
    distinguished by their last bits, so that sorting by them gives the new order.

    Args:
        lists: Those that were put in a new order.
        slot: The slots in their new order, padding last, ``[Q, L]``.
    """
    rank, scores = torch.empty_like(slot), torch.empty_like(lists.scores)
    ranks = torch.arange(1, slot.shape[1] + 1)
    kind = torch.int32 if scores.dtype == torch.float32 else torch.int64
    sign, magnitude = torch.iinfo(kind).min, torch.iinfo(kind).max

    def work(rows: slice) -> None:
        rank[rows] = torch.empty_like(slot[rows]).scatter_(
            -1, slot[rows], ranks.expand_as(slot[rows])
        )
        held = lists.scores[rows].masked_fill(~lists.mask[rows], -torch.inf)
        falling = torch.from_numpy(np.sort(held.numpy(), axis=-1)).flip(-1)
        # Each is lowered, if need be, to just below the one before. Read as a whole number with
        # a sign, the bits of a float are its number among all floats: neighbours differ by one.
        bits = falling.view(kind)
        number = torch.where(bits < 0, -(bits & magnitude), bits).long()
        lowered = ((number + ranks).cummin(-1).values - ranks).to(kind)
        strict = torch.where(lowered < 0, -lowered | sign, lowered).view(falling.dtype)
        due = strict.gather(-1, rank[rows] - 1)
        scores[rows] = torch.where(lists.mask[rows], due, lists.scores[rows])

    _by_blocks(work, lists.mask)
    return rank, scores


def _by_blocks(work: Callable[[slice], None], mask: Tensor) -> None:
    """Run `work` on blocks of the lists, several at a time."""
    n_lists, length = mask.shape
    step = max(1, BLOCK_SLOTS // length)
    run_all([partial(work, slice(start, start + step)) for start in range(0, n_lists, step)])


def _no_flag(value: Any) -> Any:
    """Return a value that is no boolean: as a number True is 1, and in groups it marks 0."""
    if isinstance(value, bool):
        raise ValueError("must be a group's number (True in groups is 0)")
    return value


def _by_group(values: Any) -> Any:
    """Return shares in a sequence, array or tensor as a mapping from their group."""
    try:
        plain = values.tolist() if hasattr(values, "tolist") else values
    except (RuntimeError, NotImplementedError):  # a tensor without values
        plain = values
    if isinstance(plain, list | tuple):
        return dict(enumerate(plain))
    if plain is not None and not isinstance(plain, Mapping):
        raise ValueError("must be a list of shares, or map groups to shares")
    return plain


Group = Annotated[int, BeforeValidator(_no_flag), Field(ge=0, lt=1_000)]  # as in the metrics


class Settings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What the settings of all re-rankers have in common."""


class FairPrefixes(Settings):
    """Settings of `fa-ir`."""

    p: Chance | None = None  # target share of the group; None: its share of the list
    alpha: Chance = 0.1  # probability that a fair process fails
    adjust: Literal["closest", "conservative", "none"] = "closest"  # for testing every prefix
    group: Group = 0  # the protected group; all other items are the rest


class Floors(Settings):
    """Settings of the Det* family."""

    # From group to share; what is left is for all others. None: each group's share of the list.
    targets: Annotated[dict[Group, Share], BeforeValidator(_by_group)] | None = None
    rounding: Literal["down", "random"] = "down"  # of a group's share of a prefix to its floor
    seed: Seed = 0  # of random rounding, one for each list

    @model_validator(mode="after")
    def _at_most_everything(self) -> "Floors":
        total = sum((self.targets or {}).values())
        if total > LARGEST_SUM:
            raise ValueError(f"targets must add up to 1 at most, got {total:g}")
        return self


class ExposureProgram(Settings):
    """Settings of `exposure-lp`."""

    notion: Literal["parity", "treatment", "impact"] = "parity"
    slack: NonNegativeFloat = 0.0  # by which two groups may differ
    seed: Seed = 0  # of the draw of one ranking per list


class GroupBonus(Settings):
    """Settings of `group-bonus`."""

    bonus: float  # added to the scores of the group
    group: Group = 0
