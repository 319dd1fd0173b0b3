"""Saving a run so that a kill at any moment leaves something to go on from.

A checkpoint is a pair of files that carry one step number: the model to serve and the state to
go on from. Before a new pair takes their names, the old pair is set aside under other names; on
loading, the newest pair with one number is taken. Files are safetensors: nothing is unpickled.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fairtopk.data.files import replacing
from fairtopk.errors import InputError

MODEL, STATE = "model.safetensors", "state.safetensors"
BEFORE = "before-"  # how the pair before the last is called
FORMAT = "fairtopk checkpoint 4"  # the one key of a file's metadata


class Saved(NamedTuple):
    """One file's tensors and what is said about them."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors with a description, all or nothing."""
    whole = {name: value.detach().contiguous() for name, value in tensors.items()}
    with replacing(path) as temporary:
        temporary.touch()
        usual = temporary.stat().st_mode  # safetensors would let nobody else read the file
        # Under one key: safetensors writes several in any order, and bytes would differ.
        save_file(whole, temporary, {FORMAT: json.dumps(about)})
        temporary.chmod(usual)


def load_tensors(path: Path) -> Saved:
    """Return what `save_tensors` wrote, refusing a damaged or foreign file."""
    try:
        with safe_open(path, framework="pt") as file:
            said = file.metadata() or {}
            if FORMAT not in said:
                raise InputError(f"{path} was not written by this version of fairtopk")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        raise InputError(f"{path} is damaged or no checkpoint ({reason})") from error
    return Saved(tensors, json.loads(said[FORMAT]))


def save_pair(folder: Path, model: Saved, state: Saved) -> None:
    """Write a checkpoint; both descriptions carry the same ``step``."""
    for name, saved in ((MODEL, model), (STATE, state)):
        save_tensors(folder / f"new-{name}", *saved)
    for prefix, moved in (("", BEFORE), ("new-", "")):
        for name in (MODEL, STATE):
            if (folder / f"{prefix}{name}").exists():
                (folder / f"{prefix}{name}").replace(folder / f"{moved}{name}")


def has_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a file of a checkpoint, whole or not."""
    return any(folder.glob(f"*{MODEL}")) or any(folder.glob(f"*{STATE}"))


def load_pair(folder: Path) -> tuple[Saved, Saved]:
    """Return the newest checkpoint, model and state, whose two files belong together."""
    found: dict[str, list[Saved]] = {MODEL: [], STATE: []}
    faults = []
    for prefix in ("new-", "", BEFORE):
        for name, kept in found.items():
            path = folder / f"{prefix}{name}"
            if path.exists():
                try:
                    saved = load_tensors(path)
                except InputError as error:
                    faults.append(str(error))
                else:
                    kept += [saved] if "step" in saved.about else []
    pairs = [
        (model, state)
        for model in found[MODEL]
        for state in found[STATE]
        if model.about["step"] == state.about["step"]
    ]
    if not pairs:
        reason = faults[0] if faults else "none was written yet"
        raise InputError(f"{folder} holds no checkpoint to go on from: {reason}")
    return max(pairs, key=lambda pair: int(pair[0].about["step"]))
