"""Configs as TOML: read, changed by ``--set``, checked, compared and written."""

import json
import reprlib
import tomllib
from collections.abc import Mapping, Sequence
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
        key, separator, text = (part.strip() for part in change.partition("="))
        if not separator or not all(key.split(".")):
            raise InputError(
                f"--set takes key=value, for example method.c=1e5, got {reprlib.repr(change)}"
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text  # such as a name without quotes
        except RecursionError:
            raise InputError(f"--set {key} {TOO_DEEP}") from None
        except ValueError as error:  # an integer of thousands of digits
            raise InputError(f"--set {key}: {error}") from error
        put(values, key, value if text else None)
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
    """Return a config and more `tables` as TOML text; None, which TOML lacks, is left out."""
    values = config.model_dump(mode="json", exclude_none=True)
    for name, table in tables.items():
        values[name] = table.model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps(values)


def what_differs(path: Path, config: Config) -> str | None:
    """Return a key in which the config in a file differs from `config`, and both values.

    Returns None if they are the same.
    """
    kept, asked = (one.model_dump(mode="json") for one in (load_config(path), config))
    tables = [("", kept, asked)]
    while tables:
        above, one, other = tables.pop()
        for name in one | other:
            was, now = one.get(name), other.get(name)
            if isinstance(was, dict) and isinstance(now, dict):
                tables.append((f"{above}{name}.", was, now))
            elif was != now:
                return f"{above}{name} was {json.dumps(was)} and is now {json.dumps(now)}"
    return None


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
