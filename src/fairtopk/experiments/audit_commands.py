"""`fairtopk audit`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fairtopk.errors import InputError
from fairtopk.experiments.console import console, whole_numbers


def audit(
    file: Annotated[Path, Argument(help="CSV or Parquet: a row per query and item")],
    query: Annotated[str, Option(help="column of queries")],
    item: Annotated[str, Option(help="column of items")],
    groups: Annotated[str, Option(help="columns of labels, such as sex,region")],
    k: Annotated[str, Option(help="lengths of the top, such as 10,50")],
    score: Annotated[str | None, Option(help="column of scores, or else --rank")] = None,
    rank: Annotated[str | None, Option(help="column of ranks, 1 is best")] = None,
    relevance: Annotated[str | None, Option(help="column of grades, for NDCG")] = None,
    items: Annotated[Path | None, Option(help="table of items that has the labels")] = None,
    items_item: Annotated[
        str | None, Option(help="its column of items; default: --item")
    ] = None,
    intersections: Annotated[
        bool, Option("--intersections", help="audit the product of the columns as well")
    ] = False,
    min_group: Annotated[int, Option(help="mark groups with fewer items")] = 30,
    baseline: Annotated[Path | None, Option(help="other rankings: what changes")] = None,
    fail_if: Annotated[
        list[str] | None, Option(help="end with exit code 1 if 'impact_ratio@10 < 0.8'")
    ] = None,
    out: Annotated[Path | None, Option(help="folder for audit.json and audit.html")] = None,
    separator: Annotated[str, Option(help="csv: what separates fields")] = ",",
    seed: Annotated[int, Option(help="of resamples and shuffles")] = 0,
) -> None:
    """Measure rankings made elsewhere: who gets what in the top K, and is it chance.

    FILE holds all candidates of each list, not only its top. The exit code is 1 if a rule of
    --fail-if holds.

    Example: fairtopk audit ranked.csv --query user --item film --score score --groups genre
    --k 10,50 --fail-if "impact_ratio@10 < 0.8" --out audits/first
    """
    from fairtopk.auditing.audit import audit as audit_rankings
    from fairtopk.data.files import write_text
    from fairtopk.reporting.audit_page import audit_page

    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a folder")
    with console.status(f"measuring {file.name}"):
        found = audit_rankings(
            file,
            query=query,
            item=item,
            score=score,
            rank=rank,
            relevance=relevance,
            groups=[one.strip() for one in groups.split(",")],
            items=items,
            items_item=items_item,
            k=whole_numbers(k),
            intersections=intersections,
            min_group=min_group,
            baseline=baseline,
            fail_if=fail_if or (),
            separator="\t" if separator == "\\t" else separator,  # as a shell hands it over
            seed=seed,
        )
    console.print(found.table(), highlight=False)
    if out is not None:
        kept, page = found.save(out), out / "audit.html"
        write_text(page, audit_page(found.to_dict()))
        console.print(f"written to {kept} and {page}", highlight=False, soft_wrap=True)
    if found.failed:
        raise typer.Exit(1)
    if found.unchecked:
        raise InputError(
            f"the rule {found.unchecked[0]!r} cannot be checked: its metric is undefined in "
            f"{file.name}"
        )
