"""Running independent pieces of work on as many threads as torch is set to use.

A piece never runs on more than one thread, so what it computes does not depend on their number;
that holds for torch's matrix products too, which otherwise split their work as they see fit.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")

_lent = 0  # threads that `run_all` has to itself; 0: as many as torch has


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

    threads = _lent or torch.get_num_threads()
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
    global _lent
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    _pool(threads, os.getpid())
    _lent = threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _lent = 0
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
