"""What every command shares: printing, progress bars, and errors as one sentence."""

import errno
import io
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import progress
from rich.console import Console
from typer.exceptions import TyperException

from fairtopk.errors import ENDING, STOPS, Exit, InputError, Stopped, handling, stop
from fairtopk.terminal import Progress, printable, shown

if TYPE_CHECKING:
    from fairtopk.runs.run import Hooks
    from fairtopk.runs.trainer import AnyTrainer
    from fairtopk.training.loop import Record

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # faults of writing alone
SECONDS_BETWEEN_LINES = 10.0  # of an audit, whose steps are many
BYTES_OF_A_LINE = 10**8  # of a download of unknown size


class _Plain(Console):
    """A console that outlives its reader."""

    def on_broken_pipe(self) -> None:
        """Keep working in silence (`| head`): files and exit code stay the same."""
        self.quiet = True
        _let_go(self.file.fileno())


# Text is literal: no markup, no names of emojis, no colours for numbers.
console = _Plain(markup=False, emoji=False, highlight=False)
errors = _Plain(stderr=True, markup=False, emoji=False, highlight=False)


def say(sentence: str) -> None:
    """Print a sentence on a line of its own, with control characters written out."""
    console.print(printable(sentence), soft_wrap=True)


def say_if_unfinished(run: Path) -> None:
    """Say so if the model of a run is that of a checkpoint."""
    if not (run / "metrics.json").exists():
        say("the run is not finished: this is the model of its last checkpoint")


def say_error(sentence: str) -> None:
    """Print a sentence to standard error, after the name of the program."""
    errors.print(f"fairtopk: {printable(sentence)}", soft_wrap=True)


def run(app: typer.Typer) -> None:
    """Run the command line and end the process with one of the codes of `Exit`.

    A traceback is shown only with ``--debug``, which may stand anywhere.
    """
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1
    # As one line, without the place in the code that Python would add.
    warnings.showwarning = lambda message, *_, **__: say_error(f"warning: {message}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot encode is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        _check_words(words)
        with handling(stop, ENDING):
            code = app(words, standalone_mode=False) or Exit.DONE
        if code == Exit.INTERRUPTED:  # typer's answer to Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code)
    except (Exception, *STOPS) as error:
        if debug:
            for line in traceback.format_exc().splitlines():
                errors.print(printable(line), soft_wrap=True)
        sentence, code = _sentence(error)
        say_error(sentence)
        try:
            sys.stdout.flush()
        except OSError:  # it was what failed, and would fail once more when Python ends
            _let_go(sys.stdout.fileno())
        sys.exit(code)


def lengths(text: str) -> list[int]:
    """Return the lengths of the top that ``--k`` names, separated by commas."""
    try:
        ks = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--k takes whole numbers such as 10,50, got {shown(text)}") from None
    if min(ks) < 1:
        raise InputError(f"--k must be at least 1, got {shown(text)}")
    return ks


@contextmanager
def progress_bar(*, unit: str | None = "", pause: float | None = None) -> Iterator[Progress]:
    """Yield a function that shows how far a command is; a total of 0 is unknown.

    It draws a bar on a terminal, and prints a line each tenth of the way elsewhere.

    Args:
        unit: What is counted, such as "users"; "" shows a percentage, None no figure in a line.
        pause: Seconds between two lines, instead of a line each tenth of the way.
    """
    column = progress.MofNCompleteColumn() if unit else progress.TaskProgressColumn()
    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn() if unit == "bytes" else column,
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("", total=None)
    last_tenth, last_time = 0, time.monotonic()

    def show(what: str, done: int, total: int) -> None:
        nonlocal last_tenth, last_time
        if console.is_terminal:
            text = printable(what)
            bar.update(task, description=text, completed=done, total=total or None)
            return
        tenth = 10 * done // total if total else done // BYTES_OF_A_LINE
        now = time.monotonic()
        if tenth <= last_tenth if pause is None else now - last_time < pause:
            return
        last_tenth, last_time = tenth, now
        if unit:
            say(f"{what}: {done:,}{f' of {total:,}' if total else ''} {unit}")
        else:
            say(f"{what}: {100 * done // total} %" if total and unit is not None else what)

    with bar:
        yield show


@contextmanager
def training_progress(what: str) -> Iterator["Hooks"]:
    """Yield hooks that show where a trainer is, ended epochs and reused stages."""
    from fairtopk.runs.run import Hooks

    text = what
    with progress_bar(unit=None) as bar:

        def show(trainer: "AnyTrainer", record: "Record | None") -> None:
            nonlocal text
            if record is not None:
                for alarm in record.get("alarms", []):
                    say(f"alarm, epoch {record['epoch']}: {alarm}")
                epochs = {one.name: one.epochs for one in trainer.stretches()}
                phase = record["phase"]
                parts = [what, f"{phase} epoch {record['epoch']} of {epochs[phase]}"]
                if "loss" in record:
                    parts.append(f"loss {record['loss']:.4f}")
                for name, value in record.items():
                    if name.startswith(("valid_ndcg@", "valid_exposure_gap@")):
                        parts.append(f"{name.removeprefix('valid_')} {value:.4g}")
                text = ", ".join(parts)
            if record is not None or console.is_terminal:
                steps = sum(one.epochs * one.steps for one in trainer.stretches())
                bar(text, trainer.progress.total, steps)

        yield Hooks(report=show, notice=say)


def _check_words(words: list[str]) -> None:
    """Refuse arguments that mean nothing: a path "" would be the current folder."""
    for before, word in pairwise(["", *words]):
        option, given, value = word.partition("=") if word.startswith("--") else ("", "", word)
        name = option or (before if before.startswith("-") else "an argument")
        if not value and (given or not option):
            raise InputError(f"{name} is empty; give it a value, or leave it out")
        if "\0" in word:
            raise InputError(f"{name} holds a NUL character; leave it out")


def _sentence(error: BaseException) -> tuple[str, Exit]:
    """Return an error as a sentence, and the exit code that it ends with."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "stopped", Exit.INTERRUPTED
    if isinstance(error, Stopped):
        return "stopped", error.exit_code
    if isinstance(error, InputError):
        return str(error), error.exit_code
    if isinstance(error, TyperException):
        return error.format_message(), Exit.WRONG
    if isinstance(error, OSError):
        place = error.filename2 or error.filename  # a file is written under another name first
        what = error.strerror.lower() if error.strerror else str(error)
        act = "cannot write" if error.errno in FULL else "cannot use"
        return f"{act} {os.fsdecode(place) if place else 'a file'}: {what}", Exit.WRONG
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch's
        return "not enough memory for this; give less data or smaller sizes", Exit.WRONG
    if isinstance(error, RecursionError):
        return "the input is nested too deeply to be read", Exit.WRONG
    defect = f"internal error ({type(error).__name__}: {error}); --debug shows where"
    return defect, Exit.DEFECT


def _let_go(descriptor: int) -> None:
    """Send what is still written to a stream nowhere, so that nothing fails at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
