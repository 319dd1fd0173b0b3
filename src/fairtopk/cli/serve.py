"""`fairtopk recommend`.

`fairtopk export`.

`fairtopk report`.
"""

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

from fairtopk.cli.console import console, description, say, say_if_unfinished


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
    from fairtopk.serving.recommend import read_users, recommend_run

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


def export(
    run: Annotated[Path, Argument(help="the folder of a run")],
    out: Annotated[
        Path, Argument(metavar="MODEL.onnx", help="the file to write; replaced if there")
    ],
    data: Annotated[Path | None, Option(help="where the data is now, if it moved")] = None,
) -> None:
    """Write a run's model as ONNX, checked against the original, with a card beside it.

    The model takes numbers of users and items, or features of documents, and no groups. The
    ids behind the numbers are written beside it.

    Example: fairtopk export runs/first model.onnx
    """
    from fairtopk.serving.export import export_run

    exported = export_run(run, out, data=data)
    say(
        f"takes {' and '.join(exported.inputs)}, no groups; scores are off by at most "
        f"{exported.off:.1g} of the largest"
    )
    files = ", ".join(str(file) for file in exported.files)
    say(f"written: {files}")
    say_if_unfinished(run)


def report(
    folder: Annotated[Path, Argument(metavar="DIR", help="a folder of runs, at any depth")],
    out: Annotated[
        Path | None, Option(help="the page to write; default: report.html in the folder")
    ] = None,
    figures: Annotated[Path | None, Option(help="folder for the curves as PDF and PNG")] = None,
) -> None:
    """Write one page about all finished runs in a folder: it opens from disk, without network.

    Runs that are not finished, or cannot be read, are named and left out.

    Example: fairtopk report runs --out report.html --figures figures
    """
    from fairtopk.reporting.page import report as write_report

    page = write_report(folder, out=out, figures=figures)
    say(f"written to {page}")
    if figures is not None:
        say(f"figures in {figures}")
