"""`fairtopk data`: list the known data sets, download and prepare one."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from fairtopk.cli.console import console, progress_bar, say
from fairtopk.errors import InputError

data_app = typer.Typer(
    help="List the known data sets and prepare one for use.", rich_markup_mode=None
)


@data_app.command("list")
def list_data() -> None:
    """List the data sets known by name: size, groups, licence and where to get them.

    Example: fairtopk data list
    """
    from fairtopk.data.registry import KNOWN

    for name, known in KNOWN.items():
        say(f"{name}: {known.title}, {known.size}")
        say(f"  groups by {known.groups}")
        say(f"  licence: {known.licence}")
        say(f"  from: {known.home}")


@data_app.command("prepare")
def prepare_data(
    name: Annotated[str, Argument(help="a name from 'fairtopk data list'")],
    source: Annotated[
        Path | None, Option("--from", help="the published zip, its folder, or your file")
    ] = None,
    out: Annotated[Path | None, Option(help="new folder; default: in your data folder")] = None,
    accept_licence: Annotated[
        bool, Option("--accept-licence", help="accept the licence without a question")
    ] = False,
    user: Annotated[str | None, Option(help="csv, parquet: column of users")] = None,
    item: Annotated[str | None, Option(help="csv, parquet: column of items")] = None,
    rating: Annotated[str | None, Option(help="csv, parquet: column of ratings")] = None,
    implicit: Annotated[
        bool, Option("--implicit", help="csv, parquet: no ratings; each row counts as 1")
    ] = False,
    time: Annotated[str | None, Option(help="csv, parquet: column of times")] = None,
    items: Annotated[Path | None, Option(help="csv, parquet: file with a row per item")] = None,
    query: Annotated[str | None, Option(help="csv, parquet of features: queries")] = None,
    relevance: Annotated[str | None, Option(help="csv, parquet of features: grades")] = None,
    separator: Annotated[str | None, Option(help="csv: separator of fields")] = None,
    subset: Annotated[int | None, Option(help="netflix: size of a random subset")] = None,
    seed: Annotated[int | None, Option(help="netflix: seed of that subset")] = None,
    column: Annotated[str | None, Option(help="check groups: column of items")] = None,
    contains: Annotated[str | None, Option(help="check groups: value in a list")] = None,
    equals: Annotated[str | None, Option(help="check groups: equal to")] = None,
    below: Annotated[float | None, Option(help="check groups: number below")] = None,
    at_least: Annotated[float | None, Option(help="check groups: number at least")] = None,
) -> None:
    """Read a data set, check it, and write it as Parquet with a card of checksums.

    Without --from the published file is downloaded.

    Example: fairtopk data prepare movielens-1m --from ml-1m.zip --out data/ml-1m
    """
    from fairtopk.data.groups import GroupRule
    from fairtopk.data.prepared import refuse_used
    from fairtopk.data.registry import data_home, prepare

    reading = {
        "user": user, "item": item, "rating": rating, "time": time, "items": items,
        "query": query, "relevance": relevance, "subset": subset, "seed": seed,
        "separator": "\t" if separator == "\\t" else separator,  # as a shell hands over a tab
    }  # fmt: skip
    options: dict[str, Any] = {
        key: value for key, value in reading.items() if value is not None
    }
    if implicit:
        options["rating"] = None
    conditions = {"contains": contains, "equals": equals, "below": below, "at_least": at_least}
    given = {key: value for key, value in conditions.items() if value is not None}
    if given and column is None:
        raise InputError(f"--{next(iter(given)).replace('_', '-')} needs --column")
    rule = GroupRule.from_mapping({"column": column, **given}) if column is not None else None
    target = out if out is not None else data_home() / name
    refuse_used(target)
    file = source if source is not None else fetch(name, accept_licence=accept_licence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the card's notes say the same
        card = prepare(name, file, target, groups=rule, **options)
    for note in card["notes"]:
        say(f"- {note}")
    say(f"{card['title']} is in {target}:")
    for written, checksum in card["files"].items():
        say(f"  {checksum}  {written}")


def fetch(name: str, *, accept_licence: bool) -> Path:
    """Return the published file of a data set, downloaded after its licence is accepted."""
    from fairtopk.data.download import download
    from fairtopk.data.registry import acknowledge, acknowledged, data_home, known_data

    known = known_data(name, to_prepare=True)
    if known.url is None:
        raise InputError(f"{name} cannot be downloaded ({known.home}); pass it with --from")
    if name not in acknowledged(data_home()):
        say(f"{known.title}. {known.licence}. Terms: {known.home}")
        if not accept_licence and not (console.is_terminal and typer.confirm("Do you agree?")):
            raise InputError(f"{name} needs your agreement; pass --accept-licence to give it")
        acknowledge(name, known.licence, data_home())
    target = data_home() / "downloads" / known.file
    with progress_bar(unit="bytes") as bar:
        return download(
            known.url,
            target,
            home=known.home,
            md5=known.md5,
            progress=lambda done, total: bar(known.file, done, total or 0),
        ).path
