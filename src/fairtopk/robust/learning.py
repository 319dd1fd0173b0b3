"""Learning theta: the training lists of the game, and its problem.

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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.data.features import Features
from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.lists.batch import Batch
from fairtopk.lists.queries import feature_batch
from fairtopk.lists.users import Lists
from fairtopk.robust._kernels import Floats
from fairtopk.robust.game import Game, Play, game_of
from fairtopk.robust.ranker import RobustRanker, by_pieces, features
from fairtopk.training.samplers import ListSampler, ListSizes

PIECE = 256  # lists in a piece of work
ROUND = 2**31  # number of the random stream; epochs of training have smaller ones
MOST_NUMBERS = 2**28  # in the X of documents: 1 GB
OPTIONS: dict[str, Any] = {"maxcor": 20, "ftol": 0.0, "gtol": 1e-7}  # of L-BFGS


class Problem(NamedTuple):
    """The training lists of a game."""

    features: Tensor  # X, a constant last, 0 on padding, [Q, L, F + 1]
    relevance: Floats  # u, 0 on padding, [Q, L]
    game: Game  # on these lists
    gamma: float  # weight of 1/2 |theta|^2

    def moments(self, relevance: Floats) -> Floats:
        """Return (1/Q) sum X^T q, ``[F + 1]``."""
        both = (torch.split(one, PIECE) for one in (self.features, torch.from_numpy(relevance)))
        pieces = [
            partial(_product, x.flatten(0, 1).T, q.flatten())
            for x, q in zip(*both, strict=True)
        ]
        total: Floats = torch.stack(run_all(pieces)).sum(0).numpy()
        return total / len(relevance)


def _product(features: Tensor, vector: Tensor) -> Tensor:
    """Return X times a vector, which in single precision would lead L-BFGS astray."""
    return features.double() @ vector


def worth(theta: Floats, lam: Floats, problem: Problem) -> tuple[float, Floats, Play]:
    """Return the value of the game at theta, its gradient, and the answers of both players.

    Multipliers are ``[Q]`` or ``[1]``.
    """
    weight, pieces = torch.from_numpy(theta), torch.split(problem.features, PIECE)
    appeal = -torch.cat(run_all([partial(_product, x, weight) for x in pieces])).numpy()
    found = problem.game._replace(appeal=appeal).play(lam)
    wanted = problem.moments(problem.relevance)
    value = found.value.mean() - theta @ wanted - problem.gamma / 2 * theta @ theta
    slope = problem.moments(found.relevance) - wanted - problem.gamma * theta
    return float(value), slope, found


def learn(theta: Floats, lam: Floats, problem: Problem, *, iterations: int) -> Floats:
    """Return theta after some iterations of L-BFGS that start from it."""
    from scipy.optimize import minimize  # type: ignore[import-untyped]

    learned: Floats = minimize(
        lambda one: tuple(-part for part in worth(one, lam, problem)[:2]),  # value and slope
        theta,
        jac=True,
        method="L-BFGS-B",
        options=OPTIONS | {"maxiter": iterations},
    ).x
    return learned


def draw_problem(ranker: RobustRanker, lists: Lists) -> Problem:
    """Return a training list for each user, or for a sample of many users.

    Sets the ranker's scale of features and merit of groups.
    """
    settings = ranker.settings
    users = _some(lists.data.n_users, settings.users, seed=ranker.seed)
    sizes = ListSizes(settings.rated, settings.unrated)
    batch = ListSampler(lists, sizes, seed=ranker.seed).draw(users, epoch=ROUND)
    best = float(lists.train.rating.max())
    if best <= 0:
        raise InputError("robust needs relevant items, and no rating for training is above 0")
    return _problem(ranker, batch, best=best, names=lists.data.group_names)


def feature_problem(
    ranker: RobustRanker, features: Features, queries: NDArray[np.integer]
) -> Problem:
    """Return the lists of some queries, a sample if they are many or long.

    Sets the ranker's scale of features and merit of groups.
    """
    best = float(np.maximum.reduceat(features.relevance, features.offsets[:-1])[queries].max())
    if best <= 0:
        raise InputError("robust needs relevant documents, and none has a grade above 0")
    longest = int(np.diff(features.offsets)[queries].max())
    room = MOST_NUMBERS // (longest * len(ranker.theta))
    most = min(ranker.settings.users, max(room, 1))
    batch = feature_batch(features, queries[_some(len(queries), most, seed=ranker.seed)])
    return _problem(ranker, batch, best=best, names=features.group_names)


def _some(count: int, most: int, *, seed: int) -> NDArray[np.int64]:
    """Return the numbers below `count`, or a sample of them, rising."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, ROUND]).choice(count, most, replace=False))


@torch.no_grad()
def _problem(
    ranker: RobustRanker, batch: Batch, *, best: float, names: tuple[str, ...]
) -> Problem:
    """Return the problem of some lists, whose gains are over that of the `best` grade."""
    settings, mask, group = ranker.settings, batch.mask.numpy(), batch.group.numpy()
    # u = (2^y - 1) / (2^best - 1), so that u^T P v is a DCG.
    grade = batch.relevance.double().clamp(min=0)
    relevance = (torch.expm1(grade * np.log(2)) / np.expm1(best * np.log(2))).numpy()

    if settings.notion == "treatment":
        # The merit of a side is its mean relevance, over that of both.
        either = [relevance[group == 0], relevance[group > 0]]
        means = np.array([one.mean() if len(one) else 0.0 for one in either])
        if means.min() <= 0:
            side = names[0] if means[0] <= 0 else f"the groups but {names[0]}"
            raise InputError(
                f'notion = "treatment" divides by the mean relevance of each side, and no item '
                f'of {side} in the training lists is relevant; set notion to "parity"'
            )
        ranker.merit.copy_(torch.from_numpy(means / relevance[group >= 0].mean()))

    found = by_pieces(partial(features, ranker.base), batch)
    spread = (torch.einsum("qlf,qlf->f", found, found).double() / batch.mask.sum()).sqrt()
    # A unit that is never on has no spread, and no part in the game.
    ranker.scale.copy_(torch.where(spread > 0, 1 / spread, 0.0))
    constant = batch.mask[..., None].to(found.dtype)
    return Problem(
        features=torch.cat([found.mul_(ranker.scale), constant], -1),
        relevance=relevance,
        game=game_of(group, mask, ranker.merit.numpy(), mu=settings.mu),
        gamma=settings.gamma,
    )
