"""Arguments that are one value each, checked where they enter: numbers, words, flags, paths.

What pydantic refuses, as one sentence for the reader of a TOML file.
"""

import math
import operator
import os
import reprlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fairtopk.errors import InputError, KindError
from fairtopk.terminal import shown

MOST_GROUPS = 1_000  # that items fall into
LARGEST_RELEVANCE = 100.0  # 2^y must fit float32 with room for a sum
LARGEST_WHOLE = 2**63 - 1  # that int64 can hold
LONGEST_NAME = 255  # bytes of a file's name, of common file systems


def native(value: Any) -> Any:
    """Return a number of numpy or torch as Python's own, also in lists, others as they are.

    So that a schema may be strict about types: it takes neither text nor a truth value for a
    number.
    """
    if isinstance(value, list | tuple):
        return tuple(native(one) for one in value)
    if isinstance(value, Mapping):
        return {native(name): native(one) for name, one in value.items()}
    try:
        return value.item() if getattr(value, "ndim", None) == 0 else value
    except (TypeError, ValueError, RuntimeError):  # such as of a tensor without values
        return value


def checked_whole(name: str, value: Any, *, least: int, most: int = LARGEST_WHOLE) -> int:
    """Return a whole number, refusing what is none and what is not from `least` to `most`."""
    try:
        whole = None if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        whole = None
    # numpy takes an array of one for a number
    if whole is None or getattr(value, "ndim", None):
        raise KindError(f"{name} must be a whole number, got {shown(value)}")
    if not least <= whole <= most:
        bound = f"at least {least}" if whole < least else f"at most {most}"
        raise InputError(f"{name} must be {bound}, got {shown(whole)}")
    return whole


def checked_ks(ks: Any, *, name: str = "ks") -> tuple[int, ...]:
    """Return the lengths of the top, each once and rising, refusing one below 1."""
    try:
        given = None if isinstance(ks, str | bytes | Mapping) else tuple(ks)
    except (TypeError, RuntimeError):
        given = None
    if given is None:
        raise KindError(
            f"{name} must be a sequence of lengths of the top, such as [10, 50], got "
            f"{shown(ks)}"
        )
    if not given:
        raise InputError(f"{name} must name at least one length of the top, got none")
    return tuple(sorted({checked_whole(f"each of {name}", k, least=1) for k in given}))


def one_or_several_ks(k: Any) -> tuple[int, ...]:
    """Return the lengths of the top of an argument `k` that is one of them or a sequence."""
    is_one = isinstance(k, str | bytes) or getattr(k, "ndim", None) == 0
    if isinstance(k, Iterable) and not is_one:
        return checked_ks(k, name="k")
    return (checked_whole("k", k, least=1),)


def checked_number(name: str, value: Any, *, rule: str = "a finite number") -> float:
    """Return a finite number, refusing what is none; `rule` says what it must be."""
    try:
        if isinstance(value, bool | str | bytes) or getattr(value, "ndim", None):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise KindError(f"{name} must be {rule}, got {shown(value)}") from None
    if not math.isfinite(number):
        raise InputError(f"{name} must be {rule}, got {shown(value)}")
    return number


def checked_flag(name: str, value: Any) -> bool:
    """Return a truth value, refusing what merely counts as one."""
    if type(value).__name__ not in ("bool", "bool_"):  # Python's, numpy's
        raise KindError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def checked_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return one of several words, refusing all others."""
    if not isinstance(value, str) or value not in choices:
        kind = InputError if isinstance(value, str) else KindError
        raise kind(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")
    return value


def checked_text(name: str, value: Any) -> str:
    """Return a text, refusing what is none and one without a character."""
    if not isinstance(value, str):
        raise KindError(f"{name} must be text, got {shown(value)}")
    if not value:
        raise InputError(f"{name} must be text, got none")
    return value


def checked_kind(name: str, value: Any, kind: type, *, source: str) -> None:
    """Refuse a value that is not of a class of ours; `source` says where one comes from."""
    if not isinstance(value, kind):
        got = type(value).__name__
        raise KindError(f"{name} must be {kind.__name__}, of {source}, got {got}")


def checked_path(name: str, value: Any) -> Path:
    """Return a path, refusing what names no file."""
    if not isinstance(value, str | os.PathLike):
        raise KindError(f"{name} must be a path, got {shown(value)}")
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        raise InputError(f"{name} must be a path, got {shown(value)}")
    try:
        longest = max(len(part.encode()) for part in Path(path).parts or ("",))
    except UnicodeEncodeError:
        raise InputError(f"{name} must be a path in UTF-8, got {shown(value)}") from None
    if longest > LONGEST_NAME:
        raise InputError(
            f"{name} must be a path of names of at most {LONGEST_NAME} bytes, got {shown(path)}"
        )
    return Path(path)


def checked_target(name: str, value: Any) -> Path:
    """Return the path of a file to write, refusing a folder."""
    path = checked_path(name, value)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the file to write as {name}")
    return path


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
    # Each branch of a union has its fault; the branch that was meant is one whose type fits. A
    # sequence that is too short because its entries are faulty comes last.
    fault = min(
        error.errors(),
        key=lambda one: (
            2
            if one["type"] == "too_short" and one["input"]
            else int(one["type"].endswith("_type"))
        ),
    )
    kind, message = fault["type"], fault["msg"]
    # The path of a key as the file has it, without what names branches of unions.
    parts: list[str] = []
    held: Any = values
    for part in fault["loc"]:
        listed = isinstance(held, list) and isinstance(part, int)
        if not listed and not (isinstance(held, Mapping) and part in held):
            break
        held = held[part]
        parts.append(str(part))
    path = ".".join(parts)
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
