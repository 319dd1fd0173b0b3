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

LOCK = ".lock"
PATIENCE = 20.0  # seconds for the processes of a sweep that was killed to end


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder for a while, refusing where one is in it already."""
    out.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    handle = os.open(out / LOCK, os.O_CREAT | os.O_RDWR)
    try:
        _take_alone(handle, out)
        fcntl.flock(handle, fcntl.LOCK_SH)  # its own processes join
        yield
    finally:
        os.close(handle)


@cache
def join_in(out: Path) -> int | None:
    """Hold the lock of a sweep for as long as this process lives."""
    if fcntl is None:
        return None
    handle = os.open(out / LOCK, os.O_CREAT | os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def _take_alone(handle: int, out: Path) -> None:
    begun = time.monotonic()
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() - begun > PATIENCE:
                raise InputError(
                    f"another sweep is at work in {out}; wait for it, or choose another --out"
                ) from None
            time.sleep(0.1)
