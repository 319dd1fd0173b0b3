"""One function that brings in a data set by name: read, group, number, check, and say so."""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal, overload

from pydantic import ConfigDict, ValidationError, validate_call

from fairtopk.arguments import checked_path, shown
from fairtopk.data.features import Features
from fairtopk.data.groups import GroupRule, Groups, apply_rule, as_rule
from fairtopk.data.home import data_home
from fairtopk.data.interactions import Interactions, interactions_from
from fairtopk.data.known import KNOWN, MOVIELENS, Known
from fairtopk.data.letor import read_letor
from fairtopk.data.movielens import read_movielens_100k, read_movielens_csv, read_movielens_dat
from fairtopk.data.netflix import read_netflix
from fairtopk.data.prepared import is_prepared, read_prepared, read_prepared_features
from fairtopk.data.synthetic import load_synthetic
from fairtopk.data.table_files import read_features_file, read_ratings_file
from fairtopk.data.tables import Tables
from fairtopk.errors import InputError

Rule = Mapping[str, Any] | GroupRule | Groups | None

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
OWN_FILES = ("csv", "parquet", "letor")
READERS: dict[str, Callable[..., Tables]] = {
    **dict.fromkeys(MOVIELENS, read_movielens_csv),
    "movielens-100k": read_movielens_100k,
    "movielens-1m": read_movielens_dat,
    "movielens-10m": read_movielens_dat,
    "netflix": read_netflix,
    "csv": read_ratings_file,
    "parquet": read_ratings_file,
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
    if not isinstance(name, str) or name not in KNOWN:
        raise InputError(f"unknown data set {shown(name)}: the names are {', '.join(KNOWN)}")
    rule = as_rule(groups)
    if name == "synthetic":
        if path is not None or rule is not None:
            raise InputError("synthetic data takes no path and brings its own groups")
        data: Interactions = _call(load_synthetic, name, **options)
        return data
    if name == "letor" or "query" in options:
        return read_features(name, path, rule, **options)
    data = grouped(name, read_tables(name, path, **options), rule)
    if path is not None and is_published(KNOWN[name], Path(path)) is False:
        note = f"{Path(path).name} is not the published {KNOWN[name].file} (its MD5 differs)"
        data = replace(data, notes=(*data.notes, note))
    return data


def grouped(name: str, tables: Tables, rule: GroupRule | Groups | None) -> Interactions:
    """Return the interactions of tables as read, checked, with what was found in `notes`."""
    data = interactions_from(
        tables.ratings,
        tables.columns,
        groups=_groups(rule, tables),
        origin=tables.ratings_origin,
        name=name,
        rating_range=tables.rating_range,
    )
    _refuse_other(name, data, tables)
    return replace(data, notes=tuple(_notes(KNOWN[name], data, tables)))


def read_tables(name: str, path: str | Path | None = None, **options: Any) -> Tables:
    """Return the ratings and the catalogue of a data set, as they are in its files."""
    path = _path(name, path)
    if is_prepared(path):
        _refuse_options(path, options)
        return read_prepared(path, name=name)
    tables: Tables = _call(READERS[name], name, path, **options)
    return tables


def read_features(
    name: str, path: str | Path | None, rule: GroupRule | Groups | None, **options: Any
) -> Features:
    """Return the feature data of a LETOR, CSV or Parquet file, or of a prepared folder."""
    path = _path(name, path)
    if is_prepared(path):
        _refuse_options(path, {key: value for key, value in options.items() if key != "query"})
        return read_prepared_features(path, name=name, groups=rule)
    reader = read_letor if name == "letor" else read_features_file
    features: Features = _call(reader, name, path, groups=rule, **options)
    return replace(features, name=name)


def is_published(known: Known, path: Path) -> bool | None:
    """Return whether a file is the published one by its MD5; None where that cannot be told."""
    if known.md5 is None or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest() == known.md5


def _refuse_other(name: str, data: Interactions, tables: Tables) -> None:
    """Refuse one published data set under the name of another, told apart by its counts."""
    if name not in MOVIELENS:
        return
    whole = (data.n_ratings, data.n_users, data.n_items)
    for other, known in MOVIELENS.items():
        published = known.counts
        if (
            other != name
            and published is not None
            and whole == (published.ratings, published.users, published.items)
        ):
            raise InputError(
                f"{tables.ratings_origin.name} holds {known.title}, by its counts, not "
                f"{KNOWN[name].title}; give the name {other}"
            )


def _refuse_options(path: Path, options: Mapping[str, Any]) -> None:
    if options:
        raise InputError(
            f"{path} is prepared and takes no option {next(iter(options))!r}; "
            f"options were given when it was prepared"
        )


def _path(name: str, path: str | Path | None) -> Path:
    if path is not None:
        return checked_path("path", path)
    prepared = data_home() / name
    if name in OWN_FILES:
        raise InputError(f"{name} is your own file; give its path")
    if not is_prepared(prepared):
        raise InputError(
            f"no path given for {name}, and it has not been prepared; "
            f"give its path, or run: fairtopk data prepare {name}"
        )
    return prepared


def _groups(rule: GroupRule | Groups | None, tables: Tables) -> Groups | None:
    if not isinstance(rule, GroupRule):
        return rule
    return apply_rule(
        tables.items, item=tables.columns.item, rule=rule, origin=tables.items_origin
    )


def _call(reader: Callable[..., Any], name: str, *args: Any, **options: Any) -> Any:
    taken = [option for option in signature(reader).parameters if option != "path"]
    for option in options:
        if option not in taken:
            words = ", ".join(option for option in taken if option != "groups") or "none"
            raise InputError(f"{name} has no option {option!r}: its options are {words}")
    try:
        return validate_call(config=STRICT)(reader)(*args, **options)
    except ValidationError as error:
        fault = error.errors()[0]
        rule = fault["msg"].removeprefix("Input should ").replace("a valid string", "text")
        raise InputError(
            f"option {fault['loc'][0]!r} of {name} must {rule}, got {shown(fault['input'])}"
        ) from error


def _notes(known: Known, data: Interactions, tables: Tables) -> list[str]:
    """Return what was found, one sentence each; warn where a known data set is not whole."""
    found = f"{data.n_ratings:,} ratings by {data.n_users:,} users of {data.n_items:,} items"
    notes = [f"{found}, from {data.rating.min():g} to {data.rating.max():g}, no pair twice"]
    expected = known.counts
    if expected is not None:
        whole = (data.n_ratings, data.n_users, data.n_items)
        if whole == (expected.ratings, expected.users, expected.items):
            notes[0] += ", the published counts"
        else:
            notes.append(
                f"{known.title} as published has {expected.ratings:,} ratings by "
                f"{expected.users:,} users of {expected.items:,} items; this is a part of it "
                f"or another version"
            )
            warnings.warn(f"{found}: {notes[-1]}", stacklevel=4)
    if tables.items is not tables.ratings:
        notes.append(f"{len(tables.items):,} items listed in {tables.items_origin.name}")
    if data.group_names:
        rated = ", ".join(f"{name} {count:,}" for name, count in data.group_counts.items())
        listed = ", ".join(f"{name} {n:,}" for name, n in data.catalogue_counts.items())
        notes.append(
            f"groups of the rated items: {rated}; unknown {data.n_unknown:,} (listed: {listed})"
        )
    return notes
