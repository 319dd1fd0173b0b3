"""Markdown of the published pages: tables, and the marks that they stand between."""

import re
from collections.abc import Iterable, Mapping


def fill_marks(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with each table between the two comments ``<!-- name -->`` of its name."""
    for name, table in tables.items():
        mark = re.escape(f"<!-- {name} -->")
        page = re.sub(f"({mark}\n).*?({mark})", rf"\1{table}\n\2", page, flags=re.DOTALL)
    return page


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Return a table as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
