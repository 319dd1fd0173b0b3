"""What an optimizer remembers once it has taken a step: names, types and shapes."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fairtopk.errors import InputError

ROWS, WIDTH = 7, 11  # of the parameter that a step is tried on; no state has these by chance


def state_layout(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return what `optimizer` remembers of its parameters after a step, without values.

    Names are ``number.name``, as in its `state_dict`. A step is tried on a small parameter by
    an optimizer of the same kind and settings: each tensor of the state is as large as the
    parameter, has a value for each of its rows, or a size of its own.
    """
    layout: dict[str, Tensor] = {}
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    kinds = {one.dtype: _tried(optimizer, one.dtype) for one in parameters}
    for number, parameter in enumerate(parameters):
        rows = (parameter.shape[0] if parameter.dim() else 1,)
        sizes = {(ROWS, WIDTH): tuple(parameter.shape), (ROWS,): rows}
        for name, value in kinds[parameter.dtype].items():
            shape = sizes.get(tuple(value.shape), tuple(value.shape))
            layout[f"{number}.{name}"] = torch.empty(shape, dtype=value.dtype, device="meta")
    return layout


def check_values(state: Mapping[str, Tensor]) -> None:
    """Refuse a state that no optimizer can have: negative squares, rows ahead of their steps.

    Args:
        state: Finite tensors by ``number.name``, as `state_layout` names them.
    """
    for name, value in state.items():
        number, _, kind = name.partition(".")
        least = {"step": 1, "exp_avg_sq": 0, "last": 0}.get(kind)
        if least is not None and bool((value < least).any()):
            raise InputError(f"'optimizer.{name}' has a value below {least}")
        if kind == "last" and bool((value > state[f"{number}.step"]).any()):
            raise InputError(f"'optimizer.{name}' has a row that is ahead of its steps")


def _tried(optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return what an optimizer of the same kind remembers of one parameter after a step."""
    parameter = torch.nn.Parameter(torch.zeros(ROWS, WIDTH, dtype=dtype))
    other = type(optimizer)([parameter], **optimizer.defaults)
    parameter.grad = torch.zeros_like(parameter)
    other.step()
    kept = other.state_dict()["state"].get(0, {})
    return {name: torch.as_tensor(value) for name, value in kept.items()}
