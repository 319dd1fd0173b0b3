"""Where rows came from, so that an error can point at the bad one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """The name of a table and, for a text file, the line of its first row."""

    name: str = "the table"
    first_line: int | None = None

    def row(self, index: int) -> str:
        """Return the place of row `index` in words: a line of a file, or a row from 0."""
        if self.first_line is None:
            return f"row {index} of {self.name}"
        return f"{self.name}, line {self.first_line + index}"
