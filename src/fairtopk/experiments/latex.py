"""Tables for papers."""

from collections.abc import Sequence

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
SIGNS = {  # that letters of most fonts lack
    "±": r"$\pm$",
    "\u2013": "--",
    ">": "$>$",
    "<": "$<$",
    "²": "$^2$",
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


def latex_words(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int, lines: Sequence[bool]
) -> str:
    """Return a ``tabular`` for the package booktabs, whose cells may be any words.

    Args:
        header: A text per column.
        rows: Cells as text.
        texts: How many columns, from the first, are set to the left.
        lines: Of each row, whether a rule is above it; the first has one anyway.
    """
    body = []
    for place, (row, line) in enumerate(zip(rows, lines, strict=True)):
        body += [r"\midrule"] if line and place else []
        body.append(_line(list(map(_words, row))))
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{'l' * texts}{'r' * (len(header) - texts)}}}",
            r"\toprule",
            _line(list(map(_words, header))),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _words(text: str) -> str:
    return "".join(SIGNS.get(sign, sign) for sign in escaped(text))
