"""Where rows came from, so that an error can point at the bad one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """The name of a table and, for a text file, the line of its first row.

    A table of several files has the first row of each and its origin in `parts`.
    """

    name: str = "the table"
    first_line: int | None = None
    parts: tuple[tuple[int, "Origin"], ...] = ()

    def row(self, index: int) -> str:
        """Return the place of row `index` in words: a line of a file, or a row from 0."""
        for start, part in reversed(self.parts):
            if index >= start:
                return part.row(index - start)
        if self.first_line is None:
            return f"row {index} of {self.name}"
        return f"{self.name}, line {self.first_line + index}"
