"""What runs share, trained once and kept: a warm-up, a colour-blind scorer to start from."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel
from torch import Tensor

from fairtopk.checkpoints import Saved, load_tensors, save_tensors
from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists, reads_features_alone
from fairtopk.experiments.config import Config
from fairtopk.experiments.keys import teacher_key, warmup_key
from fairtopk.experiments.phases import BLIND, has_third
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.training import Progress, Trainer, under

AnyTrainer = Trainer | RobustTrainer

CHOSEN = "chosen"  # what names of the weights of a chosen epoch begin with


class Kept(BaseModel):
    """What a file says of the state in it.

    Attributes:
        progress: How far training was.
        seconds: How long it had taken.
        reused: Which stages were taken over from other runs, in sentences.
        made_by: Which run it is from, in words, if it was kept for others.
    """

    progress: Progress
    seconds: float = 0.0
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
            chosen = under(CHOSEN, saved.tensors)
            weights = [*under("scorer", saved.tensors).values(), *chosen.values()]
            if not all(bool(value.isfinite().all()) for value in weights):
                raise InputError(f"{stage.path} holds a weight that is not finite")
            kept = load_trainer(trainer, stage.path, saved, chosen)
            return (f"{trainer.phases[stage.phase].name} reused from {kept.made_by}",)
    return ()


def load_trainer(
    trainer: AnyTrainer, path: Path, state: Saved, model: Mapping[str, Tensor]
) -> Kept:
    """Put a trainer where a file's state is, refusing a state that does not fit it.

    Returns what the file says of the state.

    Args:
        trainer: As it was built.
        path: The file of the state.
        state: What it holds.
        model: The weights of the chosen epoch, if there is one.
    """
    try:
        kept = Kept.model_validate(state.about)
        if not 0 <= kept.progress.phase <= len(trainer.phases):
            raise ValueError("no such phase")
        trainer.load_state(state.tensors, asdict(kept.progress), dict(model))
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(f"{path} does not fit the run's config and data") from error
    return kept


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
        about = {"progress": asdict(progress), "made_by": made_by}
        with suppress(OSError, InputError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            save_tensors(path, trainer.state() | chosen, about, private=True)
