"""Stochastic gradient descent with momentum that leaves rows without a gradient for later."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch.optim.optimizer import ParamsT

from fairtopk.errors import InputError
from fairtopk.kernels.momentum import MomentumRule, MomentumTable, momentum_rows
from fairtopk.optimizers.lazy import Advance, Array, LazyOptimizer


class LazyMomentum(LazyOptimizer):
    """Momentum with the numbers of `torch.optim.SGD`, for tables of which few rows are read.

    A step costs what its rows cost, however many steps they missed: those are one product with
    a matrix. It does not grow with the table.

    Args:
        params: As in any optimizer.
        lr: Learning rate.
        momentum: Weight of the past in the average of the gradient.
        dampening: What the weight of the new gradient is short of 1; without momentum, and in
            the first step, nothing.
        weight_decay: Added to the gradient, times the weight.
    """

    kept = ("momentum_buffer",)

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        if min(lr, momentum, weight_decay) < 0:
            raise InputError(
                f"lr, momentum and weight_decay must be at least 0, got {lr}, {momentum} and "
                f"{weight_decay}"
            )
        settings = {"lr": lr, "momentum": momentum, "dampening": dampening}
        super().__init__(params, settings | {"weight_decay": weight_decay})

    def _rule(self, group: dict[str, Any]) -> tuple[float, ...]:
        keep = float(group["momentum"])
        fresh = 1 - float(group["dampening"]) if keep else 1.0
        return MomentumRule(float(group["lr"]), keep, fresh, float(group["weight_decay"]))

    def _advance(
        self, table: Sequence[Array], rule: Sequence[float], oldest: int, now: int
    ) -> Advance:
        return partial(momentum_rows, MomentumTable(*table), MomentumRule(*rule), now)
