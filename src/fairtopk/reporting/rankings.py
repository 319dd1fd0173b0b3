"""What a report needs the models for: rankings before and after, and flatter scores.

Softmax exposure shrinks when scores get flatter, even if the order stays the same. So a fair
model is compared with the gap that the colour-blind order would have if its scores were as
flat: with the same mean entropy of exposure.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch, candidate_batch
from fairtopk.lists.queries import QueryPart, feature_batch
from fairtopk.lists.users import HeldOut
from fairtopk.metrics import entropy, exposure_gap, matched_temperature
from fairtopk.metrics.gaps import Variant
from fairtopk.metrics.names import label
from fairtopk.models.scoring import score, top_items
from fairtopk.reporting.curves import Point, View, fairest
from fairtopk.reporting.results import Rankings, Result
from fairtopk.runs.config import Config
from fairtopk.runs.open import Load, open_run
from fairtopk.runs.result import USER
from fairtopk.storage import jsonable, load_tensors, read_text, write_text
from fairtopk.terminal import number

SHOWN_LISTS = 30
SHOWN_POSITIONS = 100
LOSS = 0.05  # of NDCG, that the fair model may have lost
NO_GAP = "no list has both groups"
SIGNS = {-2: "", -1: "-", 0: "0"}  # of a group in a row; "1" for all others


def rankings_of(folder: Path, view: View, load: Load) -> Rankings | str:
    """Return the rankings of a view before and after, or a sentence why there are none.

    Before is the colour-blind model, after the fairest model of the same seed that loses at
    most 5 % of its NDCG.
    """
    if view.base is None:
        return "there is no colour-blind run"
    # The K that models were trained for.
    trained = [point.results[0].run.settings.get("method.k") for point in view.points]
    k = next((k for k in trained if k in view.ks), view.ks[0])
    gap = view.gaps[0]
    name = f"{gap}@{k}"
    after = fairest(view, gap, k, loss=LOSS)
    if after is None:
        undefined = name in view.base.values and math.isnan(view.base.mean(name))
        return NO_GAP if undefined else "there is no run with a penalty"
    of_seed = {result.run.seed: result for result in after.results}
    before = next((one for one in view.base.results if one.run.seed in of_seed), None)
    if before is None:
        return "no seed has both a colour-blind and a fair run"
    results = [before, of_seed[before.run.seed]]
    shown = min(max(view.ks), SHOWN_POSITIONS)
    found = most_unfair(folder, results, name, (SHOWN_LISTS, shown), load)
    if isinstance(found, str):
        return found
    rows, groups, of = found
    ndcgs = [number(result.metrics[f"ndcg@{k}"]["mean"]) for result in results]
    return Rankings(
        before=f"{view.base.name}, seed {before.run.seed} (NDCG@{k} {ndcgs[0]})",
        after=f"{after.name}, seed {before.run.seed} (NDCG@{k} {ndcgs[1]})",
        lists=view.label,
        order=f"gap at K = {k}, {label(gap)},",
        of=of,
        groups=groups,
        rows_before=rows[0],
        rows_after=rows[1],
    )


def most_unfair(
    folder: Path, results: list[Result], name: str, size: tuple[int, int], load: Load
) -> tuple[list[list[str]], tuple[str, str], int] | str:
    """Return the tops of the lists with the largest gaps in the first, colour-blind result.

    `size` is how many lists at most, and how many positions of each. Returns their rows in each
    result, the names of the two groups in them, and how many lists have a gap; or a sentence
    why there are none.
    """
    files = [load_tensors(path).tensors for path in results[0].per_query]
    tensors = next((one for one in files if name in one), None)
    if tensors is None:
        return "the colour-blind run has no file with the values of each user"
    gaps = tensors[name].nan_to_num(nan=-1.0)
    known = int((gaps >= 0).sum())
    if not known:
        return NO_GAP
    worst = gaps.argsort(descending=True, stable=True)[: min(size[0], known)]
    try:
        rows, groups = _rows(folder, results, tensors[USER][worst].numpy(), size[1], load)
    except (InputError, OSError):
        return "the data or the models could not be loaded again"
    return rows, groups, known


def _rows(
    folder: Path, results: list[Result], users: NDArray[np.int64], shown: int, load: Load
) -> tuple[list[list[str]], tuple[str, str]]:
    rows = []
    for result in results:
        out = folder / result.run.name if (folder / result.run.name).exists() else folder
        run = open_run(out, load=load)
        data, part = run.lists.data, getattr(run.lists, result.lists["part"])
        if isinstance(part, HeldOut) and result.lists["protocol"] == "full":
            n_items = part.data.n_items
            k = min(shown, n_items)
            items = top_items(
                run.scorer, users, k=k, n_items=n_items, excluded=part.others
            ).item
        else:
            batch = _batch(part, users, run.config)
            mask = batch.mask.numpy()
            scores = np.where(mask, score(run.scorer, batch).numpy(), -np.inf)
            order = np.argsort(-scores, axis=1, kind="stable")
            items = np.take_along_axis(np.where(mask, batch.item.numpy(), -1), order, axis=1)
        group = np.where(items >= 0, data.group[items], -2)[:, :shown]  # -2 past the end
        rows.append(["".join(SIGNS.get(one, "1") for one in row) for row in group.tolist()])
    names = [*data.group_names, "", ""][:2]
    return rows, (names[0], names[1] if len(data.group_names) == 2 else "the rest")


def _batch(part: HeldOut | QueryPart, users: NDArray[np.int64], config: Config) -> Batch:
    """Return the lists of queries, or the sampled lists of users."""
    if isinstance(part, QueryPart):
        return feature_batch(part.data, users)
    lists = part.sampled(users, unrated=config.evaluation.unrated, seed=config.seed)
    return candidate_batch(lists, part.data.group)


VARIANTS: dict[str, Variant] = {"exposure_gap": "paper", "exposure_gap_released": "released"}
MOST_LISTS = 2_000  # enough to estimate a share, few enough to score again at once
FALLS = "flattening.json"  # in the folder of the fair run
ALIKE = 1e-6  # relative difference of gaps up to which a run counts as the same


class Fall(NamedTuple):
    """How a softmax gap falls from the colour-blind model to a fair one."""

    before: float  # the gap of the colour-blind model
    flat: float  # the gap of its order at the flatness of the fair model's scores
    after: float  # the gap of the fair model

    @property
    def share(self) -> float:
        """The share of the fall due to flatter scores; NaN if the gap does not fall."""
        fall = self.before - self.after
        return (self.before - self.flat) / fall if fall > 0 else float("nan")


class FallOfPoint(NamedTuple):
    """How the gaps of a point fall, seed by seed."""

    point: Point  # the fair one
    runs: tuple[str, ...]  # folders of both models of each seed
    seeds: Mapping[str, Sequence[Fall]]  # such as `exposure_gap@50` to the fall in each seed


Measure = Callable[[Result, Result], dict[str, Fall]]
Scored = tuple[Tensor, Batch]  # scores of a model, ``[Q, L]``, and the lists that it scored


def flattened(blind: Tensor, fair: Tensor, mask: Tensor) -> Tensor:
    """Return `blind` at the temperature that gives it the mean entropy of `fair`, [Q, L]."""
    target = float(entropy(fair, mask=mask).nanmean())
    return blind / matched_temperature(blind, mask=mask, target=target)


def scored(folder: Path, result: Result, load: Load) -> Scored:
    """Return up to `MOST_LISTS` evenly spaced sampled lists of a result, scored again."""
    run = open_run(folder / result.run.name, load=load)
    part = getattr(run.lists, result.lists["part"])
    places = np.linspace(0, len(part.user) - 1, min(MOST_LISTS, len(part.user))).astype(int)
    batch = _batch(part, part.user[places], run.config)
    return score(run.scorer, batch), batch


def falls_once(
    folder: Path, before: Result, after: Result, ks: Sequence[int], measure: Measure
) -> dict[str, Fall]:
    """Return how gaps fall between two runs: as saved with the fair one, or else measured."""
    path = folder / after.run.name / FALLS
    # What identifies a measurement; other models have other gaps.
    names = [f"{next(iter(VARIANTS))}@{k}" for k in ks]
    means = [of.metrics.get(name, {}).get("mean") for of in (before, after) for name in names]
    pair = {"colour_blind": before.run.name, "lists": MOST_LISTS, "k": list(ks), "gaps": means}
    try:
        kept = json.loads(read_text(path))
        gaps = np.array(kept["pair"]["gaps"], float), np.array(means, float)
        alike = np.isclose(*gaps, rtol=ALIKE, atol=0, equal_nan=True).all()
        if alike and {**kept["pair"], "gaps": means} == pair:
            cells = kept["falls"].items()
            return {name: Fall(*np.array(of, float).tolist()) for name, of in cells}
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        pass  # it is measured again
    found = measure(before, after)
    with suppress(OSError, InputError):  # the folder may be read-only
        write_text(path, json.dumps(jsonable({"pair": pair, "falls": found}), indent=2) + "\n")
    return found


def falls(blind: Scored, fair: Scored, ks: Sequence[int]) -> dict[str, Fall]:
    """Return by name, such as ``exposure_gap@50``, how each softmax gap falls.

    If no temperature makes the one as flat as the other, the flattened gap is NaN.
    """
    (before, lists), (after, _) = blind, fair
    group, mask = lists.group, lists.mask
    try:
        flat = flattened(before, after, mask)
    except InputError:
        flat = torch.full_like(before, math.nan)
    found = {}
    for (name, variant), k in product(VARIANTS.items(), ks):
        gaps = [math.nan] * 3
        for place, scores in enumerate((before, flat, after)):
            if not scores.isnan().any():
                of_lists = exposure_gap(scores, group, k=k, mask=mask, variant=variant)
                gaps[place] = float(of_lists.nanmean())
        found[f"{name}@{k}"] = Fall(*gaps)
    return found
