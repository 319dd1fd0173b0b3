"""What runs share, trained once and kept: a warm-up, a colour-blind scorer to start from."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field
from torch import Tensor

from fairtopk.checkpoints import Saved, load_tensors, save_tensors
from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists, reads_features_alone
from fairtopk.experiments.config import Config
from fairtopk.experiments.keys import teacher_key, warmup_key
from fairtopk.experiments.phases import BLIND, has_third
from fairtopk.progress import Progress
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.training import Trainer, under

AnyTrainer = Trainer | RobustTrainer

KEY = "key"  # what a stage is named by, in its file too
CHOSEN = "chosen"  # what names of the weights of a chosen epoch begin with


class Kept(BaseModel, strict=True):
    """What a file says of the state in it.

    Attributes:
        progress: How far training was.
        seconds: How long it had taken.
        reused: Which stages were taken over from other runs, in sentences.
        made_by: Which run it is from, in words, if it was kept for others.
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
    """Return the stages of a run that others may have reached before."""
    if reads_features_alone(config):
        return []
    keys = [warmup_key(config, lists)]
    if shares_teacher(config):
        keys.append(teacher_key(config, lists))
    return [Stage(phase, folder / f"{key}.safetensors") for phase, key in enumerate(keys)]


def shares_teacher(config: Config) -> bool:
    """Return whether a run ends its fine-tuning as a colour-blind teacher."""
    return has_third(config) or config.method.name == BLIND


def begin_after(stages: Sequence[Stage], trainer: AnyTrainer) -> tuple[str, ...]:
    """Begin after the last stage that an earlier run has kept and that can be read.

    Returns:
        What was reused and from which run, in a sentence; empty if nothing was.
    """
    for stage in reversed(stages):
        with suppress(InputError):  # a damaged one is trained again, and kept anew
            saved = load_tensors(stage.path)
            if saved.about.get(KEY) != stage.path.stem:
                raise InputError(f"{stage.path} is not the stage that its name tells")
            chosen = under(CHOSEN, saved.tensors)
            own = {name: one for name, one in saved.tensors.items() if not _is_chosen(name)}
            kept = load_trainer(trainer, stage.path, saved._replace(tensors=own), chosen)
            return (f"{trainer.phases[stage.phase].name} reused from {kept.made_by}",)
    return ()


def load_trainer(
    trainer: AnyTrainer, path: Path, state: Saved, model: Mapping[str, Tensor]
) -> Kept:
    """Put a trainer where a file's state is, refusing a state that does not fit it.

    A trainer that refuses one stays as it was. Returns what the file says of the state.

    Args:
        trainer: As it was built.
        path: The file of the state.
        state: What it holds.
        model: The weights of the chosen epoch, if there is one.
    """
    try:
        # As JSON: there a list is a tuple, and yet no text a number.
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


def _is_chosen(name: str) -> bool:
    """Return whether a tensor is a weight of the chosen epoch."""
    return name.startswith(f"{CHOSEN}.")


def keep_for_others(stages: Sequence[Stage], trainer: AnyTrainer, *, made_by: str) -> None:
    """Keep the stage whose last epoch has just ended, if there is one.

    Only its owner may read it, and where it cannot be written training goes on without.

    Args:
        stages: Those of the run.
        trainer: Of the run.
        made_by: Which run that is, in words.
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
