"""Text that a spreadsheet would run as a formula, kept text (`--csv-safe`)."""

from pathlib import Path

import polars as pl

from fairtopk.errors import InputError

RUN = r"^[=+\-@\t\r\n]"  # how a cell begins that is run, or that hides one


def check_csv_safe(csv_safe: bool, out: Path) -> None:
    """Refuse to guard a file that is no CSV."""
    if csv_safe and out.suffix.lower() != ".csv":
        raise InputError(f"--csv-safe is for .csv files, and --out is {out}; leave it out")


def guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with an apostrophe before text that would be run; numbers stay.

    Names of columns are text too.
    """
    texts = (pl.String, pl.Categorical, pl.Enum)
    columns = [
        _guarded(column.cast(pl.String)) if isinstance(column.dtype, texts) else column
        for column in frame
    ]
    names = _guarded(pl.Series(frame.columns, dtype=pl.String))
    return pl.DataFrame([one.alias(name) for one, name in zip(columns, names, strict=True)])


def _guarded(text: pl.Series) -> pl.Series:
    return text.str.replace(RUN, "'${0}")
