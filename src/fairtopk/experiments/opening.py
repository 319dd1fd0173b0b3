"""Opening the folder of a trained run: its config, its data and its model."""

from pathlib import Path
from typing import NamedTuple

from torch import nn

from fairtopk.experiments.build import build_lists
from fairtopk.experiments.config import Config
from fairtopk.experiments.measuring import load_model, run_config
from fairtopk.lists import Lists


class Trained(NamedTuple):
    """What was run, on which data, and the model that came out."""

    config: Config
    lists: Lists
    scorer: nn.Module


def open_run(run: Path, *, data: Path | None = None) -> Trained:
    """Return a trained run, refusing data other than what it was trained on.

    Args:
        run: The run's folder.
        data: Where the data is, if not where the config says.
    """
    config = run_config(run, data=data)
    lists = build_lists(config.data, seed=config.seed)
    return Trained(config, lists, load_model(run, lists, config))
