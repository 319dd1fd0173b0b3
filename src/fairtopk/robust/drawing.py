"""The training lists that theta is learned from."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.batches import Batch, ListSampler, ListSizes
from fairtopk.errors import InputError
from fairtopk.kernels.doubly_stochastic import Floats
from fairtopk.lists import Lists
from fairtopk.robust.features import by_pieces, features
from fairtopk.robust.learning import Problem
from fairtopk.robust.ranker import RobustRanker
from fairtopk.robust.sides import sides_of

ROUND = 2**31  # of the random streams; epochs of training have other numbers


@torch.no_grad()
def draw_problem(ranker: RobustRanker, lists: Lists) -> Problem:
    """Return a list of each user, or of some where there are many.

    The scale of features and the merit of groups are the ranker's from then on.
    """
    settings, n_users = ranker.settings, lists.data.n_users
    users = np.arange(n_users)
    if n_users > settings.users:
        draw = np.random.default_rng([ranker.seed, ROUND])
        users = np.sort(draw.choice(n_users, settings.users, replace=False))
    sizes = ListSizes(settings.rated, settings.unrated)
    batch = ListSampler(lists, sizes, seed=ranker.seed).draw(users, epoch=ROUND)
    mask, group = batch.mask.numpy(), batch.group.numpy()
    relevance = _relevance(batch, float(lists.train.rating.max()))
    if settings.notion == "treatment":
        merit = _merit(relevance, group, lists.data.group_names)
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
