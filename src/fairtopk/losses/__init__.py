"""The methods as losses for your own training loop, and the fairness penalty alone.

A loss takes scores with a graph and returns an ordinary scalar: its value is the method's
objective on the batch, its ``backward()`` the method's stochastic gradient. The averages of
earlier batches follow ``.to()`` and ``state_dict()``, belong to each process alone, and change
only in training mode with gradients on. Each list stands for itself: N_q is its number of
items, so that K counts positions of the list whatever `k_of` says.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fairtopk.checks import checked_choice, checked_whole, native, one_or_several_ks
from fairtopk.errors import InputError, KindError
from fairtopk.lists.batch import Batch, list_batch
from fairtopk.losses._memory import QUERY_BITS, Memory, checked_ids
from fairtopk.objectives.methods import METHODS, PRESETS, Method, ObjectiveSettings
from fairtopk.objectives.objective import Objective
from fairtopk.tensors import Values, checked_groups, checked_relevance, checked_scores
from fairtopk.terminal import shown

Ids = Values | Sequence[Any]


class ScoreLoss(nn.Module):
    """Base class of the losses; use a subclass.

    Args:
        method: The parts of the objective.
        settings: Its hyper-parameters.
        n_queries: Number of queries, if known.
        n_groups: Number of groups.
    """

    def __init__(
        self, method: Method, settings: ObjectiveSettings, n_queries: int | None, n_groups: int
    ) -> None:
        super().__init__()
        self.parts, self.settings = method, settings
        weights = (settings.c, settings.c_relative)
        penalised = method.fairness != "none"
        if penalised and weights == (None, None):
            raise InputError(
                f"{type(self).__name__} needs the weight of its penalty, c or c_relative; "
                f"0 switches it off"
            )
        self.needs_groups = penalised and any(weights)
        self.ideal_k = settings.ks[-1] if method.selects else None
        most = 2**QUERY_BITS - 1
        if n_queries is not None:
            n_queries = checked_whole("n_queries", n_queries, least=1, most=most)
        self.n_groups = checked_whole("n_groups", n_groups, least=2, most=most)
        make = partial(Objective, method, n_pairs=1, n_groups=self.n_groups)
        self.make: Callable[..., Objective] = make
        self.memory = Memory(
            partial(make, settings), n_queries=n_queries, n_groups=self.n_groups
        )

    @property
    def objective(self) -> Objective:
        """The method's objective, with its averages."""
        return self.memory.objective

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load what `state_dict` of such a loss returned, or refuse it and stay unchanged.

        Sizes may differ; `strict` and `assign` are torch's.
        """
        if not isinstance(state_dict, Mapping):
            raise KindError(
                f"state_dict must be what state_dict() of a loss returned, got "
                f"{shown(state_dict)}"
            )
        strange = [name for name in state_dict if not str(name).startswith("memory.")]
        if strict and (strange or not state_dict):
            found = f"it has {shown(strange[0])}" if strange else "it is empty"
            raise InputError(f"the state of the loss cannot be loaded: {found}")
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def report(self) -> dict[str, float]:
        """Return the parts of the last call; see `Objective.report`."""
        return self.objective.report()

    def _value(
        self,
        scores: Tensor,
        relevance: Values | None,
        groups: Values | None,
        *,
        query: Ids | None,
        item: Ids | None,
        mask: Values | None,
    ) -> Tensor:
        """Return the objective on a batch as a scalar with its gradient."""
        if not isinstance(scores, Tensor):
            raise KindError(f"scores must be a tensor, got {type(scores).__name__}")
        if torch.is_inference_mode_enabled():
            # The objective differentiates with respect to scores, which this mode forbids.
            with torch.inference_mode(False), torch.no_grad():
                given: list[Any] = [scores, relevance, groups, query, item, mask]
                for place, one in enumerate(given):
                    if isinstance(one, Tensor) and one.is_inference():
                        given[place] = one.clone()
                *data, query, item, mask = given
                return self._value(*data, query=query, item=item, mask=mask)
        values, valid = checked_scores(scores, mask)
        for buffer in self.objective.buffers():
            if buffer.is_floating_point():
                values = values.to(torch.promote_types(values.dtype, buffer.dtype))
        batch = self._batch(values, valid, relevance, groups, query, item)
        # Under autocast some of the sums would be taken in half precision.
        with torch.autocast(values.device.type, enabled=False):
            if query is not None:
                estimate = self.objective(values, batch)
            else:
                # Every list counts as a first visit, where a start at zero would be no average.
                settings = self.settings.model_copy(update={"start": "first"})
                objective = self.make(settings, n_queries=1).to(scores.device)
                with torch.no_grad():
                    estimate = objective(values, batch)
                self.objective.last = objective.last
        value = _WithGradient.apply(scores, *estimate)  # type: ignore[no-untyped-call]
        return cast(Tensor, value)

    def _batch(
        self,
        scores: Tensor,
        mask: Tensor,
        relevance: Values | None,
        groups: Values | None,
        query: Ids | None,
        item: Ids | None,
    ) -> Batch:
        """Return the lists as a batch, with rows for its queries, and for pairs given items."""
        grades = torch.zeros_like(scores)
        if relevance is not None or self.parts.ranking != "none":
            grades = checked_relevance(cast(Values, relevance), scores, mask)
        if not mask.any(-1).all():
            empty = int((~mask.any(-1)).nonzero()[0])
            raise InputError(
                f"mask: list {empty} has no item; leave out lists that are all padding"
            )
        if groups is None and self.needs_groups:
            raise InputError(f"{type(self).__name__} needs the group of each item; give groups")
        group = torch.full(scores.shape, -1, device=scores.device)
        if groups is not None:
            group, n_found = checked_groups(groups, scores, mask)
            if n_found > self.n_groups:
                raise InputError(
                    f"groups must be numbered from 0 to {self.n_groups - 1}, got "
                    f"{n_found - 1}; make the loss with n_groups={n_found}"
                )
        first = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
        batch = list_batch(first, grades, group, mask, ideal_k=self.ideal_k)
        if query is None:
            if item is not None:
                raise InputError("item needs query: surrogate ranks are kept per pair of both")
            return batch
        every = torch.ones_like(batch.query, dtype=torch.bool)
        ids = checked_ids("query", query, every, shape=(len(every),))
        if len(ids.unique()) < len(ids):  # type: ignore[no-untyped-call]
            raise InputError("query has an id twice; give each query one list per batch")
        # Items that are not relevant have no gain: their surrogate ranks are not read.
        relevant = batch.relevance[:, : batch.pair.shape[1]] > 0
        if item is not None:
            items = checked_ids("item", item, relevant, shape=tuple(batch.mask.shape))
        memory = self.memory
        if not memory.keeps:
            return batch
        batch = batch._replace(query=memory.rows(ids))
        if item is None:
            return batch
        rows = memory.pairs(batch.query.repeat_interleave(relevant.sum(-1)), items)
        rows_of_pairs = rows[rows >= 0]
        if len(rows_of_pairs.unique()) < len(rows_of_pairs):  # type: ignore[no-untyped-call]
            raise InputError("item has a relevant item twice in one list; give it once")
        return batch._replace(pair=batch.pair.masked_scatter(relevant, rows))


class RankingLoss(ScoreLoss):
    """Base class of the methods; use a subclass.

    The penalty of a list is 1/2 (E_g - E_h)^2, summed over all pairs of groups in the list,
    where E_g is the mean exposure of group g's items; with two groups it is the paper's
    1/2 (E_a - E_b)^2. `report`'s ``gap_signed`` is E_0 minus the mean of the other groups' E.

    Args:
        n_queries: Number of queries, if known: query numbers from 0, below this, need no
            look-up, and have their rows from the start.
        n_groups: Number of groups.
        preset: Source of settings that are not given: "default", "paper" (Algorithm 1;
            departures stand at `PRESETS`) or "released" (the settings of the authors' code).
        settings: Fields of `ObjectiveSettings`, such as `k`, `c` or `c_relative`, `gamma_0`,
            `gamma_u`. Those that the method does not use are ignored.

    Example:
        >>> loss = KsoRed(k=1, c=10.0, n_queries=100)
        >>> scores = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
        >>> relevance, groups = torch.tensor([[0, 1, 0]]), torch.tensor([[1, 0, 1]])
        >>> value = loss(scores, relevance, groups, query=[7], item=[[3, 1, 4]])
        >>> value.backward()
        >>> round(loss.report()["gap_signed"], 4)
        -0.2103
    """

    method: ClassVar[str]

    def __init__(
        self,
        *,
        n_queries: int | None = None,
        n_groups: int = 2,
        preset: str = "default",
        **settings: Any,
    ) -> None:
        given = checked_settings(type(self).__name__, preset, settings)
        super().__init__(METHODS[self.method], given, n_queries, n_groups)

    def forward(
        self,
        scores: Tensor,
        relevance: Values,
        groups: Values | None = None,
        *,
        query: Ids | None = None,
        item: Ids | None = None,
        mask: Values | None = None,
    ) -> Tensor:
        """Return the objective on a batch, averaged over its lists.

        It is computed in float32 at least; the gradient has the type of the scores.

        Args:
            scores: Model scores, ``[Q, L]``.
            relevance: Grades, not negative, ``[Q, L]``.
            groups: Group numbers from 0, -1 unknown, ``[Q, L]``; booleans mark group 0. They
                may be left out without a penalty, or if its weight is 0.
            query: Query ids, whole numbers or strings, each once, ``[Q]``. Without them nothing
                is remembered.
            item: Item ids, whole numbers or strings, ``[Q, L]``. Without them each surrogate
                rank is fresh, as if gamma_0 were 1.
            mask: False on padding, ``[Q, L]``; left out, there is none.
        """
        return self._value(scores, relevance, groups, query=query, item=item, mask=mask)


class Song(RankingLoss):
    """SONG: the NDCG of whole lists, smoothed."""

    method = "song"


class KSong(RankingLoss):
    """K-SONG: the NDCG of the top K, smoothed."""

    method = "k-song"


class ListNet(RankingLoss):
    """ListNet: the cross-entropy between softmax of grades and softmax of scores."""

    method = "listnet"


class SlAtK(RankingLoss):
    """SL@K: the softmax loss of the relevant items in the top K."""

    method = "sl-at-k"


class Deltr(RankingLoss):
    """DELTR: ListNet plus C times the exposure penalty of whole lists, without averages."""

    method = "deltr"


class NgDe(RankingLoss):
    """NG-DE: K-SONG plus C times the exposure penalty of whole lists, without averages."""

    method = "ng-de"


class SoRed(RankingLoss):
    """SO-RED: K-SONG plus C times the exposure penalty of whole lists."""

    method = "so-red"


class KsoRed(RankingLoss):
    """KSO-RED: K-SONG plus C times the exposure penalty of the top K."""

    method = "kso-red"


class ExposurePenalty(ScoreLoss):
    """C times the exposure penalty alone, to add to a ranking loss of your own.

    The penalty of a list is that of the other losses: Eq. 11 of the top K, or Eq. 7 of the
    whole list if `k` is None.

    Args:
        k: Positions in the top, or several of them, whose penalties are averaged.
        n_queries: Number of queries, if known; see `RankingLoss`.
        n_groups: Number of groups.
        preset: Source of settings that are not given; see `RankingLoss`.
        settings: Fields of `ObjectiveSettings`: `c` or `c_relative`, `gamma_u`, ... Those of
            ranking losses are ignored.

    Example:
        >>> penalty = ExposurePenalty(k=2, c_relative=1.0)
        >>> scores = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
        >>> own = -scores[0].log_softmax(-1)[1]  # any loss of the same scores
        >>> (own + penalty(scores, torch.tensor([[1, 0, 1]]))).backward()
        >>> round(penalty.report()["gap_signed"], 4)
        -0.1104
    """

    def __init__(
        self,
        *,
        k: int | Sequence[int] | None,
        n_queries: int | None = None,
        n_groups: int = 2,
        preset: str = "default",
        **settings: Any,
    ) -> None:
        given = settings if k is None else {"k": k, **settings}
        fairness: Literal["list", "top"] = "list" if k is None else "top"
        method = Method(ranking="none", fairness=fairness, averages=True)
        checked = checked_settings(type(self).__name__, preset, given)
        super().__init__(method, checked, n_queries, n_groups)

    def forward(
        self,
        scores: Tensor,
        groups: Values | None,
        *,
        query: Ids | None = None,
        mask: Values | None = None,
    ) -> Tensor:
        """Return C times the penalty on a batch, averaged over its lists.

        Args:
            scores: Model scores, ``[Q, L]``.
            groups: Group numbers from 0, -1 unknown, ``[Q, L]``; booleans mark group 0.
            query: Query ids, whole numbers or strings, each once, ``[Q]``. Without them nothing
                is remembered.
            mask: False on padding, ``[Q, L]``; left out, there is none.
        """
        return self._value(scores, None, groups, query=query, item=None, mask=mask)


class _WithGradient(torch.autograd.Function):
    """A value that has a known gradient with respect to scores."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(grad)
        ctx.dtype = scores.dtype
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        # A gradient scaler's factor must come before the cast, or small entries are lost.
        return (upstream * grad).to(ctx.dtype), None, None


def checked_settings(loss: str, preset: str, given: dict[str, Any]) -> ObjectiveSettings:
    """Return the settings of a preset, updated by those given to the loss of that name."""
    values = {**PRESETS[checked_choice("preset", preset, PRESETS)], **given}
    values = {name: native(value) for name, value in values.items()}
    if "k" in given:
        try:
            ks = one_or_several_ks(given["k"])
            values["k"] = ks if len(ks) > 1 else ks[0]
        except InputError:
            # pydantic's own message would be about one number alone
            raise InputError(
                f"{loss}: k must be a whole number of at least 1, or several in a list, got "
                f"{shown(given['k'])}"
            ) from None
    try:
        return ObjectiveSettings.model_validate(values, strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        message = fault["msg"].removeprefix("Value error, ")
        if not fault["loc"]:
            raise InputError(f"{loss}: {message}") from None
        name = fault["loc"][0]
        if fault["type"] == "extra_forbidden":
            known = ", ".join(ObjectiveSettings.model_fields)
            raise InputError(f"{loss} has no setting {shown(name)}; it has {known}") from None
        rule = message.removeprefix("Input ")
        raise InputError(f"{loss}: {name} {rule}, got {shown(fault['input'])}") from None
