"""Text from outside as it is shown."""

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fairtopk.terminal import plain, printable

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
        console.print(plain("[/x] [bold]b[/] :smile:"))
    assert captured.get() == "[/x] [bold]b[/] :smile:\n"
