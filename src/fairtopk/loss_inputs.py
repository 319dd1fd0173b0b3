"""What enters the losses, checked once: settings, sizes and ids."""

from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.estimators.settings import PRESETS, ObjectiveSettings
from fairtopk.metrics.inputs import checked_choice, checked_whole, tensor_of


def checked_settings(loss: str, preset: str, given: dict[str, Any]) -> ObjectiveSettings:
    """Return the settings of a preset, changed by those given to the loss of that name."""
    values = {**PRESETS[checked_choice("preset", preset, PRESETS)], **given}
    try:
        return ObjectiveSettings.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        message = fault["msg"].removeprefix("Value error, ")
        if not fault["loc"]:
            raise InputError(f"{loss}: {message}") from None
        name = fault["loc"][0]
        if name == "k":
            raise _wrong_k(loss, given["k"]) from None
        if fault["type"] == "extra_forbidden":
            known = ", ".join(ObjectiveSettings.model_fields)
            raise InputError(f"{loss} has no setting {name!r}; it has {known}") from None
        rule = message.removeprefix("Input ")
        raise InputError(f"{loss}: {name} {rule}, got {fault['input']!r}") from None


def checked_size(name: str, value: int, least: int) -> int:
    """Return a size, which is a whole number from `least` to what 31 bits hold."""
    return checked_whole(name, value, least=least, most=2**31 - 1)


def checked_numbers(name: str, values: Any, valid: Tensor, stop: int) -> Tensor:
    """Return ids as numbers in the shape of `valid`; 0 where that is False."""
    given = tensor_of(values, name, of="whole numbers").to(valid.device)
    if given.shape != valid.shape:
        raise InputError(
            f"{name} must have the shape {list(valid.shape)}, got {list(given.shape)}"
        )
    if given.is_floating_point() or given.dtype == torch.bool:
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


def _wrong_k(loss: str, k: Any) -> InputError:
    """Return the error for `k`; pydantic's own would be about one number alone."""
    return InputError(
        f"{loss}: k must be a whole number of at least 1, or several in a list, got {k!r}"
    )
