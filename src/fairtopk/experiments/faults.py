"""What pydantic refuses, as one sentence for the reader of a TOML file."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

# Where pydantic's own words are for readers of Python, or say "got" themselves.
RULES = {
    **dict.fromkeys(("model_type", "dataclass_type", "dict_type"), "must be a table"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
}


def first_fault(error: ValidationError, values: Mapping[str, Any]) -> str:
    """Return what is wrong with one of the `values`: its path, the rule, what was given."""
    fault = min(error.errors(), key=_unlikely)
    kind, message, path = fault["type"], fault["msg"], _path(fault["loc"], values)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown key {path}; check its spelling"
    if kind == "missing":
        return f"{'.'.join(map(str, fault['loc']))} is missing"
    if kind == "too_long":
        most, given = fault["ctx"]["max_length"], fault["ctx"]["actual_length"]
        return f"{path} must have at most {most} entries, got {given:,}"
    if kind == "value_error":  # a sentence of our own, which tells what was given
        sentence = message.removeprefix("Value error, ")
        return f"{path}: {sentence}" if path else sentence
    rule = RULES.get(kind, f"must {message.removeprefix('Input should ')}")
    return f"{path} {rule}, got {reprlib.repr(fault['input'])}"


def _unlikely(fault: Mapping[str, Any]) -> int:
    """Return how unlikely a fault is the one that was made, from 0 on."""
    if fault["type"] == "too_short" and fault["input"]:  # its entries are faulty, and told of
        return 2
    # Each branch of a union has its fault; the branch that was meant is one whose type fits.
    return int(fault["type"].endswith("_type"))


def _path(parts: Sequence[str | int], values: Any) -> str:
    """Return the path of a key as the file has it, without what names branches of unions."""
    path: list[str] = []
    for part in parts:
        listed = isinstance(values, list) and isinstance(part, int)
        if not listed and not (isinstance(values, Mapping) and part in values):
            break
        values = values[part]
        path.append(str(part))
    return ".".join(path)
