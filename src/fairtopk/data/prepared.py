"""Data sets as Parquet with a card: what `fairtopk data prepare` writes and `load` reads back.

The card names the data by name and checksum, never by path, so that the folder can be moved.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, Field, ValidationError

from fairtopk.data.columns import Origin
from fairtopk.data.features import RESERVED, FeatureColumns, Features, read_rows
from fairtopk.data.groups import GroupRule, Groups
from fairtopk.data.interactions import RATING_RANGE, Columns, Tables
from fairtopk.data.tables import read_parquet
from fairtopk.errors import InputError
from fairtopk.storage import read_small, replacing, sha256_of

CARD, RATINGS, ITEMS = "card.json", "ratings.parquet", "items.parquet"
FEATURES = "features.parquet"
Rating = Annotated[float, Field(ge=RATING_RANGE[0], le=RATING_RANGE[1])]


class CardColumns(BaseModel, extra="forbid", strict=True):
    """Which columns of the ratings hold what."""

    user: str
    item: str
    rating: str | None = None
    time: str | None = None


class Card(BaseModel, strict=True):
    """What reading a prepared folder needs of its card; the rest is for people."""

    name: str
    files: dict[Literal["ratings.parquet", "items.parquet", "features.parquet"], str]
    columns: CardColumns | None = None
    rating_range: Annotated[list[Rating], Field(min_length=2, max_length=2)] | None = None
    features: list[str] | None = None


def write_prepared(
    frames: dict[str, pl.DataFrame], out: Path, *, card: dict[str, Any]
) -> dict[str, Any]:
    """Write frames as Parquet files with a card into a new folder, all or nothing.

    Returns:
        The card, completed with the checksum of each file.
    """
    with replacing(out) as folder:
        folder.mkdir()
        for name, frame in frames.items():
            frame.write_parquet(folder / name, compression="zstd")
        card = card | {"files": {name: sha256_of(folder / name) for name in frames}}
        (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card


def refuse_used(out: Path) -> None:
    """Refuse a path that is a file, or a folder with something in it."""
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise InputError(f"{out} exists and is not empty; choose another folder")


def read_prepared(
    folder: Path, name: str, *, has_features: bool, groups: Groups | GroupRule | None
) -> Tables | Features:
    """Return a prepared folder's ratings and catalogue, or its features with their groups.

    A folder of other data, or with a damaged file, is refused.
    """
    try:
        card = Card.model_validate_json(read_small(folder / CARD))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        what = f"{place}: {fault['msg']}" if place else fault["msg"]
        raise InputError(
            f"{folder / CARD} is damaged ({what}); prepare the data again"
        ) from error
    if card.name != name:
        raise InputError(f"{folder} holds {card.name}, not {name}; give that name instead")
    for file, checksum in card.files.items():
        if not (folder / file).is_file() or sha256_of(folder / file) != checksum:
            raise InputError(
                f"{folder / file} is missing or not what was prepared; prepare the data again"
            )
    held, other = ("features", "ratings") if has_features else ("ratings", "features")
    if f"{held}.parquet" not in card.files:
        raise InputError(f"{folder} holds {other}, not {held}")
    origin = items_origin = Origin(f"{name}/{held}.parquet")
    if has_features:
        if card.features is None:
            raise InputError(
                f"{folder / CARD} is damaged (features is missing); prepare it again"
            )
        frame = read_parquet(folder / FEATURES, [*RESERVED, *card.features], origin=origin)
        label = "group" if groups is None and frame["group"].count() > 0 else None
        fields = FeatureColumns("query", "relevance", card.features, item="item", group=label)
        return read_rows(frame, fields, groups=groups, origin=origin, name=name)
    if card.columns is None or card.rating_range is None:
        raise InputError(
            f"{folder / CARD} is damaged (columns or rating_range is missing); prepare the "
            f"data again"
        )
    columns, (low, high) = Columns(**card.columns.model_dump()), card.rating_range
    names = [column for column in vars(columns).values() if column is not None]
    ratings = items = read_parquet(folder / RATINGS, names, origin=origin)
    if ITEMS in card.files:
        items_origin = Origin(f"{name}/{ITEMS}")
        items = read_parquet(folder / ITEMS, [columns.item], origin=items_origin)
    return Tables(ratings, items, origin, items_origin, columns, (low, high))
