"""Runs a command in this process and says all that came of it."""

import faulthandler
import os
import re
import resource
import signal
import stat
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TextIO

from fairtopk.cli.app import main

MOST_SECONDS = 20  # of the processor, its own and its children's
HANGS = 600  # seconds after which a command that does nothing is taken for hanging
MORE_MEMORY = 4 * 2**30  # bytes of addresses beyond those that the process has already
# Line feeds and tabs aside, which text may hold.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
END = b"\x00the end of the output\x00"
WARNING = "fairtopk: warning: "


class Hanging(BaseException):
    """A command that does not end; no `except Exception` may catch it."""


class Ended(NamedTuple):
    """What a command left: `new` and `changed` are paths, folders with a slash at the end."""

    code: Any
    stdout: str
    stderr: str
    seconds: float
    new: list[str]
    changed: list[str]

    @property
    def lines(self) -> list[str]:
        """The lines on standard error, warnings aside."""
        return [line for line in self.stderr.splitlines() if not line.startswith(WARNING)]


def run_in(folder: Path, words: Sequence[str], *, largest: int | None = None) -> Ended:
    """Run the command line with some words in a folder, whose ``home`` is the user's.

    Args:
        folder: What becomes the current folder.
        words: What follows the name of the program.
        largest: The most bytes that a file may be written with, as on a disk that is full.
    """
    before, there, kept = tree(folder), Path.cwd(), dict(os.environ)
    argv, limits = sys.argv, resource.getrlimit(resource.RLIMIT_AS)
    sizes = resource.getrlimit(resource.RLIMIT_FSIZE)
    code: Any = None
    with captured() as output, plain_warnings(), watched():
        try:
            os.environ["FAIRTOPK_HOME"] = str(folder / "home")
            os.environ["COLUMNS"] = "200"
            os.environ.pop("FAIRTOPK_DATA", None)
            os.chdir(folder)
            sys.argv = ["fairtopk", *words]
            most = _addresses() + MORE_MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
            if largest is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest, sizes[1]))
            begun = _spent()
            main()
        except SystemExit as ended:
            code = ended.code
        except Hanging:
            code = "hangs"
        finally:
            seconds = _spent() - begun
            resource.setrlimit(resource.RLIMIT_AS, limits)
            resource.setrlimit(resource.RLIMIT_FSIZE, sizes)
            sys.argv = argv
            os.chdir(there)
            os.environ.clear()
            os.environ.update(kept)
    after = tree(folder)
    return Ended(
        code,
        *output,
        seconds,
        sorted(after.keys() - before.keys()),
        sorted(path for path, state in before.items() if after.get(path) != state),
    )


def tree(folder: Path) -> dict[str, Any]:
    """Return what is in a folder, at any depth, with the content of each file.

    Left out are locks, which say nothing by being there.
    """
    found: dict[str, Any] = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(above, name)
            state, short = os.lstat(path), os.path.relpath(path, folder)
            if name.startswith(".lock") or name.endswith(".lock"):
                continue
            is_folder = name in folders
            found[f"{short}/" if is_folder else short] = (
                None if is_folder else _content(path, state)
            )
    return found


@contextmanager
def captured() -> Iterator[list[str]]:
    """Yield a list that holds standard output and error once the context has ended.

    They go through pipes, since limits on the size of files do not touch those, and also where
    compiled code writes to descriptors.
    """
    texts = {1: b"", 2: b""}
    readers, kept, files = [], {}, (sys.stdout, sys.stderr)
    output: list[str] = []

    def drain(number: int, source: int) -> None:
        while not texts[number].endswith(END):  # a child may hold the pipe open for longer
            texts[number] += os.read(source, 2**16)
        os.close(source)

    replaced: list[TextIO] = []
    for number in (1, 2):
        source, sink = os.pipe()
        kept[number] = os.dup(number)
        os.dup2(sink, number)
        os.close(sink)
        readers.append(threading.Thread(target=drain, args=(number, source)))
        readers[-1].start()
        replaced.append(os.fdopen(os.dup(number), "w", encoding="utf-8", errors="replace"))
    sys.stdout, sys.stderr = replaced
    try:
        yield output
    finally:
        sys.stdout, sys.stderr = files
        for file, number in zip(replaced, (1, 2), strict=True):
            file.close()
            os.write(number, END)
            os.dup2(kept[number], number)
            os.close(kept[number])
        for reader in readers:
            reader.join()
        output += [
            texts[number].removesuffix(END).decode("utf-8", "replace") for number in (1, 2)
        ]


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Treat warnings as a new process does, not as the tests are told to."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning):
            warnings.simplefilter("ignore", kind)
        warnings.simplefilter("ignore", ResourceWarning)
        yield


@contextmanager
def watched() -> Iterator[None]:
    """Raise `Hanging` in what takes far too long, and put signals back as they were."""
    kept = {
        number: signal.getsignal(number)
        for number in (
            signal.SIGALRM,
            signal.SIGPROF,
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
        )
    }

    def end(number: int, frame: FrameType | None) -> None:
        raise Hanging

    signal.signal(signal.SIGALRM, end)
    signal.signal(signal.SIGPROF, end)
    signal.alarm(HANGS)
    signal.setitimer(signal.ITIMER_PROF, 2 * MOST_SECONDS)
    faulthandler.dump_traceback_later(2 * HANGS, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        for number, handler in kept.items():
            signal.signal(number, handler)


def _spent() -> float:
    """Return the seconds of the processor that were spent, by children too."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _addresses() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _content(path: str, state: os.stat_result) -> int | str | None:
    if stat.S_ISLNK(state.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(state.st_mode):
        return None
    try:
        with open(path, "rb") as file:
            return zlib.crc32(file.read())
    except PermissionError:
        return None
