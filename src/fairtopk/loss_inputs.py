"""What enters the losses, checked once: settings, sizes and ids."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from fairtopk.arguments import checked_choice, checked_whole, one_or_several_ks, plain, shown
from fairtopk.errors import InputError, KindError
from fairtopk.estimators.pairs import QUERY_BITS
from fairtopk.estimators.settings import PRESETS, ObjectiveSettings
from fairtopk.kernels.hashing import hash_texts
from fairtopk.metrics.inputs import tensor_fault


def checked_settings(loss: str, preset: str, given: dict[str, Any]) -> ObjectiveSettings:
    """Return the settings of a preset, changed by those given to the loss of that name."""
    values = {**PRESETS[checked_choice("preset", preset, PRESETS)], **given}
    values = {name: plain(value) for name, value in values.items()}
    if "k" in given:
        try:
            ks = one_or_several_ks(given["k"])
            values["k"] = ks if len(ks) > 1 else ks[0]
        except InputError:
            raise _wrong_k(loss, given["k"]) from None
    try:
        return ObjectiveSettings.model_validate(values, strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        message = fault["msg"].removeprefix("Value error, ")
        if not fault["loc"]:
            raise InputError(f"{loss}: {message}") from None
        name = fault["loc"][0]
        if fault["type"] == "extra_forbidden":
            known = ", ".join(ObjectiveSettings.model_fields)
            raise InputError(f"{loss} has no setting {shown(name)}; it has {known}") from None
        rule = message.removeprefix("Input ")
        raise InputError(f"{loss}: {name} {rule}, got {shown(fault['input'])}") from None


def checked_size(name: str, value: int, *, least: int) -> int:
    """Return a size, which is a whole number from `least` to what numbers of queries can be."""
    return checked_whole(name, value, least=least, most=2**QUERY_BITS - 1)


def checked_ids(name: str, values: Any, wanted: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    """Return the ids at the places that are `wanted` as 64-bit words, ``[n]``.

    A whole number is its own word, modulo 2^64. A string's word is a hash: among n strings two
    share one, and are taken for one id, with a probability of n^2 / 2^65.

    Args:
        name: What to call them in an error.
        values: Ids of the given shape.
        wanted: Which to read, in all columns or the first of them.
        shape: What the ids must have.
    """
    if isinstance(values, Tensor) and (fault := tensor_fault(values)):
        raise KindError(f"{name} must be whole numbers or strings, got {fault}")
    given = values.detach() if isinstance(values, Tensor) else _array_of(name, values)
    if tuple(given.shape) != shape:
        raise InputError(f"{name} must have the shape {list(shape)}, got {list(given.shape)}")
    given = given[..., : wanted.shape[-1]]
    if isinstance(given, Tensor):
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise _no_id(name, given.dtype)
        return given.to(wanted.device).long()[wanted]
    words = _words(name, given[wanted.numpy(force=True)])
    return torch.from_numpy(words.astype(np.int64)).to(wanted.device)


def any_twice(values: Tensor) -> bool:
    """Return whether some value occurs more than once, ``[n]``."""
    rising = values.sort().values
    return bool((rising[1:] == rising[:-1]).any())


def _array_of(name: str, values: Any) -> NDArray[Any]:
    """Return ids as an array: of whole numbers, of strings, or of objects that may be both."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iufbc" and array is not values:
            array = np.asarray(values, dtype=object)  # numpy would make strings of numbers
    except (TypeError, ValueError, RuntimeError):
        raise _no_id(name, f"{type(values).__name__} that is no array") from None
    if array.dtype.kind in "fbcVmM":
        raise _no_id(name, array.dtype)
    return array


def _words(name: str, ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids as words, ``[n]``, which may yet be of any whole type."""
    if ids.dtype.kind in "iu":
        return ids
    if ids.dtype.kind == "U":
        return _hashed(ids)
    is_text = np.array([isinstance(one, str) for one in ids], np.bool_)
    words = np.empty(len(ids), np.uint64)
    words[is_text] = _hashed(ids[is_text].astype(str))
    words[~is_text] = [_whole_word(name, one) for one in ids[~is_text]]
    return words


def _hashed(texts: NDArray[np.str_]) -> NDArray[np.uint64]:
    width = texts.dtype.itemsize // 4
    native = np.ascontiguousarray(texts, texts.dtype.newbyteorder("="))
    return hash_texts(native.view(np.uint32).reshape(len(texts), width))


def _whole_word(name: str, one: Any) -> int:
    """Return a whole number modulo 2^64."""
    if not isinstance(one, int | np.integer) or isinstance(one, bool):
        raise _no_id(name, shown(one))
    if not -(2**63) <= one < 2**64:
        raise InputError(f"{name} must fit into 64 bits, got {shown(one)}; give it as a string")
    return int(one) % 2**64


def _no_id(name: str, found: object) -> InputError:
    return KindError(f"{name} must be whole numbers or strings, got {found}")


def _wrong_k(loss: str, k: Any) -> InputError:
    """Return the error for `k`; pydantic's own would be about one number alone."""
    return InputError(
        f"{loss}: k must be a whole number of at least 1, or several in a list, got {shown(k)}"
    )


def ordinary(values: Any) -> Any:
    """Return a tensor of inference mode as one that autograd takes, anything else as it is."""
    return values.clone() if isinstance(values, Tensor) and values.is_inference() else values
