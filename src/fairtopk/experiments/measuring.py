"""Measuring a trained model: the run's own lists, or any other protocol and K."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.checkpoints import Saved
from fairtopk.estimators.membership import split_labels
from fairtopk.evaluation import (
    beside_gaps,
    evaluate,
    evaluate_full_beside,
    leakage,
    sampled_blocks,
)
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config
from fairtopk.experiments.config_file import load_config
from fairtopk.experiments.documents import DocumentPart
from fairtopk.experiments.identity import Identity, identity_of
from fairtopk.experiments.opening import open_any_run
from fairtopk.experiments.result import CONFIG, METRICS, Measures, per_query, summary
from fairtopk.lists import HeldOut
from fairtopk.robust.ranker import RobustRanker
from fairtopk.training import key_of

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
    if isinstance(scorer, RobustRanker) and scorer.may_fail:
        values["unmet"] = torch.cat([scorer.unmet(block) for block in blocks])
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
