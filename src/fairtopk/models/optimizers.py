"""Adam and momentum that leave rows without a gradient for later, and exactly so.

A row that no batch reads takes the steps it missed when it is next read, or in `settle`; the
result is that of the ordinary optimizer.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim.optimizer import ParamsT

from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.models import _optimizer_kernels as kernels

Array = NDArray[Any]
Advance = Callable[[Array, Array], None]  # brings rows up, given their gradients
Reads = Iterable[tuple[Tensor, Tensor | None]]  # parameters, and the rows that are read

PIECE = 64_000  # steps of a weight that are worth a piece of work for a thread
MAX_PIECES = 16  # of a parameter

ROWS, WIDTH = 7, 11  # of the parameter that a step is tried on; no state has these by chance


class LazyOptimizer(torch.optim.Optimizer):
    """An optimizer that leaves the rows that have no gradient for later.

    It ends with the numbers of a dense optimizer that is fed the same gradients, where a row
    without a gradient counts as one of 0. Such rows move too, by what the optimizer remembers
    and by weight decay; they are brought up to date, step by missed step, when they are next
    needed. So in a loop around it, whatever is to be read has to be named first::

        optimizer.catch_up([(table, rows)])  # before a forward pass reads these rows
        optimizer.settle()  # before all weights are read, or changed by other means

    Only tables with sparse gradients have rows that are left for later: `nn.Embedding` gives
    them with ``sparse=True``. A dense gradient updates all rows, as ever. Rate and weight decay
    may be changed at any time.

    What is kept of a row in `state_dict` is that of its last update, with the number of that
    step: saving brings nothing up to date, so it changes nothing in what follows.

    Parameters have to be on the CPU, in float32 or float64. Work is shared among as many
    threads as torch is set to use, which changes no bit.
    """

    kept: tuple[str, ...]  # names of what is remembered of each weight

    def _rule(self, group: dict[str, Any]) -> tuple[float, ...]:
        """Return what is set for the steps of a group."""
        raise NotImplementedError

    def _advance(
        self, table: Sequence[Array], rule: Sequence[float], oldest: int, now: int
    ) -> Advance:
        """Return what brings rows of a table up to step `now` from `oldest` or later."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as in any optimizer."""
        super().add_param_group(param_group)
        for one in self.param_groups[-1]["params"]:
            fits = one.dtype in (torch.float32, torch.float64) and one.is_contiguous()
            if one.device.type != "cpu" or not fits:
                raise InputError(
                    f"lazy optimizers need contiguous float32 or float64 parameters on the "
                    f"CPU, got {one.dtype} on {one.device}; use one of torch.optim"
                )

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Take a step with the gradients at hand; parameters without one are left alone."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pieces = []
        for group in self.param_groups:
            rule = self._rule(group)
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state |= {name: torch.zeros_like(parameter) for name in self.kept}
                    state["last"] = torch.zeros(_shape(parameter)[0], dtype=torch.int32)
                    state["step"] = torch.zeros((), dtype=torch.int64)
                    state["rule"] = torch.tensor(rule, dtype=torch.float64)
                elif tuple(state["rule"].tolist()) != rule:
                    self.catch_up([(parameter, None)])
                    state["rule"] = torch.tensor(rule, dtype=torch.float64)
                rows, grads = _row_gradients(parameter.grad, state)
                state["step"] += 1
                increment_version(parameter)
                pieces += self._bring_up(parameter, state, rows, grads)
        run_all(pieces)
        return loss

    @torch.no_grad()
    def catch_up(self, reads: Reads) -> None:
        """Bring rows up to date.

        Args:
            reads: Pairs of a parameter and some of its rows, which may repeat, ``[n]``, or None
                for all; no parameter twice.
        """
        known = [(one, rows) for one, rows in reads if one in self.state]
        late = run_all([partial(_behind, self.state[one], rows) for one, rows in known])
        pieces = []
        for (parameter, _), behind in zip(known, late, strict=True):
            if len(behind) > 0:
                increment_version(parameter)
            pieces += self._bring_up(parameter, self.state[parameter], behind)
        run_all(pieces)

    def settle(self) -> None:
        """Bring everything up to date."""
        self.catch_up((one, None) for group in self.param_groups for one in group["params"])

    @torch.no_grad()
    def settled(self, parameter: Tensor) -> Tensor:
        """Return a copy of a parameter brought up to date; nothing is changed."""
        copy = parameter.detach().clone()
        if parameter in self.state:
            state = self.state[parameter]
            state = state | {name: state[name].clone() for name in (*self.kept, "last")}
            run_all(self._bring_up(copy, state, _behind(state)))
        return copy

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to a state that `state_dict` returned."""
        if any("last" not in state for state in state_dict["state"].values()):
            raise InputError("this state was saved by another optimizer, not by a lazy one")
        super().load_state_dict(state_dict)
        # That casts to the type of the parameter, in which step numbers would be rounded.
        saved, own = (
            [one for group in groups for one in group["params"]]
            for groups in (state_dict["param_groups"], self.param_groups)
        )
        for number, parameter in zip(saved, own, strict=True):
            for name in ("last", "rule"):
                if parameter in self.state:
                    self.state[parameter][name] = state_dict["state"][number][name]

    def _bring_up(
        self, weight: Tensor, state: dict[str, Tensor], rows: Array, grads: Array | None = None
    ) -> list[Callable[[], None]]:
        """Return the work of bringing rows up to the present step, in pieces."""
        if len(rows) == 0:
            return []
        now, shape = int(state["step"]), _shape(weight)
        tables = [weight.detach(), *(state[name] for name in self.kept)]
        arrays, last = [one.numpy().reshape(shape) for one in tables], state["last"].numpy()
        oldest = int(last[rows].min())
        advance = self._advance([*arrays, last], state["rule"].tolist(), oldest, now)
        if grads is None:
            grads = arrays[0][:0]
        work = len(rows) * shape[1] * (now - oldest)
        count = min(max(work // PIECE, 1), MAX_PIECES, len(rows))
        edges = [len(rows) * place // count for place in range(count + 1)]
        slices = [slice(*both) for both in pairwise(edges)]
        return [partial(advance, rows[one], grads[one]) for one in slices]


def _shape(parameter: Tensor) -> tuple[int, int]:
    """Return a parameter's number of rows, and their length."""
    n_rows = parameter.shape[0] if parameter.dim() > 0 else 1
    return n_rows, parameter.numel() // max(n_rows, 1)


def _behind(state: dict[str, Tensor], rows: Tensor | None = None) -> Array:
    """Return the rows that missed steps, each once: all, or those in `rows`."""
    last, now = state["last"].numpy(), int(state["step"])
    if len(last) == 0 or last.min() == now:
        return np.empty(0, np.int64)
    if rows is None:
        return np.flatnonzero(last < now)
    numbers = rows.reshape(-1).numpy()
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(last):
        raise InputError(
            f"rows of this parameter are numbered from 0 to {len(last) - 1}, got "
            f"{numbers.min()} to {numbers.max()}"
        )
    return kernels.rows_behind(numbers, last, now)


def _row_gradients(grad: Tensor, state: dict[str, Tensor]) -> tuple[Array, Array]:
    """Return the rows that have a gradient, each once, and their gradients."""
    shape = _shape(grad)
    if not grad.is_sparse:
        return np.arange(shape[0]), grad.contiguous().numpy().reshape(shape)
    last, now = state["last"].numpy(), int(state["step"])
    rows = grad._indices()[0].numpy()
    # Rising rows, as the compiled scorer gives them, have none twice, which is quick to see.
    rising = bool((rows[1:] > rows[:-1]).all())
    if not rising and len(kernels.rows_behind(rows, last, now + 1)) < len(rows):
        grad = grad.coalesce()
        rows = grad.indices()[0].numpy()
    if (last[rows] < now).any():
        raise InputError(
            "a sparse gradient has rows that were not up to date in the forward pass; name "
            "them to catch_up before it"
        )
    return rows, grad._values().numpy().reshape(len(rows), shape[1])


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
        return kernels.AdamRule(*map(float, values))

    def _advance(
        self, table: Sequence[Array], rule: Sequence[float], oldest: int, now: int
    ) -> Advance:
        common = kernels.AdamRule(*rule)
        steps = kernels.adam_steps(common, oldest + 1, now, table[0].dtype)
        return partial(kernels.adam_rows, kernels.AdamTable(*table), common, steps)


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
        return kernels.MomentumRule(
            float(group["lr"]), keep, fresh, float(group["weight_decay"])
        )

    def _advance(
        self, table: Sequence[Array], rule: Sequence[float], oldest: int, now: int
    ) -> Advance:
        return partial(
            kernels.momentum_rows,
            kernels.MomentumTable(*table),
            kernels.MomentumRule(*rule),
            now,
        )


def state_layout(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return what `optimizer` remembers of its parameters after a step, without values.

    Names are ``number.name``, as in its `state_dict`. A step is tried on a small parameter by
    an optimizer of the same kind and settings: each tensor of the state is as large as the
    parameter, has a value for each of its rows, or a size of its own.
    """
    layout: dict[str, Tensor] = {}
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    kinds: dict[torch.dtype, dict[str, Tensor]] = {}
    for dtype in {one.dtype for one in parameters}:
        small = torch.nn.Parameter(torch.zeros(ROWS, WIDTH, dtype=dtype))
        other = type(optimizer)([small], **optimizer.defaults)
        small.grad = torch.zeros_like(small)
        other.step()
        kept = other.state_dict()["state"].get(0, {})
        kinds[dtype] = {name: torch.as_tensor(value) for name, value in kept.items()}
    for number, parameter in enumerate(parameters):
        rows = (parameter.shape[0] if parameter.dim() else 1,)
        sizes = {(ROWS, WIDTH): tuple(parameter.shape), (ROWS,): rows}
        for name, value in kinds[parameter.dtype].items():
            shape = sizes.get(tuple(value.shape), tuple(value.shape))
            layout[f"{number}.{name}"] = torch.empty(shape, dtype=value.dtype, device="meta")
    return layout
