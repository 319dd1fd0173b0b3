"""What enters the losses, checked once: settings, sizes and ids."""

import operator
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.estimators.settings import PRESETS, ObjectiveSettings


def checked_settings(loss: str, preset: str, given: dict[str, Any]) -> ObjectiveSettings:
    """Return the settings of a preset, changed by those given to the loss of that name."""
    if preset not in PRESETS:
        raise InputError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    try:
        return ObjectiveSettings.model_validate({**PRESETS[preset], **given})
    except ValidationError as error:
        fault = error.errors()[0]
        message = fault["msg"].removeprefix("Value error, ")
        if not fault["loc"]:
            raise InputError(f"{loss}: {message}") from None
        name = fault["loc"][0]
        if fault["type"] == "extra_forbidden":
            known = ", ".join(ObjectiveSettings.model_fields)
            raise InputError(f"{loss} has no setting {name!r}; it has {known}") from None
        rule = message.removeprefix("Input ")
        raise InputError(f"{loss}: {name} {rule}, got {fault['input']!r}") from None


def checked_size(name: str, value: int, least: int) -> int:
    """Return a size, which is a whole number from `least` on."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {value!r}") from None
    if not least <= whole < 2**31:
        raise InputError(f"{name} must be from {least} to {2**31 - 1}, got {whole}")
    return whole


def checked_numbers(name: str, values: Any, valid: Tensor, stop: int) -> Tensor:
    """Return ids as numbers in the shape of `valid`; 0 where that is False."""
    if isinstance(values, np.ndarray):
        # torch takes neither negative strides nor, without a warning, what is read-only.
        values = np.require(values, requirements=["C", "W"])
    try:
        given = torch.as_tensor(values, device=valid.device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} must be a tensor or array of whole numbers") from None
    if given.shape != valid.shape:
        raise InputError(
            f"{name} must have the shape {list(valid.shape)}, got {list(given.shape)}"
        )
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise InputError(f"{name} must be whole numbers, got {given.dtype}")
    given = given.long().masked_fill(~valid, 0)
    wrong = given[(given < 0) | (given >= stop)]
    if len(wrong):
        raise InputError(f"{name} must be from 0 to {stop - 1}, got {int(wrong[0])}")
    return given


def any_twice(values: Tensor) -> bool:
    """Return whether some value occurs more than once, ``[n]``."""
    rising = values.sort().values
    return bool((rising[1:] == rising[:-1]).any())
