"""Names of what runs start from, equal where it would end alike."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import torch

import fairtopk
from fairtopk.checkpoints import FORMAT
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config
from fairtopk.experiments.identity import digest
from fairtopk.experiments.phases import tuned_method
from fairtopk.experiments.validating import validation_k
from fairtopk.lists import Lists

WARMUP: dict[str, Any] = {  # keys of [training] that shape the warm-up
    "warmup_epochs": True, "warmup_rate": True, "optimizer": True, "gamma_5": True,
    "weight_decay": True, "batch_size": True, "lists": {"rated", "unrated"}, "corrected": True,
}  # fmt: skip


CHOICE = {"unrated", "select_on"}  # with their K, what a colour-blind epoch is chosen by


@cache
def code_digest() -> str:
    """Return a name for what computes: this package's code, the libraries, the processor.

    A stage of training that was kept by other code, or on another kind of processor, may end
    in other bits.
    """
    found = hashlib.sha256()
    root = Path(fairtopk.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root).as_posix()}\0".encode())
        found.update(path.read_bytes())
    versions = [torch.__version__, np.__version__, numba.__version__]
    processor = llvmlite.binding.get_host_cpu_name()
    found.update(json.dumps([FORMAT, *versions, processor]).encode())
    return found.hexdigest()


def warmup_key(config: Config, lists: AnyLists) -> str:
    """Return a name for the warm-up: equal for runs whose warm-up would end alike."""
    # Groups play no part in it; but of documents they may be features too.
    data = lists.data.ratings_checksum if isinstance(lists, Lists) else lists.data.checksum
    return digest({"code": code_digest(), "data": data, **warmup_settings(config)}, lists)


def teacher_key(config: Config, lists: AnyLists) -> str:
    """Return a name for a colour-blind teacher: equal for runs that would have its like.

    Its log has gaps, so that groups play a part.
    """
    parts = {"code": code_digest(), "data": lists.data.checksum, **teacher_settings(config)}
    return digest(parts, lists)


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
