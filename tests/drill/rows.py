"""What a row of the drill is, and ways to spoil a file."""

import json
import os
import shlex
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from fairtopk.runs.result import sealed
from fairtopk.storage import load_tensors, save_tensors

Do = Callable[[Path], None]

ESCAPE = "\x1b]0;owned\x07\x1b[31m"  # renames a terminal and paints it red
HUGE = "9" * 5_000
DEEP = 10_000
JUNK = bytes(range(256)) * 8


def nothing(folder: Path) -> None:
    """Leave all as it is: what is wrong stands in the command line."""


class Row(NamedTuple):
    """One thing that is done to a file or a word, and what must come back.

    Attributes:
        name: What is done, in words; no two rows have the same.
        words: The command line.
        do: What is done to a copy of the valid files.
        codes: Exit codes that are right: 2 for what is refused, else it is rightly accepted.
        says: What the one line on standard error must hold; of what is accepted, the output.
        leaves: Whether what is refused may leave files behind: work that was begun, and kept.
    """

    name: str
    words: tuple[str, ...]
    do: Do = nothing
    codes: tuple[int, ...] = (2,)
    says: str = ""
    leaves: bool = False


def row(
    name: str,
    words: str | Sequence[str],
    do: Do = nothing,
    *,
    code: int | tuple[int, ...] = 2,
    says: str = "",
    leaves: bool = False,
) -> Row:
    """Return a row, its command line perhaps written as in a shell."""
    given = shlex.split(words) if isinstance(words, str) else words
    codes = code if isinstance(code, tuple) else (code,)
    return Row(name, tuple(given), do, codes, says, leaves)


def put(name: str, content: str | bytes) -> Do:
    """Write a file, in place of another perhaps."""

    def do(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return do


def swap(name: str, old: str, new: str, times: int = 1) -> Do:
    """Replace a text in a file, which must be there."""

    def do(folder: Path) -> None:
        text = (folder / name).read_bytes().decode()
        assert old in text, (name, old)
        (folder / name).write_bytes(text.replace(old, new, times).encode())

    return do


def changed(name: str, change: Callable[[bytes], bytes]) -> Do:
    """Change the bytes of a file."""

    def do(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return do


def copied(source: str, target: str) -> Do:
    """Put a file in the place of another."""

    def do(folder: Path) -> None:
        (folder / target).write_bytes((folder / source).read_bytes())

    return do


def removed(name: str) -> Do:
    """Remove a file."""
    return lambda folder: (folder / name).unlink()


def all_of(*dos: Do) -> Do:
    """Do several things."""

    def do(folder: Path) -> None:
        for one in dos:
            one(folder)

    return do


def as_folder(name: str) -> Do:
    """Put a folder in the place of a file."""

    def do(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return do


def as_pipe(name: str) -> Do:
    """Put a FIFO in the place of a file, into which nobody ever writes."""

    def do(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return do


def as_link(name: str, target: str) -> Do:
    """Put a link in the place of a file."""

    def do(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return do


SPOILS: dict[str, Callable[[str], Do]] = {  # what may befall any file
    "is removed": removed,
    "is empty": lambda name: put(name, ""),
    "is a folder": as_folder,
    "is a pipe": as_pipe,
    "is an endless device": lambda name: as_link(name, "/dev/zero"),
    "is a link to itself": lambda name: as_link(name, Path(name).name),
    "is random bytes": lambda name: put(name, JUNK),
    "is NUL bytes": lambda name: put(name, bytes(2_000)),
    "is cut in half": lambda name: changed(name, lambda data: data[: len(data) // 2]),
}


def edited(name: str, edit: Callable[[Any], Any]) -> Do:
    """Change what a JSON file holds; `edit` returns the new content, or changes the old."""

    def do(folder: Path) -> None:
        found = json.loads((folder / name).read_text())
        new = edit(found)
        (folder / name).write_text(json.dumps(found if new is None else new))

    return do


def resealed(name: str, edit: Callable[[Any], Any]) -> Do:
    """Change what a JSON file with a checksum holds, and give it one that fits."""

    def do(folder: Path) -> None:
        found = json.loads((folder / name).read_text())
        new = edit(found)
        (folder / name).write_text(json.dumps(sealed(found if new is None else new)))

    return do


def set_key(path: str, value: Any) -> Callable[[Any], None]:
    """Return an edit that sets ``a.b`` of an object; `value` may be a function of the old."""

    def edit(found: Any) -> None:
        *above, last = path.split(".")
        for key in above:
            found = found[key]
        found[last] = value(found[last]) if callable(value) else value

    return edit


def drop_key(path: str) -> Callable[[Any], None]:
    """Return an edit that removes ``a.b`` of an object."""

    def edit(found: Any) -> None:
        *above, last = path.split(".")
        for key in above:
            found = found[key]
        del found[last]

    return edit


def header(name: str, edit: Callable[[dict[str, Any]], Any]) -> Do:
    """Change the header of a safetensors file; its tensors stay as they are."""

    def do(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        found = json.loads(data[8 : 8 + size])
        new = edit(found)
        text = json.dumps(found if new is None else new).encode()
        text += b" " * (-len(text) % 8)
        (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])

    return do


def about(name: str, edit: Callable[[Any], Any]) -> Do:
    """Change what a safetensors file says about itself, and give it a checksum that fits."""

    def do(folder: Path) -> None:
        tensors, found = load_tensors(folder / name)
        new = edit(found)
        save_tensors(folder / name, tensors, found if new is None else new)

    return do


def tensors(name: str, edit: Callable[[dict[str, Tensor]], None]) -> Do:
    """Change the tensors of a safetensors file, and give it a checksum that fits."""

    def do(folder: Path) -> None:
        found, said = load_tensors(folder / name)
        edit(found)
        save_tensors(folder / name, found, said)

    return do
