"""Threads for independent pieces of work, recycled memory, and torch's generators.

A piece never runs on more than one thread, so what it computes does not depend on their number;
that holds for torch's matrix products too, which otherwise split their work as they see fit.

Large arrays are used again once nobody holds them: the system clears fresh memory page by page,
which at 27,000 items took a fifth of the time of a forward and backward pass.
"""

import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

T = TypeVar("T")

_borrowed = 0  # threads that `run_all` has to itself; 0: as many as torch has

LARGE = 2**20  # bytes; less is not worth keeping
ALIGNMENT = 64  # bytes
KEPT = 8  # arrays; the least recently used are released
_lock = threading.Lock()
_kept: list[tuple[NDArray[Any], weakref.ref[NDArray[Any]]]] = []
_generators = threading.RLock()


def run_all(pieces: Sequence[Callable[[], T]]) -> list[T]:
    """Return what each piece returns, in order; pieces may run at the same time.

    No piece records what it does for a gradient.
    """
    results: dict[int, T] = {}
    left = iter(range(len(pieces)))  # taking a step is atomic

    def work() -> None:
        with torch.no_grad():
            for place in left:
                results[place] = pieces[place]()

    threads = _borrowed or torch.get_num_threads()
    if threads == 1:
        work()
    else:
        # One task for each thread rather than each piece: a task costs 30 us.
        pool = _pool(threads, os.getpid())
        for task in [pool.submit(work) for _ in range(min(threads, len(pieces)))]:
            task.result()
    return [results[place] for place in range(len(pieces))]


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Lend torch's threads to `run_all`, and leave torch's own operations one.

    After each of its operations torch's threads spin, waiting for the next. Where those take
    turns with pieces of `run_all`, they are in the way: a training step at 27,000 items took a
    sixth longer.
    """
    global _borrowed
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    _pool(threads, os.getpid())
    _borrowed = threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _borrowed = 0
        torch.set_num_threads(threads)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the pool of `process`: threads do not survive a fork."""
    started = threading.Barrier(threads)

    def start() -> None:
        torch.get_num_threads()  # the first call would undo the next
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(threads)
    for task in [pool.submit(start) for _ in range(threads)]:
        task.result()
    # Threads have a number each, but what was set last is that of threads to come.
    torch.set_num_threads(threads)
    return pool


def recycled(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array with whatever content, in memory that may have been used before.

    The memory is in use for as long as the array lives, as itself or in a tensor made of it. A
    slice does not keep it alive: whoever uses one has to hold the array too.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with _lock:
        for place, (memory, array) in enumerate(_kept):
            if array() is None and memory.shape == shape and memory.dtype == dtype:
                del _kept[place]
                break
        else:
            # It starts at a multiple of 64 bytes, as torch's does: the last bits of a matrix
            # product may depend on where its operands start.
            room = np.empty(size + ALIGNMENT, np.uint8)
            start = -room.ctypes.data % ALIGNMENT
            memory = room[start : start + size].view(dtype).reshape(shape)
        if size < LARGE:
            return memory
        view = memory.view()
        _kept.append((memory, weakref.ref(view)))
        del _kept[:-KEPT]
    return view


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Run with torch's generators seeded by `key`, and leave them as they were.

    They belong to the whole process: of several threads one at a time has them, so that what
    each draws depends on its keys alone.
    """
    devices = torch.cuda.is_available()
    with _generators:
        before = torch.default_generator.get_state()
        of_devices = torch.cuda.get_rng_state_all() if devices else []
        # The usual call seeds devices that may come, keeping a stack trace for each of them,
        # which takes as long as a small step.
        (torch.manual_seed if devices else torch.default_generator.manual_seed)(key)
        try:
            yield
        finally:
            torch.default_generator.set_state(before)
            if devices:
                torch.cuda.set_rng_state_all(of_devices)
