"""How the command line speaks and ends, whatever is said."""

import errno
import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from fairtopk.cli import console
from fairtopk.cli.app import main
from fairtopk.cli.console import run, say
from fairtopk.errors import Exit, InputError, TrainingError
from fairtopk.terminal import add_row, table

HOSTILE = "[/x] [bold]b[/] :smile:\x1b[31m\n\u202e\udcff"
HARMLESS = "[/x] [bold]b[/] :smile:\\x1b[31m\\x0a\\u202e\\udcff"


class Ended(NamedTuple):
    code: int | str | None
    stdout: str
    stderr: str


End = Callable[[Callable[[], object]], Ended]


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> End:
    """A function that runs a command line of one command, which does what it is given."""
    monkeypatch.setattr(sys, "argv", ["fairtopk"])
    monkeypatch.setenv("COLUMNS", "200")

    def end(act: Callable[[], object]) -> Ended:
        app = typer.Typer()

        @app.command()
        def command() -> None:
            act()

        with pytest.raises(SystemExit) as ended:
            run(app)
        return Ended(ended.value.code, *capsys.readouterr())

    return end


def failing(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def test_a_sentence_is_one_line_and_no_markup(end: End) -> None:
    ended = end(lambda: say(HOSTILE))
    assert ended == (Exit.DONE, f"{HARMLESS}\n", "")


def test_an_error_is_one_line_and_no_markup(end: End) -> None:
    ended = end(failing(InputError(HOSTILE)))
    assert ended == (Exit.WRONG, "", f"fairtopk: {HARMLESS}\n")


def test_titles_columns_and_cells_of_a_table_are_no_markup(end: End) -> None:
    def show() -> None:
        shown = table(HOSTILE, HOSTILE, "[/b]")
        add_row(shown, HOSTILE, "[/a]")
        console.console.print(shown)

    ended = end(show)
    assert ended.code == Exit.DONE, ended.stderr
    assert ended.stdout.count(HARMLESS) == 3
    assert "[/b]" in ended.stdout
    assert "[/a]" in ended.stdout


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("wrong"), Exit.WRONG, "wrong"),
        (TrainingError("the loss is NaN"), Exit.DIVERGED, "the loss is NaN"),
        (typer.Exit(Exit.MISSED), Exit.MISSED, None),
        (KeyboardInterrupt(), Exit.INTERRUPTED, "stopped"),
        (KeyError("x"), Exit.DEFECT, "internal error (KeyError: 'x'); --debug shows where"),
        (MemoryError(), Exit.WRONG, "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), Exit.WRONG, "not enough"),
        (RecursionError(), Exit.WRONG, "the input is nested too deeply"),
        (
            OSError(errno.ENOSPC, "No space left on device", "a"),
            Exit.WRONG,
            "cannot write a: no space left on device",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "a"), Exit.WRONG, "cannot use a: "),
        (OSError(errno.ENOSPC, "No space left on device"), Exit.WRONG, "cannot write a file: "),
    ],
    ids=str,
)
def test_each_error_ends_with_a_code_of_its_own(
    end: End, error: BaseException, code: Exit, said: str | None
) -> None:
    ended = end(failing(error))
    assert ended.code == code
    lines = ended.stderr.splitlines()
    if said is None:
        assert not lines
    else:
        assert len(lines) == 1
        assert lines[0].startswith(f"fairtopk: {said}")


def test_help_and_the_page_list_every_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fairtopk", "--help"])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().out.partition("Exit codes:\n")[2].strip()
    listed = {f"{code.value} {code.meaning}" for code in Exit}
    assert {" ".join(line.split()) for line in told.splitlines()} == listed
    page = (Path(__file__).parents[2] / "docs" / "exit-codes.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.M)
    assert {f"{code} {meaning}" for code, meaning in rows} == listed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "c.toml", "--out", ""], "--out is empty; give it a value, or leave it out"),
        (["train", "c.toml", "--out="], "--out is empty; give it a value, or leave it out"),
        (["train", "", "--out", "a"], "an argument is empty; give it a value, or leave it out"),
        (["report", "runs\0"], "an argument holds a NUL character; leave it out"),
        (["audit", "a.csv", "--out=a\0b"], "--out holds a NUL character; leave it out"),
        (["train", "c.toml", "--out", "a", "--set", ""], "--set is empty; give it a value"),
    ],
)
def test_an_empty_word_and_a_nul_are_refused(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fairtopk", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == Exit.WRONG
    assert capsys.readouterr().err.startswith(f"fairtopk: {said}")
    assert not list(tmp_path.iterdir())


def test_what_standard_output_cannot_encode_is_written_out(
    monkeypatch: pytest.MonkeyPatch, end: End
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert end(lambda: say("Zoë")).code == Exit.DONE
    assert stream.buffer.getvalue() == b"Zo\\xeb\n"  # type: ignore[attr-defined]


SPEAKER = """
import sys, typer
from fairtopk.errors import Exit
from fairtopk.cli.console import run, say
app = typer.Typer()
@app.command()
def command() -> None:
    sys.stdin.read()  # until the reader of what is said has gone
    for place in range(20000):
        say(str(place))
    raise typer.Exit(Exit.MISSED)
run(app)
"""


def test_a_reader_that_leaves_changes_neither_work_nor_exit_code() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SPEAKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.close()
        _, told = child.communicate(timeout=900)
    assert child.returncode == Exit.MISSED
    assert told == b""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_device_for_output_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "fairtopk", "data", "list"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=900,
        )  # fmt: skip
    assert ended.returncode == Exit.WRONG
    assert ended.stderr == "fairtopk: cannot write a file: no space left on device\n"
