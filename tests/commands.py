"""The command line, run in this process by the fixture `run`."""

from collections.abc import Callable
from typing import NamedTuple


class Ended(NamedTuple):
    code: int | str | None
    stdout: str
    stderr: str


Run = Callable[..., Ended]
