"""What a loss remembers by ids: hash tables that give ids their rows, and a loss's memory.

A query or an item may have any id. Averages per (query, item) pair live in a hash table, which
needs neither all pairs beforehand nor users x items rows. A key's row is its place in the
table, so that a batch is looked up at once on any device, and the table is saved without
conversion. Its size is a power of 2, and at most half of it is used.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.errors import InputError, KindError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import GOLDEN, MIX_1, mix
from fairtopk.objectives.averages import MovingAverage
from fairtopk.objectives.ndcg import NdcgSurrogate
from fairtopk.objectives.objective import Objective
from fairtopk.objectives.threshold import TopThreshold
from fairtopk.tensors import tensor_fault
from fairtopk.terminal import shown

Words = NDArray[np.int64]

VERSION = 1  # of a saved state
QUERY_BITS, ITEM_BITS = 30, 33  # a pair's key is one word below 2^63
PLAIN_ITEMS = 2 ** (ITEM_BITS - 1)  # ids below are items' own numbers
FREE = -(2**63)  # marks a free place; below every key
FIRST_SIZE = 1024
# Multipliers of a hash as signed numbers, which torch multiplies modulo 2^64 too.
SPREAD_1, SPREAD_2 = (int(word.view(np.int64)) for word in (GOLDEN, MIX_1))


class PairAverage(MovingAverage):
    """One average per (query, item) pair, in a table that grows; its keys are a buffer too."""

    key: Tensor

    def __init__(self, *, gamma: float, start: float = math.nan) -> None:
        super().__init__(FIRST_SIZE, gamma=gamma, start=start)
        self.n_taken = 0
        self.register_buffer("key", torch.full((len(self.value),), FREE))

    def rows(self, query: Tensor, item: Tensor) -> Tensor:
        """Return the row of each pair, -1 where it has none, ``[n]``.

        A pair that is new gets a row, unless nothing is to be remembered.

        Args:
            query: Query numbers from 0, below 2^30, ``[n]``.
            item: Item numbers from 0, below 2^33, ``[n]``; with -1 there is no pair.
        """
        if self.gamma == 1:
            return torch.full_like(item, -1)
        wanted = ((query << ITEM_BITS) + item).masked_fill(item < 0, -1)
        found = find_rows(self.key, wanted)
        new = wanted[(found < 0) & (wanted >= 0)]
        if len(new) and self.training and torch.is_grad_enabled():
            self.n_taken += len(new)
            self.key, self.value = add_keys(
                self.key, self.value, new, n_taken=self.n_taken, start=self.start
            )
            found = find_rows(self.key, wanted)
        return found


class Numbering(nn.Module):
    """Gives ids numbers: small ones are their own, others get the next when they appear.

    Nothing is remembered under ``eval()`` or ``no_grad``.

    Args:
        n_own: Ids from 0 on, below this, are their own numbers.
    """

    key: Tensor
    number: Tensor

    def __init__(self, n_own: int) -> None:
        super().__init__()
        self.n_own, self.n_taken = n_own, 0
        self.register_buffer("key", torch.full((FIRST_SIZE,), FREE))
        self.register_buffer("number", torch.full((FIRST_SIZE,), -1))

    def numbers(self, ids: Tensor) -> Tensor:
        """Return the number of each id, -1 if it is new and not to be remembered, ``[n]``."""
        other = (ids < 0) | (ids >= self.n_own)
        if not other.any():
            return ids
        # One word of 2^64 marks free places: its id shares the number of the next.
        words = ids[other].clamp(min=FREE + 1)
        rows = find_rows(self.key, words)
        if self.training and torch.is_grad_enabled() and (rows < 0).any():
            new: Tensor = words[rows < 0].unique()  # type: ignore[no-untyped-call]
            number = self.n_own + self.n_taken + torch.arange(len(new), device=new.device)
            self.n_taken += len(new)
            self.key, self.number = add_keys(
                self.key, self.number, new, n_taken=self.n_taken, start=-1
            )
            self.number[find_rows(self.key, new)] = number
            rows = find_rows(self.key, words)
        found = torch.where(rows < 0, -1, self.number[rows.clamp(min=0)])
        return ids.masked_scatter(other, found)


def find_rows(key: Tensor, wanted: Tensor) -> Tensor:
    """Return where in the table `key` the keys `wanted` are, -1 for those that are not."""
    row, step = probe(wanted, len(key))
    if key.device.type == "cpu":  # in a tenth of the time
        place = row.numpy(), step.numpy()
        return torch.from_numpy(probe_rows(key.numpy(), wanted.numpy(), *place, FREE))
    return find_rows_by_torch(key, wanted, row, step)


def find_rows_by_torch(key: Tensor, wanted: Tensor, row: Tensor, step: Tensor) -> Tensor:
    """Return the same on any device; `row` and `step` are where to look, and how to go on."""
    rows = torch.full_like(wanted, -1)
    places = torch.arange(len(wanted), device=wanted.device)
    while len(places):
        held = key[row]
        found = held == wanted
        rows[places[found]] = row[found]
        on = ~found & (held != FREE)
        places, wanted, step = places[on], wanted[on], step[on]
        row = (row[on] + step) & (len(key) - 1)
    return rows


@compiled
def probe_rows(key: Words, wanted: Words, row: Words, step: Words, free: int) -> Words:
    """Return the same; `free` marks a place without a key."""
    found, last = np.full(len(wanted), -1), len(key) - 1
    for place in range(len(wanted)):
        here = row[place]
        while key[here] != free:
            if key[here] == wanted[place]:
                found[place] = here
                break
            here = (here + step[place]) & last
    return found


def add_keys(
    key: Tensor, kept: Tensor, new: Tensor, *, n_taken: int, start: float
) -> tuple[Tensor, Tensor]:
    """Return the table `key` with `new` keys, and `kept`, one value per row.

    Both are larger, and the old ones left as they are, if there is no room for `n_taken` keys
    in all; `start` is the value of a free row.
    """
    size, old = len(key), key != FREE
    while 2 * n_taken > size:
        size *= 2
    moved, values = (key[old], kept[old]) if size > len(key) else (key[:0], kept[:0])
    if size > len(key):
        key, kept = key.new_full((size,), FREE), kept.new_full((size,), start)
    for added in (moved, new):
        row, step = probe(added, size)
        while len(added):
            free = key[row] == FREE
            # Of several that want one free place the largest gets it, in any order of writing;
            # the others go on.
            key.scatter_reduce_(0, row[free], added[free], reduce="amax")
            on = key[row] != added
            added, step = added[on], step[on]
            row = (row[on] + step) & (size - 1)
    kept[find_rows(key, moved)] = values
    return key, kept


def probe(wanted: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return where to look first, and an odd step, which leads through a table of size 2^m."""
    word = wanted * SPREAD_1
    word = (word ^ (word >> 32)) * SPREAD_2
    return (word >> 33) & (size - 1), (word & (size - 1)) | 1


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
    rule = f"{name} must be whole numbers or strings, got"
    if isinstance(values, Tensor):
        if fault := tensor_fault(values):
            raise KindError(f"{rule} {fault}")
        given: Any = values.detach()
    else:
        try:
            given = np.asarray(values)
            if given.dtype.kind not in "iufbc" and given is not values:
                given = np.asarray(values, dtype=object)  # numpy would make strings of numbers
        except (TypeError, ValueError, RuntimeError):
            raise KindError(f"{rule} {type(values).__name__} that is no array") from None
        if given.dtype.kind in "fbcVmM":
            raise KindError(f"{rule} {given.dtype}")
    if tuple(given.shape) != shape:
        raise InputError(f"{name} must have the shape {list(shape)}, got {list(given.shape)}")
    given = given[..., : wanted.shape[-1]]
    if isinstance(given, Tensor):
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise KindError(f"{rule} {given.dtype}")
        return given.to(wanted.device).long()[wanted]
    words = given[wanted.numpy(force=True)]
    if words.dtype.kind not in "iu":  # texts, or a mixture
        ids, words = words, np.empty(len(words), np.uint64)
        is_text = np.full(len(ids), True)
        if ids.dtype.kind != "U":
            is_text[:] = [isinstance(one, str) for one in ids]
        for place in np.flatnonzero(~is_text):
            one = ids[place]
            if not isinstance(one, int | np.integer) or isinstance(one, bool):
                raise KindError(f"{rule} {shown(one)}")
            if not -(2**63) <= one < 2**64:
                raise InputError(
                    f"{name} must fit into 64 bits, got {shown(one)}; give it as a string"
                )
            words[place] = int(one) % 2**64
        texts = ids[is_text].astype(str)
        texts = np.ascontiguousarray(texts, texts.dtype.newbyteorder("="))
        width = texts.dtype.itemsize // 4
        words[is_text] = hash_texts(texts.view(np.uint32).reshape(len(texts), width))
    return torch.from_numpy(words.astype(np.int64)).to(wanted.device)


@compiled
def hash_texts(codes: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return a word for each text, the same on every machine, ``[n]``.

    Args:
        codes: The characters of each text, 0 beyond its end, ``[n, width]``.
    """
    words = np.empty(len(codes), np.uint64)
    for text in range(len(codes)):
        stop = codes.shape[1]
        while stop > 0 and codes[text, stop - 1] == 0:
            stop -= 1
        word = GOLDEN
        for place in range(stop):
            word = mix(word ^ np.uint64(codes[text, place])) + GOLDEN
        words[text] = word
    return words


class Memory(nn.Module):
    """An objective whose tables have rows for any ids, and which belongs to one process.

    DistributedDataParallel copies rank 0's buffers to all ranks, once and before each forward
    pass, which would overwrite their averages. It finds buffers by walking through modules;
    `named_modules` ends the walk here. The memory is saved and moved like any module.

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

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """Yield nothing: what is remembered belongs to this process."""
        return iter(())

    def rows(self, query: Tensor) -> Tensor:
        """Return the row of each query, ``[Q]``; a new query gets a new row.

        Under ``eval()`` or ``no_grad`` new queries read a row that none has visited. Each id
        occurs once.
        """
        rows = self.queries.numbers(query)
        stop = self.queries.n_own + self.queries.n_taken
        n_rows = self._rows_for(stop)
        for _, part, buffer, start in self._tables() if n_rows > self.n_rows else ():
            table = getattr(part, buffer)
            larger = table.new_full((len(table) // self.n_rows * n_rows,), start)
            larger[: len(table)] = table
            setattr(part, buffer, larger)
        self.n_rows = n_rows
        return rows.masked_fill(rows < 0, stop)

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

    def _tables(self) -> Iterator[tuple[str, nn.Module, str, float]]:
        """Yield every table that has rows for queries: its module, its name, its start."""
        for place, part in super().named_modules():
            if isinstance(part, TopThreshold) and part.tracked:
                yield place, part, "lam", part.s_q.start
            elif isinstance(part, MovingAverage) and not isinstance(part, PairAverage):
                yield place, part, "value", part.start

    def _rows_for(self, stop: int) -> int:
        """Return how many rows there are once those below `stop` are given out."""
        return self.first_rows << (stop // self.first_rows).bit_length()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Memory":
        def on_table(table: Tensor) -> Tensor:
            made = fn(table)
            # Never below float32: averages need the digits.
            small = made.is_floating_point() and made.element_size() < 4
            return table.to(made.device) if small else made

        super()._apply(on_table, recurse)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *others: Any
    ) -> None:
        """Load a state of any size, or refuse it and stay unchanged."""
        saved = {
            name.removeprefix(prefix): table
            for name, table in state_dict.items()
            if name.startswith(prefix)
        }
        if saved:  # which strict=False does not need
            if fault := self._fault(saved):
                raise InputError(f"the state of the loss cannot be loaded: {fault}")
            for place, part in super().named_modules():
                for buffer, table in list(part.named_buffers(recurse=False)):
                    name = f"{place}.{buffer}".removeprefix(".")
                    state_dict[prefix + name] = saved[name].to(table, copy=True)
                    setattr(part, buffer, table.new_empty(saved[name].shape))
                if isinstance(part, PairAverage | Numbering):
                    part.n_taken = int((saved[f"{place}.key"] != FREE).sum())
            self.n_rows = self._rows_for(self.queries.n_own + self.queries.n_taken)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _fault(self, saved: dict[str, Any]) -> str:
        """Return what is wrong with a state, empty if it can be loaded."""
        own = self.state_dict()
        known, about = own["about"].tolist(), saved.get("about")
        said = []
        if isinstance(about, Tensor) and not tensor_fault(about) and about.dtype == torch.int64:
            said = about.flatten().tolist()
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
            found = saved[name]
            if not isinstance(found, Tensor):
                return f"its {name} is {shown(found)} instead of a tensor"
            if fault := tensor_fault(found):
                return f"its {name} is {fault}"
            floats = found.is_floating_point() and table.is_floating_point()
            if found.dtype != table.dtype and not floats:
                return f"its {name} holds {found.dtype} instead of {table.dtype}"
        sizes: dict[str, int] = {}
        growing = [
            (name, part)
            for name, part in nn.Module.named_modules(self)
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
        for name, owner, buffer, _ in self._tables():
            sizes[f"{name}.{buffer}"] = len(getattr(owner, buffer)) // self.n_rows * n_rows
        for name, size in sizes.items():
            if saved[name].shape != (size,):
                return (
                    f"its {name} has the shape {list(saved[name].shape)} instead of [{size}], "
                    f"as if truncated or saved with other settings"
                )
        for name, part in growing:
            if isinstance(part, Numbering):  # keys in use have the numbers from n_own on
                used = saved[f"{name}.key"] != FREE
                number = saved[f"{name}.number"][used].sort().values
                every = part.n_own + torch.arange(len(number), device=number.device)
                if not torch.equal(number, every):
                    return f"its {name}.number is damaged"
        return ""
