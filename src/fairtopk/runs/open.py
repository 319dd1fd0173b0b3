"""Opening the folder of a trained run: its config, its data and its model."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fairtopk.checkpoints import MODEL, check_tensors, load_tensors
from fairtopk.errors import InputError
from fairtopk.lists.users import Lists
from fairtopk.runs.build import AnyLists, build_any_lists, build_model
from fairtopk.runs.config import Config, DataConfig
from fairtopk.runs.config_file import check_config, load_config
from fairtopk.runs.result import CONFIG, identity_of


class Trained(NamedTuple):
    """What was run, on which users and items, and the model that came out."""

    config: Config
    lists: Lists
    scorer: nn.Module


class AnyTrained(NamedTuple):
    """The same, of users and items or of documents with features."""

    config: Config
    lists: AnyLists
    scorer: nn.Module


def open_run(
    out: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    part: str = "test",
    data: Path | None = None,
) -> Trained:
    """Return a trained run of users and items; see `open_any_run`."""
    if run_config(out, changes, data=data).data.of_documents:
        raise InputError(
            f"{out} was trained on documents with features, and this takes runs of users and "
            f"items; fairtopk evaluate, export and report take both"
        )
    config, lists, scorer = open_any_run(out, changes, part=part, data=data)
    assert isinstance(lists, Lists)
    return Trained(config, lists, scorer)


def open_any_run(
    out: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    part: str = "test",
    data: Path | None = None,
) -> AnyTrained:
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
    lists = build_any_lists(config.data, seed=config.seed)
    return AnyTrained(config, lists, load_model(out, lists, config))


def run_config(
    out: Path, changes: Mapping[str, Any] | None = None, *, data: Path | None = None
) -> Config:
    """Return the config of a trained run, its evaluation settings and its data's place changed.

    Arguments are those of `open_any_run`.
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


def load_model(out: Path, lists: AnyLists, config: Config) -> nn.Module:
    """Return the trained model of a run folder, refusing one of another run or other data.

    Args:
        out: The run's folder.
        lists: Its data.
        config: Its config; evaluation settings and the place of the data may be others.
    """
    path = out / MODEL
    saved = load_tensors(path)
    identity_of(load_config(out / CONFIG), lists).refuse_other(saved.about, path)
    scorer = build_model(config, lists)
    check_tensors(path, saved.tensors, scorer.state_dict())
    scorer.load_state_dict(saved.tensors)
    return scorer.eval()


Load = Callable[[DataConfig, int], AnyLists]


def loader() -> Load:
    """Return a function that loads the data of a config, and remembers the last."""
    kept: dict[str, AnyLists] = {}

    def load(config: DataConfig, seed: int) -> AnyLists:
        key = f"{config.model_dump_json()} {seed if config.split == 'random' else 0}"
        if key not in kept:
            kept.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were told when the model was trained
                kept[key] = build_any_lists(config, seed=seed)
        return kept[key]

    return load
