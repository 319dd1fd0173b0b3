"""Saving a run so that a kill at any moment leaves something to go on from.

A checkpoint is a pair of files that carry one step number: the model to serve and the state to
go on from. Before a new pair takes their names, the old pair is set aside under other names; on
loading, the newest pair with one number is taken. Files are safetensors: nothing is unpickled.
Each carries a checksum of all that is in it, so a damaged or edited file is refused.
"""

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.paths import check_file
from fairtopk.storage import replacing

MODEL, STATE = "model.safetensors", "state.safetensors"
NEW, BEFORE = "new-", "before-"  # how a pair that is being written, and the last but one begin
FORMAT = "fairtopk checkpoint 5"  # the one key of a file's metadata
PRIVATE = 0o600  # the mode of a file that only its owner may read


class Saved(NamedTuple):
    """One file's tensors and what is said about them."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], about: dict[str, Any], *, private: bool = False
) -> None:
    """Write tensors with a description, all or nothing; `private` ones for the owner alone."""
    whole = {name: value.detach().contiguous() for name, value in tensors.items()}
    text = json.dumps(about)
    said = json.dumps({"crc32": _checksum(whole, text), "about": text})
    with replacing(path) as temporary:
        temporary.touch(mode=PRIVATE if private else 0o666)
        mode = temporary.stat().st_mode  # safetensors would let nobody else read the file
        try:
            # Under one key: safetensors writes several in any order, and bytes would differ.
            save_file(whole, temporary, {FORMAT: said})
        except SafetensorError as error:  # which hides what the system said
            raise InputError(f"cannot write {path}: {_first_line(error)}") from error
        temporary.chmod(mode)


def load_tensors(path: Path) -> Saved:
    """Return what `save_tensors` wrote, refusing a damaged, edited or foreign file."""
    check_file(path)
    try:
        path.open("rb").close()  # safetensors says of a file it may not read that there is none
        with safe_open(path, framework="pt") as file:
            said = file.metadata() or {}
            if FORMAT not in said:
                raise InputError(f"{path} was not written by this version of fairtopk")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        if isinstance(error, PermissionError):
            raise InputError(f"{path} cannot be read: permission denied") from error
        raise InputError(f"{path} is damaged ({_first_line(error)})") from error
    try:
        told = json.loads(said[FORMAT])
        text, checksum = told["about"], told["crc32"]
        about = json.loads(text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged (its description cannot be read)") from error
    if not isinstance(about, dict) or checksum != _checksum(tensors, text):
        raise InputError(f"{path} is damaged (its checksum does not fit its content)")
    return Saved(tensors, about)


def check_tensors(
    path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> None:
    """Refuse the tensors of a file that are not those wanted, by name, shape and type."""
    has, needs = (
        {name: f"{value.dtype} of shape {tuple(value.shape)}" for name, value in of.items()}
        for of in (found, wanted)
    )
    for name in sorted(has.keys() | needs.keys()):
        got, expected = has.get(name, "missing"), needs.get(name, "nothing of that name")
        if got != expected:
            raise InputError(
                f"{path} does not fit the run's config and data: {name!r} is {got}, expected "
                f"{expected}"
            )


def save_pair(folder: Path, model: Saved, state: Saved) -> None:
    """Write a checkpoint; both descriptions carry the same ``step``."""
    for name, saved in ((MODEL, model), (STATE, state)):
        save_tensors(folder / f"{NEW}{name}", *saved)
    # The last one stays under its own name until the new one takes its place: a model can be
    # read at any time.
    for name in (MODEL, STATE):
        if (folder / name).exists():
            _link(folder / name, folder / f"{BEFORE}{name}")
    for name in (MODEL, STATE):
        (folder / f"{NEW}{name}").replace(folder / name)


def _link(path: Path, other: Path) -> None:
    """Give a file a second name, or a copy where the file system has no links."""
    other.unlink(missing_ok=True)
    try:
        os.link(path, other)
    except OSError:
        shutil.copyfile(path, other)


def load_pair(folder: Path) -> tuple[Saved, Saved] | None:
    """Return the newest checkpoint, model and state, whose two files belong together.

    Returns:
        None where none was ever whole, as after a kill while the first was being written.

    Raises:
        InputError: There was one, and it is damaged.
    """
    found: dict[str, list[Saved]] = {MODEL: [], STATE: []}
    faults = []
    for prefix in (NEW, "", BEFORE):
        for name, kept in found.items():
            path = folder / f"{prefix}{name}"
            if path.exists():
                try:
                    kept.append(_numbered(path))
                except InputError as error:
                    faults += [str(error)] if prefix != NEW else []
    pairs = [
        (model, state)
        for model in found[MODEL]
        for state in found[STATE]
        if model.about["step"] == state.about["step"]
    ]
    if pairs:
        return max(pairs, key=lambda pair: int(pair[0].about["step"]))
    if faults:
        raise InputError(f"{folder} holds no checkpoint to go on from: {faults[0]}")
    settled = [folder / f"{prefix}{name}" for prefix in ("", BEFORE) for name in found]
    if len(there := [path for path in settled if path.exists()]) > 1:
        raise InputError(
            f"{folder} holds no checkpoint to go on from: {there[0].name} and {there[1].name} "
            f"are of other steps"
        )
    return None


def remove_new(folder: Path) -> None:
    """Remove a checkpoint that was being written when its process was killed."""
    for name in (MODEL, STATE):
        (folder / f"{NEW}{name}").unlink(missing_ok=True)


def _numbered(path: Path) -> Saved:
    saved = load_tensors(path)
    if not isinstance(saved.about.get("step"), int):
        raise InputError(f"{path} is not part of a checkpoint")
    return saved


def _checksum(tensors: Mapping[str, Tensor], about: str) -> int:
    """Return the CRC-32 of a description, and of names, types, shapes and bytes of tensors."""
    found = zlib.crc32(about.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        value = tensors[name]
        found = zlib.crc32(f"{name} {value.dtype} {tuple(value.shape)}".encode(), found)
        if value.numel():
            raw = value.contiguous().view(-1).view(torch.uint8).numpy()
            found = zlib.crc32(raw.data, found)
    return found


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
