"""Text from outside as it is shown, and who may print."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import fairtopk
from fairtopk.terminal import DASH, literal, mean_cell, number, printable

ANY = st.text(st.characters(exclude_categories=()))  # lone surrogates too


@given(ANY)
def test_whatever_it_holds_a_text_is_one_line_that_steers_nothing(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in shown)
    shown.encode("utf-8")


def test_what_turns_or_ends_a_line_is_written_out() -> None:
    assert printable("a\x1b[2Jb\r\n\x7f\x9b") == "a\\x1b[2Jb\\x0d\\x0a\\x7f\\x9b"
    assert printable("\u202egpj.\u2066\udcff\u2028") == "\\u202egpj.\\u2066\\udcff\\u2028"
    assert printable("Zoë, 日本 [/x] :smile:") == "Zoë, 日本 [/x] :smile:"


def test_nothing_in_a_table_is_markup() -> None:
    console = Console()
    with console.capture() as captured:
        console.print(literal("[/x] [bold]b[/] :smile:"))
    assert captured.get() == "[/x] [bold]b[/] :smile:\n"


def test_only_the_command_line_prints() -> None:
    package = Path(fairtopk.__file__).parent
    prints = re.compile(r"(?<![\w.])print\(|\bConsole\(|\bsys\.std(out|err)\b")
    printing = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if prints.search(path.read_text())
    }
    # The second renders a table into a text, which it returns.
    assert {path for path in printing if not path.startswith("cli/")} == {"terminal.py"}


def test_a_number_and_a_mean_that_are_undefined_say_so() -> None:
    assert number(None) == number(float("nan")) == DASH
    assert number(0.000123456) == "0.0001235"
    assert mean_cell(None, (None, None)) == "undefined"
    assert mean_cell(0.5, (None, None)) == "0.5"
    assert mean_cell(0.5, (0.4, 0.6)) == "0.5 ±0.1"
