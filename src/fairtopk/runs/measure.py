"""A trained model measured: on its run's lists, by another protocol, or re-ranked.

`measure_run` measures, summarises and keeps the values of each query; `Evaluation.save` writes
both files. At the end of training a run is measured by the other protocol as well, sampled
lists or the full catalogue, and a warning says where the two favour opposite groups.

A re-ranked run keeps its protocol, lists and K, so that its numbers and those of the run can be
compared user by user. Re-ranking needs group labels when serving.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk import evaluation
from fairtopk.data.groups import split_labels
from fairtopk.errors import InputError
from fairtopk.kernels.random import key_of
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import HeldOut, Lists
from fairtopk.metrics.intervals import Mean, mean_with_interval, means_with_intervals
from fairtopk.metrics.other import group_auc
from fairtopk.models.scoring import catalogue_scores, score
from fairtopk.reranking.lists import ExposureProgram, dealt
from fairtopk.reranking.request import RerankRequest, Unmet, reordered_lists
from fairtopk.reranking.rerank import checked_candidates
from fairtopk.runs import result as files
from fairtopk.runs.config import other_protocol
from fairtopk.runs.config_file import check_config
from fairtopk.runs.open import OpenRun
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
BLOCK_CELLS = 2**22  # slots of full-catalogue lists that are held at once while re-ranking


class Evaluation(NamedTuple):
    """A model measured on the lists of one part."""

    values: dict[str, Tensor]  # every metric, one value per query, ``[Q]``
    context: evaluation.GapContext  # chance level, spread and parity of the same lists
    result: dict[str, Any]  # the content of a metrics file
    queries: Saved  # the content of the file with the values of each query
    identity: files.Identity  # the run that both files belong to
    # The lists for which a re-ranker could not do what was requested, counted.
    unmet: Unmet | None = None

    @property
    def name(self) -> str:
        """The name of its metrics file, if it is not the one that a run ends with."""
        return files.metrics_name(self.result)

    def save(self, path: Path) -> dict[str, Any]:
        """Write the metrics file and the values of each query; return what the first holds."""
        return files.write_result(path, self.result, self.queries, self.identity)


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
    config, lists, method = run.config, run.lists, run.config.method
    protocol, unrated = config.evaluation.protocol, config.evaluation.unrated
    reranking = Reranking(run, part, rerank, progress) if rerank is not None else None
    groups, separator = lists.data.group_names, method.dpr.separator
    split_names: tuple[str, ...] = ()
    member = None
    if groups and separator:
        split_names, of_labels = split_labels(groups, separator)
        member = torch.from_numpy(of_labels)
    values, context = _measure(run, reranking or run.scorer, part, users, member)
    held_out = getattr(lists, part)
    lengths = held_out.lengths(unrated=unrated if protocol == "sampled" else None)
    everyone = held_out.user
    measured = everyone if users is None else users
    fair = method.row.is_fair  # without a penalty C has no effect
    result = {
        "method": method.name,
        "preset": method.preset,
        "c": method.c if fair else None,
        "c_is": method.row.weight_meaning if fair and method.c is not None else None,
        "c_relative": method.c_relative if fair else None,
        "needs_labels_when_serving": method.row.needs_labels,
        "k": list(method.ks),
        "seed": config.seed,
        "data": lists.data.name,
        "protocol": protocol,
        "part": part,
        "split": lists.rule,
        "users": {"measured": len(measured), "of": len(everyone)},
        "metrics": _cells(values, context, groups, split_names),
        "score_spread": jsonable(mean_with_interval(context.spread)._asdict()),
    }
    if reranking is not None:
        result |= reranking.record(method.name)
    result["warnings"] = evaluation.wholly_in_top(lengths, config.evaluation.k)
    result["finished"] = run.finished
    if reranking is not None:
        result["seconds"] = {"re-ranking": time.perf_counter() - started}
    about = {
        "data": lists.data.name,
        "checksum": lists.data.checksum,
        "split": lists.rule,
        "part": part,
        "protocol": protocol,
        "unrated": unrated if protocol == "sampled" else None,
        "seed": config.seed if protocol == "sampled" else None,
        "metrics": list(values),  # in their order, which safetensors does not keep
    }
    tensors = {name: value.float() for name, value in values.items()}
    queries = Saved(tensors | {files.USER: torch.from_numpy(measured)}, about)
    unmet = reranking.unmet if reranking is not None else None
    return Evaluation(values, context, result, queries, run.identity, unmet)


def measure_other_protocol(run: OpenRun) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Measure a trained model by the protocol that is not its own, and write that.

    If the catalogue is long, it is ranked for a seeded sample of users.

    Returns:
        The content of the metrics file, None if there is no other protocol; and what the run's
        own metrics file repeats of it, or why there is none.
    """
    other, why = other_protocol(run.config)
    if other is None:
        return None, {"left_out": why}
    users = None
    if other == "full" and isinstance(run.lists, Lists):
        users = some_users(run.lists.test, seed=run.config.seed)
    evaluation = measure_run(run, protocol=other, users=users)
    found = evaluation.save(run.out / evaluation.name)
    names = [f"{name}@{k}" for k in files.measured_ks(found) for name in OTHER_METRICS]
    return found, {
        "protocol": other,
        "file": evaluation.name,
        "users": found["users"],
        "metrics": {name: found["metrics"][name]["mean"] for name in names},
    }


def disagreement(
    own: dict[str, Any], other: dict[str, Any] | None, group_names: Sequence[str]
) -> str | None:
    """Return a warning if sampled lists favour one group and the catalogue the other.

    A side is favoured where the 95 % interval of the signed gap by rank leaves out 0. `own` and
    `other` are metrics files; the first of `group_names` is that of the named group.
    """
    if other is None:
        return None
    by = {result["protocol"]: result["metrics"] for result in (own, other)}
    sampled, full = by["sampled"], by["full"]
    ks = [k for k in files.measured_ks(own) if _side(sampled, k) * _side(full, k) < 0]
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
    run: OpenRun,
    scorer: nn.Module,
    part: str,
    users: NDArray[np.int64] | None,
    member: Tensor | None,
) -> tuple[dict[str, Tensor], evaluation.GapContext]:
    """Return every metric, one value per query, and what tells gaps from chance."""
    config, held_out = run.config, getattr(run.lists, part)
    ks, seed = config.evaluation.k, config.seed
    if config.evaluation.protocol == "full":
        return evaluation.evaluate_full_with_context(
            scorer, held_out, ks, seed=seed, member=member, users=users
        )
    blocks = held_out.batches(unrated=config.evaluation.unrated, seed=seed)
    values = evaluation.evaluate(scorer, iter(blocks), ks)
    told = [group_auc(score(scorer, one), one.group, mask=one.mask) for one in blocks]
    values["group_auc"] = torch.cat(told)
    if getattr(scorer, "may_fail", False):  # a game that may miss its goal on some lists
        values["unmet"] = torch.cat([scorer.unmet(block) for block in blocks])  # type: ignore[operator]
    return values, evaluation.gap_context(scorer, blocks, ks, seed=seed, member=member)


def _cells(
    values: dict[str, Tensor],
    context: evaluation.GapContext,
    group_names: Sequence[str],
    split_names: Sequence[str],
) -> dict[str, Any]:
    """Return means, chance levels and ratios of all users together, with their intervals.

    Items may be in several groups; `split_names` are then those that labels are split into.
    """
    means = means_with_intervals(values, seed=0)
    cells = {name: jsonable(mean._asdict()) for name, mean in means.items()}
    for name, floor in context.floors.items():
        gap, margin = means[name.replace("_floor@", "@")], NORMAL_95 * floor.error
        interval = (floor.value - margin, floor.value + margin)
        cells[name] = jsonable(gap._replace(mean=floor.value, ci95=interval)._asdict())
    for name, whole in context.overall.items():
        names = split_names if name.partition("@")[0].endswith("_split") else group_names
        by_group = dict(zip(names, whole.by_group, strict=False))
        value = Mean(whole.value, whole.ci95, whole.n, whole.undefined)
        cells[name] = jsonable(value._asdict() | {"by_group": by_group})
    return cells


def _side(metrics: dict[str, Any], k: int) -> int:
    """Return 1 if the named group gets more than the rest, -1 if less, 0 if that is unclear."""
    low, high = metrics.get(f"{SIGNED}@{k}", {}).get("ci95", (None, None))
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)


class Reranking(nn.Module):
    """The model of a run, whose lists are put in another order and keep their scores.

    A request without a K is at the one that the model was trained for. `unmet` counts the lists
    for which it cannot be met.
    """

    def __init__(
        self, run: OpenRun, part: str, request: RerankRequest, progress: Progress
    ) -> None:
        super().__init__()
        request, config, data = request.checked(), run.config, run.user_lists.data
        if request.k is None:
            own = config.method.k_of == "list"
            request = request._replace(k=config.method.ks[0] if own else config.evaluation.k[0])
        if len(data.group_names) < 2:
            raise InputError(
                f"the items of {data.name} are not in groups: nothing to re-rank by"
            )
        self.settings = request.settings(data.group_names)
        self.scorer, self.request, self.evaluation = run.scorer, request, config.evaluation
        self.held_out: HeldOut = getattr(run.lists, part)
        self.progress, self.unmet = progress, Unmet()
        self.kept: dict[int, Tensor] = {}

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of lists, dealt out again by their new ranks, ``[Q, L]``.

        They are remembered by the first query, since lists are measured in several ways.
        """
        first = int(batch.query[0])
        if first not in self.kept:
            scores = score(self.scorer, batch)
            self.kept[first] = self._dealt_again(scores, batch.group, batch.mask, batch.query)
        return self.kept[first]

    def score_all(self, users: Tensor) -> Tensor:
        """Return the same for the whole catalogue, ``[Q, n_items]``.

        Items that a user rated in another part are not in the list, and keep their score.
        """
        distinct, place = torch.unique(users, return_inverse=True)
        data, others, blocks = self.held_out.data, self.held_out.others, []
        for some in distinct.split(max(1, BLOCK_CELLS // data.n_items)):
            mask = torch.ones(len(some), data.n_items, dtype=torch.bool)
            for row, user in enumerate(some.numpy()):
                mask[row, others.item[others.offsets[user] : others.offsets[user + 1]]] = False
            scores = torch.from_numpy(catalogue_scores(self.scorer, some.numpy(), data.n_items))
            group = torch.from_numpy(data.group).expand(mask.shape)
            blocks.append(self._dealt_again(scores, group, mask, some))
        return torch.cat(blocks)[place]

    def record(self, method: str) -> dict[str, Any]:
        """Return what a metrics file says of a re-ranking of `method`, once all is measured.

        Lists for which the request cannot be met are refused here, unless they may be marked.
        """
        unmet, sampled = self.unmet, self.evaluation.protocol == "sampled"
        unmet.refuse(self.request, "user", self.held_out.data.user_ids)
        return {
            "method": f"{method} + {self.request.method}",
            "needs_labels_when_serving": True,
            "unrated": self.evaluation.unrated if sampled else None,
            "reranked": {
                "method": self.request.method,
                "k": self.request.k,
                "settings": self.settings.model_dump(mode="json"),
                "lists": unmet.total,
                "unmet": unmet.count,
            },
        }

    def _dealt_again(
        self, scores: Tensor, group: Tensor, mask: Tensor, query: Tensor
    ) -> Tensor:
        lists, _ = checked_candidates(scores, group, mask, None, self.request.method)
        settings, data = self.settings, self.held_out.data
        divides = isinstance(settings, ExposureProgram) and settings.notion != "parity"
        if divides and (lists.scores < 0)[lists.mask].any():
            raise InputError(
                "treatment and impact divide by relevance, and scores of the model are below "
                "0; use --notion parity"
            )
        lists = lists._replace(query=query.cpu(), names=tuple(data.group_names))
        outcome = reordered_lists(self.request, lists, settings, self.unmet)
        self.progress("re-ranking", self.unmet.total, len(self.held_out.user))
        return dealt(lists, outcome.slot)[1]
