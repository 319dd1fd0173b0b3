"""Checked tensors: the scores, masks, labels and grades that users pass in.

Numpy arrays are taken as they are, series and frames as the arrays they hold; labels follow the
scores to their device. Long lists are checked and measured in blocks, on several threads.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.checks import LARGEST_RELEVANCE, MOST_GROUPS
from fairtopk.errors import InputError, KindError
from fairtopk.kernels.threads import run_all
from fairtopk.terminal import shown

Values = Tensor | NDArray[Any]

BLOCK_SLOTS = 2**18  # of an intermediate result that are held at a time
SMALL_SLOTS = 2**14  # that torch works on with one thread, so that none has to be woken

Floats = NDArray[np.float64]


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


def checked_groups(groups: Values, scores: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """Return group numbers, ``[Q, L]``, -1 on padding and where unknown, and how many groups.

    A boolean marks the named group, so True becomes number 0.
    """
    numbers = "whole numbers from 0, and -1 where unknown"
    given = _like(groups, "groups", scores, of=numbers)
    if given.dtype == torch.bool:
        given = (~given).int()
    if given.is_floating_point():
        raise InputError(f"groups must be {numbers}, got {given.dtype}")
    if given.dtype not in (torch.int32, torch.int64):
        is_large = given.dtype == torch.uint64
        given = given.long()  # in a small type the bounds themselves would wrap around
        if is_large:  # and so would numbers past int64 here
            given = given.masked_fill(given < 0, MOST_GROUPS)
    rule = f"groups must be numbered from 0 to {MOST_GROUPS - 1}, and -1 where unknown"
    _refuse_outside((-1, MOST_GROUPS - 1), given, mask, rule)
    group = by_blocks(
        lambda some, inside: torch.where(inside & (some >= 0), some.to(torch.int16), -1),
        *(given, mask),
    )
    most = by_blocks(lambda labels: labels.amax()[None], group)
    return group, max(2, int(most.amax()) + 1)


def tensor_of(values: Any, name: str, *, of: str = "numbers") -> Tensor:
    """Return a tensor or array as a tensor without a graph; `of` says what it must hold."""
    try:
        if hasattr(values, "__array__") and not isinstance(values, Tensor):
            # torch takes neither frames, series without a label 0, negative strides nor,
            # without a warning, what is read-only.
            values = np.require(values, requirements=["C", "W"])
        given = torch.as_tensor(values).detach()
    except (TypeError, ValueError, OverflowError, RuntimeError):
        given = None
    if given is not None and (fault := tensor_fault(given)):
        raise KindError(f"{name} must be a dense tensor or array of {of}, got {fault}")
    if given is None or given.is_complex():
        raise KindError(f"{name} must be a tensor or array of {of}, got {_content(values)}")
    return given


def tensor_fault(values: Tensor) -> str:
    """Return what keeps a tensor from being read like an array, nothing if that works."""
    if values.is_nested:
        return "a nested tensor; pad it"
    if values.layout != torch.strided:
        return "a sparse tensor; give it as .to_dense()"
    if values.is_quantized:
        return "a quantized tensor; give it as .dequantize()"
    if values.is_meta:
        return "a meta tensor, which has no values"
    return ""


def by_blocks(measure: Callable[..., Tensor], *tensors: Tensor, n_groups: int = 1) -> Tensor:
    """Return what `measure` makes of each block of queries, put together again.

    Blocks may be measured at the same time.

    Args:
        measure: Takes one block of every tensor; its result has a row per query.
        tensors: ``[Q, L]`` each.
        n_groups: How many values per slot `measure` holds.
    """
    if tensors[0].numel() * n_groups <= SMALL_SLOTS:
        with torch.no_grad():
            return measure(*tensors)
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
    return next(map(shown, others), f"{type(values).__name__} of {array.dtype}")


def _like(values: Values, name: str, scores: Tensor, *, of: str = "numbers") -> Tensor:
    given = tensor_of(values, name, of=of).to(scores.device)
    if given.shape != scores.shape:
        raise InputError(
            f"{name} must have the shape of scores, {list(scores.shape)}, "
            f"got {list(given.shape)}"
        )
    return given


def _refuse_outside(
    bounds: tuple[float, float], values: Tensor, mask: Tensor, rule: str
) -> None:
    low, high = bounds
    ends = by_blocks(lambda block: torch.stack(block.aminmax())[None], values)
    if ends.amin() >= low and ends.amax() <= high:  # neither holds of NaN
        return  # padding may hold anything, but seldom does
    wrong = ~((values >= low) & (values <= high)) & mask
    if wrong.any():
        query, slot = wrong.nonzero()[0].tolist()
        value = values[query, slot].item()
        raise InputError(f"{rule}, got {value:g} in list {query}, slot {slot}")


def doubles(values: Values | Sequence[float], name: str) -> Floats:
    """Return a tensor, array or list of numbers as an array, refusing all else."""
    given = tensor_of(values, name)
    if isinstance(values, Tensor):
        return given.double().cpu().numpy()
    return np.asarray(values, np.float64)  # torch rounds what is in a list to float32
