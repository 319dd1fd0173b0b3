"""Values as TOML text, which the standard library reads and does not write."""

import re
from collections.abc import Mapping
from typing import Any


def dump_table(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of a TOML file."""
    return [f"[{name}]", *(_line(key, value) for key, value in values.items())]


def _line(key: str, value: Any) -> str:
    return f"# {key} is not set" if value is None else f"{_key(key)} = {_toml(value)}"


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, dict):
        inside = ", ".join(
            f"{_key(key)} = {_toml(one)}" for key, one in value.items() if one is not None
        )
        return f"{{ {inside} }}" if inside else "{}"
    return repr(value)
