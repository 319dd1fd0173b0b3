"""DPR-RSP and DPR-REO (Zhu, Wang and Caverlee 2020): BPR against an adversary.

The model minimises

    BPR + normal * KL(all scores of a user || N(0, 1)) - alpha * loss of the adversary

and the adversary, in turn with it, its own loss: it guesses groups from scores, either those of
relevant and other items alike (RSP) or those of relevant items alone (REO). Where all users'
scores have one distribution, groups whose scores cannot be told apart have the same chance of
a place in the top. Each term is a mean, over lists, users and samples, so that alpha, which is
C here, means the same for every size of a batch.
"""

import torch
from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.errors import InputError
from fairtopk.estimators.adversary import Adversary, Heard
from fairtopk.estimators.base import Estimate
from fairtopk.estimators.dpr_lists import Reading, Reads, read_samples
from fairtopk.estimators.methods import Adversarial
from fairtopk.estimators.settings import DprSettings
from fairtopk.functional.bpr import bpr_loss
from fairtopk.functional.normality import list_divergence, list_moments, moment_divergence


class Dpr(nn.Module):
    """The objective of DPR-RSP or DPR-REO.

    Args:
        method: Whose scores the adversary hears.
        settings: How it learns, and how much scores are drawn to N(0, 1).
        c: alpha, the weight of its loss; at 0 there is no adversary.
        member: 1 for the groups that items with each label are in, else 0, ``[labels, G]``: the
            identity where labels are groups; several in a row where an item may be in several.
        count: Items with each label, ``[labels]``.
        generator: Of the adversary's random start.
        reads: What is read of lists, `read_samples` or `read_whole`.
    """

    member: Tensor
    weight: Tensor

    def __init__(
        self,
        method: Adversarial,
        settings: DprSettings,
        *,
        c: float,
        member: Tensor,
        count: Tensor,
        generator: torch.Generator,
        reads: Reads = read_samples,
    ) -> None:
        super().__init__()
        self.method, self.settings, self.c, self.reads = method, settings, c, reads
        self.register_buffer("member", member.float(), persistent=False)
        self.register_buffer("weight", label_weights(member, count), persistent=False)
        self.adversary = Adversary(member.shape[1], settings, generator=generator)
        self.last: dict[str, Tensor] = {}

    @property
    def reads_moments(self) -> bool:
        """Whether the moments of all scores of a user are of use."""
        return self.settings.normal > 0

    def forward(self, scores: Tensor, batch: Batch, *moments: Tensor) -> tuple[Tensor, ...]:
        """Return the objective on a batch, and its gradient in scores and in each moment.

        Args:
            scores: Without a graph, ``[Q, L]``.
            batch: The lists.
            moments: Mean and variance of all scores of each user, ``[Q]`` each. Left out, those
                of the scores that are read as drawn stand in.
        """
        self.last = {}
        scores = scores.masked_fill(~batch.mask, 0)
        read = self.reads(batch, self.method)
        loss, slope = bpr_loss(scores, read.pairs)
        ranking = Estimate(loss.mean(), slope / len(scores))
        normal, *in_moments = self._normality(scores, read, moments)
        penalty = self._penalty(scores, batch, read)
        # Not the penalty's norm: that of a gradient on some of the scores says little.
        self.last |= {
            "ranking": ranking.value,
            "normal": normal.value,
            "penalty": penalty.value,
            "ranking_norm": ranking.grad.norm(),
            "spread": list_moments(scores, batch.mask)[1].sqrt().mean(),
        }
        value = ranking.value + normal.value + penalty.value
        return value, ranking.grad + normal.grad + penalty.grad, *in_moments

    def report(self) -> dict[str, float]:
        """Return the parts of the last call.

        They are the terms of the objective (ranking, normal, penalty), the norm of the
        ranking's gradient, the spread of scores, and told_apart: the share of the uncertainty
        about groups that scores take from the adversary.
        """
        return {name: float(part) for name, part in self.last.items()}

    def _normality(
        self, scores: Tensor, read: Reading, moments: tuple[Tensor, ...]
    ) -> tuple[Estimate, *tuple[Tensor, ...]]:
        """Return the divergence from N(0, 1), and its gradient in each moment."""
        share = self.settings.normal / len(scores)
        if moments:
            found = moment_divergence(*moments)
            none = torch.zeros_like(scores)
            pulls = (share * found.in_mean, share * found.in_variance)
            return Estimate(share * found.value.sum(), none), *pulls
        value, grad = list_divergence(scores, read.drawn, least=read.least)
        return (Estimate(share * value.sum(), share * grad),)

    def _penalty(self, scores: Tensor, batch: Batch, read: Reading) -> Estimate:
        """Let the adversary learn; return its loss and what the model loses by it."""
        grad = torch.zeros_like(scores)
        slots = self._known(batch, read.heard) if self.c else torch.empty(0)
        if len(slots) == 0:
            return Estimate(grad.sum(), grad)
        if self.training and torch.is_grad_enabled():
            for _ in range(self.settings.batches):
                self.adversary.learn(self._heard(scores, batch, self._draw(slots)))
        some = self._draw(slots)
        loss, slope, told_apart = self.adversary.answer(self._heard(scores, batch, some))
        self.last["told_apart"] = told_apart
        grad.view(-1).index_add_(0, some, -self.c * slope)
        return Estimate(-self.c * loss, grad)

    def _known(self, batch: Batch, slots: Tensor) -> Tensor:
        """Return those of some slots whose label is in a group."""
        label = batch.group.flatten()[slots]
        return slots[(label >= 0) & (self.weight[label] > 0)]

    def _draw(self, slots: Tensor) -> Tensor:
        return slots[torch.randint(len(slots), (self.settings.samples,), device=slots.device)]

    def _heard(self, scores: Tensor, batch: Batch, slots: Tensor) -> Heard:
        label = batch.group.flatten()[slots]
        return Heard(scores.flatten()[slots], self.member[label], self.weight[label])


def label_weights(member: Tensor, count: Tensor) -> Tensor:
    """Return what an item with each label counts, ``[labels]``; 0 for one that is in no group.

    All groups count the same, and an item counts 1 in the mean. Arguments are those of `Dpr`.
    """
    size = count.float() @ member.float()
    there = size > 0
    if there.sum() < 2:
        raise InputError("the adversary needs items in at least two groups to tell apart")
    weight = member.float() @ torch.where(there, 1 / size, 0.0)
    return weight * (count * (weight > 0)).sum() / there.sum()
