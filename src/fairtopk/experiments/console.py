"""How the command line speaks: results to standard output, errors as one sentence."""

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer.exceptions import TyperException

from fairtopk.errors import InputError

if TYPE_CHECKING:
    from fairtopk.experiments.run import AnyTrainer

console = Console()
errors = Console(stderr=True)

STOPPED = 130  # the exit code of a program that Ctrl-C ended


def run(app: typer.Typer) -> None:
    """Run the command line and end the process: 0 if all went well, 2 if the input was wrong.

    A traceback is shown only with ``--debug``, which may stand anywhere.
    """
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1
    warnings.showwarning = _warn
    try:
        code = app(words, standalone_mode=False) or 0
        if code == STOPPED:  # typer's answer to Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        _end("stopped", STOPPED, debug=debug)
    except InputError as error:
        _end(str(error), 2, debug=debug)
    except TyperException as error:
        _end(error.format_message(), 2, debug=debug)
    except OSError as error:
        place = error.filename2 or error.filename  # a file is written under another name first
        what = error.strerror.lower() if error.strerror else str(error)
        _end(f"cannot use {place}: {what}" if place else what, 2, debug=debug)
    except Exception as error:
        kind = type(error).__name__
        _end(f"internal error ({kind}: {error}); --debug shows where", 1, debug=debug)


def table(title: str, *columns: str) -> Table:
    """Return an empty table for the terminal; all columns but the first align to the right."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for place, column in enumerate(columns):
        made.add_column(column, justify="left" if place == 0 else "right")
    return made


def whole_numbers(text: str) -> list[int]:
    """Return what ``--k`` is given as: one or more numbers, separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--k takes whole numbers such as 10,50, got {text!r}") from None


@contextmanager
def byte_progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function of (bytes done, total): a bar on a terminal, some lines elsewhere."""
    if not console.is_terminal:
        yield _line_every_tenth(what)
        return
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class TrainingProgress:
    """Shows how a run trains: a bar on a terminal, a line every tenth of the way elsewhere.

    Args:
        what: The run, in a few words.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self.task = self.bar.add_task(what, total=None)
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
            line = f"alarm, epoch {record['epoch']}: {alarm}"
            console.print(line, highlight=False, soft_wrap=True)
        line = _epoch_line(record, epochs[record["phase"]])
        self.bar.update(self.task, description=f"{self.what}, {line}")
        tenth = 10 * trainer.progress.total // total
        if not console.is_terminal and tenth > self.shown:
            self.shown = tenth
            console.print(f"{self.what}, {line}", highlight=False, soft_wrap=True)


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
            console.print(f"{what}: {done:,}{of} bytes", highlight=False)

    return report


def _end(sentence: str, code: int, *, debug: bool) -> None:
    if debug:
        errors.print(traceback.format_exc(), markup=False, highlight=False)
    _say(sentence)
    sys.exit(code)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the place in the code that Python would add."""
    _say(f"warning: {message}")


def _say(sentence: str) -> None:
    errors.print(f"fairtopk: {sentence}", markup=False, highlight=False, soft_wrap=True)
