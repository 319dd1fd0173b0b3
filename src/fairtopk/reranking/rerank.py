"""`ft.rerank`: the re-rankers by name, with their arguments checked, and the group bonus.

The group bonus adds a constant to one group's scores: the cheap trick that a fair method must
beat.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from fairtopk.checks import checked_choice, checked_whole, native
from fairtopk.errors import InputError
from fairtopk.reranking.det import floors
from fairtopk.reranking.exposure_lp import exposure_lp
from fairtopk.reranking.fa_ir import fair_prefixes
from fairtopk.reranking.lists import (
    Candidates,
    ExposureProgram,
    FairPrefixes,
    Floors,
    GroupBonus,
    Outcome,
    Places,
    Policy,
    Settings,
    dealt,
    reordered,
)
from fairtopk.tensors import Values, checked_groups, checked_relevance, checked_scores
from fairtopk.terminal import shown


def group_bonus(lists: Candidates, k: int, settings: GroupBonus) -> Outcome:
    """Return the lists in the order of scores with a bonus for the group, whatever `k` is.

    Two items whose scores are equal with the bonus stay in their old order.
    """

    def fill(places: Places, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        bonus = settings.bonus * (places.group == settings.group)
        falling = -(places.scores.astype(np.float64) + bonus)
        order[:] = falling.argsort(axis=-1, kind="stable")
        return np.ones(len(order), np.bool_)

    slot, met = reordered(lists, fill)
    return Outcome(slot, met, lambda _: "")


class Reranked(NamedTuple):
    """Lists in a new order.

    Attributes:
        slot: The slots of each list in their new order, padding last, ``[Q, L]`` int64.
        rank: The new rank of each slot, from 1; padding has the last ranks, ``[Q, L]`` int64.
        scores: The scores of each list dealt out again by rank, ``[Q, L]``: metrics of these
            are metrics of the new order.
        met: Whether a list meets the targets, ``[Q]``; `exposure-lp` promises it in
            expectation.
        policies: From `exposure-lp`, the random ranking of each list, of which `slot` is a
            draw, on the CPU; else empty.
    """

    slot: Tensor
    rank: Tensor
    scores: Tensor
    met: Tensor
    policies: tuple[Policy, ...]


class Reranker(NamedTuple):
    """A method: its settings, and the function that takes lists, K and settings."""

    settings: type[Settings]
    run: Callable[[Candidates, int, Any], Outcome]


RERANKERS = {
    "fa-ir": Reranker(FairPrefixes, fair_prefixes),
    "det-greedy": Reranker(Floors, partial(floors, method="det-greedy")),
    "det-cons": Reranker(Floors, partial(floors, method="det-cons")),
    "det-relaxed": Reranker(Floors, partial(floors, method="det-relaxed")),
    "det-const-sort": Reranker(Floors, partial(floors, method="det-const-sort")),
    "exposure-lp": Reranker(ExposureProgram, exposure_lp),
    "group-bonus": Reranker(GroupBonus, group_bonus),
}


def rerank(
    scores: Values,
    groups: Values,
    *,
    method: str,
    k: int | None = None,
    mask: Values | None = None,
    relevance: Values | None = None,
    infeasible: Literal["raise", "mark"] = "raise",
    **options: Any,
) -> Reranked:
    """Return the lists in the order that a method makes of their scores and groups.

    Only the top `k` is made fair; behind it items are in the order of their scores. Of equal
    scores the earlier slot ranks first, save that `fa-ir` puts the protected group first. Items
    of unknown group are in every list, and have no target.

    * `fa-ir`: no prefix has significantly few items of one group. Options: `p`, the share that
      is asked for (its share of the list); `alpha` (0.1), with which a fair process fails;
      `adjust`, how that is reached: "closest", "conservative" or "none"; `group` (0).
    * `det-greedy`, `det-cons`, `det-relaxed`, `det-const-sort`: each group has its share p of
      every prefix, of i items floor(i p) at least. Options: `targets`, shares by group, as a
      list or from number to share (each group's share of the list); `rounding` ("down"), or
      "random", such that floors are i p in expectation; `seed` (0) of that. What targets leave
      of 1 is the share of unknown items and groups without a target, which have no floor.
    * `exposure-lp`: in expectation over a random ranking, groups get the same. Options:
      `notion`, "parity" (mean exposure), "treatment" (over mean relevance) or "impact" (clicks
      over mean relevance); `slack` (0), by which two may differ; `seed` (0) of the draw.
    * `group-bonus`: a constant added to one group's scores, whatever `k`. Options: `bonus`,
      `group` (0).

    Args:
        scores: Model scores, ``[Q, L]``.
        groups: Group numbers, -1 unknown, ``[Q, L]``; booleans mark group 0.
        method: One of the above.
        k: Length of the top; left out, it is the whole list. A list that is shorter cannot have
            what is asked for.
        mask: False on padding, ``[Q, L]``; left out, there is none.
        relevance: What `exposure-lp` maximises, from 0, ``[Q, L]``; left out, the scores.
        infeasible: What to do about a list that cannot have what is asked for: "raise" an
            error, or "mark" it in `met`. A marked list is as near as the method comes; from
            `exposure-lp` it is in the order of its scores.
        **options: Those of the method; in brackets is what they are if left out.

    Example:
        >>> scores, groups = [[0.9, 0.8, 0.7, 0.6, 0.5, 0.4]], [[1, 1, 1, 0, 0, 0]]
        >>> fair = rerank(scores, groups, method="det-const-sort")
        >>> fair.slot
        tensor([[0, 3, 1, 4, 2, 5]])
        >>> fair.rank
        tensor([[1, 3, 5, 2, 4, 6]])
    """
    checked_choice("method", method, RERANKERS)
    checked_choice("infeasible", infeasible, ("raise", "mark"))
    settings = checked_settings(method, options)
    lists, device = checked_candidates(scores, groups, mask, relevance, method)
    length = None if k is None else checked_whole("k", k, least=1)
    outcome = reordered_by(method, lists, length, settings)
    if infeasible == "raise" and not outcome.met.all():
        query = int((~outcome.met).nonzero()[0])
        raise InputError(
            f"{method}: list {query} {outcome.why(query)}, or pass infeasible='mark' "
            f"({int((~outcome.met).sum())} of {len(outcome.met)} lists are like this)"
        )
    rank, due = dealt(lists, outcome.slot)
    return Reranked(
        slot=outcome.slot.to(device),
        rank=rank.to(device),
        scores=due.to(device),
        met=outcome.met.to(device),
        policies=outcome.policies,
    )


def reordered_by(method: str, lists: Candidates, k: int | None, settings: Settings) -> Outcome:
    """Return what a method makes of lists; those with fewer than `k` items are not met."""
    length = lists.scores.shape[1] if k is None else k
    outcome = RERANKERS[method].run(lists, length, settings)
    if k is None:
        return outcome
    n_items = lists.mask.sum(-1)
    return outcome._replace(
        met=outcome.met & (n_items >= k),
        why=lambda query: (
            f"has {n_items[query]} items where k asks for {k}; lower k"
            if n_items[query] < k
            else outcome.why(query)
        ),
    )


def checked_candidates(
    scores: Values, groups: Values, mask: Values | None, relevance: Values | None, method: str
) -> tuple[Candidates, torch.device]:
    """Return the lists on the CPU, numbered from 0, and the device that they came from."""
    given, valid = checked_scores(scores, mask)
    group, _ = checked_groups(groups, given, valid)
    worth = given
    if relevance is not None:
        if method != "exposure-lp":
            raise InputError(f"{method} takes no relevance; it is for exposure-lp")
        worth = checked_relevance(relevance, given, valid)
    query = torch.arange(len(given))
    lists = Candidates(given.cpu(), valid.cpu(), group.cpu(), worth.cpu(), query)
    return lists, given.device


def checked_settings(method: str, options: Mapping[str, Any]) -> Settings:
    """Return the settings of a method, refusing the first option that is wrong."""
    kind = RERANKERS[method].settings
    try:
        return kind.model_validate(native(options), strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        message = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
        if fault["type"] != "value_error":  # the value that was given follows below
            message = re.sub(", (got|unable to) .*", "", message)
        name = ".".join(map(str, fault["loc"]))
        if name.endswith("[key]"):
            name = "a group of targets"
        if fault["type"] == "extra_forbidden":
            known = ", ".join(kind.model_fields)
            raise InputError(f"{method} has no option {shown(name)}; it has {known}") from None
        if fault["type"] == "missing":
            raise InputError(f"{method} needs the option {name!r}") from None
        if not name:
            raise InputError(f"{method}: {message}") from None
        raise InputError(f"{method}: {name} {message}, got {shown(fault['input'])}") from None
