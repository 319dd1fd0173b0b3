"""One process at a time in the folder of a run or a sweep."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fairtopk.errors import InputError

LOCK = ".lock"  # which stays in the folder: to remove it would let two in
ENDING = 1.0  # seconds for a process that was stopped to end
ORPHANS = 60.0  # and for the processes of a sweep that was killed


@contextmanager
def alone_in(out: Path, *, patience: float = ENDING) -> Iterator[None]:
    """Keep other processes out of a folder for a while, refusing where one is in it already.

    The lock ends with its process, and may be taken again by the process that holds it.
    """
    out.mkdir(parents=True, exist_ok=True)
    # One lock for each folder and process, so that a search and its runs share it.
    lock = FileLock(out.resolve() / LOCK, is_singleton=True)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise InputError(
            f"another process is at work in {out}; wait for it, or choose another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()
