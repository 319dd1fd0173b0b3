"""The errors that a user is meant to see, and the exit code that each of them ends with."""

from enum import IntEnum
from typing import Self


class Exit(IntEnum):
    """Exit codes of every command, each with its meaning."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Return a number that knows what it means."""
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made

    DONE = 0, "done, and every goal or rule is met"
    MISSED = (
        1,
        "a rule fired, a goal was missed or a run of a sweep failed; results are written",
    )
    WRONG = 2, "the input is wrong, or a file cannot be read or written"
    DIVERGED = 3, "training diverged; the last good checkpoint is kept"
    DEFECT = 70, "an internal error: a defect of fairtopk"
    HUNG_UP = 129, "stopped by SIGHUP; what is done is saved"
    INTERRUPTED = 130, "stopped by Ctrl-C; what is done is saved"
    TERMINATED = 143, "stopped by SIGTERM; what is done is saved"


class InputError(ValueError):
    """What the caller gave cannot be used; the message says what, where and what to do.

    The command line prints it as one sentence and ends with `exit_code`.
    """

    exit_code = Exit.WRONG


class KindError(InputError, TypeError):
    """An argument is of a kind that cannot be used at all, such as None for an array."""


class TrainingError(InputError):
    """Training cannot go on; the message says where it stopped and why that may be."""

    exit_code = Exit.DIVERGED


class Stopped(BaseException):
    """SIGTERM or SIGHUP asked the process to end; Ctrl-C raises KeyboardInterrupt as ever."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = next(code for code in Exit if code == 128 + number)


STOPS = (KeyboardInterrupt, Stopped)  # what is raised when a user ends a command
