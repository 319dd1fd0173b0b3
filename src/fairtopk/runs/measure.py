"""Measuring a trained model: the run's own lists, or any other protocol and K.

The other protocol at the end of a run: measured, kept beside its own, compared with it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.checkpoints import Saved
from fairtopk.errors import InputError
from fairtopk.evaluation import (
    beside_gaps,
    evaluate,
    evaluate_full_beside,
    leakage,
    sampled_blocks,
)
from fairtopk.kernels.random import key_of
from fairtopk.lists.batch import Batch
from fairtopk.lists.queries import DocumentPart
from fairtopk.lists.users import HeldOut, Lists
from fairtopk.objectives.dpr import split_labels
from fairtopk.runs.build import AnyLists
from fairtopk.runs.config import Config, other_protocol, why_no_other
from fairtopk.runs.config_file import load_config
from fairtopk.runs.open import open_any_run
from fairtopk.runs.result import (
    CONFIG,
    METRICS,
    Identity,
    Measures,
    Owner,
    identity_of,
    is_of_some,
    measured_ks,
    metrics_name,
    per_query,
    read_result,
    summary,
    write_result,
)

# Scores of a catalogue that a run ends with at most: that takes some seconds. MovieLens 1M has
# 22 million in all; of 20M these are 1,900 users.
MOST_SCORES = 50_000_000
LEAST_USERS = 500  # however long the catalogue: fewer tell no gap from chance
SOME_USERS = 4  # what their draw is keyed by, beside seed and part


class Measured(NamedTuple):
    """What a metrics file says of a run, and the values of each query, to be kept beside it.

    `identity` is that of the run, which both files carry.
    """

    result: dict[str, Any]
    queries: Saved
    identity: Identity


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
    config, lists, scorer = open_any_run(out, changes, part=part, data=data)
    found = measure(scorer, lists, config, part=part)
    finished = (out / METRICS).exists()
    result = {**summary(config, lists, found, part=part), "finished": finished}
    queries = per_query(config, lists, found, part=part)
    return Measured(result, queries, identity_of(load_config(out / CONFIG), lists))


def measure(
    scorer: nn.Module,
    lists: AnyLists,
    config: Config,
    *,
    part: str = "test",
    users: NDArray[np.int64] | None = None,
) -> Measures:
    """Return every metric of a model on a part of the data.

    `users`, where each has the whole catalogue, are those to measure; left out, it is all.
    """
    held_out, seed = getattr(lists, part), config.seed
    evaluation, member = config.evaluation, _member(config, lists)
    if evaluation.protocol == "full":
        values, beside = evaluate_full_beside(
            scorer, held_out, evaluation.k, seed=seed, member=member, users=users
        )
        return Measures(values, beside, users)
    blocks = blocks_of(held_out, config)
    values = evaluate(scorer, iter(blocks), evaluation.k)
    values["group_auc"] = leakage(scorer, blocks)
    if getattr(scorer, "may_fail", False):  # a game that may miss its goal on some lists
        values["unmet"] = torch.cat([scorer.unmet(block) for block in blocks])  # type: ignore[operator]
    beside = beside_gaps(scorer, blocks, evaluation.k, seed=seed, member=member)
    return Measures(values, beside)


def blocks_of(part: HeldOut | DocumentPart, config: Config) -> list[Batch]:
    """Return the lists of a part in blocks: sampled ones, or of documents whole ones."""
    if isinstance(part, DocumentPart):
        return part.blocks()
    return sampled_blocks(part, unrated=config.evaluation.unrated, seed=config.seed)


def some_users(
    part: HeldOut, *, seed: int, most: int | None = None
) -> NDArray[np.int64] | None:
    """Return a seeded sample of a part's users to rank the catalogue for, rising, ``[Q]``.

    Args:
        part: Whose users.
        seed: The run's.
        most: How many at most; left out, it depends on the length of the catalogue alone.

    Returns:
        None where all users are few enough.
    """
    enough = max(LEAST_USERS, MOST_SCORES // part.data.n_items)
    size = enough if most is None else min(most, enough)
    if len(part.user) <= size:
        return None
    chance = np.random.default_rng(key_of(seed, SOME_USERS, int(part.code)))
    return np.sort(chance.choice(part.user, size, replace=False))


def longest_list(part: HeldOut | DocumentPart, config: Config) -> int:
    """Return the length of the longest list that `blocks_of` gives."""
    own = np.diff(part.data.offsets)[part.user]
    if isinstance(part, HeldOut):
        unrated = np.minimum(config.evaluation.unrated, part.data.n_items - own)
        own = np.diff(part.ratings.offsets)[part.user] + unrated
    return int(own.max(initial=0))


def _member(config: Config, lists: AnyLists) -> Tensor | None:
    """Return which groups labels are split into, if they are."""
    names, separator = lists.data.group_names, config.method.dpr.separator
    return split_labels(names, separator).member if names and separator else None


TOLD = ("ndcg", "exposure_gap", "rank_exposure_gap", "rank_exposure_gap_signed")
SIGNED = "rank_exposure_gap_signed"


def measure_other(
    scorer: nn.Module, lists: AnyLists, config: Config, out: Path, identity: Identity
) -> dict[str, Any] | None:
    """Measure a trained model by the protocol that is not its own, and keep that in `out`.

    Of a catalogue for which that is much work, it is measured for a seeded sample of users.

    Returns:
        What the metrics file says; None where there is no other protocol.
    """
    other = other_protocol(config)
    if other is None:
        return None
    assert isinstance(lists, Lists)  # documents have one protocol
    evaluation = config.evaluation.model_copy(update={"protocol": other})
    config = config.model_copy(update={"evaluation": evaluation})
    users = some_users(lists.test, seed=config.seed) if other == "full" else None
    found = measure(scorer, lists, config, users=users)
    result = {**summary(config, lists, found, part="test"), "finished": True}
    queries = per_query(config, lists, found, part="test")
    return write_result(out / metrics_name(result), result, queries, identity)


def told_of_other(config: Config, other: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a run's metrics file says of the other protocol, or why there is none."""
    if other is None:
        return {"left_out": why_no_other(config)}
    names = [f"{name}@{k}" for k in measured_ks(other) for name in TOLD]
    return {
        "protocol": other["protocol"],
        "file": metrics_name(other),
        "users": other["users"],
        "metrics": {name: other["metrics"][name]["mean"] for name in names},
    }


def has_other(out: Path, owner: Owner, protocol: str) -> bool:
    """Return whether a finished run was measured by another protocol for all users.

    Args:
        out: The run's folder.
        owner: The run, which its metrics files must be of.
        protocol: The other one.
    """
    told = read_result(out / METRICS, owner).get("other_protocol") or {}
    if told.get("protocol") != protocol:
        return False
    try:
        other = read_result(out / told["file"], owner._replace(part=None))
        return other["protocol"] == protocol and not is_of_some(other)
    except (InputError, OSError):
        return False


def disagreement(
    own: dict[str, Any], other: dict[str, Any] | None, group_names: Sequence[str]
) -> str | None:
    """Return a sentence where sampled lists favour one side and the catalogue the other.

    A side is favoured where the 95 % interval of the signed gap by rank leaves out 0.

    Args:
        own: What the run's metrics file says.
        other: What was measured by the other protocol, if there is one.
        group_names: The first is that of the named group.
    """
    if other is None:
        return None
    by = {result["protocol"]: result["metrics"] for result in (own, other)}
    sampled, full = by["sampled"], by["full"]
    ks = [k for k in measured_ks(own) if _side(sampled, k) * _side(full, k) < 0]
    if not ks:
        return None
    k = ks[0]
    alike = [one for one in ks if _side(sampled, one) == _side(sampled, k)]
    here, there = ("more", "less") if _side(sampled, k) > 0 else ("less", "more")
    means = [metrics[f"{SIGNED}@{k}"]["mean"] for metrics in (sampled, full)]
    return (
        f"sampled lists and the catalogue disagree: at K = {', '.join(map(str, alike))}, "
        f"{group_names[0]} gets {here} than the rest by rank on sampled lists "
        f"({means[0]:+.2g} at {k}) and {there} on the whole catalogue ({means[1]:+.2g}); go by "
        f"the catalogue if that is what users see the top of"
    )


def _side(metrics: dict[str, Any], k: int) -> int:
    """Return 1 where the named group gets more than the rest, -1 less, 0 if either may be."""
    low, high = metrics.get(f"{SIGNED}@{k}", {}).get("ci95", (None, None))
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)
