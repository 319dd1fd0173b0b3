"""Opening the folder of a trained run: its config, its data and its model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fairtopk.checkpoints import MODEL, load_tensors
from fairtopk.errors import InputError
from fairtopk.experiments.build import build_lists, build_scorer
from fairtopk.experiments.config import Config, check_config, load_config
from fairtopk.experiments.result import CONFIG
from fairtopk.lists import Lists


class Trained(NamedTuple):
    """What was run, on which data, and the model that came out."""

    config: Config
    lists: Lists
    scorer: nn.Module


def open_run(
    out: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    part: str = "test",
    data: Path | None = None,
) -> Trained:
    """Return a trained run, refusing data other than what it was trained on.

    Args:
        out: The run's folder.
        changes: Keys of the config's ``evaluation`` with other values.
        part: Which part of the data is meant, ``test`` or ``validation``.
        data: Where the data is, if not where the config says.
    """
    config = run_config(out, changes, data=data)
    if part not in ("test", "validation"):
        raise InputError(f"part must be test or validation, got {part!r}")
    lists = build_lists(config.data, seed=config.seed)
    return Trained(config, lists, load_model(out, lists, config))


def run_config(
    out: Path, changes: Mapping[str, Any] | None = None, *, data: Path | None = None
) -> Config:
    """Return the config of a trained run, its evaluation settings and its data's place changed.

    Arguments are those of `open_run`.
    """
    if not (out / CONFIG).exists():
        raise InputError(f"{out} holds no run; give the folder that train wrote")
    values = load_config(out / CONFIG).model_dump()
    values["evaluation"] |= changes or {}
    if data is not None:
        if values["data"]["path"] is None:
            raise InputError(f"the data of {out} is not from a file; leave out its new place")
        values["data"]["path"] = str(data)
    return check_config(values, "evaluation")


def load_model(out: Path, lists: Lists, config: Config) -> nn.Module:
    """Return the trained model of a run folder."""
    saved = load_tensors(out / MODEL)
    if saved.about.get("data") != lists.data.checksum:
        raise InputError(f"the data is not what {out} was trained on; see its provenance.json")
    scorer = build_scorer(config, lists.data)
    try:
        scorer.load_state_dict(saved.tensors)
    except RuntimeError as error:
        raise InputError(f"{out / MODEL} does not fit the run's config and data") from error
    return scorer.eval()
