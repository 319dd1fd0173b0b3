"""Tables for papers."""

from collections.abc import Sequence

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def latex_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a ``tabular`` for the package booktabs; the first column is text, others numbers.

    Args:
        header: A text per column.
        rows: Cells as text; a number may be like ``1e-05``, and ``nan`` becomes a dash.
    """
    lines = [
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        _line([escaped(cell) for cell in header]),
        r"\midrule",
        *(_line([escaped(row[0]), *map(_number, row[1:])]) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return text that LaTeX sets as it is."""
    return "".join(SPECIAL.get(sign, sign) for sign in text)


def _line(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _number(text: str) -> str:
    if text == "nan":
        return "--"
    mantissa, _, exponent = text.partition("e")
    power = rf" \times 10^{{{int(exponent)}}}" if exponent else ""
    return f"${mantissa}{power}$"
