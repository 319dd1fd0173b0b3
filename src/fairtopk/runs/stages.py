"""Stages of training that runs share: a warm-up, or a colour-blind scorer to start from.

A stage is trained once and kept in a file named by a digest of all that it depends on: the
settings, the data, this code. Runs whose stage would end in the same bits have the same digest.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import llvmlite.binding
import numba
import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor

import fairtopk
from fairtopk.errors import InputError
from fairtopk.lists.queries import AnyLists
from fairtopk.runs.build import finetune_method, has_third_phase, shares_stages
from fairtopk.runs.config import Config
from fairtopk.runs.result import digest
from fairtopk.runs.trainer import AnyTrainer, validation_k
from fairtopk.storage import FORMAT, Saved, load_tensors, save_tensors
from fairtopk.training.loop import Progress, under

WARMUP: dict[str, Any] = {  # keys of [training] that shape the warm-up
    "warmup_epochs": True, "warmup_rate": True, "optimizer": True, "gamma_5": True,
    "weight_decay": True, "batch_size": True, "lists": {"rated", "unrated"}, "corrected": True,
}  # fmt: skip
CHOICE = {"unrated", "select_on"}  # keys of [evaluation] that choose a colour-blind epoch
KEY = "key"  # under which the file of a stage repeats its name
CHOSEN = "chosen"  # how names of the weights of the chosen epoch begin


class Kept(BaseModel, strict=True):
    """The description of a saved state of training.

    Attributes:
        progress: How far training was.
        seconds: How long it had taken.
        reused: A sentence for each stage that was taken over from another run.
        made_by: The run that kept it for others, in words.
    """

    progress: Progress
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    reused: tuple[str, ...] = ()
    made_by: str = ""


class Stage(NamedTuple):
    """The end of a phase, by its number, and the file that it is kept in."""

    phase: int
    path: Path


def shared_stages(config: Config, lists: AnyLists, folder: Path) -> list[Stage]:
    """Return the stages of a run that other runs may have kept in `folder`."""
    if not shares_stages(config):
        return []
    warmup = {"data": lists.warmup_checksum, **warmup_settings(config)}
    keys = [digest({"code": code_digest()} | warmup, lists)]
    if shares_teacher(config):
        # Groups matter, since the log of its training has gaps.
        teacher = {"data": lists.data.checksum, **teacher_settings(config)}
        keys.append(digest({"code": code_digest()} | teacher, lists))
    return [Stage(phase, folder / f"{key}.safetensors") for phase, key in enumerate(keys)]


def shares_teacher(config: Config) -> bool:
    """Return whether the end of a run's fine-tuning is a colour-blind teacher."""
    return has_third_phase(config) or config.method.row.is_teacher


def begin_after(stages: Sequence[Stage], trainer: AnyTrainer) -> tuple[str, ...]:
    """Begin after the last stage that an earlier run has kept and that can be read.

    Returns:
        What was reused and from which run, in a sentence; empty if nothing was.
    """
    for stage in reversed(stages):
        with suppress(InputError):  # a damaged one is trained again, and kept anew
            saved = load_tensors(stage.path)
            if saved.about.get(KEY) != stage.path.stem:
                raise InputError(f"{stage.path} is not the stage in its name")
            chosen = under(CHOSEN, saved.tensors)
            own = {
                name: value
                for name, value in saved.tensors.items()
                if not name.startswith(f"{CHOSEN}.")
            }
            kept = load_trainer(trainer, stage.path, saved._replace(tensors=own), chosen)
            return (f"{trainer.phases[stage.phase].name} reused from {kept.made_by}",)
    return ()


def load_trainer(
    trainer: AnyTrainer, path: Path, state: Saved, model: Mapping[str, Tensor]
) -> Kept:
    """Load a saved state into a new trainer; return its description.

    A state that does not fit is refused, and leaves the trainer unchanged.

    Args:
        trainer: The trainer.
        path: The file of the state, for messages.
        state: What it holds.
        model: The weights of the chosen epoch, if there is one.
    """
    try:
        # From JSON a list may become a tuple, but a text no number.
        kept = Kept.model_validate_json(json.dumps(state.about))
        progress = kept.progress
        if state.about.get("step", progress.mark) != progress.mark:
            raise InputError("its step is not that of its progress")
        trainer.load_state(state.tensors, asdict(progress), dict(model))
    except InputError as error:
        raise InputError(f"{path} does not fit the run's config and data: {error}") from error
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(f"{path} does not fit the run's config and data") from error
    return kept


def keep_for_others(stages: Sequence[Stage], trainer: AnyTrainer, *, made_by: str) -> None:
    """Keep the stage whose last epoch has just ended, if there is one, for other runs.

    Only the user who trained it may read it. If it cannot be written, training goes on.
    `made_by` names the run in words.
    """
    progress = trainer.progress
    for phase, path in stages:
        if progress.phase != phase or not trainer.phase_is_over():
            continue
        chosen = {f"{CHOSEN}.{name}": value for name, value in trainer.chosen.items()}
        about = {KEY: path.stem, "progress": asdict(progress), "made_by": made_by}
        with suppress(OSError, InputError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            save_tensors(path, trainer.state() | chosen, about, private=True)


@cache
def code_digest() -> str:
    """Return a digest of what decides the bits: this code, the libraries, the processor."""
    found = hashlib.sha256()
    root = Path(fairtopk.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root).as_posix()}\0".encode())
        found.update(path.read_bytes())
    versions = [torch.__version__, np.__version__, numba.__version__]
    processor = llvmlite.binding.get_host_cpu_name()
    found.update(json.dumps([FORMAT, *versions, processor]).encode())
    return found.hexdigest()


def warmup_settings(config: Config) -> dict[str, Any]:
    """Return the settings, apart from the data, that determine a warm-up."""
    return {
        "model": config.model.model_dump(),
        "seed": config.seed,
        "training": config.training.model_dump(include=WARMUP),
    }


def teacher_settings(config: Config) -> dict[str, Any]:
    """Return the settings that determine a colour-blind teacher."""
    values = config.model_dump(mode="json", exclude={"method", "evaluation"})
    for key in ("catalogue_epochs", "catalogue_rate"):
        del values["training"][key]
    for key in ("per_group", "top", "head"):
        del values["training"]["lists"][key]
    return {
        "config": values,
        "method": finetune_method(config).model_dump(mode="json"),
        "chosen": config.evaluation.model_dump(include=CHOICE) | {"k": validation_k(config)},
    }
