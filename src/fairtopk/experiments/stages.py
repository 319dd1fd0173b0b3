"""What runs share, trained once and kept: a warm-up, a colour-blind scorer to start from."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from fairtopk.checkpoints import load_tensors, save_tensors
from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists, reads_features_alone
from fairtopk.experiments.config import Config
from fairtopk.experiments.keys import teacher_key, warmup_key
from fairtopk.experiments.phases import BLIND, has_third
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.training import Trainer, under

CHOSEN = "chosen"  # what names of the weights of a chosen epoch begin with


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


def begin_after(stages: Sequence[Stage], trainer: Trainer | RobustTrainer) -> None:
    """Begin after the last stage that an earlier run has kept and that can be read."""
    for stage in reversed(stages):
        with suppress(InputError):
            saved = load_tensors(stage.path)
            chosen = under(CHOSEN, saved.tensors)
            trainer.load_state(saved.tensors, saved.about["progress"], chosen)
            return


def keep_for_others(stages: Sequence[Stage], trainer: Trainer | RobustTrainer) -> None:
    """Keep the stage whose last epoch has just ended, if there is one."""
    progress = trainer.progress
    for phase, path in stages:
        if progress.phase != phase or not trainer.phase_is_over():
            continue
        chosen = {f"{CHOSEN}.{name}": value for name, value in trainer.chosen.items()}
        with suppress(OSError):  # a home that cannot be written to has no cache
            save_tensors(path, trainer.state() | chosen, {"progress": asdict(progress)})
