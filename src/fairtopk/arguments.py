"""Arguments that are one value each, checked where they enter: numbers, words, flags, paths."""

import math
import operator
import os
import reprlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fairtopk.errors import InputError, KindError

LARGEST_WHOLE = 2**63 - 1  # that int64 can hold
LONGEST_SHOWN = 80  # characters of a value in a message
LONGEST_NAME = 255  # bytes of a file's name, of common file systems

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST_SHOWN


def shown(value: object) -> str:
    """Return a value for a message: on one line and short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length():,} bits"
    try:
        text = _SHORT.repr(value)
    except Exception:  # a foreign class may raise anything here
        text = type(value).__name__
    return " ".join(text.split())[: 2 * LONGEST_SHOWN]


def plain(value: Any) -> Any:
    """Return a number of numpy or torch as Python's own, also in lists, others as they are.

    So that a schema may be strict about types: it takes neither text nor a truth value for a
    number.
    """
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    if isinstance(value, Mapping):
        return {plain(name): plain(one) for name, one in value.items()}
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
    if whole is None or getattr(
        value, "ndim", None
    ):  # numpy takes an array of one for a number
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
    if (
        isinstance(k, Iterable)
        and not isinstance(k, str | bytes)
        and getattr(k, "ndim", None) != 0
    ):
        return checked_ks(k, name="k")
    return (checked_whole("k", k, least=1),)


def checked_number(name: str, value: Any, *, rule: str = "a finite number") -> float:
    """Return a finite number, refusing what is none; `rule` says what it must be."""
    number = math.nan
    if not isinstance(value, bool | str | bytes) and not getattr(value, "ndim", None):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            raise KindError(f"{name} must be {rule}, got {shown(value)}") from None
    if not math.isfinite(number):
        raise InputError(f"{name} must be {rule}, got {shown(value)}")
    return number


def checked_share(name: str, value: Any) -> float:
    """Return a number, refusing what is none and what is not above 0 and at most 1."""
    rule = "a number above 0 and at most 1"
    share = checked_number(name, value, rule=rule)
    if not 0 < share <= 1:
        raise InputError(f"{name} must be {rule}, got {shown(value)}")
    return share


def checked_flag(name: str, value: Any) -> bool:
    """Return a truth value, refusing what merely counts as one."""
    if type(value).__name__ not in ("bool", "bool_"):  # Python's, numpy's
        raise KindError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def checked_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return one of several words, refusing all others."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")
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
