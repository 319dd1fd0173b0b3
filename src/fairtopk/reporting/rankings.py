"""What a report needs the models for: rankings before and after, and flatter scores.

Softmax exposure shrinks when scores get flatter, even if the order stays the same. So a fair
model is compared with the gap that the colour-blind order would have if its scores were as
flat: with the same mean entropy of exposure.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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


def rankings_of(folder: Path, view: View, load: Load) -> Rankings | str:
    """Return the rankings of a view before and after, or a sentence why there are none.

    Before is the colour-blind model, after the fairest model of the same seed that loses at
    most 5 % of its NDCG.

    Args:
        folder: The folder of the runs.
        view: The points to choose from.
        load: Loads the lists of a config.
    """
    if view.base is None:
        return "there is no colour-blind run"
    k, gap = _place(view)
    after = fairest(view, gap, k, loss=LOSS)
    if after is None:
        return "there is no run with a penalty"
    of_seed = {result.run.seed: result for result in after.results}
    pairs = [
        (one, of_seed[one.run.seed]) for one in view.base.results if one.run.seed in of_seed
    ]
    if not pairs:
        return "no seed has both a colour-blind and a fair run"
    before, fair = pairs[0]
    found = most_unfair(before, f"{gap}@{k}", SHOWN_LISTS)
    if found is None:
        return "the colour-blind run has no file with the values of each user"
    users, of = found
    try:
        shown = min(max(view.ks), SHOWN_POSITIONS)
        rows, groups = rows_of(folder, [before, fair], users, shown, load)
    except (InputError, OSError):
        return "the data or the models could not be loaded again"
    titles = [
        _title(point, result, k) for point, result in ((view.base, before), (after, fair))
    ]
    order = f"gap at K = {k}, {label(gap)},"
    return Rankings(
        before=titles[0],
        after=titles[1],
        lists=view.label,
        order=order,
        of=of,
        groups=groups,
        rows_before=rows[0],
        rows_after=rows[1],
    )


def _place(view: View) -> tuple[int, str]:
    """Return the K and gap by which lists are chosen: the K that models were trained for."""
    trained = [point.results[0].run.settings.get("method.k") for point in view.points]
    k = next((k for k in trained if k in view.ks), view.ks[0])
    return int(k), view.gaps[0]


def most_unfair(result: Result, name: str, count: int) -> tuple[NDArray[np.int64], int] | None:
    """Return the `count` users with the largest gaps, and how many have one."""
    for path in result.per_query:
        tensors = load_tensors(path).tensors
        if name in tensors:
            gaps = tensors[name].nan_to_num(nan=-1.0)
            known = int((gaps >= 0).sum())
            worst = gaps.argsort(descending=True, stable=True)[: min(count, known)]
            return tensors[USER][worst].numpy(), known
    return None


def rows_of(
    folder: Path, results: list[Result], users: NDArray[np.int64], shown: int, load: Load
) -> tuple[list[list[str]], tuple[str, str]]:
    """Return the rows of each result, and the names of the two groups in them.

    Args:
        folder: The folder of the runs.
        results: Results of models on the same lists.
        users: The users of the lists.
        shown: Positions of a row, from the first.
        load: Loads the lists of a config.
    """
    rows = []
    for result in results:
        out = folder / result.run.name if (folder / result.run.name).exists() else folder
        run = open_run(out, load=load)
        config, lists, model = run.config, run.lists, run.scorer
        part = getattr(lists, result.lists["part"])
        if isinstance(part, QueryPart):
            tops = _ordered(model, feature_batch(part.data, users))
        elif result.lists["protocol"] == "full":
            tops = _full_tops(model, part, users, shown)
        else:
            tops = _sampled_tops(model, part, users, config)
        group = np.where(tops >= 0, lists.data.group[tops], -2)[:, :shown]
        rows.append(["".join(map(_sign, row)) for row in group.tolist()])
    names = [*lists.data.group_names, "", ""][:2]
    rest = names[1] if len(lists.data.group_names) == 2 else "the rest"
    return rows, (names[0], rest)


def _sampled_tops(
    model: nn.Module, part: HeldOut, users: NDArray[np.int64], config: Config
) -> NDArray[np.int32]:
    lists = part.sampled(users, unrated=config.evaluation.unrated, seed=config.seed)
    return _ordered(model, candidate_batch(lists, part.data.group))


def _ordered(model: nn.Module, batch: Batch) -> NDArray[np.int32]:
    """Return items from the highest score down, -1 past the end of a list, ``[Q, L]``."""
    mask = batch.mask.numpy()
    scores = np.where(mask, score(model, batch).numpy(), -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(np.where(mask, batch.item.numpy(), -1), order, axis=1)


def _full_tops(
    model: nn.Module, part: HeldOut, users: NDArray[np.int64], shown: int
) -> NDArray[np.int32]:
    n_items = part.data.n_items
    k = min(shown, n_items)
    return top_items(model, users, k=k, n_items=n_items, excluded=part.others).item


def _sign(group: int) -> str:
    return {-2: "", -1: "-", 0: "0"}.get(group, "1")


def _title(point: Point, result: Result, k: int) -> str:
    ndcg = number(result.metrics[f"ndcg@{k}"]["mean"])
    return f"{point.name}, seed {result.run.seed} (NDCG@{k} {ndcg})"


VARIANTS: dict[str, Variant] = {"exposure_gap": "paper", "exposure_gap_released": "released"}
MOST_LISTS = 2_000  # enough to estimate a share, few enough to score again at once
FALLS = "flattening.json"  # in the folder of the fair run
ALIKE = 1e-6  # relative difference of gaps up to which a run counts as the same


class Fall(NamedTuple):
    """How a softmax gap falls from the colour-blind model to a fair one.

    Attributes:
        before: The gap of the colour-blind model.
        flat: The gap of its order at the flatness of the fair model's scores.
        after: The gap of the fair model.
    """

    before: float
    flat: float
    after: float

    @property
    def share(self) -> float:
        """The share of the fall due to flatter scores; NaN if the gap does not fall."""
        fall = self.before - self.after
        return (self.before - self.flat) / fall if fall > 0 else float("nan")


class FallOfPoint(NamedTuple):
    """How the gaps of a point fall, seed by seed.

    Attributes:
        point: The fair one.
        runs: Folders of both models of each seed.
        seeds: Name such as ``exposure_gap@50`` to the fall in each seed.
    """

    point: Point
    runs: tuple[str, ...]
    seeds: Mapping[str, Sequence[Fall]]


Measure = Callable[[Result, Result], dict[str, Fall]]


class Scored(NamedTuple):
    """Lists with their scores.

    Attributes:
        scores: Of a model, ``[Q, L]``.
        lists: What it scored.
    """

    scores: Tensor
    lists: Batch


def flattened(blind: Tensor, fair: Tensor, mask: Tensor) -> Tensor:
    """Return scores at the temperature that gives them the mean entropy of others, ``[Q, L]``.

    Args:
        blind: The scores to flatten, ``[Q, L]``.
        fair: The scores whose flatness they get, of the same lists, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
    """
    target = float(entropy(fair, mask=mask).nanmean())
    return blind / matched_temperature(blind, mask=mask, target=target)


def scored(folder: Path, result: Result, load: Load) -> Scored:
    """Return up to `MOST_LISTS` evenly spaced sampled lists of a result, scored again."""
    out = folder / result.run.name
    run = open_run(out, load=load)
    config, part = run.config, getattr(run.lists, result.lists["part"])
    places = np.linspace(0, len(part.user) - 1, min(MOST_LISTS, len(part.user))).astype(int)
    drawn = part.sampled(part.user[places], unrated=config.evaluation.unrated, seed=config.seed)
    batch = candidate_batch(drawn, part.data.group)
    return Scored(score(run.scorer, batch), batch)


def falls_once(
    folder: Path, before: Result, after: Result, ks: Sequence[int], measure: Measure
) -> dict[str, Fall]:
    """Return how gaps fall between two runs: as saved with the fair one, or else measured.

    Args:
        folder: The folder of the runs.
        before: The colour-blind run.
        after: The fair run.
        ks: Lengths of the top.
        measure: Measures it if no file has it.
    """
    path, pair = folder / after.run.name / FALLS, _pair(before, after, ks)
    try:
        kept = json.loads(read_text(path))
        if _is_alike(kept["pair"], pair):
            return {name: Fall(*map(_number, of)) for name, of in kept["falls"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # it is measured again
    found = measure(before, after)
    with suppress(OSError, InputError):  # the folder may be read-only
        write_text(path, json.dumps(jsonable({"pair": pair, "falls": found}), indent=2) + "\n")
    return found


def _pair(before: Result, after: Result, ks: Sequence[int]) -> dict[str, Any]:
    """Return what identifies a measurement; other models have other gaps."""
    names = [f"{next(iter(VARIANTS))}@{k}" for k in ks]
    means = [of.metrics.get(name, {}).get("mean") for of in (before, after) for name in names]
    about = {"colour_blind": before.run.name, "lists": MOST_LISTS, "k": list(ks)}
    return about | {"gaps": means}


def _is_alike(kept: dict[str, Any], pair: dict[str, Any]) -> bool:
    before, now = ([*map(_number, of["gaps"])] for of in (kept, pair))
    alike = np.isclose(before, now, rtol=ALIKE, atol=0, equal_nan=True)
    return bool(alike.all()) and {**kept, "gaps": pair["gaps"]} == pair


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def falls(blind: Scored, fair: Scored, ks: Sequence[int]) -> dict[str, Fall]:
    """Return by name, such as ``exposure_gap@50``, how each softmax gap falls.

    If no temperature makes the one as flat as the other, the flattened gap is NaN.
    """
    group, mask = blind.lists.group, blind.lists.mask
    try:
        flat = flattened(blind.scores, fair.scores, mask)
    except InputError:
        flat = torch.full_like(blind.scores, math.nan)
    return {
        f"{name}@{k}": Fall(
            *(
                _gap(scores, group, k, mask, variant)
                for scores in (blind.scores, flat, fair.scores)
            )
        )
        for name, variant in VARIANTS.items()
        for k in ks
    }


def _gap(scores: Tensor, group: Tensor, k: int, mask: Tensor, variant: Variant) -> float:
    if scores.isnan().any():
        return math.nan
    return float(exposure_gap(scores, group, k=k, mask=mask, variant=variant).nanmean())
