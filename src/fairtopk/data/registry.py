"""Data sets known by name: where to get them, `load` and `prepare`.

Counts are those of the published files; checksums are the MD5 sums their publisher lists. The
user's folder of data (`data_home`) holds prepared data and the licences that were accepted.
"""

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import polars as pl
from pydantic import ConfigDict, ValidationError, validate_call
from pydantic.dataclasses import dataclass as pydantic_dataclass

from fairtopk.checks import checked_path
from fairtopk.data import letor, movielens, netflix, prepared, synthetic
from fairtopk.data.archive import Archive
from fairtopk.data.features import Features
from fairtopk.data.groups import GroupRule, Groups, apply_rule, as_rule
from fairtopk.data.interactions import Interactions, Tables, interactions_from
from fairtopk.data.tables import read_features_file, read_ratings_file
from fairtopk.errors import InputError
from fairtopk.storage import md5_of, read_small, sha256_of, write_text
from fairtopk.terminal import shown

GROUPLENS = "https://grouplens.org/datasets/movielens/"
MOVIELENS_FILES = "https://files.grouplens.org/datasets/movielens/"
RESEARCH_ONLY = "GroupLens terms: research use, cite, no commercial use, no redistribution"
PASS_ON = "GroupLens terms: research use, cite, no commercial use, pass on under the same terms"

LICENCES = "licences.json"
Rule = Mapping[str, Any] | GroupRule | Groups | None
STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
OWN_FILES = ("csv", "parquet", "letor")


class Counts(NamedTuple):
    """How many the published files hold; `items` are those that somebody rated."""

    ratings: int
    users: int
    items: int


@dataclass(frozen=True)
class Known:
    """A data set by name."""

    title: str  # what people call it
    size: str  # how much it holds, in a few words
    groups: str  # columns that a group rule can use
    licence: str  # the terms, in one line
    home: str  # the page to get it from
    file: str = ""  # the file to get there, where there is one
    url: str | None = None  # where that file can be downloaded; None where it cannot
    md5: str | None = None  # its published checksum; None where the file changes over time
    counts: Counts | None = None  # what it holds; None where that changes over time


RESEARCH_ONLY_SETS = ("100K", "1M", "10M")
MOVIELENS: dict[str, Known] = {}
for _title, _counts, _md5 in (
    ("100K", Counts(100_000, 943, 1_682), "0e33842e24a9c977be4e0107933c0723"),
    ("1M", Counts(1_000_209, 6_040, 3_706), "c4d9eecfca2ab87c1945afe126590906"),
    ("10M", Counts(10_000_054, 69_878, 10_677), "ce571fd55effeba0271552578f2648bd"),
    ("20M", Counts(20_000_263, 138_493, 26_744), "cd245b17a1ae2cc31bb14903e1204af3"),
    ("25M", Counts(25_000_095, 162_541, 59_047), "6b51fb2759a8657d3bfcbfc42b592ada"),
    # The publisher replaces these two now and then; the small one has stood since 9/2018.
    ("latest small", Counts(100_836, 610, 9_724), None),
    ("latest", None, None),
):
    _short = _title.lower().replace(" ", "-")
    MOVIELENS[f"movielens-{_short}"] = Known(
        title=f"MovieLens {_title}",
        size="changes over time" if _counts is None else f"{_counts.ratings:,} ratings",
        groups="genres, year",
        licence=RESEARCH_ONLY if _title in RESEARCH_ONLY_SETS else PASS_ON,
        home=f"{GROUPLENS}{_short.removesuffix('-small')}/",
        file=f"ml-{_short}.zip",
        url=f"{MOVIELENS_FILES}ml-{_short}.zip",
        md5=_md5,
        counts=_counts,
    )

KNOWN: dict[str, Known] = {
    "synthetic": Known(
        title="Embedded generator",
        size="any, 'demo' or 'movielens-20m' shape",
        groups="made with a known bias",
        licence="Apache-2.0, as the package",
        home="comes with the package",
    ),
    **MOVIELENS,
    "netflix": Known(
        title="Netflix Prize",
        size="100,480,507 ratings",
        groups="year",
        licence="Netflix Prize terms: research use, no redistribution, never identify users",
        home="withdrawn by Netflix; use a copy you hold under its terms",
        counts=Counts(100_480_507, 480_189, 17_770),
    ),
    "letor": Known(
        title="LETOR / SVMrank text",
        size="your files",
        groups="any feature, or a side table",
        licence="that of your files",
        home="your files; MQ2008 is at microsoft.com/research, 'LETOR 4.0'",
    ),
    **{
        title.lower(): Known(title, "your file", "any column", "that of your file", "your file")
        for title in ("CSV", "Parquet")
    },
}


def known_data(name: str, *, to_prepare: bool = False) -> Known:
    """Return a data set by name, refusing an unknown one, and one with nothing to prepare."""
    if not isinstance(name, str) or name not in KNOWN:
        raise InputError(f"unknown data set {shown(name)}: the names are {', '.join(KNOWN)}")
    if to_prepare and name == "synthetic":
        raise InputError("synthetic data is generated when it is loaded; nothing to prepare")
    return KNOWN[name]


def data_home() -> Path:
    """Return the user's folder for data: FAIRTOPK_HOME, else the platform's usual place."""
    if chosen := os.environ.get("FAIRTOPK_HOME"):
        return Path(chosen).expanduser()
    usual = {"darwin": "~/Library/Application Support", "win32": "~/AppData/Local"}
    folder = usual.get(sys.platform) or os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    try:
        return Path(folder).expanduser() / "fairtopk"
    except RuntimeError as error:  # a user without an entry, as in some containers
        raise InputError(
            "the user has no home folder; set FAIRTOPK_HOME to a folder for data"
        ) from error


def warmups_home() -> Path | None:
    """Return the folder where runs share their warm-ups; None for a user without a home."""
    try:
        return data_home() / "warmups"
    except InputError:
        return None


def acknowledged(folder: Path) -> dict[str, str]:
    """Return the licence agreed to for each data set; asking again mends a damaged file."""
    try:
        agreed = json.loads(read_small(folder / LICENCES))
    except (ValueError, RecursionError):  # what cannot be read at all is an InputError
        return {}
    return agreed if isinstance(agreed, dict) else {}


def acknowledge(name: str, licence: str, folder: Path) -> None:
    """Remember in `folder` that the user has agreed to `licence` for the data set `name`."""
    agreed = acknowledged(folder) | {name: licence}
    write_text(folder / LICENCES, json.dumps(agreed, indent=2) + "\n")


READERS: dict[str, Callable[..., Tables]] = {
    **dict.fromkeys(MOVIELENS, partial(movielens.read_movielens, wanted=movielens.LAYOUT_CSV)),
    **dict.fromkeys(
        ("movielens-1m", "movielens-10m"),
        partial(movielens.read_movielens, wanted=movielens.LAYOUT_DAT),
    ),
    "movielens-100k": partial(movielens.read_movielens, wanted=movielens.LAYOUT_100K),
    "netflix": netflix.read_netflix,
    **dict.fromkeys(("csv", "parquet"), read_ratings_file),
}


@overload
def load(
    name: Literal["letor"], path: str | Path, *, groups: Rule = None, **options: Any
) -> Features: ...
@overload
def load(
    name: str, path: str | Path, *, query: str, groups: Rule = None, **options: Any
) -> Features: ...
@overload
def load(
    name: str, path: str | Path | None = None, *, groups: Rule = None, **options: Any
) -> Interactions: ...
def load(
    name: str, path: str | Path | None = None, *, groups: Rule = None, **options: Any
) -> Interactions | Features:
    """Return the data set `name`, checked; its `notes` say what was found.

    Args:
        name: A name of ``fairtopk data list``.
        path: The published zip, its folder, a folder made by ``fairtopk data prepare``, or your
            own file. Left out, the prepared folder in the user's data folder is looked for.
        groups: A rule such as ``{"column": "genres", "contains": "Horror"}``, or labels made
            by `groups_from`. Left out, every item's group is unknown.
        **options: What the reader of that name takes. ``csv``, ``parquet``: user, item, rating,
            time, items, separator; or, for features, query, relevance, features, item.
            ``netflix``: subset, seed. ``synthetic``: size, bias, seed.

    Raises:
        InputError: The name is unknown, or the files are not what they should be.
    """
    known_data(name)
    if name == "synthetic":
        if path is not None or groups is not None:
            raise InputError("synthetic data takes no path and brings its own groups")
        data: Interactions = _call(synthetic.load_synthetic, name, **options)
        return data
    rule = as_rule(groups)
    found = read(name, path, rule, options)
    return found if isinstance(found, Features) else grouped(name, path, found, rule)


def grouped(
    name: str, path: str | Path | None, tables: Tables, rule: GroupRule | Groups | None
) -> Interactions:
    """Return the interactions of tables as read, checked, with what was found in `notes`.

    A known data set that is not whole is worth a warning; one published data set under the name
    of another, recognised by its counts, is refused. A file at `path` that is not the published
    one, by its MD5 where that is known, is worth a note.
    """
    columns, known = tables.columns, KNOWN[name]
    if isinstance(rule, GroupRule):
        rule = apply_rule(
            tables.items, item=columns.item, rule=rule, origin=tables.items_origin
        )
    data = interactions_from(
        tables.ratings,
        columns,
        groups=rule,
        origin=tables.ratings_origin,
        name=name,
        rating_range=tables.rating_range,
    )
    whole = Counts(data.n_ratings, data.n_users, data.n_items)
    for other, published in MOVIELENS.items() if name in MOVIELENS else ():
        if other != name and whole == published.counts:
            raise InputError(
                f"{tables.ratings_origin.name} holds {published.title}, by its counts, not "
                f"{known.title}; give the name {other}"
            )
    found = f"{data.n_ratings:,} ratings by {data.n_users:,} users of {data.n_items:,} items"
    notes = [f"{found}, from {data.rating.min():g} to {data.rating.max():g}, no pair twice"]
    if (counts := known.counts) is not None:
        if whole == counts:
            notes[0] += ", the published counts"
        else:
            notes.append(
                f"{known.title} as published has {counts.ratings:,} ratings by "
                f"{counts.users:,} users of {counts.items:,} items; this is a part of it "
                f"or another version"
            )
            warnings.warn(f"{found}: {notes[-1]}", stacklevel=3)
    if tables.items is not tables.ratings:
        notes.append(f"{len(tables.items):,} items listed in {tables.items_origin.name}")
    if data.group_names:
        rated = ", ".join(f"{name} {count:,}" for name, count in data.group_counts.items())
        listed = ", ".join(f"{name} {n:,}" for name, n in data.catalogue_counts.items())
        notes.append(
            f"groups of the rated items: {rated}; unknown {data.n_unknown:,} (listed: {listed})"
        )
    source = Path(path) if path is not None and known.md5 is not None else None
    if source is not None and source.is_file() and md5_of(source) != known.md5:
        notes.append(f"{source.name} is not the published {known.file} (its MD5 differs)")
    return replace(data, notes=tuple(notes))


def read(
    name: str, path: str | Path | None, rule: GroupRule | Groups | None, options: dict[str, Any]
) -> Tables | Features:
    """Return what a data set's files hold: ratings as they are, or features with their groups.

    The files are those of `path`, or else of the prepared folder, which takes no options.
    """
    source = data_home() / name if path is None else checked_path("path", path)
    is_prepared = (source / prepared.CARD).is_file()
    if path is None and name in OWN_FILES:
        raise InputError(f"{name} is your own file; give its path")
    if path is None and not is_prepared:
        raise InputError(
            f"no path given for {name}, and it has not been prepared; "
            f"give its path, or run: fairtopk data prepare {name}"
        )
    has_features = name == "letor" or "query" in options
    if is_prepared:
        for option in options:
            if option != "query":  # which tells what the folder holds
                raise InputError(
                    f"{source} is prepared and takes no option {option!r}; "
                    f"options were given when it was prepared"
                )
        return prepared.read_prepared(source, name, has_features=has_features, groups=rule)
    if not has_features:
        tables: Tables = _call(READERS[name], name, source, **options)
        return tables
    reader = letor.read_letor if name == "letor" else read_features_file
    features: Features = _call(reader, name, source, groups=rule, **options)
    return replace(features, name=name)


def _call(reader: Callable[..., Any], name: str, *args: Any, **options: Any) -> Any:
    """Return what a reader returns, its options checked by the types of its signature.

    Those of a reader with `columns` are the fields of that class, and its other parameters.
    """
    parameters = signature(reader).parameters
    columns = parameters["columns"].annotation if "columns" in parameters else None
    own = [field.name for field in fields(columns)] if columns is not None else []
    ours = ("path", "columns", "wanted")
    taken = [*own, *(option for option in parameters if option not in ours)]
    for option in options:
        if option not in taken:
            names = ", ".join(option for option in taken if option != "groups") or "none"
            raise InputError(f"{name} has no option {option!r}: its options are {names}")
    try:
        if columns is not None:
            checked = pydantic_dataclass(columns, frozen=True, config=STRICT)
            given = {option: options.pop(option) for option in own if option in options}
            options["columns"] = columns(**vars(checked(**given)))
        return validate_call(config=STRICT)(reader)(*args, **options)
    except ValidationError as error:
        fault = error.errors()[0]
        rule = fault["msg"].removeprefix("Input should ").replace("a valid string", "text")
        raise InputError(
            f"option {fault['loc'][0]!r} of {name} must {rule}, got {shown(fault['input'])}"
        ) from error


def prepare(
    name: str, source: Path, out: Path, *, groups: GroupRule | None = None, **options: Any
) -> dict[str, Any]:
    """Read, check and write the data set `name` to the new folder `out`; return its card.

    Args:
        name: A name of `KNOWN`, other than ``synthetic``.
        source: The published zip, its folder, or your file.
        out: Where to write ``card.json`` and the Parquet files.
        groups: A rule to check; what it finds goes into the card's notes. For ratings, the
            folder keeps all columns of the catalogue, so any other rule can be used on it
            later; for features it keeps the labels.
        **options: What the reader of that name takes, see `load`.
    """
    known = known_data(name, to_prepare=True)
    prepared.refuse_used(out)
    frames: dict[str, pl.DataFrame]
    about: dict[str, Any]  # this kind of data's part of the card
    found = read(name, source, groups, options)
    if isinstance(found, Features):
        notes, frames = list(found.notes), {prepared.FEATURES: found.to_frame()}
        about = {"features": list(found.feature_names)}
    else:
        notes, frames = list(grouped(name, source, found, groups).notes), {}
        frames[prepared.RATINGS] = found.ratings
        if found.items is not found.ratings:
            frames[prepared.ITEMS] = found.items
        about = {"columns": asdict(found.columns), "rating_range": list(found.rating_range)}
    card = {
        "name": name,
        "title": known.title,
        "licence": known.licence,
        "home": known.home,
        "prepared": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": {"name": source.name, "sha256": _checksum(source)},
        "options": {
            # A file is kept by its name and checksum.
            key: {"name": value.name, "sha256": _checksum(value)}
            if isinstance(value, Path)
            else value
            for key, value in options.items()
        },
        "groups": asdict(groups) if groups is not None else None,
        "notes": notes,
        **about,
    }
    return prepared.write_prepared(frames, out, card=card)


def _checksum(source: Path) -> str:
    """Return the SHA-256 of a file, or of the list of a folder's files and their checksums."""
    if source.is_file():
        return sha256_of(source)
    names = Archive(source).names
    lines = "".join(f"{sha256_of(source / name)}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()
