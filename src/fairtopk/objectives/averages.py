"""Moving averages of Eqs. 17, 21 and 23, and the hash tables that give ids their rows.

u <- (1 - gamma) u + gamma x, one u per row of a table. A `gamma` weighs the new value, whereas
PyTorch's `momentum` weighs the old one. A row's first value is taken whole, so that the table's
start never leaks into a gradient; NaN marks a row that was never visited. Tables are buffers:
they follow ``.to()`` and are saved by ``state_dict()``. Nothing is remembered under ``eval()``
or ``no_grad``.

Averages per (query, item) pair live in a hash table, which needs neither all pairs beforehand
nor users x items rows. A key's row is its place in the table, so that a batch is looked up at
once on any device, and the table is saved without conversion. Its size is a power of 2, and at
most half of it is used.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.errors import InputError, KindError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.random import GOLDEN, MIX_1, mix
from fairtopk.tensors import tensor_fault
from fairtopk.terminal import shown

Words = NDArray[np.int64]

QUERY_BITS, ITEM_BITS = 30, 33  # a pair's key is one word below 2^63
FREE = -(2**63)  # marks a free place; below every key
FIRST_SIZE = 1024
# Multipliers of a hash as signed numbers, which torch multiplies modulo 2^64 too.
SPREAD_1, SPREAD_2 = (int(word.view(np.int64)) for word in (GOLDEN, MIX_1))


class MovingAverage(nn.Module):
    """One average per row.

    Args:
        n_rows: Rows of the table.
        gamma: Weight of a new value; 1 forgets the past, and needs no table.
        start: What a row holds before its first visit; NaN takes the first value whole.
        of_logs: Whether averages are kept and given as logarithms, for averages of exp(score):
            that overflows, and averages of it are comparable only on one scale; subtracting
            each batch's own maximum would silently mix scales.
    """

    value: Tensor

    def __init__(
        self, n_rows: int, *, gamma: float, start: float = math.nan, of_logs: bool = False
    ) -> None:
        super().__init__()
        self.gamma, self.start, self.of_logs = gamma, start, of_logs
        self.register_buffer("value", torch.full((n_rows if gamma < 1 else 0,), start))

    def update(self, rows: Tensor, fresh: Tensor, *, where: Tensor) -> Tensor:
        """Fold `fresh` into `rows` (no row twice) `where` True; return the new averages.

        Elsewhere nothing is remembered, and what is returned is `fresh`; there rows may be -1.
        """
        gamma = self.gamma
        if gamma == 1:
            return fresh
        rows = rows.clamp(min=0)
        old = self.value[rows]
        if self.of_logs:  # Eq. 21
            blended = torch.logaddexp(old + math.log(1 - gamma), fresh + math.log(gamma))
        else:
            blended = (1 - gamma) * old + gamma * fresh  # Eqs. 17 and 23
        current = torch.where(where & ~old.isnan(), blended, fresh)
        if self.training and torch.is_grad_enabled():
            self.value[rows[where]] = current[where].to(self.value.dtype)
        return current


class PairAverage(MovingAverage):
    """One average per (query, item) pair, in a table that grows.

    Keys are a buffer like the averages, and a table of any size can be loaded.

    Args:
        gamma: Weight of a new value; 1 forgets the past.
        start: What a row holds before its first visit; NaN takes the first value whole.
    """

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
            self.key, self.value = with_room(
                self.key, self.value, self.n_taken, start=self.start
            )
            claim_rows(self.key, new)
            found = find_rows(self.key, wanted)
        return found

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        if f"{prefix}key" in state_dict:
            size = len(state_dict[f"{prefix}key"])
            self.key = self.key.new_full((size,), FREE)
            self.value = self.value.new_full((size,), self.start)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.n_taken = int((self.key != FREE).sum())


class Numbering(nn.Module):
    """Gives ids numbers: small ones are their own, others get the next when they appear.

    Its table is held in buffers, and one of any size can be loaded. Nothing is remembered under
    ``eval()`` or ``no_grad``. `stop` is the number that the next new id gets.

    Args:
        n_own: Ids from 0 on, below this, are their own numbers.
    """

    key: Tensor
    number: Tensor

    def __init__(self, n_own: int) -> None:
        super().__init__()
        self.n_own = self.stop = n_own
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
            number = self.stop + torch.arange(len(new), device=new.device)
            self.stop += len(new)
            self.key, self.number = with_room(
                self.key, self.number, self.stop - self.n_own, start=-1
            )
            claim_rows(self.key, new)
            self.number[find_rows(self.key, new)] = number
            rows = find_rows(self.key, words)
        found = torch.where(rows < 0, -1, self.number[rows.clamp(min=0)])
        return ids.masked_scatter(other, found)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        if f"{prefix}key" in state_dict:
            size = len(state_dict[f"{prefix}key"])
            self.key = self.key.new_full((size,), FREE)
            self.number = self.number.new_full((size,), -1)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.stop = self.n_own + int((self.key != FREE).sum())


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
    """Return the same; `free` is what stands where there is no key."""
    found, last = np.full(len(wanted), -1), len(key) - 1
    for place in range(len(wanted)):
        here = row[place]
        while key[here] != free:
            if key[here] == wanted[place]:
                found[place] = here
                break
            here = (here + step[place]) & last
    return found


def claim_rows(key: Tensor, new: Tensor) -> None:
    """Write keys into free places of the table `key`, which has room for them."""
    row, step = probe(new, len(key))
    while len(new):
        free = key[row] == FREE
        # Of several that want one free place the largest gets it, in any order of writing; the
        # others go on.
        key.scatter_reduce_(0, row[free], new[free], reduce="amax")
        on = key[row] != new
        new, step = new[on], step[on]
        row = (row[on] + step) & (len(key) - 1)


def with_room(
    key: Tensor, kept: Tensor, n_taken: int, *, start: float
) -> tuple[Tensor, Tensor]:
    """Return a table with room for `n_taken` keys in all, and `kept`, one value per row.

    The given table is left as it is; `start` is the value of a free row.
    """
    size = len(key)
    while 2 * n_taken > size:
        size *= 2
    if size == len(key):
        return key, kept
    taken = key != FREE
    larger, moved = key.new_full((size,), FREE), kept.new_full((size,), start)
    claim_rows(larger, key[taken])
    moved[find_rows(larger, key[taken])] = kept[taken]
    return larger, moved


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
