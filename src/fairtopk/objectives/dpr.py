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

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch
from fairtopk.objectives._adversary import Adversary, AdversaryInput
from fairtopk.objectives.methods import DprSettings, Method
from fairtopk.objectives.ndcg import Estimate

LEAST_VARIANCE = 1e-12  # because equal scores have no logarithm of their variance
# For lists of documents: a few scores that are almost equal would be torn apart for nothing.
LEAST_OF_WHOLE = 1e-2


class ListPairs(NamedTuple):
    """Pairs of a relevant, or more relevant, item and another of the same list.

    Attributes:
        query: The list of each pair, ``[n]``.
        above: The slot of its relevant item, ``[n]``.
        below: The slot of the other, ``[n]``.
    """

    query: Tensor
    above: Tensor
    below: Tensor


def list_pairs(relevance: Tensor, mask: Tensor) -> ListPairs:
    """Return pairs of a relevant item and another; each other item is in one pair.

    It is paired with the relevant items of its list in turn, so that each of them has its share
    of the others. A list without relevant items, or without others, has no pairs.

    Args:
        relevance: Grades, ``[Q, L]``; above 0 is relevant.
        mask: False on padding, ``[Q, L]``.
    """
    relevant = (relevance > 0) & mask
    count = relevant.sum(-1)
    first = torch.where(relevant, 0, 1).argsort(dim=-1, stable=True)[:, : int(count.max())]
    others = ~relevant & mask & (count > 0)[:, None]
    query, below = others.nonzero().T
    turn = (others.cumsum(-1) - 1)[query, below] % count[query]
    return ListPairs(query, first[query, turn], below)


def graded_pairs(relevance: Tensor, mask: Tensor) -> ListPairs:
    """Return pairs by grades, which may be any numbers; see `list_pairs`.

    Each item is paired with one of those that have a higher grade, in turn. With grades of 0
    and 1 the pairs are those of `list_pairs`.
    """
    grade = relevance.masked_fill(~mask, -torch.inf)
    order = grade.argsort(dim=-1, descending=True, stable=True)
    falling = grade.gather(-1, order)
    # Those before the first of the same grade have a higher one.
    higher = torch.searchsorted(-falling, -falling)
    query, place = ((higher > 0) & falling.isfinite()).nonzero().T
    count = higher[query, place]
    above = order[query, (place - count) % count]
    below = order[query, place]
    return ListPairs(query, above, below)


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


class DprInputs(NamedTuple):
    """The parts of a batch that the three terms read.

    Attributes:
        pairs: The pairs of BPR.
        drawn: Slots whose scores are drawn to N(0, 1) if no moments are given, ``[Q, L]``.
        heard: Slots that the adversary may see, numbered over all lists, ``[n]``.
        least: Floor of the variance of drawn scores.
    """

    pairs: ListPairs
    drawn: Tensor
    heard: Tensor
    least: float = LEAST_VARIANCE


Reads = Callable[[Batch, Method], DprInputs]


def read_samples(batch: Batch, method: Method) -> DprInputs:
    """Return the inputs from samples of a catalogue, made for training.

    Items that are not relevant are drawn to N(0, 1): they are a uniform sample of the catalogue
    without the relevant ones. The adversary sees a slot once for each of its pairs, as in the
    original.
    """
    pairs = list_pairs(batch.relevance, batch.mask)
    start = pairs.query * batch.mask.shape[1]
    heard = start + pairs.above
    if method.hears == "pairs":
        heard = torch.cat([heard, start + pairs.below])
    return DprInputs(pairs, batch.mask & (batch.relevance <= 0), heard)


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

    Args:
        method: Its `hears` says whose scores the adversary sees.
        settings: How the adversary learns, and how strongly scores are drawn to N(0, 1).
        c: alpha, the weight of the adversary's loss; 0 leaves it out.
        member: 1 for the groups of items with each label, else 0, ``[labels, G]``: the identity
            if labels are groups; several ones in a row if an item may be in several.
        count: Items with each label, ``[labels]``.
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
        """Whether the objective uses the moments of all scores of a user."""
        return self.settings.normal > 0

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
        ranking's gradient, the spread of scores, and told_apart: the share of the adversary's
        uncertainty about groups that scores remove.
        """
        return {name: float(part) for name, part in self.last.items()}

    def _normality(
        self, scores: Tensor, read: DprInputs, moments: tuple[Tensor, ...]
    ) -> tuple[Estimate, *tuple[Tensor, ...]]:
        """Return the divergence from N(0, 1), and its gradient in each moment."""
        share = self.settings.normal / len(scores)
        if moments:
            found = moment_divergence(*moments)
            none = torch.zeros_like(scores)
            slopes = (share * found.in_mean, share * found.in_variance)
            return Estimate(share * found.value.sum(), none), *slopes
        value, grad = list_divergence(scores, read.drawn, least=read.least)
        return (Estimate(share * value.sum(), share * grad),)

    def _penalty(self, scores: Tensor, batch: Batch, read: DprInputs) -> Estimate:
        """Let the adversary learn; return minus alpha times its loss."""
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
        """Return the slots whose label is in a group."""
        label = batch.group.flatten()[slots]
        return slots[(label >= 0) & (self.weight[label] > 0)]

    def _draw(self, slots: Tensor) -> Tensor:
        return slots[torch.randint(len(slots), (self.settings.samples,), device=slots.device)]

    def _heard(self, scores: Tensor, batch: Batch, slots: Tensor) -> AdversaryInput:
        label = batch.group.flatten()[slots]
        return AdversaryInput(scores.flatten()[slots], self.member[label], self.weight[label])


def label_weights(member: Tensor, count: Tensor) -> Tensor:
    """Return the weight of an item with each label, ``[labels]``; 0 if it is in no group.

    All groups weigh the same, and items weigh 1 on average. The arguments are those of `Dpr`.
    """
    size = count.float() @ member.float()
    there = size > 0
    if there.sum() < 2:
        raise InputError("the adversary needs items in at least two groups to tell apart")
    weight = member.float() @ torch.where(there, 1 / size, 0.0)
    return weight * (count * (weight > 0)).sum() / there.sum()


class Members(NamedTuple):
    """The groups that labels name; a label such as "Horror|War" may name several.

    Attributes:
        names: Names of the groups, in the order of their first label.
        member: 1 for the groups of items with each label, else 0, ``[labels, G]``.
    """

    names: tuple[str, ...]
    member: Tensor


def split_labels(labels: Sequence[str], separator: str | None) -> Members:
    """Return the groups that labels name; without a separator each label is a group.

    Example:
        >>> split_labels(["Horror", "Horror|War"], "|").member.tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    parts = [
        [label] if separator is None else [part.strip() for part in label.split(separator)]
        for label in labels
    ]
    names = tuple(dict.fromkeys(part for one in parts for part in one if part))
    member = [[float(name in one) for name in names] for one in parts]
    return Members(names, torch.tensor(member))


class Divergence(NamedTuple):
    """The divergence of distributions and its slope in their moments, each ``[Q]``."""

    value: Tensor
    in_mean: Tensor
    in_variance: Tensor


def moment_divergence(
    mean: Tensor, variance: Tensor, *, least: float = LEAST_VARIANCE
) -> Divergence:
    """Return KL(N(mean, variance) || N(0, 1)), ``[Q]``; variances are at least `least`."""
    variance = variance.clamp(min=least)
    value = (mean**2 + variance - variance.log() - 1) / 2
    return Divergence(value, in_mean=mean, in_variance=(1 - 1 / variance) / 2)


def list_divergence(
    scores: Tensor, where: Tensor, *, least: float = LEAST_VARIANCE
) -> tuple[Tensor, Tensor]:
    """Return the divergence of each list's scores, ``[Q]``, and its gradient, ``[Q, L]``.

    Only slots `where` True count, ``[Q, L]``; a list without any has a divergence of 0. Below
    a variance of `least` the gradient gets no steeper.
    """
    n = where.sum(-1, keepdim=True).clamp(min=1)
    mean, variance = list_moments(scores, where)
    found = moment_divergence(mean, variance, least=least)
    apart = 2 * found.in_variance[:, None] * (scores - mean[:, None])
    grad = (found.in_mean[:, None] + apart) * where / n
    return found.value * where.any(-1), grad


def list_moments(scores: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and population variance of the scores of each list, ``[Q]`` each.

    Only slots `where` True count, ``[Q, L]``; without any, both are 0.
    """
    n = where.sum(-1).clamp(min=1)
    mean = (scores * where).sum(-1) / n
    return mean, (((scores - mean[:, None]) * where) ** 2).sum(-1) / n
