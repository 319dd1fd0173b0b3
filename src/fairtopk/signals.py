"""Signals that ask a process to end: Ctrl-C, SIGTERM, and SIGHUP of a terminal that closes."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from fairtopk.errors import Stopped

ENDING = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]  # which would end a process without a word


def stop(number: int) -> NoReturn:
    """Raise what a signal stands for."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Stopped(number)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, leaving nothing half-written.

    One that is ignored, as SIGHUP is under nohup, stays ignored.
    """
    with _handling(lambda number, frame: stop(number), ENDING):
        yield


@contextmanager
def finishing_steps() -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the signal that asks to stop, or None.

    The step under way is finished first, for training cannot go on from half a step; a second
    signal stops at once. Outside the main thread, where signals cannot be handled, there is
    none.
    """
    asked: int | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked is not None:
            stop(number)
        asked = number

    with _handling(note, [signal.SIGINT, *ENDING]):
        yield lambda: asked


@contextmanager
def _handling(
    handler: Callable[[int, FrameType | None], None], numbers: list[signal.Signals]
) -> Iterator[None]:
    """Handle some signals for a while."""
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
