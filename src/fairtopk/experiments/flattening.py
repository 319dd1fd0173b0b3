"""How much of the fall of a softmax gap is mere flattening of scores.

Softmax exposure shrinks when scores get flatter, with the order unchanged. So a fair model is
compared with the gap that the colour-blind order would have, were its scores as flat: at the
same mean entropy of exposure.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairtopk.batches import Batch, candidate_batch
from fairtopk.data.files import read_text, write_text
from fairtopk.errors import InputError
from fairtopk.experiments.config_file import load_config
from fairtopk.experiments.opening import load_model
from fairtopk.experiments.rankings import Load
from fairtopk.experiments.result import CONFIG
from fairtopk.metrics import entropy, exposure_gap, matched_temperature
from fairtopk.metrics.gaps import Variant
from fairtopk.reporting.paper_tables import Fall
from fairtopk.reporting.results import Result
from fairtopk.scoring import score

VARIANTS: dict[str, Variant] = {"exposure_gap": "paper", "exposure_gap_released": "released"}
MOST_LISTS = 2_000  # enough to know a share, and few enough to be scored again at once
FALLS = "flattening.json"  # in the folder of the fair run
ALIKE = 1e-6  # gaps by which a run is known again, relative

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
        fair: Those that they are to be as flat as, of the same lists, ``[Q, L]``.
        mask: False on padding, ``[Q, L]``.
    """
    target = float(entropy(fair, mask=mask).nanmean())
    return blind / matched_temperature(blind, mask=mask, target=target)


def scored(folder: Path, result: Result, load: Load) -> Scored:
    """Return the sampled lists of a result, scored again; of many lists, some evenly spaced.

    Args:
        folder: Where the runs are.
        result: Of sampled lists.
        load: What `rankings.loader` returned.
    """
    out = folder / result.run.name
    config = load_config(out / CONFIG)
    lists = load(config.data, config.seed)
    part = getattr(lists, result.lists["part"])
    places = np.linspace(0, len(part.user) - 1, min(MOST_LISTS, len(part.user))).astype(int)
    drawn = part.sampled_of(
        part.user[places], unrated=config.evaluation.unrated, seed=config.seed
    )
    batch = candidate_batch(drawn, part.data.group)
    return Scored(score(load_model(out, lists, config), batch), batch)


def falls_once(
    folder: Path, before: Result, after: Result, ks: Sequence[int], measure: Measure
) -> dict[str, Fall]:
    """Return how gaps fall between two runs: as kept with the fair one, or else measured.

    Args:
        folder: Where the runs are.
        before: The colour-blind one.
        after: The fair one.
        ks: At which K.
        measure: What to call if it is not known yet.
    """
    path, pair = folder / after.run.name / FALLS, _pair(before, after, ks)
    try:
        kept = json.loads(read_text(path))
        if _is_alike(kept["pair"], pair):
            return {name: Fall(*map(_number, of)) for name, of in kept["falls"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # it is measured again
    found = measure(before, after)
    told = {
        name: [None if math.isnan(one) else one for one in of] for name, of in found.items()
    }
    with suppress(OSError, InputError):  # of a folder that may only be read
        write_text(path, json.dumps({"pair": pair, "falls": told}, indent=2) + "\n")
    return found


def _pair(before: Result, after: Result, ks: Sequence[int]) -> dict[str, Any]:
    """Return by what a measurement is known again; other models have other gaps."""
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

    Where no temperature makes the one as flat as the other, the flattened gap is NaN.
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
