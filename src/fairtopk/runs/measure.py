"""A trained model measured: on its run's lists, by another protocol, or re-ranked.

`measure_run` measures, summarises and keeps the values of each query; `Evaluation.save` writes
both files. At the end of training a run is measured by the other protocol as well, sampled
lists or the full catalogue, and a warning says where the two favour opposite groups.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.evaluation import (
    GapContext,
    evaluate,
    evaluate_full_with_context,
    gap_context,
    leakage,
)
from fairtopk.kernels.random import key_of
from fairtopk.lists.queries import AnyLists
from fairtopk.lists.users import HeldOut
from fairtopk.metrics.intervals import Mean, mean_with_interval, means_with_intervals
from fairtopk.objectives.dpr import split_labels
from fairtopk.reranking.request import RerankRequest, Unmet
from fairtopk.runs.config import Config, other_protocol, why_no_other
from fairtopk.runs.config_file import check_config
from fairtopk.runs.open import OpenRun
from fairtopk.runs.rerank import Reranking, result_name
from fairtopk.runs.result import (
    METRICS,
    USER,
    Identity,
    Owner,
    is_user_sample,
    measured_ks,
    metrics_name,
    read_result,
    write_result,
)
from fairtopk.storage import Saved, jsonable
from fairtopk.terminal import Progress

PARTS = ("test", "validation")
# Scores of a catalogue that a run ends with at most: that takes some seconds. MovieLens 1M has
# 22 million in all; 50 million are 1,900 users of MovieLens 20M.
MOST_SCORES = 50_000_000
LEAST_USERS = 500  # however long the catalogue: fewer cannot tell a gap from chance
SOME_USERS = 4  # keys the draw of users, with the seed and the part
NORMAL_95 = 1.96  # standard errors that 95 % of a normal distribution are within
# What the metrics file of a run repeats of its other protocol.
OTHER_METRICS = ("ndcg", "exposure_gap", "rank_exposure_gap", "rank_exposure_gap_signed")
SIGNED = "rank_exposure_gap_signed"


class Evaluation(NamedTuple):
    """A model measured on the lists of one part.

    Attributes:
        values: Every metric, one value per query, ``[Q]``.
        context: Chance level, spread and parity of the same lists.
        result: The content of a metrics file.
        queries: The content of the file with the values of each query.
        identity: The run that both files belong to.
        unmet: The lists for which a re-ranker could not do what was requested, counted.
    """

    values: dict[str, Tensor]
    context: GapContext
    result: dict[str, Any]
    queries: Saved
    identity: Identity
    unmet: Unmet | None = None

    @property
    def name(self) -> str:
        """The name of its metrics file, if it is not the one that a run ends with."""
        return metrics_name(self.result) if self.unmet is None else result_name(self.result)

    def save(self, path: Path) -> dict[str, Any]:
        """Write the metrics file and the values of each query; return what the first holds."""
        return write_result(path, self.result, self.queries, self.identity)


def measure_run(
    run: OpenRun,
    part: str = "test",
    protocol: str | None = None,
    rerank: RerankRequest | None = None,
    *,
    users: NDArray[np.int64] | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Evaluation:
    """Return every metric of a trained model on a part of its data.

    Args:
        run: The run.
        part: ``test`` or ``validation``.
        protocol: ``sampled`` or ``full``; None: the one in the run's config.
        rerank: How to re-rank the lists first; None: they are left in the model's order.
        users: By protocol ``full``, the users to measure; None: all users of the part.
        progress: Called with what is being done, how many lists are done, and of how many.
    """
    if part not in PARTS:
        raise InputError(f"part must be test or validation, got {part!r}")
    if protocol is not None:
        values = run.config.model_dump()
        values["evaluation"]["protocol"] = protocol
        run = run._replace(config=check_config(values, "evaluation"))
    started = time.perf_counter()
    config, lists, scorer = run.config, run.lists, run.scorer
    reranking = Reranking(run, part, rerank, progress) if rerank is not None else None
    metrics, context = _measure(reranking or scorer, lists, config, part, users)
    everyone = getattr(lists, part).user
    measured = everyone if users is None else users
    result = _result(config, lists, part) | {
        "users": {"measured": len(measured), "of": len(everyone)},
        "metrics": _cells(metrics, context, lists.data.group_names, config),
        "score_spread": _cell(mean_with_interval(context.spread)),
    }
    if reranking is not None:
        result |= reranking.record(result["method"])
    result["finished"] = run.finished
    if reranking is not None:
        result["seconds"] = {"re-ranking": time.perf_counter() - started}
    queries = _queries(config, lists, part, metrics, measured)
    unmet = reranking.unmet if reranking is not None else None
    return Evaluation(metrics, context, result, queries, run.identity, unmet)


def measure_other_protocol(run: OpenRun) -> dict[str, Any] | None:
    """Measure a trained model by the protocol that is not its own, and write that.

    If the catalogue is long, it is ranked for a seeded sample of users.

    Returns:
        The content of the metrics file; None if there is no other protocol.
    """
    other = other_protocol(run.config)
    if other is None:
        return None
    users = None
    if other == "full":
        users = some_users(run.user_lists.test, seed=run.config.seed)
    evaluation = measure_run(run, protocol=other, users=users)
    return evaluation.save(run.out / evaluation.name)


def other_protocol_summary(config: Config, other: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a run's metrics file repeats of the other protocol, or why there is none."""
    if other is None:
        return {"left_out": why_no_other(config)}
    names = [f"{name}@{k}" for k in measured_ks(other) for name in OTHER_METRICS]
    return {
        "protocol": other["protocol"],
        "file": metrics_name(other),
        "users": other["users"],
        "metrics": {name: other["metrics"][name]["mean"] for name in names},
    }


def has_other_protocol(out: Path, owner: Owner, protocol: str) -> bool:
    """Return whether the finished run in `out` was measured by `protocol` for all users.

    Its metrics files must belong to `owner`.
    """
    found = read_result(out / METRICS, owner).get("other_protocol") or {}
    if found.get("protocol") != protocol:
        return False
    try:
        other = read_result(out / found["file"], owner._replace(part=None))
        return other["protocol"] == protocol and not is_user_sample(other)
    except (InputError, OSError):
        return False


def disagreement(
    own: dict[str, Any], other: dict[str, Any] | None, group_names: Sequence[str]
) -> str | None:
    """Return a warning if sampled lists favour one group and the catalogue the other.

    A side is favoured where the 95 % interval of the signed gap by rank leaves out 0.

    Args:
        own: The content of the run's metrics file.
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


def some_users(
    part: HeldOut, *, seed: int, most: int | None = None
) -> NDArray[np.int64] | None:
    """Return a seeded sample of a part's users to rank the catalogue for, rising, ``[Q]``.

    It has at most `most` users, and fewer if the catalogue is long. Returns None if all users
    are few enough.
    """
    enough = max(LEAST_USERS, MOST_SCORES // part.data.n_items)
    size = enough if most is None else min(most, enough)
    if len(part.user) <= size:
        return None
    chance = np.random.default_rng(key_of(seed, SOME_USERS, int(part.code)))
    return np.sort(chance.choice(part.user, size, replace=False))


def _measure(
    scorer: nn.Module,
    lists: AnyLists,
    config: Config,
    part: str,
    users: NDArray[np.int64] | None,
) -> tuple[dict[str, Tensor], GapContext]:
    """Return every metric, one value per query, and what tells gaps from chance."""
    held_out, ks, seed = getattr(lists, part), config.evaluation.k, config.seed
    names, separator = lists.data.group_names, config.method.dpr.separator
    member = split_labels(names, separator).member if names and separator else None
    if config.evaluation.protocol == "full":
        return evaluate_full_with_context(
            scorer, held_out, ks, seed=seed, member=member, users=users
        )
    blocks = held_out.batches(unrated=config.evaluation.unrated, seed=seed)
    values = evaluate(scorer, iter(blocks), ks)
    values["group_auc"] = leakage(scorer, blocks)
    if getattr(scorer, "may_fail", False):  # a game that may miss its goal on some lists
        values["unmet"] = torch.cat([scorer.unmet(block) for block in blocks])  # type: ignore[operator]
    return values, gap_context(scorer, blocks, ks, seed=seed, member=member)


def _result(config: Config, lists: AnyLists, part: str) -> dict[str, Any]:
    """Return the head of a metrics file: the method, and the lists that it is measured on."""
    method = config.method
    row, fair = method.row, method.row.is_fair  # without a penalty C has no effect
    return {
        "method": method.name,
        "preset": method.preset,
        "c": method.c if fair else None,
        "c_is": row.weight_meaning if fair and method.c is not None else None,
        "c_relative": method.c_relative if fair else None,
        "needs_labels_when_serving": row.needs_labels,
        "k": list(method.ks),
        "seed": config.seed,
        "data": lists.data.name,
        "protocol": config.evaluation.protocol,
        "part": part,
        "split": lists.rule,
    }


def _cells(
    values: dict[str, Tensor], context: GapContext, group_names: Sequence[str], config: Config
) -> dict[str, Any]:
    """Return means, chance levels and ratios of all users together, with their intervals."""
    parts = split_labels(group_names, config.method.dpr.separator).names
    means = means_with_intervals(values, seed=0)
    cells = {name: _cell(mean) for name, mean in means.items()}
    for name, floor in context.floors.items():
        gap, margin = means[name.replace("_floor@", "@")], NORMAL_95 * floor.error
        interval = (floor.value - margin, floor.value + margin)
        cells[name] = _cell(gap._replace(mean=floor.value, ci95=interval))
    for name, whole in context.overall.items():
        names = parts if name.partition("@")[0].endswith("_split") else group_names
        by_group = dict(zip(names, whole.by_group, strict=False))
        value = Mean(whole.value, whole.ci95, whole.n, whole.undefined)
        cells[name] = _cell(value) | {"by_group": jsonable(by_group)}
    return cells


def _cell(found: Mean) -> dict[str, Any]:
    """Return a mean as a metrics file holds it."""
    cell: dict[str, Any] = jsonable(found._asdict())
    return cell


def _queries(
    config: Config,
    lists: AnyLists,
    part: str,
    values: dict[str, Tensor],
    users: NDArray[np.int64],
) -> Saved:
    """Return the values of each query, and a description of the lists that they belong to."""
    evaluation = config.evaluation
    sampled = evaluation.protocol == "sampled"
    about = {
        "data": lists.data.name,
        "checksum": lists.data.checksum,
        "split": lists.rule,
        "part": part,
        "protocol": evaluation.protocol,
        "unrated": evaluation.unrated if sampled else None,
        "seed": config.seed if sampled else None,
        "metrics": list(values),  # in their order, which safetensors does not keep
    }
    tensors = {name: value.float() for name, value in values.items()}
    return Saved(tensors | {USER: torch.from_numpy(users)}, about)


def _side(metrics: dict[str, Any], k: int) -> int:
    """Return 1 if the named group gets more than the rest, -1 if less, 0 if that is unclear."""
    low, high = metrics.get(f"{SIGNED}@{k}", {}).get("ci95", (None, None))
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)
