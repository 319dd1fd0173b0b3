"""How a command ends: exit codes, errors for users, and the signals that stop it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import NoReturn, Self

# Signals that would end a process without a word; a terminal that closes sends SIGHUP.
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Exit(IntEnum):
    """Exit codes of every command, each with its meaning."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Return an exit code with its meaning."""
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made

    DONE = 0, "done; every goal and rule is met"
    MISSED = (
        1,
        "a rule fired, a goal was missed or a run of a sweep failed; results are written",
    )
    WRONG = 2, "the input is wrong, or a file cannot be read or written"
    DIVERGED = 3, "training diverged; the last checkpoint, if there is one, is kept"
    DEFECT = 70, "internal error: a bug in fairtopk"
    HUNG_UP = 129, "stopped by SIGHUP; the work so far is saved"
    INTERRUPTED = 130, "stopped by Ctrl-C; the work so far is saved"
    TERMINATED = 143, "stopped by SIGTERM; the work so far is saved"


class InputError(ValueError):
    """The input cannot be used; the message says what is wrong, where, and what to do.

    The command line prints it as one sentence and ends with `exit_code`.
    """

    exit_code = Exit.WRONG


class KindError(InputError, TypeError):
    """An argument has a wrong type, such as None for an array."""


class TrainingError(InputError):
    """Training cannot continue; the message says where it stopped and the likely cause."""

    exit_code = Exit.DIVERGED


class Stopped(BaseException):
    """SIGTERM or SIGHUP stopped the process; Ctrl-C raises KeyboardInterrupt as usual."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = next(code for code in Exit if code == 128 + number)


STOPS = (KeyboardInterrupt, Stopped)  # raised when a user stops a command


def stop(number: int, frame: FrameType | None = None) -> NoReturn:
    """Raise what a signal stands for: a handler that leaves nothing half-written."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Stopped(number)


@contextmanager
def finishing_steps() -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the signal that asks to stop, or None.

    The step under way is finished first, for training cannot go on from half a step; a second
    signal stops at once. Outside the main thread, where signals cannot be handled, there is
    none.
    """
    pending: int | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pending
        if pending is not None:
            stop(number)
        pending = number

    with handling(note, [signal.SIGINT, *ENDING]):
        yield lambda: pending


@contextmanager
def handling(
    handler: Callable[[int, FrameType | None], None], numbers: list[signal.Signals]
) -> Iterator[None]:
    """Handle some signals for a while; one that is ignored, as SIGHUP under nohup, stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, handler)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
