"""What enters the metrics, checked once: scores, masks, labels and K.

Arrays of numpy are taken as they are; labels follow the scores to their device.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
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
BLOCK_SLOTS = 2**18  # of an intermediate result that are held at a time


class Labels(NamedTuple):
    """Group numbers, ``[Q, L]``, -1 on padding and where unknown, and how many groups."""

    group: Tensor
    n_groups: int


def checked_scores(scores: Values, mask: Values | None) -> tuple[Tensor, Tensor]:
    """Return scores of at least float32 without a graph, and the mask, ``[Q, L]`` each."""
    given = tensor_of(scores, "scores").detach()
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
        valid = _like(mask, "mask", given)
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
    given = _like(groups, "groups", scores)
    if given.dtype == torch.bool:
        given = (~given).int()
    if given.is_floating_point() or given.is_complex():
        raise InputError(
            f"groups must be whole numbers from 0, and -1 where unknown, got {given.dtype}"
        )
    if given.dtype not in (torch.int32, torch.int64):
        given = given.long()  # in a small type the bounds themselves would wrap around
    least = torch.iinfo(given.dtype).min
    rule = f"groups must be numbered from 0 to {MOST_GROUPS - 1}"
    _refuse_outside((least, MOST_GROUPS - 1), given, mask, rule)
    group = by_blocks(_known_labels, given, mask)
    most = by_blocks(lambda labels: labels.amax()[None], group)
    return Labels(group, max(2, int(most.amax()) + 1))


def checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of the top, each once and rising, refusing one below 1."""
    if len(ks) == 0:
        raise InputError("ks must name at least one length of the top, got none")
    return tuple(sorted({_checked_k(k) for k in ks}))


def tensor_of(values: Values, name: str, device: torch.device | None = None) -> Tensor:
    """Return a tensor or array as a tensor, on `device` if one is given."""
    if isinstance(values, np.ndarray):
        # torch takes neither negative strides nor, without a warning, what is read-only.
        values = np.require(values, requirements=["C", "W"])
    try:
        return torch.as_tensor(values, device=device)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a tensor or array of numbers ({error})") from error


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


def _checked_k(k: int) -> int:
    try:
        whole = operator.index(k)
    except TypeError as error:
        raise InputError(f"k must be a whole number, got {k!r}") from error
    if whole < 1:
        raise InputError(f"k must be at least 1, got {k}")
    return whole


def _like(values: Values, name: str, scores: Tensor) -> Tensor:
    given = tensor_of(values, name, scores.device)
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
