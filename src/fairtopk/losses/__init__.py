"""The methods as losses for your own training loop, and the fairness penalty alone.

A loss takes scores with a graph and returns an ordinary scalar: its value is the method's
objective on the batch, its ``backward()`` the method's stochastic gradient. The averages of
earlier batches follow ``.to()`` and ``state_dict()``, belong to each process alone, and change
only in training mode with gradients on. Each list stands for itself: N_q is its number of
items, so that K counts positions of the list whatever `k_of` says.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fairtopk.checks import checked_choice, checked_whole, native, one_or_several_ks
from fairtopk.errors import InputError, KindError
from fairtopk.lists.batch import Batch, list_batch
from fairtopk.objectives import averages
from fairtopk.objectives.averages import FIRST_SIZE, FREE, MovingAverage, Numbering, PairAverage
from fairtopk.objectives.methods import METHODS, PRESETS, Method, ObjectiveSettings
from fairtopk.objectives.ndcg import NdcgSurrogate
from fairtopk.objectives.objective import Objective
from fairtopk.objectives.threshold import TrackedThreshold
from fairtopk.tensors import (
    Values,
    checked_groups,
    checked_relevance,
    checked_scores,
    tensor_fault,
)
from fairtopk.terminal import shown

Ids = Values | Sequence[Any]

VERSION = 1  # of a saved state
PLAIN_ITEMS = 2 ** (averages.ITEM_BITS - 1)  # ids below are items' own numbers


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
        most = 2**averages.QUERY_BITS - 1
        if n_queries is not None:
            n_queries = checked_whole("n_queries", n_queries, least=1, most=most)
        self.n_groups = checked_whole("n_groups", n_groups, least=2, most=most)
        make = partial(Objective, method, n_pairs=1, n_groups=self.n_groups)
        self.make: Callable[..., Objective] = make
        held = Memory(partial(make, settings), n_queries=n_queries, n_groups=self.n_groups)
        self.memory = PerProcess(held)

    @property
    def objective(self) -> Objective:
        """The method's objective, with its averages."""
        return self.memory.held.objective

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
        batch = self._batch(values, valid, relevance, groups)
        # Under autocast some of the sums would be taken in half precision.
        with torch.autocast(values.device.type, enabled=False):
            if query is not None:
                batch = self._remembered(batch, query, item)
                estimate = self.objective(values, batch)
            elif item is not None:
                raise InputError("item needs query: surrogate ranks are kept per pair of both")
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
        self, scores: Tensor, mask: Tensor, relevance: Values | None, groups: Values | None
    ) -> Batch:
        """Return the lists as a batch; the rows of its queries are not known yet."""
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
        query = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
        return list_batch(query, grades, group, mask, ideal_k=self.ideal_k)

    def _remembered(self, batch: Batch, query: Ids, item: Ids | None) -> Batch:
        """Return the batch with the rows of its queries, and of its pairs given items."""
        every = torch.ones_like(batch.query, dtype=torch.bool)
        ids = averages.checked_ids("query", query, every, shape=(len(every),))
        if len(ids.unique()) < len(ids):  # type: ignore[no-untyped-call]
            raise InputError("query has an id twice; give each query one list per batch")
        # Items that are not relevant have no gain: their surrogate ranks are not read.
        relevant = batch.relevance[:, : batch.pair.shape[1]] > 0
        if item is not None:
            items = averages.checked_ids("item", item, relevant, shape=tuple(batch.mask.shape))
        memory = self.memory.held
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
        preset: Source of settings that are not given: "default", "paper" (Algorithm 1 as
            written) or "released" (the settings of the authors' code).
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


class Memory(nn.Module):
    """An objective whose tables have rows for any ids.

    Args:
        make: Makes the objective, given `n_queries`, the rows of its tables.
        n_queries: Ids from 0 on, below this, are their own rows; None numbers all ids.
        n_groups: Number of groups.
    """

    about: Tensor

    def __init__(
        self, make: Callable[..., Objective], *, n_queries: int | None, n_groups: int
    ) -> None:
        super().__init__()
        self.queries, self.items = Numbering(n_queries or 0), Numbering(PLAIN_ITEMS)
        # One row more than there are queries, which is never visited.
        self.n_rows = self.first_rows = (n_queries or FIRST_SIZE - 1) + 1
        self.objective = make(n_queries=self.n_rows)
        ranking = self.objective.ranking
        if isinstance(ranking, NdcgSurrogate):
            known = ranking.u_qi
            ranking.u_qi = PairAverage(gamma=known.gamma, start=known.start)
        self.keeps = any(len(table) for table in self.objective.buffers())
        self.register_buffer("about", torch.tensor([VERSION, n_queries or 0, n_groups]))

    def rows(self, query: Tensor) -> Tensor:
        """Return the row of each query, ``[Q]``; a new query gets a new row.

        Under ``eval()`` or ``no_grad`` new queries read a row that none has visited. Each id
        occurs once.
        """
        rows = self.queries.numbers(query)
        n_rows = self._rows_for(self.queries.stop)
        if n_rows > self.n_rows:
            self._resize(n_rows)
        return rows.masked_fill(rows < 0, self.queries.stop)

    def pairs(self, query: Tensor, item: Tensor) -> Tensor:
        """Return the row of each pair in the table of surrogate ranks, -1 for none, ``[n]``.

        Args:
            query: Rows of the queries, ``[n]``.
            item: Ids of the items, ``[n]``.
        """
        ranking = self.objective.ranking
        if not isinstance(ranking, NdcgSurrogate) or not isinstance(ranking.u_qi, PairAverage):
            return torch.full_like(item, -1)
        return ranking.u_qi.rows(query, self.items.numbers(item))

    def load(self, saved: dict[str, Tensor]) -> None:
        """Load a state of any size, or refuse it and stay unchanged."""
        if fault := self._fault(saved):
            raise InputError(f"the state of the loss cannot be loaded: {fault}")
        taken = int((saved["queries.key"] != FREE).sum())
        self._resize(self._rows_for(self.queries.n_own + taken))
        self.load_state_dict(saved)

    def _fault(self, saved: dict[str, Tensor]) -> str:
        """Return what is wrong with a state, empty if it can be loaded."""
        own = self.state_dict()
        known = own["about"].tolist()
        about = saved.get("about")
        whole = about is not None and not _kind_fault("about", about, own["about"])
        said = about.flatten().tolist() if about is not None and whole else []
        if said[:1] != known[:1] or len(said) != len(known):
            return "it was not saved by this version of fairtopk, or is truncated"
        if said != known:
            return (
                f"it was saved with n_queries={said[1] or None} and n_groups={said[2]}; "
                f"make the loss with the same"
            )
        for name in (*own, *saved):
            if name not in saved or name not in own:
                verb = "lacks" if name in own else "has"
                return f"it {verb} {name}, as if truncated or saved with other settings"
        for name, table in own.items():
            if fault := _kind_fault(name, saved[name], table):
                return fault
        sizes: dict[str, int] = {}
        growing = [
            (name, part)
            for name, part in self.named_modules()
            if isinstance(part, PairAverage | Numbering)
        ]
        for name, part in growing:
            key = saved[f"{name}.key"]
            # A hash table has a power of 2 of places, at least twice as many as keys.
            size, n_taken = FIRST_SIZE, int((key != FREE).sum())
            while size < max(2 * n_taken, key.numel()):
                size *= 2
            kept = "value" if isinstance(part, PairAverage) else "number"
            sizes[f"{name}.key"] = size if len(part.key) else 0
            sizes[f"{name}.{kept}"] = key.numel()
        n_taken = int((saved["queries.key"] != FREE).sum())
        n_rows = self._rows_for(self.queries.n_own + n_taken)
        for name, table, _ in self._tables():
            sizes[name] = len(table) // self.n_rows * n_rows
        for name, size in sizes.items():
            if saved[name].shape != (size,):
                found = list(saved[name].shape)
                return (
                    f"its {name} has the shape {found} instead of [{size}], as if truncated or "
                    f"saved with other settings"
                )
        for name, part in growing:
            if isinstance(part, Numbering):  # keys in use have the numbers from n_own on
                used = saved[f"{name}.key"] != FREE
                number = saved[f"{name}.number"][used].sort().values
                every = part.n_own + torch.arange(len(number), device=number.device)
                if not torch.equal(number, every):
                    return f"its {name}.number is damaged"
        return ""

    def _tables(self) -> Iterator[tuple[str, Tensor, float]]:
        """Yield name, table and start of every table that has rows for queries."""
        for name, part in self.named_modules():
            if isinstance(part, TrackedThreshold):
                yield f"{name}.lam", part.lam, part.s_q.start
            elif isinstance(part, MovingAverage) and not isinstance(part, PairAverage):
                yield f"{name}.value", part.value, part.start

    def _rows_for(self, stop: int) -> int:
        """Return how many rows there are once those below `stop` are given out."""
        n_rows = self.first_rows
        while n_rows <= stop:
            n_rows *= 2
        return n_rows

    def _resize(self, n_rows: int) -> None:
        """Give every table rows for `n_rows` queries; what they hold stays."""
        for name, table, start in list(self._tables()):
            made = table.new_full((len(table) // self.n_rows * n_rows,), start)
            kept = min(len(made), len(table))
            made[:kept] = table[:kept]
            place, _, buffer = name.rpartition(".")
            setattr(self.get_submodule(place), buffer, made)
        self.n_rows = n_rows


class PerProcess(nn.Module):
    """Holds a memory that is saved and moved like a submodule, but belongs to one process.

    DistributedDataParallel copies rank 0's buffers to all ranks, once and before each forward
    pass, which would overwrite their averages. It finds buffers by walking through modules;
    this one ends the walk.
    """

    held: Memory

    def __init__(self, held: Memory) -> None:
        super().__init__()
        self.__dict__["held"] = held

    def train(self, mode: bool = True) -> "PerProcess":
        """Set the training mode of the memory too."""
        self.held.train(mode)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PerProcess":
        def on_table(table: Tensor) -> Tensor:
            made = fn(table)
            # Never below float32: averages need the digits.
            small = made.is_floating_point() and made.element_size() < 4
            return table.to(made.device) if small else made

        self.held._apply(on_table, recurse)  # type: ignore[no-untyped-call]
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        self.held.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        *others: Any,
    ) -> None:
        saved = {
            name.removeprefix(prefix): table
            for name, table in state_dict.items()
            if name.startswith(prefix)
        }
        if saved:
            self.held.load(saved)
        else:  # which strict=False allows
            missing_keys += [prefix + name for name in self.held.state_dict()]


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


def _kind_fault(name: str, found: Any, own: Tensor) -> str:
    """Return why `found` cannot replace the table `own`, empty if it can."""
    if not isinstance(found, Tensor):
        return f"its {name} is {shown(found)} instead of a tensor"
    if fault := tensor_fault(found):
        return f"its {name} is {fault}"
    if found.dtype != own.dtype and not (found.is_floating_point() and own.is_floating_point()):
        return f"its {name} holds {found.dtype} instead of {own.dtype}"
    return ""
