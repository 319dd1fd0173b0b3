"""DPR-RSP and DPR-REO (Zhu, Wang and Caverlee 2020): BPR against an adversary.

The model minimises

    BPR + normal * KL(all scores of a user || N(0, 1)) - alpha * loss of the adversary

and the adversary, in turn with it, its own loss: it guesses groups from scores, either of
relevant and other items alike (RSP) or of relevant items alone (REO). If all users' scores have
one distribution, groups whose scores cannot be told apart have the same chance of a place in
the top. Each term is a mean, over lists, users and samples, so that alpha, here C, means the
same for every batch size.

BPR compares relevant items with others, pair by pair. The KL term follows from the mean mu and
the variance sd^2 of n scores: KL = 1/2 (mu^2 + sd^2 - 2 ln sd - 1), with

    d KL / d h_k = [mu + (h_k - mu) (1 - 1 / sd^2)] / n
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from fairtopk.errors import InputError
from fairtopk.kernels.threads import seeded
from fairtopk.lists.batch import Batch
from fairtopk.objectives.methods import DprSettings, Method
from fairtopk.objectives.ndcg import Estimate

LEAST_VARIANCE = 1e-12  # because equal scores have no logarithm of their variance
# For lists of documents: a few scores that are almost equal would be torn apart for nothing.
LEAST_OF_WHOLE = 1e-2


class ListPairs(NamedTuple):
    """Pairs of a relevant, or more relevant, item and another of the same list, ``[n]``."""

    query: Tensor  # the list of each pair
    above: Tensor  # the slot of its relevant item
    below: Tensor  # the slot of the other


class DprInputs(NamedTuple):
    """The parts of a batch that the three terms read."""

    pairs: ListPairs  # of BPR
    drawn: Tensor  # slots whose scores are drawn to N(0, 1) if no moments are given, [Q, L]
    heard: Tensor  # slots that the adversary may see, numbered over all lists, [n]
    least: float = LEAST_VARIANCE  # floor of the variance of drawn scores


class Labels(NamedTuple):
    """The labels of items and the groups that they name."""

    # 1 for the groups of items with each label, else 0, [labels, G]: the identity if labels are
    # groups; several ones in a row if an item may be in several.
    member: Tensor
    n_items: Tensor  # items with each label, [labels]


def read_samples(batch: Batch, method: Method) -> DprInputs:
    """Return the inputs from samples of a catalogue, made for training.

    Items that are not relevant are drawn to N(0, 1): they are a uniform sample of the catalogue
    without the relevant ones. The adversary sees a slot once for each of its pairs, as in the
    original.
    """
    relevant = batch.relevance > 0
    pairs = graded_pairs(relevant.to(batch.relevance.dtype), batch.mask)
    start = pairs.query * batch.mask.shape[1]
    heard = start + pairs.above
    if method.hears == "pairs":
        heard = torch.cat([heard, start + pairs.below])
    return DprInputs(pairs, batch.mask & ~relevant, heard)


def read_whole(batch: Batch, method: Method) -> DprInputs:
    """Return the inputs from whole lists of documents: each item counts once.

    Pairs compare grades. A list of one item has no distribution to draw to another.
    """
    pairs = graded_pairs(batch.relevance, batch.mask)
    heard = batch.mask if method.hears == "pairs" else batch.mask & (batch.relevance > 0)
    drawn = batch.mask & (batch.mask.sum(-1, keepdim=True) > 1)
    return DprInputs(pairs, drawn, heard.flatten().nonzero()[:, 0], LEAST_OF_WHOLE)


class Dpr(nn.Module):
    """The objective of DPR-RSP or DPR-REO.

    It uses the moments of all scores of a user if it `reads_moments`.

    Args:
        method: Its `hears` says whose scores the adversary sees.
        settings: How the adversary learns, and how strongly scores are drawn to N(0, 1).
        c: alpha, the weight of the adversary's loss; 0 leaves it out.
        labels: The groups that labels name.
        generator: Random numbers of the adversary's start.
        reads: Takes the inputs from a batch: `read_samples` or `read_whole`.
    """

    member: Tensor
    weight: Tensor

    def __init__(
        self,
        method: Method,
        settings: DprSettings,
        *,
        c: float,
        labels: Labels,
        generator: torch.Generator,
        reads: Callable[[Batch, Method], DprInputs] = read_samples,
    ) -> None:
        super().__init__()
        self.method, self.settings, self.c, self.reads = method, settings, c, reads
        self.reads_moments = settings.normal > 0
        # Weights of an item with each label: all groups weigh the same, and items 1 on average.
        member, count = labels.member.float(), labels.n_items
        size = count.float() @ member
        there = size > 0
        if there.sum() < 2:
            raise InputError("the adversary needs items in at least two groups to tell apart")
        weight = member @ torch.where(there, 1 / size, 0.0)
        weight = weight * (count * (weight > 0)).sum() / there.sum()
        self.register_buffer("member", member, persistent=False)
        self.register_buffer("weight", weight, persistent=False)
        self.adversary = Adversary(member.shape[1], settings, generator=generator)
        self.last: dict[str, Tensor] = {}

    def forward(self, scores: Tensor, batch: Batch, *moments: Tensor) -> tuple[Tensor, ...]:
        """Return the objective on a batch, and its gradient in scores and in each moment.

        Args:
            scores: Without a graph, ``[Q, L]``.
            batch: The lists.
            moments: Mean and variance of all scores of each user, ``[Q]`` each. Without them,
                those of the `drawn` slots stand in.
        """
        self.last = {}
        scores = scores.masked_fill(~batch.mask, 0)
        read = self.reads(batch, self.method)
        loss, slope = bpr_loss(scores, read.pairs)
        ranking = Estimate(loss.mean(), slope / len(scores))
        share = self.settings.normal / len(scores)
        if moments:
            divergence, *in_moments = moment_divergence(*moments)
            normal = Estimate(share * divergence.sum(), torch.zeros_like(scores))
        else:
            divergence, slope = list_divergence(scores, read.drawn, least=read.least)
            normal, in_moments = Estimate(share * divergence.sum(), share * slope), []
        penalty = self._penalty(scores, batch, read.heard)
        # Not the penalty's norm: that of a gradient on some of the scores says little.
        self.last |= {
            "ranking": ranking.value,
            "normal": normal.value,
            "penalty": penalty.value,
            "ranking_norm": ranking.grad.norm(),
            "spread": list_moments(scores, batch.mask)[1].sqrt().mean(),
        }
        value = ranking.value + normal.value + penalty.value
        grad = ranking.grad + normal.grad + penalty.grad
        return value, grad, *(share * one for one in in_moments)

    def report(self) -> dict[str, float]:
        """Return the parts of the last call.

        They are the terms of the objective (ranking, normal, penalty), the norm of the
        ranking's gradient, the spread of scores, and told_apart: the share of the adversary's
        uncertainty about groups that scores remove.
        """
        return {name: float(part) for name, part in self.last.items()}

    def _penalty(self, scores: Tensor, batch: Batch, heard: Tensor) -> Estimate:
        """Let the adversary learn; return minus alpha times its loss."""
        grad, label = torch.zeros_like(scores), batch.group.flatten()
        heard = heard[label[heard] >= 0] if self.c else heard[:0]
        heard = heard[self.weight[label[heard]] > 0]  # in a group
        if len(heard) == 0:
            return Estimate(grad.sum(), grad)
        learns = self.training and torch.is_grad_enabled()
        for left in reversed(range(1 + (self.settings.batches if learns else 0))):
            place = torch.randint(len(heard), (self.settings.samples,), device=heard.device)
            slots = heard[place]
            own = label[slots]
            drawn = AdversaryInput(scores.flatten()[slots], self.member[own], self.weight[own])
            if left:
                self.adversary.learn(drawn)
        loss, slope, self.last["told_apart"] = self.adversary.answer(drawn)
        grad.view(-1).index_add_(0, slots, -self.c * slope)
        return Estimate(-self.c * loss, grad)


def graded_pairs(relevance: Tensor, mask: Tensor) -> ListPairs:
    """Return pairs of each item and one of those that have a higher grade, in turn.

    With two grades each other item is in one pair, and each relevant item has its share of the
    others. A list without relevant items, or without others, has no pairs.

    Args:
        relevance: Grades, which may be any numbers, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
    """
    grade = relevance.masked_fill(~mask, -torch.inf)
    order = grade.argsort(dim=-1, descending=True, stable=True)
    falling = grade.gather(-1, order)
    # Those before the first of the same grade have a higher one.
    higher = torch.searchsorted(-falling, -falling)
    query, place = ((higher > 0) & falling.isfinite()).nonzero().T
    count = higher[query, place]
    return ListPairs(query, order[query, (place - count) % count], order[query, place])


def bpr_loss(scores: Tensor, pairs: ListPairs) -> tuple[Tensor, Tensor]:
    """Return the loss of each list, ``[Q]``, and its gradient, ``[Q, L]``.

    It is the mean of -ln sigmoid(h_above - h_below) over the list's pairs, 0 without any.
    """
    query, above, below = pairs
    behind = scores[query, below] - scores[query, above]
    share = 1 / torch.bincount(query, minlength=len(scores)).to(scores.dtype)[query]
    loss = scores.new_zeros(len(scores)).index_add_(0, query, share * softplus(behind))
    slope = share * behind.sigmoid()
    grad = torch.zeros_like(scores)
    grad.index_put_((query, above), -slope, accumulate=True)
    grad.index_put_((query, below), slope, accumulate=True)
    return loss, grad


def moment_divergence(
    mean: Tensor, variance: Tensor, *, least: float = LEAST_VARIANCE
) -> tuple[Tensor, Tensor, Tensor]:
    """Return KL(N(mean, variance) || N(0, 1)) and its slopes in both, ``[Q]`` each.

    Variances are at least `least`.
    """
    variance = variance.clamp(min=least)
    value = (mean**2 + variance - variance.log() - 1) / 2
    return value, mean, (1 - 1 / variance) / 2


def list_divergence(
    scores: Tensor, where: Tensor, *, least: float = LEAST_VARIANCE
) -> tuple[Tensor, Tensor]:
    """Return the divergence of each list's scores, ``[Q]``, and its gradient, ``[Q, L]``.

    Only slots `where` True count, ``[Q, L]``; a list without any has a divergence of 0. Below
    a variance of `least` the gradient gets no steeper.
    """
    n = where.sum(-1, keepdim=True).clamp(min=1)
    mean, variance = list_moments(scores, where)
    value, in_mean, in_variance = moment_divergence(mean, variance, least=least)
    apart = 2 * in_variance[:, None] * (scores - mean[:, None])
    return value * where.any(-1), (in_mean[:, None] + apart) * where / n


def list_moments(scores: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and population variance of the scores of each list, ``[Q]`` each.

    Only slots `where` True count, ``[Q, L]``; without any, both are 0.
    """
    n = where.sum(-1).clamp(min=1)
    mean = (scores * where).sum(-1) / n
    return mean, (((scores - mean[:, None]) * where) ** 2).sum(-1) / n


class AdversaryInput(NamedTuple):
    """The scores that the adversary sees, and the groups it has to guess."""

    score: Tensor  # of n items, [n]
    member: Tensor  # 1 for the groups of each item, else 0, [n, G]
    weight: Tensor  # of each item, [n]


class Answer(NamedTuple):
    """How well the adversary guesses."""

    loss: Tensor  # weighted mean over items of the mean loss over groups, a scalar
    grad: Tensor  # of the loss with respect to the scores, [n]
    # Share of the uncertainty about groups that scores remove: 0 if the adversary guesses no
    # better than without scores; NaN without uncertainty.
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
        self.squared = settings.loss == "squared"
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
        # The mean loss of the best guess without scores: the share of items in the group.
        share = heard.weight @ heard.member / heard.weight.sum()
        entropy = torch.special.entr(share) + torch.special.entr(1 - share)
        blind = heard.weight.mean() * (share * (1 - share) if self.squared else entropy).mean()
        told_apart = torch.where(blind > 0, 1 - loss.detach() / blind, torch.nan)
        return Answer(loss.detach(), grad, told_apart)

    def _loss(self, heard: AdversaryInput) -> Tensor:
        """Return the squared error of the sigmoid, or -ln of the truth's probability."""
        logits: Tensor = self(heard.score)
        if self.squared:
            each = (logits.sigmoid() - heard.member) ** 2
        else:
            each = binary_cross_entropy_with_logits(logits, heard.member, reduction="none")
        return (heard.weight * each.mean(-1)).mean()

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
