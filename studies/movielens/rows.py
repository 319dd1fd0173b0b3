"""Rows and cells of the pages on MovieLens, from ``results.csv`` of `fairtopk reproduce`.

A row is a method at a weight, on one data set by one protocol at one K: means over seeds, and
changes from K-SONG of the same seed, with 95 % intervals over seeds by Student's t.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fairtopk.reporting.curves import Cell as SeedMean
from fairtopk.reporting.curves import seed_mean
from fairtopk.reproduce.views import (
    ALGORITHM_1,
    BASE,
    NAMES,
    PLUS,
    BySeed,
    change_of,
)
from fairtopk.terminal import number
from studies.page import table

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
NOTHING = "*No run of this is done yet.*"
NONE = number(None)  # a dash


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
            found[f"{metric}_reach"] = _short(change.half)
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


class Read(NamedTuple):
    """What pages are made from.

    Attributes:
        results: A record for each number of each run.
        rows: Those of `read_rows`.
        chosen: Records of the tables of chosen points, with the data that they are of.
        falls: Records of the tables of flatter scores, likewise.
        tables: The folder of the tables.
        titles: What the data sets are called.
    """

    results: pl.DataFrame
    rows: pl.DataFrame
    chosen: pl.DataFrame
    falls: pl.DataFrame
    tables: Path
    titles: list[str]


def table_or_note(head: list[str], lines: list[list[str]]) -> str:
    """Return a table as Markdown; without lines, a note that no run is done yet."""
    return table(head, lines) if lines else NOTHING


def columns(at: str = "") -> list[str]:
    """Return the names of the cells of `changes`."""
    return [f"NDCG{at}", f"Eq. 9{at}", f"by rank{at}", f"by rank{at}, signed"]


def changes(row: dict[str, Any]) -> list[str]:
    """Return how a row of `read_rows` differs from K-SONG, and its signed gap."""
    found = [
        percent(row[f"{metric}_change"], row[f"{metric}_reach"])
        for metric in ("ndcg", "exposure_gap", "rank_exposure_gap")
    ]
    return [*found, signed(row["rank_exposure_gap_signed"])]


def percent(change: float | None, reach: float | None) -> str:
    """Return a change with half of its interval, if it has one."""
    if change is None:
        return NONE
    return f"{100 * change:+.1f} %" + ("" if reach is None else f" ±{100 * reach:.1f}")


def points(change: SeedMean) -> str:
    """Return a difference in percentage points, in bold where its interval leaves out 0."""
    if change.seeds == 0:
        return NONE
    text = f"{100 * change.mean:+.0f}"
    if change.seeds < 2:
        return text
    text += f" ±{100 * (change.high - change.mean):.0f}"
    return f"**{text}**" if change.low > 0 or change.high < 0 else text


def signed(value: float | None) -> str:
    """Return a signed gap in few digits."""
    return NONE if value is None else f"{value:+.2g}"
