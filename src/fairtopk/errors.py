"""Errors for users, each with the exit code of the command line."""

from enum import IntEnum
from typing import Self


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
