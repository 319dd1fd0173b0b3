"""`fairtopk recommend`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TimeRemainingColumn,
)
from typer import Argument, Option

from fairtopk.experiments.console import console, description, say, say_if_unfinished


def recommend(
    run: Annotated[Path, Argument(help="the folder of a run")],
    out: Annotated[Path, Option(help="the file to write, .parquet or .csv; replaced if there")],
    users: Annotated[
        Path | None,
        Option(help=".csv, .parquet, or .txt with an id in each line; default: all users"),
    ] = None,
    column: Annotated[str, Option(help="column of ids, where --users is a table")] = "user",
    k: Annotated[int, Option(help="items for each user")] = 10,
    include_rated: Annotated[
        bool, Option("--include-rated", help="also items that the user rated already")
    ] = False,
    data: Annotated[Path | None, Option(help="where the data is now, if it moved")] = None,
    csv_safe: Annotated[
        bool, Option("--csv-safe", help="csv: an apostrophe before text that a sheet would run")
    ] = False,
) -> None:
    """Write the best items of the whole catalogue for each user: user, item, rank, score.

    Users who are not in the data get the items with the most training ratings; they are marked
    in a column, fallback, and their scores are the numbers of ratings.

    Example: fairtopk recommend runs/first --users users.csv --k 10 --out recs.parquet
    """
    from fairtopk.experiments.recommended import read_users, recommend_run

    given = read_users(users, column=column) if users is not None else None
    with _progress() as told:
        written = recommend_run(
            run,
            out,
            users=given,
            k=k,
            include_rated=include_rated,
            csv_safe=csv_safe,
            data=data,
            progress=told,
        )
    unknown = (
        f", {written.unknown:,} of them unknown: most rated items" if written.unknown else ""
    )
    if k > written.n_items:
        say(
            f"--k is {k:,}, and there are {written.n_items:,} items: users get all that are "
            f"left"
        )
    say(f"{written.rows:,} items for {written.users:,} users{unknown}; written to {out}")
    say_if_unfinished(run)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (users done, total): a bar on a terminal, some lines elsewhere."""
    if not console.is_terminal:
        yield _line_every_tenth()
        return
    columns = (description(), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("users", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _line_every_tenth() -> Callable[[int, int], None]:
    shown = 0

    def tell(done: int, total: int) -> None:
        nonlocal shown
        tenth = 10 * done // total
        if shown < tenth < 10:  # the end has a line of its own
            shown = tenth
            say(f"{done:,} of {total:,} users")

    return tell
