"""Which run a file belongs to: its config, its data and how that was split."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config

IDENTITY = "identity"  # the key that it has in JSON and in descriptions of tensors


class Identity(NamedTuple):
    """What a run is, in every file that belongs to it.

    Attributes:
        run: Equal for the same config on the same data, split alike.
        config: Equal for the same config, wherever the files of its data lie.
        data: The checksum of the data.
    """

    run: str
    config: str
    data: str

    def refuse_other(self, about: Mapping[str, Any], path: Path) -> None:
        """Refuse a file of the run's folder that says it belongs to another run.

        Args:
            about: What the file says of itself.
            path: The file.
        """
        found = about.get(IDENTITY)
        if found == self._asdict():
            return
        if not isinstance(found, dict) or found.keys() != self._asdict().keys():
            raise InputError(f"{path} does not say which run it belongs to; it is not of a run")
        if found["config"] != self.config:
            raise InputError(
                f"{path} is of another run, or the config.toml beside it was edited; put the "
                f"right file back, or train again into a new folder"
            )
        raise InputError(
            f"the data is not what {path.parent} was trained on, or is split otherwise; see "
            f"its provenance.json, or train again into a new folder"
        )


def identity_of(config: Config, lists: AnyLists) -> Identity:
    """Return what tells a run from all others."""
    of_config, data = config_digest(config), lists.data.checksum
    return Identity(digest({"config": of_config, "data": data}, lists), of_config, data)


def config_digest(config: Config) -> str:
    """Return a name for a config, equal wherever the files of its data lie."""
    values = config.model_dump(mode="json")
    values["data"].pop("path")
    values["data"]["options"].pop("items", None)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def digest(parts: Mapping[str, Any], lists: AnyLists) -> str:
    """Return a name for some settings on a split of the data."""
    found = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
    found.update(lists.part.tobytes())
    return found.hexdigest()[:32]
