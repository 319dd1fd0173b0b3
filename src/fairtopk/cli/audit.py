"""`fairtopk audit`."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TimeRemainingColumn,
)
from typer import Argument, Option

from fairtopk.cli.console import console, description, say, whole_numbers
from fairtopk.errors import Exit, InputError
from fairtopk.terminal import printable

if TYPE_CHECKING:
    from fairtopk.auditing.measures import Progress as Told

PAGE = "audit.html"
SECONDS_BETWEEN_LINES = 10


def audit(
    query: Annotated[str, Option(help="column of queries")],
    item: Annotated[str, Option(help="column of items")],
    groups: Annotated[str, Option(help="columns of labels, such as sex,region")],
    k: Annotated[str, Option(help="lengths of the top, such as 10,50")],
    files: Annotated[
        list[Path] | None,
        Argument(
            metavar="FILE...",
            help="CSV or Parquet: a row per query and item; several, or a folder of Parquet "
            "files, are read as one table",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        Option("--glob", help="instead of FILE: all files that match, as 'parts/*.parquet'"),
    ] = None,
    score: Annotated[str | None, Option(help="column of scores, or else --rank")] = None,
    rank: Annotated[str | None, Option(help="column of ranks, 1 is best")] = None,
    relevance: Annotated[str | None, Option(help="column of grades, for NDCG")] = None,
    items: Annotated[Path | None, Option(help="table of items that has the labels")] = None,
    items_item: Annotated[
        str | None, Option(help="its column of items; default: --item")
    ] = None,
    local_items: Annotated[
        bool, Option("--local-items", help="an id names another item in each query")
    ] = False,
    intersections: Annotated[
        bool, Option("--intersections", help="audit the product of the columns as well")
    ] = False,
    min_group: Annotated[int, Option(help="mark groups with fewer items")] = 30,
    baseline: Annotated[Path | None, Option(help="other rankings: what changes")] = None,
    fail_if: Annotated[
        list[str] | None, Option(help="end with exit code 1 if 'impact_ratio@10 < 0.8'")
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            help="folder to write audit.json and audit.html into; made if it is not there, and "
            "the files of an earlier audit in it are overwritten"
        ),
    ] = None,
    separator: Annotated[str, Option(help="csv: what separates fields")] = ",",
    seed: Annotated[int, Option(help="of resamples and shuffles")] = 0,
) -> None:
    """Measure rankings made elsewhere: who gets what in the top K, and is it chance.

    FILE holds all candidates of each list, not only its top; its name is taken literally. The
    exit code is 1 if a rule of --fail-if holds.

    Example: fairtopk audit ranked.csv --query user --item film --score score --groups genre
    --k 10,50 --fail-if "impact_ratio@10 < 0.8" --out audits/first
    """
    from fairtopk.auditing.audit import AUDIT
    from fairtopk.auditing.audit import audit as audit_rankings
    from fairtopk.auditing.rankings import matching, name_of
    from fairtopk.reporting.page import audit_page
    from fairtopk.storage import together, write_text

    if (pattern is None) == (not files):
        raise InputError("give the files to audit, or a pattern of them with --glob; not both")
    source = matching(pattern) if pattern is not None else files or []
    if out is not None:
        _check_folder(out, (AUDIT, PAGE))
    with _progress() as told:
        found = audit_rankings(
            source,
            query=query,
            item=item,
            score=score,
            rank=rank,
            relevance=relevance,
            groups=[one.strip() for one in groups.split(",")],
            items=items,
            items_item=items_item,
            local_items=local_items,
            k=whole_numbers(k),
            intersections=intersections,
            min_group=min_group,
            baseline=baseline,
            fail_if=fail_if or (),
            separator="\t" if separator == "\\t" else separator,  # as a shell hands it over
            seed=seed,
            progress=told,
        )
    console.print(found.table())
    if out is not None:
        with together(out / PAGE) as folder:  # both or none
            found.save(folder)
            write_text(folder / PAGE, audit_page(found.to_dict()))
        say(f"written to {out / AUDIT} and {out / PAGE}")
    if found.failed:
        raise typer.Exit(Exit.MISSED)
    if found.unchecked:
        raise InputError(
            f"the rule {found.unchecked[0]!r} cannot be checked: its metric is undefined in "
            f"{name_of(source)}"
        )


@contextmanager
def _progress() -> Iterator["Told"]:
    """Yield what tells how far an audit is: a bar on a terminal, a line at times elsewhere."""
    if not console.is_terminal:
        yield _line_at_times()
        return
    columns = (description(), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:

        def tell(what: str, done: int, total: int) -> None:
            what = printable(what)
            for task in bar.tasks:
                if task.description != what:
                    bar.remove_task(task.id)
            if not bar.tasks:
                bar.add_task(what, total=total or None)
            bar.update(bar.tasks[0].id, completed=done)

        yield tell


def _line_at_times() -> "Told":
    shown = time.monotonic()

    def tell(what: str, done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - shown >= SECONDS_BETWEEN_LINES:
            shown = time.monotonic()
            share = f": {100 * done // total} %" if total else ""
            say(f"{what}{share}")

    return tell


def _check_folder(out: Path, names: tuple[str, ...]) -> None:
    """Refuse a folder that cannot be written to, before there is something to write."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a folder")
    for name in names:
        if (out / name).is_dir():
            raise InputError(f"--out {out} has a folder called {name}; give another folder")
    above = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise InputError(f"--out {out} cannot be made: {above} is a file")
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise InputError(f"--out {out} cannot be written to: {above}: {what}") from error
