"""Seeded mutations of files: of their bytes, of what JSON says, of the heads of tensors."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Mutate = Callable[[bytes, random.Random], bytes]


def flip(data: bytes, chance: random.Random) -> bytes:
    """Change some bits."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def truncate(data: bytes, chance: random.Random) -> bytes:
    """Leave out the end."""
    return data[: chance.randrange(len(data))]


def duplicate(data: bytes, chance: random.Random) -> bytes:
    """Write a range twice."""
    low, high = _range(data, chance)
    return data[:high] + data[low:]


def delete(data: bytes, chance: random.Random) -> bytes:
    """Leave out a range."""
    low, high = _range(data, chance)
    return data[:low] + data[high:]


def insert_nuls(data: bytes, chance: random.Random) -> bytes:
    """Put NULs somewhere."""
    place = chance.randrange(len(data))
    return data[:place] + bytes(chance.choice((1, 4, 64))) + data[place:]


BYTES: tuple[Mutate, ...] = (flip, truncate, duplicate, delete, insert_nuls)


def edit_json(data: bytes, chance: random.Random) -> bytes:
    """Change a number, a key or a type somewhere in an object."""
    found = json.loads(data)
    _edit(found, chance)
    return json.dumps(found).encode()


def edit_lines(data: bytes, chance: random.Random) -> bytes:
    """Change something in one line of objects."""
    lines = data.splitlines()
    place = chance.randrange(len(lines))
    lines[place] = edit_json(lines[place], chance)
    return b"\n".join(lines) + b"\n"


def edit_header(data: bytes, chance: random.Random) -> bytes:
    """Change something in the header of a safetensors file, or in what it says of itself."""
    (size,) = struct.unpack("<Q", data[:8])
    found = json.loads(data[8 : 8 + size])
    said = found.get("__metadata__")
    if said and chance.random() < 0.6:
        key = next(iter(said))
        said[key] = edit_json(said[key].encode(), chance).decode()
    else:
        _edit(found, chance)
    text = json.dumps(found).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def other_file(path: Path) -> Mutate:
    """Return what puts another file in the place."""
    return lambda data, chance: path.read_bytes()


OTHERS: tuple[Any, ...] = (None, True, -1, 10**30, 0.5, "", "x", [], {}, [[]], {"a": None})


def _edit(found: Any, chance: random.Random) -> None:
    """Change one entry of an object or a list, at any depth."""
    places = [place for place in _places(found) if place[0] is not None]
    above, key = chance.choice(places)
    what = chance.randrange(4)
    if what == 0 and isinstance(above, dict):
        above[f"{key}x"] = above.pop(key)
    elif what == 1:
        del above[key]
    elif what == 2 and isinstance(above[key], int | float) and not isinstance(above[key], bool):
        above[key] = chance.choice((-above[key], above[key] * 10**6, above[key] + 0.5, 0))
    else:
        above[key] = chance.choice(OTHERS)


def _places(found: Any) -> list[tuple[Any, Any]]:
    keys = list(found) if isinstance(found, dict) else range(len(found))
    below = [found[key] for key in keys if isinstance(found[key], dict | list) and found[key]]
    return [(found, key) for key in keys] + [place for one in below for place in _places(one)]


def _range(data: bytes, chance: random.Random) -> tuple[int, int]:
    low = chance.randrange(len(data))
    return low, min(len(data), low + chance.choice((1, 8, 100, 1000)))
