"""`fairtopk audit`: measure the exposure of groups in rankings made elsewhere."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fairtopk.cli.console import (
    SECONDS_BETWEEN_LINES,
    ProgressBar,
    as_separator,
    console,
    lengths,
    say,
)
from fairtopk.errors import Exit, InputError

PAGE = "audit.html"


def audit(
    query: Annotated[str, Option(help="column with the query of each row")],
    item: Annotated[str, Option(help="column with the item of each row")],
    groups: Annotated[str, Option(help="columns with group labels, such as sex,region")],
    k: Annotated[str, Option(help="lengths of the top, such as 10,50")],
    files: Annotated[
        list[Path] | None,
        Argument(
            metavar="FILE...",
            help="CSV or Parquet with a row per query and item; several files, or a folder of "
            "Parquet files, are read as one table",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        Option("--glob", help="instead of FILE: a pattern such as 'parts/*.parquet'"),
    ] = None,
    score: Annotated[str | None, Option(help="column of scores; either this or --rank")] = None,
    rank: Annotated[str | None, Option(help="column of ranks, 1 is best")] = None,
    relevance: Annotated[
        str | None, Option(help="column of relevance grades, for NDCG")
    ] = None,
    items: Annotated[Path | None, Option(help="table of items with their labels")] = None,
    items_item: Annotated[
        str | None, Option(help="column of items in that table; default: --item")
    ] = None,
    local_items: Annotated[
        bool, Option("--local-items", help="item ids are only unique within a query")
    ] = False,
    intersections: Annotated[
        bool, Option("--intersections", help="also audit all columns combined")
    ] = False,
    min_group: Annotated[int, Option(help="mark groups with fewer items than this")] = 30,
    baseline: Annotated[Path | None, Option(help="other rankings to compare with")] = None,
    fail_if: Annotated[
        list[str] | None, Option(help="rule for exit code 1, such as 'impact_ratio@10 < 0.8'")
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            help="folder for audit.json and audit.html, which replace those of an earlier audit"
        ),
    ] = None,
    separator: Annotated[str, Option(help="csv: separator of fields")] = ",",
    seed: Annotated[int, Option(help="seed of resamples and shuffles")] = 0,
) -> None:
    """Measure the exposure of groups in the top K of rankings made elsewhere.

    FILE holds all candidates of each list, not only its top; its name is taken literally. The
    exit code is 1 if a rule of --fail-if holds.

    Example: fairtopk audit ranked.csv --query user --item film --score score --groups genre
    --k 10,50 --fail-if "impact_ratio@10 < 0.8" --out audits/first
    """
    from fairtopk.auditing.audit import AUDIT
    from fairtopk.auditing.audit import audit as audit_rankings
    from fairtopk.auditing.rankings import matching, name_of
    from fairtopk.reporting.page import audit_page
    from fairtopk.storage import check_target, together, write_text

    if (pattern is None) == (not files):
        raise InputError("give either the files to audit or a pattern with --glob")
    source = matching(pattern) if pattern is not None else files or []
    if out is not None:
        if out.is_file():
            raise InputError(f"--out {out} is a file; give a folder")
        for name in (AUDIT, PAGE):
            check_target(out / name, endings=(".json", ".html"))
    with ProgressBar(pause=SECONDS_BETWEEN_LINES) as bar:
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
            k=lengths(k),
            intersections=intersections,
            min_group=min_group,
            baseline=baseline,
            fail_if=fail_if or (),
            separator=as_separator(separator),
            seed=seed,
            progress=bar,
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
