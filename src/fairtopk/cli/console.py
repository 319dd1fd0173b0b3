"""How the command line speaks: results to standard output, errors as one sentence."""

import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from typer.exceptions import TyperException

from fairtopk.errors import Exit, InputError, Stopped
from fairtopk.signals import ending_in_order
from fairtopk.terminal import printable
from fairtopk.terminal import shown as short

if TYPE_CHECKING:
    from fairtopk.runs.run import AnyTrainer

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # faults of writing alone


class _Plain(Console):
    """Prints text as it is: nothing in it is markup, an emoji's name or worth a colour."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """Go on unheard (`| head`): files and exit code are what they would have been."""
        self.quiet = True
        _let_go(self.file.fileno())


console = _Plain()
errors = _Plain(stderr=True)


def say(sentence: str) -> None:
    """Print a sentence on a line of its own, with control characters written out."""
    console.print(printable(sentence), soft_wrap=True)


def say_if_unfinished(run: Path) -> None:
    """Tell whose model it is that is served of a run that was stopped."""
    if not (run / "metrics.json").exists():
        say("the run is not finished: this is the model of its last checkpoint")


def say_error(sentence: str) -> None:
    """Print the same to standard error, as the program's."""
    errors.print(f"fairtopk: {printable(sentence)}", soft_wrap=True)


def run(app: typer.Typer) -> None:
    """Run the command line and end the process with one of the codes of `Exit`.

    A traceback is shown only with ``--debug``, which may stand anywhere.
    """
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1
    warnings.showwarning = _warn
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot encode is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        _check_words(words)
        with ending_in_order():
            code = app(words, standalone_mode=False) or Exit.DONE
        if code == Exit.INTERRUPTED:  # typer's answer to Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        _end("stopped", Exit.INTERRUPTED, debug=debug)
    except Stopped as stopped:
        _end("stopped", stopped.exit_code, debug=debug)
    except Exception as error:
        _end(*_told(error), debug=debug)


def whole_numbers(text: str) -> list[int]:
    """Return what ``--k`` is given as: one or more numbers, separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--k takes whole numbers such as 10,50, got {short(text)}") from None


@contextmanager
def byte_progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function of (bytes done, total): a bar on a terminal, some lines elsewhere."""
    if not console.is_terminal:
        yield _line_every_tenth(what)
        return
    columns = (description(), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(printable(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def description() -> TextColumn:
    """Return the column of a bar that says what is done, without markup."""
    return TextColumn("{task.description}", markup=False)


class TrainingProgress:
    """Shows how a run trains: a bar on a terminal, a line every tenth of the way elsewhere.

    Args:
        what: The run, in a few words.
    """

    def __init__(self, what: str) -> None:
        self.what = printable(what)
        columns = (description(), BarColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self.task = self.bar.add_task(self.what, total=None)
        self.shown = 0

    def __enter__(self) -> "TrainingProgress":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, trainer: "AnyTrainer", record: dict[str, Any] | None) -> None:
        """Show where `trainer` is, and the record of an epoch that just ended."""
        total = trainer.total_steps()
        self.bar.update(self.task, total=total, completed=trainer.progress.total)
        if record is None:
            return
        epochs = {phase.name: phase.epochs for phase in trainer.phases}
        for alarm in record.get("alarms", []):
            say(f"alarm, epoch {record['epoch']}: {alarm}")
        line = _epoch_line(record, epochs[record["phase"]])
        self.bar.update(self.task, description=f"{self.what}, {line}")
        tenth = 10 * trainer.progress.total // total
        if not console.is_terminal and tenth > self.shown:
            self.shown = tenth
            say(f"{self.what}, {line}")


def _epoch_line(record: dict[str, Any], epochs: int) -> str:
    place = f"{record['phase']} epoch {record['epoch']} of {epochs}"
    parts = [place, f"loss {record['loss']:.4f}"]
    for name, value in record.items():
        if name.startswith(("valid_ndcg@", "valid_exposure_gap@")):
            parts.append(f"{name.removeprefix('valid_')} {value:.4g}")
    return ", ".join(parts)


def _line_every_tenth(what: str) -> Callable[[int, int | None], None]:
    shown = -1

    def report(done: int, total: int | None) -> None:
        nonlocal shown
        tenth = 10 * done // total if total else done // 100_000_000
        if tenth > shown:
            shown = tenth
            of = f" of {total:,}" if total else ""
            say(f"{what}: {done:,}{of} bytes")

    return report


def _check_words(words: list[str]) -> None:
    """Refuse words that mean nothing: a path "" would be the current folder."""
    for before, word in pairwise(["", *words]):
        option, given, value = word.partition("=") if word.startswith("--") else ("", "", word)
        name = option or (before if before.startswith("-") else "an argument")
        if not value and (given or not option):
            raise InputError(f"{name} is empty; give it a value, or leave it out")
        if "\0" in word:
            raise InputError(f"{name} holds a NUL character; leave it out")


def _told(error: Exception) -> tuple[str, Exit]:
    """Return an error as a sentence, and the exit code that it ends with."""
    if isinstance(error, InputError):
        return str(error), error.exit_code
    if isinstance(error, TyperException):
        return error.format_message(), Exit.WRONG
    if isinstance(error, OSError):
        return _refused_by_system(error), Exit.WRONG
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch's
        return "not enough memory for this; give less data or smaller sizes", Exit.WRONG
    if isinstance(error, RecursionError):
        return "the input is nested too deeply to be read", Exit.WRONG
    told = f"internal error ({type(error).__name__}: {error}); --debug shows where"
    return told, Exit.DEFECT


def _refused_by_system(error: OSError) -> str:
    place = error.filename2 or error.filename  # a file is written under another name first
    what = error.strerror.lower() if error.strerror else str(error)
    act = "cannot write" if error.errno in FULL else "cannot use"
    return f"{act} {os.fsdecode(place)}: {what}" if place else f"{act} a file: {what}"


def _end(sentence: str, code: Exit, *, debug: bool) -> None:
    if debug:
        for line in traceback.format_exc().splitlines():
            errors.print(printable(line), soft_wrap=True)
    say_error(sentence)
    try:
        sys.stdout.flush()
    except OSError:  # it was what failed, and would fail once more when Python ends
        _let_go(sys.stdout.fileno())
    sys.exit(code)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the place in the code that Python would add."""
    say_error(f"warning: {message}")


def _let_go(descriptor: int) -> None:
    """Send what is still written to a stream nowhere, so that nothing fails at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
