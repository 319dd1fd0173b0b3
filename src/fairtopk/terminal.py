"""Text from outside, made harmless for the place where it is shown."""

import html
import re
import reprlib
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    pass

# What steers a terminal, breaks a line, or turns the direction of the text around it.
STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def printable(text: str) -> str:
    r"""Return text on one line, with control characters written out.

    Example:
        >>> printable("a\x1b[31m\nb")
        'a\\x1b[31m\\x0ab'
    """
    return STEERING.sub(lambda found: _written_out(ord(found[0])), text)


def plain(text: str, *, style: str = "") -> Text:
    """Return the same for a table of rich, which takes nothing of it for markup."""
    return Text(printable(text), style=style)


def markdown(text: object) -> str:
    r"""Return text that is neither HTML nor Markdown, and stays in its cell of a table.

    Example:
        >>> markdown("<b>a|b</b> [c](d)")
        '&lt;b&gt;a\\|b&lt;/b&gt; \\[c\\](d)'
    """
    marked = re.sub(r"([\\`*\[\]|])", r"\\\1", printable(str(text)))
    return html.escape(marked, quote=False)


def _written_out(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


LONGEST_SHOWN = 80  # characters of a value in a message


_SHORT = reprlib.Repr()


def shown(value: object) -> str:
    """Return a value for a message: on one line and short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length():,} bits"
    _SHORT.maxstring = _SHORT.maxother = LONGEST_SHOWN
    try:
        text = _SHORT.repr(value)
    except Exception:  # a foreign class may raise anything here
        text = type(value).__name__
    return " ".join(text.split())[: 2 * LONGEST_SHOWN]


def table(title: str, *columns: str) -> Table:
    """Return an empty table for the terminal; all columns but the first align to the right."""
    made = Table(title=plain(title, style="bold"), title_justify="left", header_style="bold")
    for place, column in enumerate(columns):
        made.add_column(plain(column), justify="left" if place == 0 else "right")
    return made


def add_row(shown: Table, *cells: str) -> None:
    """Add cells to a table as they are, with control characters written out."""
    shown.add_row(*map(plain, cells))
