"""Processes that do one piece of work after another, of which any may die without the others.

A process that dies ends its piece alone. Ctrl-C reaches the first process only, which passes it
on once to each that is at work; one that is killed takes them all with it, so that no two ever
write to one folder.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch

from fairtopk.errors import InputError, Stopped

DIED = "its process died, perhaps for want of memory"
SPAWN = get_context("spawn")  # a fork would copy torch's threads in whatever state they are


class Finished(NamedTuple):
    """A piece of work that is over.

    Attributes:
        name: Which.
        value: What it returned.
        failure: Why it failed; None if it did not.
    """

    name: str
    value: Any = None
    failure: str | None = None


class Workers:
    """Up to `count` processes; use as a context, which ends them.

    Args:
        count: How many.
        threads: That torch may use in each.
    """

    def __init__(self, count: int, *, threads: int) -> None:
        self.count, self.threads = count, threads
        self.idle: list[tuple[Any, Connection]] = []
        self.busy: dict[Connection, tuple[Any, str]] = {}

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        """Let those at work save what they have, and end all."""
        for process, _ in self.busy.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGINT)
        at_work = [(process, connection) for connection, (process, _) in self.busy.items()]
        for process, connection in (*self.idle, *at_work):
            connection.close()
            process.join()

    def is_free(self) -> bool:
        """Return whether one more piece can be begun."""
        return len(self.busy) < self.count

    def begin(self, name: str, work: Callable[..., Any], *given: Any) -> None:
        """Begin a piece of work: a function of a module, and what it is called with."""
        process, connection = self._idle() or self._start()
        self.busy[connection] = process, name
        with suppress(OSError):  # of one that has just died, which `finished` then tells
            connection.send((work, given))

    def finished(self) -> list[Finished]:
        """Return the pieces that are over, waiting for the first."""
        found = []
        for connection in wait(list(self.busy)):
            assert isinstance(connection, Connection)
            process, name = self.busy.pop(connection)
            try:
                value, failure = connection.recv()
            except (EOFError, OSError):  # the latter of one that died while it sent
                process.join()
                connection.close()
                found.append(Finished(name, failure=DIED))
            else:
                self.idle.append((process, connection))
                found.append(Finished(name, value, failure))
        return found

    def _idle(self) -> tuple[Any, Connection] | None:
        """Return a process without work, if there is one that lives."""
        while self.idle:
            process, connection = self.idle.pop()
            if process.is_alive():
                return process, connection
            connection.close()
        return None

    def _start(self) -> tuple[Any, Connection]:
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=_work, args=(theirs, self.threads), daemon=True)
        with _interrupts_wait():
            process.start()
        theirs.close()
        return process, ours


def _work(connection: Connection, threads: int) -> None:
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the first process
    # By which `Workers` ends it; in the background of a script it would be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        _let_interrupts(signal.SIG_UNBLOCK)
        while True:
            work, given = connection.recv()
            connection.send(_tried(work, given))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Hold Ctrl-C back; a process that starts meanwhile does so until `_work` lets it through.

    It takes seconds to import what it needs, with nothing to catch an interrupt by.
    """
    _let_interrupts(signal.SIG_BLOCK)
    try:
        yield
    finally:
        _let_interrupts(signal.SIG_UNBLOCK)


def _let_interrupts(how: int) -> None:
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(how, {signal.SIGINT})


def _tried(work: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, str | None]:
    """Return what a piece of work returns, or why it failed."""
    try:
        return work(*given), None
    except InputError as error:
        return None, str(error)
    except Stopped as stopped:  # sent to this process alone: the first would end all
        return None, f"{stopped.exit_code.meaning}; go on with --resume"
    except Exception as error:  # of one piece, which is told of and does not stop the others
        return None, f"internal error ({type(error).__name__}: {error})"


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
