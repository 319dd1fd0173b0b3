"""The learned game as a scorer, which needs the group of each item to rank it.

A list is read off P. The order of falling prices q + lam f is the assignment of items to places
with the largest sum of P; items of one price are ordered by their appeal, -X theta. Scores are
log v of the place: their softmax is the share of exposure of the place, so that a gap of Eq. 9
is one of the ranking, however far apart the prices are.

The features X are the inputs of the last layer of a colour-blind scorer (in matrix
factorisation, the products p_u * q_i) and its score. Documents that a linear scorer ranks keep
their own features, as in the original. The mean over the list is taken off each, because
scorers do not learn how two lists compare, and each is divided by its spread over the training
lists.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.kernels.threads import run_all
from fairtopk.lists.batch import Batch
from fairtopk.models.features import OfTable
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.objectives.methods import RobustSettings
from fairtopk.reranking.exposure_lp import birkhoff
from fairtopk.reranking.lists import Policy
from fairtopk.robust._kernels import Floats, Precision, discounts, matrix
from fairtopk.robust.game import TOLERANCE, Flags, Game, game_of, multipliers

PIECE = 64  # lists whose features are in memory at a time
LONGEST = 100  # items of a list whose P is decomposed, in a second; 305 take half a minute


class RobustRanker(nn.Module):
    """Ranks lists by the game of a fair ranker and an adversary.

    Args:
        base: The colour-blind scorer that features come from.
        settings: Settings of the game.
        share: Share of the gap that is taken away, from 0, none, to 1, all.
        seed: Seed of sampled rankings.
    """

    theta: Tensor
    scale: Tensor
    merit: Tensor
    lam: Tensor

    def __init__(
        self, base: nn.Module, settings: RobustSettings, *, share: float, seed: int
    ) -> None:
        super().__init__()
        self.base, self.settings, self.share, self.seed = base, settings, share, seed
        count = n_features(base)
        for name, start in (
            ("theta", torch.zeros(count + 1)),  # the last is of a constant
            ("scale", torch.ones(count)),  # of each feature
            ("merit", torch.ones(2)),  # of each side
            ("lam", torch.zeros(1)),  # of all lists, where they have one
        ):
            self.register_buffer(name, start.double())

    def over(self, base: nn.Module) -> "RobustRanker":
        """Return the same ranker with its features from another scorer, of other documents."""
        other = RobustRanker(base, self.settings, share=self.share, seed=self.seed)
        for name, value in self.named_buffers(recurse=False):
            getattr(other, name).copy_(value)
        return other.eval()

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        """Return log v of the place of each item, ``[Q, L]``; padding has the last places."""
        if self.settings.ranking == "sampled":
            slot = np.empty(batch.mask.shape, np.int64)
            for row, policy in enumerate(self.policies(batch)):
                # A user's draw is always the same.
                draw = np.random.default_rng([self.seed, int(batch.query[row])]).random()
                ranking = (policy.probability.cumsum(0)[:-1] <= draw).sum()
                slot[row] = policy.slot[ranking].numpy()
        else:
            game, lam, _ = self._game(batch)
            # Without a bonus prices rise with the appeal, whatever they are.
            price = game.play(lam).price if lam.any() else game.appeal
            slot = np.lexsort((-game.appeal, -price, ~game.mask), axis=-1)
        scores = np.empty(slot.shape)
        np.put_along_axis(scores, slot, np.log(discounts(slot.shape[1]))[None], axis=-1)
        return torch.from_numpy(scores).float()

    @torch.no_grad()
    def policies(self, batch: Batch) -> tuple[Policy, ...]:
        """Return P of each list as rankings of all its slots with probabilities."""
        check_length(int(batch.mask.sum(-1).max()))
        game, lam, _ = self._game(batch)
        policies = []
        for price, mask in zip(game.play(lam).price, game.mask, strict=True):
            inside, padding = np.flatnonzero(mask), torch.from_numpy(np.flatnonzero(~mask))
            policy = Policy(padding[None], torch.ones(1, dtype=torch.float64))
            if len(inside):
                found = birkhoff(matrix(price[inside], Precision(game.mu, TOLERANCE)))
                slot = torch.from_numpy(inside)[found.slot]
                rest = padding.expand(len(slot), -1)
                policy = Policy(torch.cat([slot, rest], -1), found.probability)
            policies.append(policy)
        return tuple(policies)

    @torch.no_grad()
    def calibrate(self, batches: Sequence[Batch]) -> None:
        """Set the multiplier of all lists to the one that takes the share away on these."""
        if self.settings.multiplier == "list":
            return
        games = [self._game(batch)[0] for batch in batches]
        if self.share and not any(game.defined.any() for game in games):
            raise InputError(
                "robust finds its multiplier on lists with items of both sides, and there are "
                "none for validation; make those lists longer, or set method.c to 0"
            )
        lam, _ = multipliers(games, share=self.share, shared=True)
        self.lam.copy_(torch.from_numpy(lam))

    @property
    def may_fail(self) -> bool:
        """Whether lists may keep too large a gap; one multiplier for all never does."""
        settings = self.settings
        own = settings.multiplier == "list" and settings.notion == "treatment"
        return own and self.share > 0

    @torch.no_grad()
    def unmet(self, batch: Batch) -> Tensor:
        """Return 1 for lists whose own multiplier leaves too large a gap, else 0, ``[Q]``.

        NaN if a list lacks a side.
        """
        game, _, met = self._game(batch)
        return torch.from_numpy(np.where(game.defined, ~met, np.nan)).float()

    def _game(self, batch: Batch) -> tuple[Game, Floats, Flags]:
        """Return the game of a batch, its multipliers, and which leave the wanted gap."""
        group, mask = batch.group.numpy(), batch.mask.numpy()
        if self.share and not (group >= 0).any():
            raise InputError(
                "robust needs the groups of items when it ranks, and these lists have none"
            )
        weight = self.scale * self.theta[:-1]
        game = game_of(group, mask, self.merit.numpy(), mu=self.settings.mu)
        appeal = by_pieces(
            lambda piece: -(features(self.base, piece).double() @ weight) - self.theta[-1],
            batch,
        )
        game = game._replace(appeal=appeal.numpy())
        if self.settings.multiplier == "data":
            return game, self.lam.numpy(), np.ones(1, np.bool_)
        return game, *multipliers([game], share=self.share, shared=False)


def check_length(longest: int) -> None:
    """Refuse lists that are too long for sampled rankings, given the longest's length."""
    if longest > LONGEST:
        raise InputError(
            f"robust samples rankings of at most {LONGEST} items, got a list of {longest}; "
            f'rank shorter lists, or set ranking to "assignment"'
        )


def n_features(scorer: nn.Module) -> int:
    """Return the number of features that `features` gives an item."""
    if isinstance(scorer, NeuMF):
        return scorer.output.in_features + 1
    if isinstance(scorer, MatrixFactorization):
        return scorer.user.embedding_dim + 1
    if isinstance(scorer, OfTable):
        return scorer.scorer.output.in_features + (scorer.scorer.name != "linear")
    raise InputError(
        f"robust takes its features from one of the models, got {type(scorer).__name__}"
    )


def features(scorer: nn.Module, batch: Batch) -> Tensor:
    """Return features less their mean over the list, 0 on padding, ``[Q, L, F]``."""
    if isinstance(scorer, OfTable):
        inputs = scorer.scorer.inputs(scorer.values[batch.item.long()], batch.mask)
        score = [] if scorer.scorer.name == "linear" else [scorer.scorer.output(inputs)]
    elif isinstance(scorer, NeuMF):
        product = scorer.product_user(batch.query)[:, None] * scorer.product_item(batch.item)
        of_user = scorer.user_layer(scorer.network_user(batch.query))
        active = (of_user[:, None] + scorer.item_layer(scorer.network_item(batch.item))).relu()
        for layer in scorer.deeper:
            active = layer(active).relu()
        inputs = torch.cat([product, active], -1)
        score = [scorer.output(inputs)]
    else:
        assert isinstance(scorer, MatrixFactorization)
        inputs = scorer.user(batch.query)[:, None] * scorer.item(batch.item)
        score = [inputs.sum(-1, keepdim=True) + scorer.bias(batch.item)]
    found = torch.cat([inputs, *score], -1)
    inside = batch.mask[..., None]
    count = inside.sum(1, keepdim=True).clamp(min=1)
    mean = found.masked_fill(~inside, 0).sum(1, keepdim=True) / count
    return (found - mean).masked_fill(~inside, 0)


def by_pieces(work: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Return the results of `work` on a batch, a piece of its lists at a time."""
    starts = range(0, len(batch.query), PIECE)
    pieces = [Batch(*(value[start : start + PIECE] for value in batch)) for start in starts]
    return torch.cat(run_all([partial(work, piece) for piece in pieces]))
