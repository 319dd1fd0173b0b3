"""Files that are read whole, and written so that a reader never sees half of one.

Files that a command is going to write: refused before there is something to write.

One process at a time in the folder of a run or a sweep.
"""

import math
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl
from filelock import FileLock, Timeout

from fairtopk.errors import InputError
from fairtopk.paths import read_small

LONGEST_TEXT = 256 * 2**20  # bytes of a text file that is read whole
HALF = ".part"  # how the name of a file that is being written ends; it begins with a dot


def read_text(path: Path) -> str:
    """Return a text file whole, refusing what is none."""
    content = read_small(path, most=LONGEST_TEXT)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte 0x{content[error.start]:02x})"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file, all or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which takes its place only if all went well.

    Works for a file or a new folder; on an error or Ctrl-C the temporary one is removed. Its
    name is random, so that nobody can plant a link there.

    Raises:
        InputError: The disk is full, or `path` cannot be written.
    """
    with _temporary(path) as temporary:
        yield temporary
        os.replace(temporary, path)


@contextmanager
def together(path: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files move beside `path` if all went well, `path` last.

    On an error or Ctrl-C the folder is removed, and what was there is still there. Once the
    first file is moved, a signal waits for the last.
    """
    with _temporary(path) as folder:
        folder.mkdir()
        try:
            yield folder
        except InputError as error:  # of a file in it, which will have another name
            raise InputError(str(error).replace(str(folder), str(path.parent))) from error

        def move() -> None:
            for file in sorted(folder.iterdir(), key=lambda file: file.name == path.name):
                os.replace(file, path.with_name(file.name))

        # Signals interrupt the main thread alone, and leaving the context waits.
        with ThreadPoolExecutor(1) as another:
            another.submit(move).result()


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a free name beside `path`, removed in the end; faults are told of `path`."""
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}{HALF}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
    except (OSError, pl.exceptions.ComputeError) as error:
        why = _why_not_written(error, path, temporary)
        if why is None:
            raise
        raise InputError(f"cannot write {path}: {why}") from error
    finally:
        _remove(temporary)


def _why_not_written(error: Exception, path: Path, temporary: Path) -> str | None:
    """Return what the system said about a write; None for an error of something else."""
    if isinstance(error, OSError):
        # Files that are read meanwhile have names of their own; a full disk has none.
        name = str(temporary if error.filename is None else os.fsdecode(error.filename))
        beside = name.startswith((str(temporary), str(path.parent)))
        return (error.strerror or str(error)).lower() if beside else None
    found = re.search(r"([^:]+) \(os error \d+\)", str(error))  # as polars words it
    return found[1].strip().lower() if found else None


def remove_halves(folder: Path) -> None:
    """Remove what was being written into a folder when its process was killed."""
    for half in folder.glob(f".*{HALF}"):
        _remove(half)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def jsonable(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinity become null, also in lists."""
    if isinstance(value, Mapping):
        return {name: jsonable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_target(
    path: Path, *, endings: Sequence[str], inputs: Sequence[str | Path | None] = ()
) -> None:
    """Refuse a file that has another ending, is a folder or an input, or cannot be written."""
    if path.suffix.lower() not in endings:
        raise InputError(f"{path} must end in {' or '.join(endings)}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    if path.exists() and any(
        path.samefile(one) for one in inputs if one and Path(one).exists()
    ):
        raise InputError(f"{path} is one of the files that are read; name another file")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise InputError(f"{path} cannot be written: {above} is a file")
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise InputError(f"{path} cannot be written: {above}: {what}") from error


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
