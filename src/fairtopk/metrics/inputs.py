"""What enters the metrics, checked once: scores, masks, labels and K.

Arrays of numpy are taken as they are, series and frames as the arrays that they hold; labels
follow the scores to their device.
"""

import math
import operator
import reprlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all

Values = Tensor | NDArray[Any]

LARGEST_RELEVANCE = 100.0  # 2^y must fit float32 with room for a sum
MOST_GROUPS = 1_000
LARGEST_WHOLE = 2**63 - 1  # that int64 can hold
BLOCK_SLOTS = 2**18  # of an intermediate result that are held at a time


class Labels(NamedTuple):
    """Group numbers, ``[Q, L]``, -1 on padding and where unknown, and how many groups."""

    group: Tensor
    n_groups: int


def checked_scores(scores: Values, mask: Values | None) -> tuple[Tensor, Tensor]:
    """Return scores of at least float32 without a graph, and the mask, ``[Q, L]`` each."""
    given = tensor_of(scores, "scores")
    if given.ndim != 2 or given.numel() == 0:
        raise InputError(
            f"scores must have queries as rows and slots as columns, at least one of each, "
            f"got shape {list(given.shape)}"
        )
    if not given.is_floating_point():
        given = given.double()
    elif given.dtype != torch.float64:
        given = given.float()
    if mask is None:
        valid = torch.ones_like(given, dtype=torch.bool)
    else:
        valid = _like(mask, "mask", given, of="booleans")
        if valid.dtype != torch.bool:
            raise InputError(f"mask must be boolean, False on padding, got {valid.dtype}")
    most = torch.finfo(given.dtype).max
    _refuse_outside((-most, most), given, valid, "scores must be finite where the mask is True")
    return given, valid


def checked_relevance(relevance: Values, scores: Tensor, mask: Tensor) -> Tensor:
    """Return the relevance in the type of the scores, ``[Q, L]``."""
    given = _like(relevance, "relevance", scores).to(scores.dtype)
    rule = f"relevance must lie between 0 and {LARGEST_RELEVANCE:g}"
    _refuse_outside((0, LARGEST_RELEVANCE), given, mask, rule)
    return given


def checked_groups(groups: Values, scores: Tensor, mask: Tensor) -> Labels:
    """Return the labels; a boolean marks the named group, so True becomes number 0."""
    numbers = "whole numbers from 0, and -1 where unknown"
    given = _like(groups, "groups", scores, of=numbers)
    if given.dtype == torch.bool:
        given = (~given).int()
    if given.is_floating_point():
        raise InputError(f"groups must be {numbers}, got {given.dtype}")
    if given.dtype not in (torch.int32, torch.int64):
        given = given.long()  # in a small type the bounds themselves would wrap around
    rule = f"groups must be numbered from 0 to {MOST_GROUPS - 1}, and -1 where unknown"
    _refuse_outside((-1, MOST_GROUPS - 1), given, mask, rule)
    group = by_blocks(_known_labels, given, mask)
    most = by_blocks(lambda labels: labels.amax()[None], group)
    return Labels(group, max(2, int(most.amax()) + 1))


def checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of the top, each once and rising, refusing one below 1."""
    try:
        given = tuple(ks)
    except TypeError:
        raise InputError(
            f"ks must be a sequence of lengths of the top, such as [10, 50], got {ks!r}"
        ) from None
    if not given:
        raise InputError("ks must name at least one length of the top, got none")
    return tuple(sorted({checked_whole("k", k, least=1) for k in given}))


def checked_whole(name: str, value: int, *, least: int, most: int = LARGEST_WHOLE) -> int:
    """Return a whole number, refusing what is none and what is not from `least` to `most`."""
    try:
        whole = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        whole = None
    if whole is None:
        raise InputError(f"{name} must be a whole number, got {value!r}")
    if not least <= whole <= most:
        bound = f"at least {least}" if whole < least else f"at most {most}"
        raise InputError(f"{name} must be {bound}, got {whole}")
    return whole


def checked_share(name: str, value: float) -> float:
    """Return a number, refusing what is none and what is not above 0 and at most 1."""
    try:
        share = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):
        share = math.nan
    if not 0 < share <= 1:
        raise InputError(f"{name} must be a number above 0 and at most 1, got {value!r}")
    return share


def checked_choice(name: str, value: str, choices: Collection[str]) -> str:
    """Return one of several words, refusing all others."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return value


def tensor_of(values: Any, name: str, *, of: str = "numbers") -> Tensor:
    """Return a tensor or array as a tensor without a graph; `of` says what it must hold."""
    try:
        if hasattr(values, "__array__") and not isinstance(values, Tensor):
            # torch takes neither frames, series without a label 0, negative strides nor,
            # without a warning, what is read-only.
            values = np.require(values, requirements=["C", "W"])
        given = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError):
        given = None
    if given is None or given.is_complex():
        raise InputError(f"{name} must be a tensor or array of {of}, got {_content(values)}")
    return given


def by_blocks(measure: Callable[..., Tensor], *tensors: Tensor, n_groups: int = 1) -> Tensor:
    """Return what `measure` makes of each block of queries, put together again.

    Blocks may be measured at the same time.

    Args:
        measure: Takes one block of every tensor; its result has a row per query.
        tensors: ``[Q, L]`` each.
        n_groups: How many values per slot `measure` holds.
    """
    pieces = [partial(measure, *block) for block in blocks(*tensors, n_groups=n_groups)]
    parts = run_all(pieces)
    # As a piece of its own: torch's threads, once awake, would spin and slow down the next.
    return run_all([partial(torch.cat, parts)])[0]


def blocks(*tensors: Tensor, n_groups: int = 1) -> Iterator[tuple[Tensor, ...]]:
    """Yield blocks of rows of the tensors, small enough to work on; see `by_blocks`."""
    n_queries, slots = tensors[0].shape
    rows = max(1, BLOCK_SLOTS // (slots * n_groups))
    for start in range(0, max(n_queries, 1), rows):  # none at all make one empty block
        yield tuple(tensor[start : start + rows] for tensor in tensors)


def _content(values: Any) -> str:
    """Return the first of `values` that is no number, or else what they are, for a message."""
    try:
        array = np.asarray(values)
    except ValueError:
        return "rows of different lengths"
    except (TypeError, RuntimeError):
        return type(values).__name__
    others = (one for one in array.ravel().tolist() if not isinstance(one, int | float))
    return next(map(reprlib.repr, others), f"{type(values).__name__} of {array.dtype}")


def _like(values: Values, name: str, scores: Tensor, *, of: str = "numbers") -> Tensor:
    given = tensor_of(values, name, of=of).to(scores.device)
    if given.shape != scores.shape:
        raise InputError(
            f"{name} must have the shape of scores, {list(scores.shape)}, "
            f"got {list(given.shape)}"
        )
    return given


def _known_labels(group: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask & (group >= 0), group.to(torch.int16), -1)


def _refuse_outside(
    bounds: tuple[float, float], values: Tensor, mask: Tensor, rule: str
) -> None:
    low, high = bounds

    def is_inside(block: Tensor) -> bool:
        least, most = block.aminmax()
        return bool(least >= low and most <= high)  # neither holds of NaN

    if all(run_all([partial(is_inside, *block) for block in blocks(values)])):
        return  # padding may hold anything, but seldom does
    wrong = ~((values >= low) & (values <= high)) & mask
    if wrong.any():
        query, slot = wrong.nonzero()[0].tolist()
        value = values[query, slot].item()
        raise InputError(f"{rule}, got {value:g} in list {query}, slot {slot}")
