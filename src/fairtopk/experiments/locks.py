"""One sweep at a time in a folder: its processes hold a lock that ends when they do."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fairtopk.errors import InputError

try:
    import fcntl
except ImportError:  # where there are no such locks, nobody is kept out
    fcntl = None  # type: ignore[assignment]

LOCK, AT_WORK = ".lock", ".lock-processes"  # of the sweep, and of its processes
ENDING = 1.0  # seconds for a sweep that was stopped to end
PATIENCE = 20.0  # and for the processes of one that was killed


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder for a while, refusing where one is in it already."""
    out.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    handle = _opened(out / LOCK)
    try:
        _take_alone(handle, out, ENDING)
        processes = _opened(out / AT_WORK)
        try:
            _take_alone(processes, out, PATIENCE)
        finally:
            os.close(processes)
        yield
    finally:
        os.close(handle)


@cache
def join_in(out: Path) -> int | None:
    """Keep sweeps to come out of a folder for as long as this process of one lives."""
    if fcntl is None:
        return None
    handle = _opened(out / AT_WORK)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def _opened(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR)


def _take_alone(handle: int, out: Path, patience: float) -> None:
    begun = time.monotonic()
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() - begun > patience:
                raise InputError(
                    f"another sweep is at work in {out}; wait for it, or choose another --out"
                ) from None
            time.sleep(0.1)
