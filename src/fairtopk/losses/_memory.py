"""The memory of a loss, and checks of its settings and ids.

A query has a row in every table of the objective, a pair of query and item a row in the table
of surrogate ranks. Rows are assigned as ids appear, and tables grow.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn

from fairtopk.checks import checked_choice, checked_whole, native, one_or_several_ks
from fairtopk.errors import InputError, KindError
from fairtopk.objectives._hash_table import FIRST_SIZE, FREE, hash_texts
from fairtopk.objectives.averages import (
    ITEM_BITS,
    QUERY_BITS,
    MovingAverage,
    Numbering,
    PairAverage,
)
from fairtopk.objectives.methods import PRESETS, ObjectiveSettings
from fairtopk.objectives.ndcg import NdcgSurrogate
from fairtopk.objectives.objective import Objective
from fairtopk.objectives.threshold import TrackedThreshold
from fairtopk.tensors import tensor_fault
from fairtopk.terminal import shown

VERSION = 1  # of what is saved
# Numbers below are items' own; all others get numbers from here on.
PLAIN_ITEMS = 2 ** (ITEM_BITS - 1)


class Memory(nn.Module):
    """An objective whose tables have rows for any ids.

    Args:
        make: Makes the objective for a number of queries.
        n_queries: Ids from 0 on, below this, are their own rows; None numbers all ids.
        n_groups: Number of groups.
    """

    about: Tensor

    def __init__(
        self, make: Callable[[int], Objective], *, n_queries: int | None, n_groups: int
    ) -> None:
        super().__init__()
        self.queries, self.items = Numbering(n_queries or 0), Numbering(PLAIN_ITEMS)
        # One row more than there are queries, which is never visited.
        self.n_rows = self.first_rows = (n_queries or FIRST_SIZE - 1) + 1
        self.objective = make(self.n_rows)
        ranking = self.objective.ranking
        if isinstance(ranking, NdcgSurrogate):
            known = ranking.u_qi
            ranking.u_qi = PairAverage(gamma=known.gamma, start=known.start)
        self.keeps = any(len(table) for table in self.objective.buffers())
        about = torch.tensor([VERSION, n_queries or 0, n_groups])
        self.register_buffer("about", about)

    def rows(self, query: Tensor) -> Tensor:
        """Return the row of each query, ``[Q]``; a new query gets a new row.

        Under ``eval()`` or ``no_grad`` new queries read a row that none has visited.

        Args:
            query: Ids, each once, ``[Q]``.
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
        fault = self._fault(saved)
        if fault:
            raise InputError(f"the state of the loss cannot be loaded: {fault}")
        self._resize(self._rows_of(saved))
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
        for name, size in self._sizes(saved):
            if saved[name].shape != (size,):
                found = list(saved[name].shape)
                return (
                    f"its {name} has the shape {found} instead of [{size}], as if truncated or "
                    f"saved with other settings"
                )
        for name, part in self.named_modules():
            if isinstance(part, Numbering) and not _numbered(
                saved[f"{name}.key"], saved[f"{name}.number"], part.n_own
            ):
                return f"its {name}.number is damaged"
        return ""

    def _sizes(self, saved: dict[str, Tensor]) -> Iterator[tuple[str, int]]:
        """Yield the names of a state's tables, and how many rows each must have."""
        n_rows = self._rows_of(saved)
        for name, part in self.named_modules():
            if isinstance(part, PairAverage | Numbering):
                key = saved[f"{name}.key"]
                kept = "value" if isinstance(part, PairAverage) else "number"
                yield f"{name}.key", _table_size(key) if len(part.key) else 0
                yield f"{name}.{kept}", key.numel()
        for name, table, _ in self._tables():
            yield name, len(table) // self.n_rows * n_rows

    def _tables(self) -> Iterator[tuple[str, Tensor, float]]:
        """Yield name, table and start of every table that has rows for queries."""
        for name, part in self.named_modules():
            if isinstance(part, TrackedThreshold):
                yield f"{name}.lam", part.lam, part.s_q.start
            elif isinstance(part, MovingAverage) and not isinstance(part, PairAverage):
                yield f"{name}.value", part.value, part.start

    def _rows_of(self, saved: dict[str, Tensor]) -> int:
        """Return how many rows for queries a state has."""
        return self._rows_for(self.queries.n_own + int((saved["queries.key"] != FREE).sum()))

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
            return _not_halved(table, fn(table))

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


def _table_size(key: Tensor) -> int:
    """Return the size that a hash table must have: its own, if that is one."""
    size, n_taken = FIRST_SIZE, int((key != FREE).sum())
    while size < max(2 * n_taken, key.numel()):
        size *= 2
    return size


def _kind_fault(name: str, found: Any, own: Tensor) -> str:
    """Return why `found` cannot replace the table `own`, empty if it can."""
    if not isinstance(found, Tensor):
        return f"its {name} is {shown(found)} instead of a tensor"
    if fault := tensor_fault(found):
        return f"its {name} is {fault}"
    if found.dtype != own.dtype and not (found.is_floating_point() and own.is_floating_point()):
        return f"its {name} holds {found.dtype} instead of {own.dtype}"
    return ""


def _numbered(key: Tensor, number: Tensor, n_own: int) -> bool:
    """Return whether the keys in use have the numbers from `n_own` on, each once."""
    given = number[key != FREE].sort().values
    return torch.equal(given, n_own + torch.arange(len(given), device=given.device))


def _not_halved(table: Tensor, made: Tensor) -> Tensor:
    """Return `made`, or `table` if that is below float32: averages need the digits."""
    small = made.is_floating_point() and made.element_size() < 4
    return table.to(made.device) if small else made


def checked_settings(loss: str, preset: str, given: dict[str, Any]) -> ObjectiveSettings:
    """Return the settings of a preset, updated by those given to the loss of that name."""
    values = {**PRESETS[checked_choice("preset", preset, PRESETS)], **given}
    values = {name: native(value) for name, value in values.items()}
    if "k" in given:
        try:
            ks = one_or_several_ks(given["k"])
            values["k"] = ks if len(ks) > 1 else ks[0]
        except InputError:
            raise _wrong_k(loss, given["k"]) from None
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


def checked_size(name: str, value: int, *, least: int) -> int:
    """Return a whole number from `least` to the largest number of queries."""
    return checked_whole(name, value, least=least, most=2**QUERY_BITS - 1)


def checked_ids(name: str, values: Any, wanted: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    """Return the ids at the `wanted` places as 64-bit words, ``[n]``.

    A whole number is its own word, modulo 2^64. A string's word is a hash: among n strings two
    share one, and are taken for one id, with a probability of n^2 / 2^65.

    Args:
        name: The argument's name, for errors.
        values: Ids of the given shape.
        wanted: Which to read, in all columns or the leading ones.
        shape: Required shape.
    """
    if isinstance(values, Tensor) and (fault := tensor_fault(values)):
        raise KindError(f"{name} must be whole numbers or strings, got {fault}")
    given = values.detach() if isinstance(values, Tensor) else _array_of(name, values)
    if tuple(given.shape) != shape:
        raise InputError(f"{name} must have the shape {list(shape)}, got {list(given.shape)}")
    given = given[..., : wanted.shape[-1]]
    if isinstance(given, Tensor):
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise _no_id(name, given.dtype)
        return given.to(wanted.device).long()[wanted]
    words = _words(name, given[wanted.numpy(force=True)])
    return torch.from_numpy(words.astype(np.int64)).to(wanted.device)


def any_twice(values: Tensor) -> bool:
    """Return whether some value occurs more than once, ``[n]``."""
    rising = values.sort().values
    return bool((rising[1:] == rising[:-1]).any())


def _array_of(name: str, values: Any) -> NDArray[Any]:
    """Return ids as an array: of whole numbers, of strings, or of objects that may be both."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iufbc" and array is not values:
            array = np.asarray(values, dtype=object)  # numpy would make strings of numbers
    except (TypeError, ValueError, RuntimeError):
        raise _no_id(name, f"{type(values).__name__} that is no array") from None
    if array.dtype.kind in "fbcVmM":
        raise _no_id(name, array.dtype)
    return array


def _words(name: str, ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids as words of any whole type, ``[n]``."""
    if ids.dtype.kind in "iu":
        return ids
    if ids.dtype.kind == "U":
        return _hashed(ids)
    is_text = np.array([isinstance(one, str) for one in ids], np.bool_)
    words = np.empty(len(ids), np.uint64)
    words[is_text] = _hashed(ids[is_text].astype(str))
    words[~is_text] = [_whole_word(name, one) for one in ids[~is_text]]
    return words


def _hashed(texts: NDArray[np.str_]) -> NDArray[np.uint64]:
    width = texts.dtype.itemsize // 4
    native = np.ascontiguousarray(texts, texts.dtype.newbyteorder("="))
    return hash_texts(native.view(np.uint32).reshape(len(texts), width))


def _whole_word(name: str, one: Any) -> int:
    """Return a whole number modulo 2^64."""
    if not isinstance(one, int | np.integer) or isinstance(one, bool):
        raise _no_id(name, shown(one))
    if not -(2**63) <= one < 2**64:
        raise InputError(f"{name} must fit into 64 bits, got {shown(one)}; give it as a string")
    return int(one) % 2**64


def _no_id(name: str, found: object) -> InputError:
    return KindError(f"{name} must be whole numbers or strings, got {found}")


def _wrong_k(loss: str, k: Any) -> InputError:
    """Return the error for `k`; pydantic's own would be about one number alone."""
    return InputError(
        f"{loss}: k must be a whole number of at least 1, or several in a list, got {shown(k)}"
    )


def ordinary(values: Any) -> Any:
    """Return a tensor of inference mode as one that autograd takes, anything else unchanged."""
    return values.clone() if isinstance(values, Tensor) and values.is_inference() else values
