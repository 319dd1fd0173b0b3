"""Processes that do one piece of work after another, of which any may die without the others.

A process that dies ends its piece alone. Ctrl-C reaches the first process only, which passes it
on once to each that is at work; one that is killed takes them all with it, so that no two ever
write to one folder.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch

from fairtopk.errors import InputError, Stopped

DIED = "its process died, perhaps for want of memory"
SPAWN = get_context("spawn")  # a fork would copy torch's threads in whatever state they are


class Finished(NamedTuple):
    """A piece of work that is over."""

    name: str
    value: Any = None  # what it returned
    failure: str | None = None  # why it failed; None if it did not


class Workers(AbstractContextManager["Workers"]):
    """Up to `count` processes with so many threads of torch; a context, which ends them."""

    def __init__(self, count: int, *, threads: int) -> None:
        self.count, self.threads = count, threads
        self.idle: list[tuple[Any, Connection]] = []
        self.busy: dict[Connection, tuple[Any, str]] = {}

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
        while self.idle:
            process, connection = self.idle.pop()
            if process.is_alive():
                break
            connection.close()
        else:
            connection, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=_work, args=(theirs, self.threads), daemon=True)
            # A new process takes seconds to import what it needs, with nothing to catch Ctrl-C
            # by. It inherits the block, which `_work` lifts, as starting the tracker would.
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            theirs.close()
        self.busy[connection] = process, name
        with suppress(OSError):  # of one that has just died, which `finished` then reports
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


def _work(connection: Connection, threads: int) -> None:
    os.setsid()  # Ctrl-C is for the first process
    # By which `Workers` ends it; in the background of a script it would be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        while True:
            work, given = connection.recv()
            value, failure = None, None
            try:
                value = work(*given)
            except InputError as error:
                failure = str(error)
            except Stopped as stopped:  # sent to this process alone: the first would end all
                failure = f"{stopped.exit_code.meaning}; go on with --resume"
            except Exception as error:  # is reported, and does not stop the other pieces
                failure = f"internal error ({type(error).__name__}: {error})"
            connection.send((value, failure))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
