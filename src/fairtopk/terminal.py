"""Text for terminals and messages: control characters, numbers, cells and tables."""

import html
import io
import re
import reprlib
from collections.abc import Callable, Sequence

import rich.console
from rich.table import Table
from rich.text import Text

# What steers a terminal, breaks a line, or turns the direction of the text around it.
STEERING = [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F)]
STEERING += [*range(0x2066, 0x206A), *range(0xD800, 0xE000), 0xFEFF]
WRITTEN_OUT = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in STEERING
}
LONGEST_SHOWN = 80  # characters of a value in a message
UNDEFINED, DASH = "undefined", "\u2013"

Progress = Callable[[str, int, int], None]  # what is being done, how much of it, of how much

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST_SHOWN


def printable(text: str) -> str:
    r"""Return text on one line, with control characters written out.

    Example:
        >>> printable("a\x1b[31m\nb")
        'a\\x1b[31m\\x0ab'
    """
    return text.translate(WRITTEN_OUT)


def literal(text: str, *, style: str = "") -> Text:
    """Return printable text in which rich finds no markup."""
    return Text(printable(text), style=style)


def markdown(text: object) -> str:
    r"""Return text that is neither HTML nor Markdown, and stays in its cell of a table.

    Example:
        >>> markdown("<b>a|b</b> [c](d)")
        '&lt;b&gt;a\\|b&lt;/b&gt; \\[c\\](d)'
    """
    marked = re.sub(r"([\\`*\[\]|])", r"\\\1", printable(str(text)))
    return html.escape(marked, quote=False)


def shown(value: object) -> str:
    """Return a value for a message: on one line and short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length():,} bits"
    try:
        text = _SHORT.repr(value)
    except Exception:  # a foreign class may raise anything here
        text = type(value).__name__
    return " ".join(text.split())[: 2 * LONGEST_SHOWN]


def number(value: float | None, *, digits: int = 4, undefined: str = DASH) -> str:
    """Return a number in a few significant digits; None and NaN are `undefined`.

    Example:
        >>> number(0.123456), number(float("nan"))
        ('0.1235', '–')
    """
    return undefined if value is None or value != value else f"{value:.{digits}g}"


def mean_cell(
    mean: float | None,
    interval: Sequence[float | None],
    *,
    digits: int = 3,
    undefined: str = UNDEFINED,
) -> str:
    """Return a mean with half of its interval, and alone where there is no interval.

    Example:
        >>> mean_cell(0.1234, (0.1, 0.14))
        '0.123 ±0.02'
    """
    low, high = interval
    text = number(mean, digits=digits, undefined=undefined)
    if text == undefined or low is None or high is None or low != low:
        return text
    return f"{text} ±{(high - low) / 2:.1g}"


def count(n: int, noun: str) -> str:
    """Return a number of things, such as ``1 run`` or ``1,200 runs``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def table(title: str, *columns: str) -> Table:
    """Return an empty table; cells that are too wide are folded, never cut."""
    made = Table(title=literal(title, style="bold"), header_style="bold")
    made.title_justify = made.caption_justify = "left"
    for place, column in enumerate(columns):
        justify = "left" if place == 0 else "right"
        made.add_column(literal(column), justify=justify, overflow="fold")  # type: ignore[arg-type]
    return made


def add_row(shown: Table, *cells: str) -> None:
    """Add cells of literal text to a table."""
    shown.add_row(*map(literal, cells))


def as_text(rendered: object) -> str:
    """Return what rich shows of an object, as plain text of up to 200 columns."""
    console = rich.console.Console(file=io.StringIO(), width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(rendered)
    return captured.get().rstrip("\n")
