"""Configs as TOML: read, changed by ``--set``, checked, compared and written."""

import json
import reprlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from fairtopk.checks import first_fault
from fairtopk.errors import InputError
from fairtopk.objectives.methods import RUN_PRESETS
from fairtopk.runs.config import Config, Section
from fairtopk.storage import read_small

LONGEST = 1_000_000  # bytes of a file
DEEPEST = 20  # tables and lists in one another
TOO_DEEP = f"is nested too deeply: at most {DEEPEST} tables and lists in one another"
# Two names of one weight: to set one is to replace the other.
SAME_WEIGHT = {"method.c": "c_relative", "method.c_relative": "c"}


def load_config(path: Path, changes: Sequence[str] = ()) -> Config:
    """Return the config of a TOML file; `changes` are like ``method.c=1e5``.

    A change to nothing, like ``data.path=``, unsets the key.
    """
    return check_config(read_config(path, changes), str(path))


def read_config(path: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of a TOML file after `changes`, not yet checked."""
    try:
        values = tomllib.loads(read_small(path, most=LONGEST).decode("utf-8"))
    except RecursionError:
        raise InputError(f"{path} {TOO_DEEP}") from None
    except ValueError as error:  # no text, no TOML, or an integer of thousands of digits
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a TOML file: {error}") from error
    for change in changes:
        _apply(change, values)
    _refuse_unwritable(values, str(path))
    return values


def check_config(values: Mapping[str, Any], where: str) -> Config:
    """Return the config of some values, refusing the first that is wrong."""
    if "sweep" in values:
        raise InputError(f"{where}: [sweep] lists many runs; train them by `fairtopk sweep`")
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}: {first_fault(error, values)}") from error


def dump_config(config: Config, **tables: Section) -> str:
    """Return a config as TOML text, complete except for None, which TOML cannot express.

    Args:
        config: The config.
        tables: More tables of the file, by name.
    """
    values = config.model_dump(mode="json")
    values |= {name: table.model_dump(mode="json") for name, table in tables.items()}
    return tomli_w.dumps(_without_none(values))


def what_differs(kept: Config, asked: Config) -> str:
    """Return the first key in which two configs differ, and both values, in words."""
    one, other = (dict(_keys(config.model_dump(mode="json"))) for config in (kept, asked))
    key = next(key for key in one | other if one.get(key) != other.get(key))
    was, now = (json.dumps(values.get(key)) for values in (one, other))
    return f"{key} was {was} and is now {now}"


def put(values: dict[str, Any], path: str, value: Any) -> None:
    """Set the key ``a.b`` of `values`; None unsets it."""
    *sections, key = path.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise InputError(f"cannot set {path}: {section} is not a table")
    if value is None:
        values.pop(key, None)
        return
    values.pop(SAME_WEIGHT.get(path, key), None)
    if path == "method.preset":  # a complete config spells out the values of its old preset
        for name in {name for row in RUN_PRESETS.values() for name in row}:
            values.pop(name, None)
    values[key] = value


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def _keys(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``a.b`` and its value for every key, at any depth."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _apply(change: str, values: dict[str, Any]) -> None:
    """Put ``a.b=c`` into `values`; c is read as TOML, or as text if that fails."""
    path, separator, text = (part.strip() for part in change.partition("="))
    if not separator or not all(path.split(".")):
        raise InputError(
            f"--set takes key=value, for example method.c=1e5, got {reprlib.repr(change)}"
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    except RecursionError:
        raise InputError(f"--set {path} {TOO_DEEP}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"--set {path}: {error}") from error
    put(values, path, value if text else None)


def _refuse_unwritable(value: Any, where: str, depth: int = 0) -> None:
    """Refuse values that a config could not be written back with."""
    if depth > DEEPEST:
        raise InputError(f"{where} {TOO_DEEP}")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError(f"{where}: {reprlib.repr(value)} is not UTF-8 text") from None
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"{where} has a whole number that does not fit into 64 bits")
    elif isinstance(value, Mapping):
        for name, one in value.items():
            _refuse_unwritable(name, where, depth + 1)
            _refuse_unwritable(one, where, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _refuse_unwritable(one, where, depth + 1)
