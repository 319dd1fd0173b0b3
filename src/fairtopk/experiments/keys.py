"""Names of runs and of what they start from, equal where they would end alike."""

import hashlib
import json
from typing import Any

import torch

from fairtopk import __version__
from fairtopk.checkpoints import FORMAT
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config
from fairtopk.experiments.phases import tuned_method
from fairtopk.experiments.validating import validation_k
from fairtopk.lists import Lists

WARMUP: dict[str, Any] = {  # keys of [training] that shape the warm-up
    "warmup_epochs": True, "warmup_rate": True, "optimizer": True, "gamma_5": True,
    "weight_decay": True, "batch_size": True, "lists": {"rated", "unrated"}, "corrected": True,
}  # fmt: skip


CHOICE = {"unrated", "select_on"}  # with their K, what a colour-blind epoch is chosen by


def run_key(config: Config, lists: AnyLists) -> str:
    """Return a name for a run: equal for the same config on the same data, split alike."""
    parts = {"config": config.model_dump(mode="json"), "data": lists.data.checksum}
    return _digest(parts, lists)


def warmup_key(config: Config, lists: AnyLists) -> str:
    """Return a name for the warm-up: equal for runs whose warm-up would end alike."""
    # Groups play no part in it; but of documents they may be features too.
    data = lists.data.ratings_checksum if isinstance(lists, Lists) else lists.data.checksum
    parts = {
        "versions": [FORMAT, __version__, torch.__version__],
        "ratings": data,
        **warmup_settings(config),
    }
    return _digest(parts, lists)


def teacher_key(config: Config, lists: AnyLists) -> str:
    """Return a name for a colour-blind teacher: equal for runs that would have its like.

    Its log has gaps, so that groups play a part.
    """
    parts = {
        "versions": [FORMAT, __version__, torch.__version__],
        "data": lists.data.checksum,
        **teacher_settings(config),
    }
    return _digest(parts, lists)


def warmup_settings(config: Config) -> dict[str, Any]:
    """Return all of a config but its data that a warm-up hangs on."""
    return {
        "model": config.model.model_dump(),
        "seed": config.seed,
        "training": config.training.model_dump(include=WARMUP),
    }


def teacher_settings(config: Config) -> dict[str, Any]:
    """Return all of a config that a colour-blind teacher hangs on."""
    values = config.model_dump(mode="json", exclude={"method", "evaluation"})
    for key in ("catalogue_epochs", "catalogue_rate"):
        del values["training"][key]
    for key in ("per_group", "top", "head"):
        del values["training"]["lists"][key]
    return {
        "config": values,
        "method": tuned_method(config).model_dump(mode="json"),
        "chosen": config.evaluation.model_dump(include=CHOICE) | {"k": validation_k(config)},
    }


def _digest(parts: dict[str, Any], lists: AnyLists) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    digest.update(lists.part.tobytes())
    return digest.hexdigest()[:32]
