"""An adversary that guesses from one score which groups an item is in."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fairtopk.errors import InputError
from fairtopk.kernels.threads import seeded
from fairtopk.objectives.methods import DprSettings


class Loss(NamedTuple):
    """A loss of guesses.

    Attributes:
        of: The loss of logits given memberships, in their shape.
        blind: The mean loss of the best guess without scores, given the share of items that
            are in the group.
    """

    of: Callable[[Tensor, Tensor], Tensor]
    blind: Callable[[Tensor], Tensor]


def cross_entropy(logits: Tensor, member: Tensor) -> Tensor:
    """Return -ln of the probability given to the truth."""
    return binary_cross_entropy_with_logits(logits, member, reduction="none")


def squared_error(logits: Tensor, member: Tensor) -> Tensor:
    """Return the squared error of the sigmoid."""
    return (logits.sigmoid() - member) ** 2


LOSSES = {
    "cross-entropy": Loss(
        cross_entropy, lambda share: torch.special.entr(share) + torch.special.entr(1 - share)
    ),
    "squared": Loss(squared_error, lambda share: share * (1 - share)),
}


class AdversaryInput(NamedTuple):
    """The scores that the adversary sees, and the groups it has to guess.

    Attributes:
        score: Scores of n items, ``[n]``.
        member: 1 for the groups of each item, else 0, ``[n, G]``.
        weight: Weight of each item, ``[n]``.
    """

    score: Tensor
    member: Tensor
    weight: Tensor


class Answer(NamedTuple):
    """How well the adversary guesses.

    Attributes:
        loss: Weighted mean over items of the mean loss over groups, a scalar.
        grad: Its gradient with respect to the scores, ``[n]``.
        told_apart: Share of the uncertainty about groups that scores remove: 0 if the
            adversary guesses no better than without scores; NaN without uncertainty.
    """

    loss: Tensor
    grad: Tensor
    told_apart: Tensor


class Adversary(nn.Module):
    """A network from one score to a guess for each group, with an optimizer of its own.

    The state of Adam is part of its own, so that it is saved and restored.

    Args:
        n_groups: Number of groups (G).
        settings: Layers, loss and learning rate.
        generator: Random numbers of the start.
    """

    def __init__(
        self, n_groups: int, settings: DprSettings, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.kind = LOSSES[settings.loss]
        with seeded(0):  # torch first fills them from its own generator
            layers = [
                nn.Linear(*widths) for widths in pairwise((1, *settings.hidden, n_groups))
            ]
        for layer in layers:
            # With torch's default start a single score fades out over four layers.
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
            nn.init.uniform_(layer.bias, -1, 1, generator=generator)
        self.hidden, self.output = nn.ModuleList(layers[:-1]), layers[-1]
        self.optimizer = torch.optim.Adam(self.parameters(), lr=settings.rate, fused=True)

    def forward(self, score: Tensor) -> Tensor:
        """Return the logits of membership, ``[n, G]``, given scores, ``[n]``."""
        active = score[:, None].to(self.output.weight.dtype)
        for layer in self.hidden:
            active = layer(active).relu()
        logits: Tensor = self.output(active)
        return logits

    @torch.enable_grad()
    def learn(self, heard: AdversaryInput) -> None:
        """Take a step toward better guesses."""
        self.optimizer.zero_grad()
        self._loss(heard).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    @torch.enable_grad()
    def answer(self, heard: AdversaryInput) -> Answer:
        """Return how well groups are guessed now, without learning."""
        score = heard.score.detach().requires_grad_()
        loss = self._loss(heard._replace(score=score))
        (grad,) = torch.autograd.grad(loss, score)
        share = heard.weight @ heard.member / heard.weight.sum()
        blind = heard.weight.mean() * self.kind.blind(share).mean()
        told_apart = torch.where(blind > 0, 1 - loss.detach() / blind, torch.nan)
        return Answer(loss.detach(), grad, told_apart)

    def _loss(self, heard: AdversaryInput) -> Tensor:
        each = self.kind.of(self(heard.score), heard.member).mean(-1)
        return (heard.weight * each).mean()

    def get_extra_state(self) -> Tensor:
        """Return the state of Adam as one vector, empty before the first step."""
        kept = self.optimizer.state_dict()["state"].values()
        names = ("step", "exp_avg", "exp_avg_sq")
        parts = [one[name].flatten() for one in kept for name in names]
        return torch.cat(parts) if parts else torch.empty(0)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what `get_extra_state` returned; refuse anything else."""
        size = sum(1 + 2 * one.numel() for one in self.parameters())
        if state.shape not in ((0,), (size,)) or not bool(state.isfinite().all()):
            raise InputError(
                f"the adversary's optimizer needs {size} finite numbers, or none before its "
                f"first step"
            )
        kept: dict[int, dict[str, Tensor]] = {}
        left = state.clone()  # because Adam writes to it
        for number, one in enumerate(self.parameters() if len(state) else ()):
            n = one.numel()
            sizes = (1, n, n, len(left) - 1 - 2 * n)
            step, mean, square, left = torch.split_with_sizes(left, sizes)
            kept[number] = {
                "step": step[0],
                "exp_avg": mean.view_as(one),
                "exp_avg_sq": square.view_as(one),
            }
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": kept, "param_groups": groups})
