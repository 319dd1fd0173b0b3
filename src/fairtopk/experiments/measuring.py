"""Measuring a trained model: the run's own lists, or any other protocol and K."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fairtopk.checkpoints import MODEL, Saved, load_tensors
from fairtopk.errors import InputError
from fairtopk.evaluation import (
    beside_gaps,
    evaluate,
    evaluate_full_beside,
    leakage,
    sampled_blocks,
)
from fairtopk.experiments.build import build_lists, build_scorer
from fairtopk.experiments.config import Config, check_config, load_config
from fairtopk.experiments.result import CONFIG, METRICS, Measures, per_query, summary
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
    config = run_config(out, changes, data=data)
    if part not in ("test", "validation"):
        raise InputError(f"part must be test or validation, got {part!r}")
    lists = build_lists(config.data, seed=config.seed)
    scorer = load_model(out, lists, config)
    found = measure(scorer, lists, config, part=part)
    finished = (out / METRICS).exists()
    result = {**summary(config, lists, found, part=part), "finished": finished}
    return Measured(result, per_query(config, lists, found.values, part=part))


def run_config(
    out: Path, changes: Mapping[str, Any] | None = None, *, data: Path | None = None
) -> Config:
    """Return the config of a trained run, its evaluation settings and its data's place changed.

    Arguments are those of `evaluate_run`.
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
