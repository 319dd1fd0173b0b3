"""The user's own folder: where prepared data lies, and which licences were agreed to."""

import json
import os
import sys
from pathlib import Path

from fairtopk.data.files import write_text
from fairtopk.data.paths import read_small
from fairtopk.errors import InputError

LICENCES = "licences.json"


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


def acknowledged(name: str, folder: Path) -> bool:
    """Return whether the user has agreed to the licence of the data set `name` before."""
    return name in _licences(folder)


def acknowledge(name: str, licence: str, folder: Path) -> None:
    """Remember in `folder` that the user has agreed to `licence` for the data set `name`."""
    agreed = _licences(folder) | {name: licence}
    write_text(folder / LICENCES, json.dumps(agreed, indent=2) + "\n")


def _licences(folder: Path) -> dict[str, str]:
    """Return the licence agreed to for each data set; asking again mends a damaged file."""
    try:
        agreed = json.loads(read_small(folder / LICENCES))
    except (ValueError, RecursionError):  # what cannot be read at all is an InputError
        return {}
    return agreed if isinstance(agreed, dict) else {}
