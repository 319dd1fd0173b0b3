"""From a published data set to a folder of Parquet files with a card."""

import hashlib
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairtopk.data.archive import files_below
from fairtopk.data.groups import GroupRule
from fairtopk.data.known import KNOWN
from fairtopk.data.load import grouped, is_published, read_features, read_tables
from fairtopk.data.paths import sha256_of
from fairtopk.data.prepared import (
    features_frames,
    ratings_frames,
    refuse_used,
    write_prepared,
)
from fairtopk.errors import InputError


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
    if name not in KNOWN:
        raise InputError(f"unknown data set {name!r}: the names are {', '.join(KNOWN)}")
    if name == "synthetic":
        raise InputError("synthetic data is generated when it is loaded; nothing to prepare")
    refuse_used(out)
    known = KNOWN[name]
    if name == "letor" or "query" in options:
        features = read_features(name, source, groups, **options)
        notes, (frames, about) = list(features.notes), features_frames(features)
    else:
        tables = read_tables(name, source, **options)
        notes, (frames, about) = (
            list(grouped(name, tables, groups).notes),
            ratings_frames(tables),
        )
    if is_published(known, source) is False:
        notes.append(f"{source.name} is not the published {known.file} (its MD5 differs)")
    card = {
        "name": name,
        "title": known.title,
        "licence": known.licence,
        "home": known.home,
        "prepared": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": {"name": source.name, "sha256": _checksum(source)},
        "options": {key: _shown(value) for key, value in options.items()},
        "groups": asdict(groups) if groups is not None else None,
        "notes": notes,
        **about,
    }
    return write_prepared(frames, out, card=card)


def _shown(value: Any) -> Any:
    """Return an option as the card holds it: a file by its name and checksum."""
    if isinstance(value, Path):
        return {"name": value.name, "sha256": _checksum(value)}
    return value


def _checksum(source: Path) -> str:
    """Return the SHA-256 of a file, or of the list of a folder's files and their checksums."""
    if source.is_file():
        return sha256_of(source)
    lines = "".join(
        f"{sha256_of(file)}  {file.relative_to(source).as_posix()}\n"
        for file in files_below(source)
    )
    return hashlib.sha256(lines.encode()).hexdigest()
