"""Learning theta from training lists.

With u the true relevance, in [0, 1], and Q lists, the training problem is

    min_q (1/Q) sum [max_P (q + lam f)^T P v - (mu/2) |P|^2 + (mu/2) |q|^2]
          + (1/(2 gamma)) |(1/Q) sum X^T (q - u)|^2

over all q in [0, 1]. Its last term is that of

    max_theta theta^T (1/Q) sum X^T (q - u) - (gamma/2) |theta|^2.

With min and max exchanged, q is the adversary's answer to the appeal -X theta, list by list,
and a smooth concave function of theta is left to be maximised, with the gradient
(1/Q) sum X^T (q - u) - gamma theta (Danskin). It ends at the same q and theta, but has some
hundred unknowns, where over all q there is one for each item of each list, and bounds, with
which L-BFGS-B takes longer than the players with their answers.

The problem is convex in q and lam together: a round finds lam for the q at hand, and then theta
for that lam.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairtopk.kernels.doubly_stochastic import Floats
from fairtopk.kernels.threads import run_all
from fairtopk.reranking.solvers import scipy_solver
from fairtopk.robust.game import Play, exposures, play
from fairtopk.robust.multipliers import Multipliers, multipliers, reach
from fairtopk.robust.sides import Flags, Sides, gaps

PIECE = 256  # lists
OPTIONS: dict[str, Any] = {"maxcor": 20, "ftol": 0.0, "gtol": 1e-7}  # of L-BFGS


class Problem(NamedTuple):
    """The training lists of a game.

    Attributes:
        features: X, a constant last, 0 on padding, ``[Q, L, F + 1]``.
        relevance: u, 0 on padding, ``[Q, L]``.
        sides: Of the lists.
        mask: False on padding, ``[Q, L]``.
        mu: Smoothing.
        gamma: Weight of 1/2 |theta|^2.
    """

    features: Tensor
    relevance: Floats
    sides: Sides
    mask: Flags
    mu: float
    gamma: float

    def appeal(self, theta: Floats) -> Floats:
        """Return -X theta, ``[Q, L]``."""
        weight = torch.from_numpy(theta)
        pieces = [partial(_product, self.features[part], weight) for part in self._parts()]
        found: Floats = -torch.cat(run_all(pieces)).numpy()
        return found

    def moments(self, relevance: Floats) -> Floats:
        """Return (1/Q) sum X^T q, ``[F + 1]``."""
        q = torch.from_numpy(relevance)
        pieces = [
            partial(_product, self.features[part].flatten(0, 1).T, q[part].flatten())
            for part in self._parts()
        ]
        total: Floats = torch.stack(run_all(pieces)).sum(0).numpy()
        return total / len(self.mask)

    def _parts(self) -> list[slice]:
        return [slice(start, start + PIECE) for start in range(0, len(self.mask), PIECE)]


def _product(features: Tensor, vector: Tensor) -> Tensor:
    """Return X times a vector, which in single precision would lead L-BFGS astray."""
    return features.double() @ vector


def worth(theta: Floats, lam: Floats, problem: Problem) -> tuple[float, Floats, Play]:
    """Return what the game is worth at theta, its gradient, and how it is played.

    Multipliers are ``[Q]`` or ``[1]``.
    """
    found = play(problem.appeal(theta), problem.sides, problem.mask, lam, mu=problem.mu)
    wanted = problem.moments(problem.relevance)
    value = found.value.mean() - theta @ wanted - problem.gamma / 2 * theta @ theta
    slope = problem.moments(found.relevance) - wanted - problem.gamma * theta
    return float(value), slope, found


def learn(theta: Floats, lam: Floats, problem: Problem, *, iterations: int) -> Floats:
    """Return theta after some iterations of L-BFGS that start from it."""
    minimize = scipy_solver("minimize", purpose="robust")

    def loss(one: Floats) -> tuple[float, Floats]:
        value, slope, _ = worth(one, lam, problem)
        return -value, -slope

    options = OPTIONS | {"maxiter": iterations}
    learned: Floats = minimize(loss, theta, jac=True, method="L-BFGS-B", options=options).x
    return learned


def balance(relevance: Floats, problem: Problem, *, share: float, shared: bool) -> Multipliers:
    """Return the multipliers that take a share of the gap away where relevance is given.

    Args:
        relevance: q, ``[Q, L]``.
        problem: The lists.
        share: Of the gap.
        shared: Whether all lists have one, ``[1]``, or each its own, ``[Q]``.
    """
    sides = problem.sides
    defined = max(int(sides.defined.sum()), 1)

    def gap(lam: Floats) -> Floats:
        found = exposures(relevance, sides, problem.mask, lam, mu=problem.mu)
        each = gaps(found.exposure, sides)
        return each.sum(keepdims=True) / defined if shared else each

    first = reach(sides, mu=problem.mu)
    return multipliers(gap, first.max(keepdims=True) if shared else first, share=share)
