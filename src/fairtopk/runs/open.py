"""Opening the folder of a trained run: its config, its data and its model."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fairtopk.errors import InputError
from fairtopk.lists.queries import AnyLists
from fairtopk.lists.users import Lists
from fairtopk.runs.build import build_any_lists, build_model
from fairtopk.runs.config import Config, DataConfig
from fairtopk.runs.config_file import check_config, load_config
from fairtopk.runs.result import CONFIG, METRICS, Identity, identity_of
from fairtopk.storage import MODEL, check_tensors, load_tensors

Load = Callable[[DataConfig, int], AnyLists]  # a config's data and a seed to the split data


class OpenRun(NamedTuple):
    """A trained run."""

    out: Path  # its folder
    config: Config  # its config, perhaps with other evaluation settings
    lists: AnyLists  # its data, split
    identity: Identity  # what its files carry
    scorer: nn.Module
    # Whether training has ended, and this is not just the last checkpoint.
    finished: bool = True

    @property
    def user_lists(self) -> Lists:
        """Its data, refused unless that is users and items."""
        if not isinstance(self.lists, Lists):
            raise InputError(
                f"{self.out} was trained on documents with features, and this takes runs of "
                f"users and items; fairtopk evaluate, export and report take both"
            )
        return self.lists


def open_run(
    out: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    data: Path | None = None,
    load: Load | None = None,
) -> OpenRun:
    """Return a trained run, refusing a model of another run and other data than its own.

    Args:
        out: The run's folder.
        changes: Keys of the config's ``evaluation`` with other values.
        data: Where the data is, if not where the config says.
        load: What loads and splits the data, such as `cached_loader()`.
    """
    config = run_config(out, changes, data=data)
    lists = (load or build_any_lists)(config.data, config.seed)
    identity = identity_of(load_config(out / CONFIG), lists)
    saved = load_tensors(out / MODEL)
    identity.refuse_other(saved.about, out / MODEL)
    scorer = build_model(config, lists)
    fault = f"{out / MODEL} does not fit the run's config and data:"
    check_tensors(fault, saved.tensors, scorer.state_dict())
    try:
        scorer.load_state_dict(saved.tensors)
    except InputError as error:
        raise InputError(f"{fault} {error}") from error
    return OpenRun(out, config, lists, identity, scorer.eval(), (out / METRICS).exists())


def run_config(
    out: Path, changes: Mapping[str, Any] | None = None, *, data: Path | None = None
) -> Config:
    """Return the config of a trained run; arguments are those of `open_run`."""
    if not (out / CONFIG).exists():
        raise InputError(f"{out} holds no run; give the folder that train wrote")
    values = load_config(out / CONFIG).model_dump()
    values["evaluation"] |= changes or {}
    if data is not None:
        if values["data"]["path"] is None:
            raise InputError(f"the data of {out} is not from a file; leave out its new place")
        values["data"]["path"] = str(data)
    return check_config(values, "evaluation")


def cached_loader() -> Load:
    """Return a function that loads and splits the data of a config, and remembers the last."""
    kept: dict[str, AnyLists] = {}

    def load(config: DataConfig, seed: int) -> AnyLists:
        key = f"{config.model_dump_json()} {seed if config.split == 'random' else 0}"
        if key not in kept:
            kept.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were shown when the model was trained
                kept[key] = build_any_lists(config, seed)
        return kept[key]

    return load
