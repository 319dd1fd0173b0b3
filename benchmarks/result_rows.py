"""Rows for pages of docs/results, from ``results.csv`` of `fairtopk reproduce`.

A row is a method at a weight, on one data set by one protocol at one K: means over seeds, and
changes from K-SONG of the same seed, with 95 % intervals over seeds by Student's t.
"""

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from fairtopk.reproduce.views import (
    ALGORITHM_1,
    BASE,
    NAMES,
    PLUS,
    BySeed,
    SeedMean,
    change_of,
    seed_mean,
)

CHANGED = ("ndcg", "exposure_gap", "exposure_gap_released", "rank_exposure_gap")
SHOWN = (
    *CHANGED,
    "representation_gap",
    "rank_exposure_gap_signed",
    "representation_gap_signed",
    "rsp",
    "reo",
)
POINT = ["data", "protocol", "method", "weight", "k"]
DIGITS = 4


def read_rows(results: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of all points, in the order in which they were found.

    Args:
        results: A record for each number of each run.
    """
    known = results.filter(pl.col("metric").is_in(SHOWN) & pl.col("mean").is_not_null())
    named = known.with_columns(
        method=pl.struct("method", "preset", "gamma_u").map_elements(
            lambda one: _named(**one), return_dtype=pl.String
        ),
        weight=pl.when(pl.col("weight_name") != "k").then("weight"),
    )
    points: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    folders = {}  # each has one below it for each seed
    for row in named.iter_rows(named=True):
        key = tuple(row[name] for name in POINT)
        points.setdefault(key, {}).setdefault(row["metric"], {})[row["seed"]] = row["mean"]
        folders[key] = row["run"].rpartition("/")[0]
    rows = [_row(key, points) | {"folder": folders[key]} for key in points]
    numbers = {name: pl.Float64 for name in rows[0] if name.startswith(SHOWN)}
    return pl.DataFrame(rows, schema_overrides=numbers, infer_schema_length=None)


def _named(method: str, preset: str | None, gamma_u: float | None) -> str:
    """Return what pages call a method."""
    trained, plus, reranker = method.partition(PLUS)
    if preset == "paper" and trained == "kso-red":
        return ALGORITHM_1
    gamma = "" if gamma_u is None else f", gamma = {gamma_u:g}"
    return f"{NAMES.get(trained, trained)}{gamma}{plus}{reranker}"


def _row(
    key: tuple[Any, ...], points: Mapping[tuple[Any, ...], Mapping[str, BySeed]]
) -> dict[str, Any]:
    values = points[key]
    row = dict(zip(POINT, key, strict=True))
    blind = points.get((row["data"], row["protocol"], BASE, None, row["k"]), {})
    found: dict[str, Any] = {"seeds": len(values.get("ndcg", {}))}
    for metric in SHOWN:
        of_seeds = values.get(metric, {})
        found[metric] = _short(sum(of_seeds.values()) / len(of_seeds)) if of_seeds else None
        if metric in CHANGED:
            change = change_of(of_seeds, blind.get(metric, {}))
            found[f"{metric}_change"] = _short(change.mean)
            found[f"{metric}_reach"] = _short(change.reach)
    return row | found


def difference(one: BySeed, other: BySeed, blind: BySeed) -> SeedMean:
    """Return by how much more one model changes a metric than another, seed by seed.

    Args:
        one: Seed to value.
        other: The same of the other model.
        blind: The same of the model whose share they change.
    """
    both = [seed for seed in one if seed in other and blind.get(seed)]
    return seed_mean([(one[seed] - other[seed]) / blind[seed] for seed in both])


def of_runs(results: pl.DataFrame, runs: str) -> dict[tuple[str, str, int], dict[int, float]]:
    """Return by protocol, metric and K the values of each seed of trained models.

    Args:
        results: A record for each number of each run.
        runs: Their folders, with spaces between.
    """
    kept = results.filter(
        pl.col("run").is_in(runs.split(" "))
        & ~pl.col("method").str.contains(PLUS, literal=True)
        & pl.col("mean").is_not_null()
        & pl.col("k").is_not_null()
    )
    found: dict[tuple[str, str, int], dict[int, float]] = {}
    for row in kept.iter_rows(named=True):
        key = (row["protocol"], row["metric"], row["k"])
        found.setdefault(key, {})[row["seed"]] = row["mean"]
    return found


def _short(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.{DIGITS}g}")
