"""Adam that leaves rows without a gradient for later."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch.optim.optimizer import ParamsT

from fairtopk.errors import InputError
from fairtopk.kernels.adam import AdamRule, AdamTable, adam_rows, adam_steps
from fairtopk.optimizers.lazy import Advance, Array, LazyOptimizer


class LazyAdam(LazyOptimizer):
    """Adam with the numbers of `torch.optim.Adam`, for tables of which few rows are read.

    `torch.optim.SparseAdam` is something else: it leaves rows without a gradient where they
    are, takes no weight decay, and after hundreds of missed steps is far from Adam.

    A missed step of a weight is made up for in about 0.4 ns on one core. A dense step takes
    twice that, for it has to fetch the weight from memory, and a dense gradient as large as the
    table has to be cleared before it. So this saves about half of the work, and not more: the
    more rows a table has, the more steps each of them misses. Without weight decay, a row comes
    to rest after some hundred steps, and what it misses from then on is free.

    Args:
        params: As in any optimizer.
        lr: Learning rate.
        betas: Weights of the past in the averages of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: Added to the gradient, times the weight.
    """

    kept = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if min(lr, eps, weight_decay, *betas) < 0 or max(betas) >= 1:
            raise InputError(
                f"lr, eps and weight_decay must be at least 0 and betas from 0 to below 1, got "
                f"{lr}, {eps}, {weight_decay} and {betas}"
            )
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, settings)

    def _rule(self, group: dict[str, Any]) -> tuple[float, ...]:
        values = (group["lr"], *group["betas"], group["eps"], group["weight_decay"])
        return AdamRule(*map(float, values))

    def _advance(
        self, table: Sequence[Array], rule: Sequence[float], oldest: int, now: int
    ) -> Advance:
        common = AdamRule(*rule)
        steps = adam_steps(common, oldest + 1, now, table[0].dtype)
        return partial(adam_rows, AdamTable(*table), common, steps)
