"""The student: the lists that it learns from, and the loss that it minimises.

The loss is a mean over all items that a user has not rated in training, in which an item weighs
as `place_weight` says. A slot stands for all items of its kind (head or tail), divided by the
number drawn. Regression is the mean of (h - t)^2 over the slots, with t the score to learn.
List-wise is the cross-entropy of softmax(t) and softmax(h) with the same weights.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.distillation.teacher import (
    Lesson,
    Teaching,
    evenly_spaced,
    lesson_of,
    place_weight,
    taught_order,
    weight_behind,
)
from fairtopk.lists.batch import Batch, list_batch, rank
from fairtopk.lists.queries import feature_batches
from fairtopk.lists.users import Ratings
from fairtopk.models.scoring import score
from fairtopk.objectives.methods import DistillSettings
from fairtopk.objectives.ndcg import Estimate
from fairtopk.objectives.objective import Objective
from fairtopk.reranking.lists import Candidates, dealt
from fairtopk.training.samplers import FeatureSampler, ListSampler

SLOTS = 2**18  # of lists of documents that are scored at once
TINY = np.finfo(np.float64).tiny


class TaughtBatch(Batch):
    """A batch whose last D slots have a score to learn."""

    due: Tensor  # that score, [Q, D]
    counts: Tensor  # weight of a slot, [Q, D]: 0 on padding; adds up to 1 in expectation


class DistillSampler:
    """Draws the lists of a student of users and items.

    The lesson is made once, when the first list is drawn, and stays.

    Args:
        teacher: The student as it is at first, whose scores are dealt out.
        rated: The training ratings of each user.
        teaching: What makes the order to learn; its seed is that of all random streams.
        ranked: Draws lists for K-SONG's loss, which come first in a batch; None: no such loss.
    """

    def __init__(
        self,
        teacher: nn.Module,
        rated: Ratings,
        teaching: Teaching,
        *,
        ranked: ListSampler | None = None,
    ) -> None:
        self.teacher, self.rated, self.teaching, self.ranked = teacher, rated, teaching, ranked
        self.settings, self.seed = teaching.settings, teaching.seed
        self.n_relevant = np.diff(rated.offsets)

    @cached_property
    def lesson(self) -> Lesson:
        """The lesson of the teacher as it is when this is first read."""
        return lesson_of(self.teacher, self.rated, self.teaching)

    def epoch(self, epoch: int, *, batch_size: int, first: int = 0) -> Iterator[Batch]:
        """Yield every user's list once; nothing if the student knows the lesson already."""
        lesson, reach, n_drawn = self.lesson, self.settings.reach, self.settings.drawn
        if not lesson.changed and self.ranked is None:
            return
        places = np.arange(self.settings.head, dtype=np.float64)
        first_items = np.append(0.0, place_weight(places, reach).cumsum())  # their total weight
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.n_relevant))
        for number in range(first, -(-len(order) // batch_size)):
            users = order[number * batch_size : (number + 1) * batch_size]
            rng = np.random.default_rng([self.seed, epoch, number])
            n_head = (lesson.head[users] >= 0).sum(-1)
            n_tail = (lesson.tail[users] >= 0).sum(-1)
            place = evenly_spaced(n_head, n_drawn, rng)
            behind = evenly_spaced(n_tail, n_drawn, rng)
            # Items behind the head are kept without their place, and weigh the same.
            rest = weight_behind(n_head, n_head + lesson.n_behind[users], reach)
            each = place_weight(np.maximum(place, 0.0), reach)
            counts = np.hstack([each * _each(n_head, place), _each(rest, behind)])
            # A user who has rated all items has none to learn about.
            counts /= np.maximum(first_items[n_head] + rest, TINY)[:, None]
            item = np.hstack([_at(lesson.head[users], place), _at(lesson.tail[users], behind)])
            due = np.hstack(
                [_at(lesson.head_score[users], place), _at(lesson.tail_score[users], behind)]
            )
            # These slots are in no list and belong to no group.
            there = torch.from_numpy(counts > 0)
            none, shown = torch.zeros_like(there), torch.from_numpy(item).where(there, 0)
            query = torch.from_numpy(users)
            batch = list_batch(query, none.float(), none.int() - 1, none, item=shown)
            batch = batch._replace(weight=there.float())
            if self.ranked is not None:
                lists = self.ranked.draw(users, epoch=epoch)
                names = ("item", "relevance", "group", "mask", "weight")
                pairs = {name: (getattr(lists, name), getattr(batch, name)) for name in names}
                batch = lists._replace(
                    **{name: torch.cat(two, -1) for name, two in pairs.items()}
                )
            yield _taught(
                batch, torch.from_numpy(due), torch.from_numpy(counts.astype(np.float32))
            )


class DocumentDistillSampler:
    """Gives whole lists of documents with the scores to learn.

    Args:
        teacher: The scorer to learn from.
        sampler: Gives the lists.
        settings: Settings of the lesson.
        strength: How fair it is, from 0 to 1.
    """

    def __init__(
        self,
        teacher: nn.Module,
        sampler: FeatureSampler,
        settings: DistillSettings,
        *,
        strength: float,
    ) -> None:
        self.teacher, self.sampler, self.settings = teacher, sampler, settings
        self.strength, self.n_relevant = strength, sampler.n_relevant

    @cached_property
    def lesson(self) -> tuple[Tensor, Tensor, bool]:
        """The score to learn for each row, its place, and whether any order is new."""
        features, settings = self.sampler.features, self.settings
        due, place = torch.zeros(features.n_rows), torch.zeros(features.n_rows)
        changed = False
        for batch in feature_batches(features, slots=SLOTS, queries=self.sampler.queries):
            scores = score(self.teacher, batch).float()
            group = batch.group.to(torch.int16)
            lists = Candidates(scores, batch.mask, group, scores, batch.query)
            k = min(settings.head, scores.shape[1])
            slot = taught_order(
                lists, settings, k=k, strength=self.strength, seed=self.sampler.seed
            )
            place_to, due_to = dealt(lists, slot)
            rows = batch.item[batch.mask].long()
            due[rows], place[rows] = due_to[batch.mask], place_to[batch.mask] - 1.0
            changed |= bool((place_to != rank(scores, batch.mask))[batch.mask].any())
        return due, place, changed

    def epoch(self, epoch: int, *, batch_size: int, first: int = 0) -> Iterator[Batch]:
        """Yield every query's list once; nothing if the student knows the lesson already."""
        due, place, changed = self.lesson
        if not changed and not self.settings.mu:
            return
        for batch in self.sampler.epoch(epoch, batch_size=batch_size, first=first):
            rows = batch.item.long()
            counts = place_weight(place[rows], self.settings.reach) * batch.mask
            yield _taught(batch, due[rows], counts / counts.sum(-1, keepdim=True))


class Distillation(nn.Module):
    """The objective of a student.

    Args:
        settings: Its loss, and the weight of K-SONG's loss.
        teacher: A copy of the scorer, kept with the state of training.
        beside: The objective of K-SONG, if it has a weight.
    """

    def __init__(
        self, settings: DistillSettings, teacher: nn.Module, beside: Objective | None = None
    ) -> None:
        super().__init__()
        self.settings, self.teacher, self.beside = settings, teacher, beside
        self.last: dict[str, Tensor] = {}

    def forward(self, scores: Tensor, batch: TaughtBatch) -> Estimate:
        """Return the objective on a batch; `scores` carry no graph, ``[Q, L]``."""
        loss = regression if self.settings.loss == "regression" else listwise
        n_due = batch.due.shape[1]
        value, part = loss(scores[:, -n_due:], batch.due, batch.counts)
        grad = torch.zeros_like(scores)
        grad[:, -n_due:] = part
        self.last = {"lesson": value}
        if self.beside is not None:
            ranking = self.beside(scores, batch)
            value = value + self.settings.mu * ranking.value
            grad = grad + self.settings.mu * ranking.grad
            self.last["ranking"] = ranking.value
        return Estimate(value, grad)

    def report(self) -> dict[str, float]:
        """Return the parts of the last call: the lesson, and K-SONG's loss."""
        return {name: float(part) for name, part in self.last.items()}


def regression(scores: Tensor, due: Tensor, counts: Tensor) -> Estimate:
    """Return the mean squared error and its gradient; `counts` adds up to 1 in each list."""
    off = scores - due
    pull = counts * off / len(scores)
    return Estimate((pull * off).sum(), 2 * pull)


def listwise(scores: Tensor, due: Tensor, counts: Tensor) -> Estimate:
    """Return the cross-entropy of the two softmaxes, less its least value, and its gradient."""
    log_counts = counts.log()
    log_h = (scores + log_counts).log_softmax(-1)
    log_t = (due + log_counts).log_softmax(-1)
    target = log_t.exp()
    value = torch.where(counts > 0, target * (log_t - log_h), 0).sum()
    grad = torch.where(counts > 0, log_h.exp() - target, 0)
    return Estimate(value / len(scores), grad / len(scores))


def _taught(batch: Batch, due: Tensor, counts: Tensor) -> TaughtBatch:
    taught = TaughtBatch(*batch)
    taught.due, taught.counts = due, counts
    return taught


def _at(values: NDArray[np.generic], place: NDArray[np.int64]) -> NDArray[np.generic]:
    """Return the values at some places of each row; -1 reads place 0."""
    return np.take_along_axis(values, np.maximum(place, 0), -1)


def _each(total: NDArray[np.generic], place: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a total divided by the number of places drawn, 0 for those not drawn."""
    drawn = place >= 0
    each: NDArray[np.float64] = total / np.maximum(drawn.sum(-1), 1)
    return drawn * each[:, None]
