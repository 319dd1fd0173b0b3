"""The training lists that theta is learned from."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.batches import Batch
from fairtopk.data.features import Features
from fairtopk.errors import InputError
from fairtopk.feature_batches import feature_batch
from fairtopk.kernels.doubly_stochastic import Floats
from fairtopk.lists import Lists
from fairtopk.robust.features import by_pieces, features
from fairtopk.robust.learning import Problem
from fairtopk.robust.ranker import RobustRanker
from fairtopk.robust.sides import sides_of
from fairtopk.samplers import ListSampler, ListSizes

ROUND = 2**31  # of the random streams; epochs of training have other numbers
MOST_NUMBERS = 2**28  # of the X of documents: 1 GB


def draw_problem(ranker: RobustRanker, lists: Lists) -> Problem:
    """Return a list of each user, or of some where there are many.

    The scale of features and the merit of groups are the ranker's from then on.
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
    """Return the lists of some queries, or fewer where these are many or their lists long.

    What is the ranker's from then on is as in `draw_problem`.
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
    settings, mask, group = ranker.settings, batch.mask.numpy(), batch.group.numpy()
    relevance = _relevance(batch, best)
    if settings.notion == "treatment":
        merit = _merit(relevance, group, names)
        ranker.merit.copy_(torch.from_numpy(merit))
    return Problem(
        features=_features(ranker, batch),
        relevance=relevance,
        sides=sides_of(group, mask, ranker.merit.numpy()),
        mask=mask,
        mu=settings.mu,
        gamma=settings.gamma,
    )


def _relevance(batch: Batch, best: float) -> Floats:
    """Return gains over the largest there is, (2^y - 1) / (2^best - 1): u^T P v is a DCG."""
    grade = batch.relevance.double().clamp(min=0)
    found: Floats = (torch.expm1(grade * np.log(2)) / np.expm1(best * np.log(2))).numpy()
    return found


def _features(ranker: RobustRanker, batch: Batch) -> Tensor:
    """Return X with a constant; the spread of each feature becomes its scale."""
    found = by_pieces(lambda piece: features(ranker.base, piece), batch)
    n_slots = batch.mask.sum()
    spread = (torch.einsum("qlf,qlf->f", found, found).double() / n_slots).sqrt()
    # A unit that is never on has no spread, and no part in the game.
    ranker.scale.copy_(torch.where(spread > 0, 1 / spread, 0.0))
    constant = batch.mask[..., None].to(found.dtype)
    return torch.cat([found.mul_(ranker.scale), constant], -1)


def _merit(relevance: Floats, group: NDArray[np.int32], names: tuple[str, ...]) -> Floats:
    """Return the mean relevance of either side, over that of both, ``[2]``."""
    either = [relevance[group == 0], relevance[group > 0]]
    means = np.array([one.mean() if len(one) else 0.0 for one in either])
    if means.min() <= 0:
        side = names[0] if means[0] <= 0 else f"the groups but {names[0]}"
        raise InputError(
            f'notion = "treatment" divides by the mean relevance of each side, and no item of '
            f'{side} in the training lists is relevant; set notion to "parity"'
        )
    merit: Floats = means / relevance[group >= 0].mean()
    return merit
