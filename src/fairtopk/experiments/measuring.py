"""Measuring a trained model: the run's own lists, or any other protocol and K."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fairtopk.checkpoints import Saved
from fairtopk.evaluation import (
    beside_gaps,
    evaluate,
    evaluate_full_beside,
    leakage,
    sampled_blocks,
)
from fairtopk.experiments.config import Config
from fairtopk.experiments.opening import open_run
from fairtopk.experiments.result import METRICS, Measures, per_query, summary
from fairtopk.lists import Lists


class Measured(NamedTuple):
    """What a metrics file says of a run, and the values of each query, to be kept beside it."""

    result: dict[str, Any]
    queries: Saved


def evaluate_run(
    out: Path, changes: Mapping[str, Any], *, part: str = "test", data: Path | None = None
) -> Measured:
    """Return the metrics of a trained run on `part`, its evaluation settings changed.

    Args:
        out: The run's folder.
        changes: Keys of the config's ``evaluation`` with other values.
        part: ``test`` or ``validation``.
        data: Where the data is, if not where the config says.
    """
    config, lists, scorer = open_run(out, changes, part=part, data=data)
    found = measure(scorer, lists, config, part=part)
    finished = (out / METRICS).exists()
    result = {**summary(config, lists, found, part=part), "finished": finished}
    return Measured(result, per_query(config, lists, found.values, part=part))


def measure(scorer: nn.Module, lists: Lists, config: Config, *, part: str = "test") -> Measures:
    """Return every metric of a model on a part of the data."""
    held_out, seed = getattr(lists, part), config.seed
    evaluation = config.evaluation
    if evaluation.protocol == "full":
        return Measures(*evaluate_full_beside(scorer, held_out, evaluation.k, seed=seed))
    blocks = sampled_blocks(held_out, unrated=evaluation.unrated, seed=seed)
    values = evaluate(scorer, iter(blocks), evaluation.k)
    values["group_auc"] = leakage(scorer, blocks)
    return Measures(values, beside_gaps(scorer, blocks, evaluation.k, seed=seed))
