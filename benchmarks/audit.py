"""Seconds and memory of an audit of ten million rows, each in a process of its own.

Usage: python benchmarks/audit.py [--json] [--rows N] [--csv] [--short]

The rows are lists of 50 to 150 items with scores, grades and two columns of labels, of two and
of three groups, in a Parquet file, or with --csv in a CSV; they are audited at K = 10 and 50
from file to result. With --short they are a million rows in lists of 3 to 7, audited at K = 2
and 3, and compared with another order of the same lists as a baseline.
"""

import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from timing import peak_mb

import fairtopk as ft

ITEMS = 1_000_003  # a prime, so that no step visits an item twice


class Case(NamedTuple):
    """What is audited."""

    rows: int
    lengths: tuple[int, int]
    ks: tuple[int, ...]
    ending: str
    baseline: bool


def main() -> None:
    words = sys.argv[1:]
    ending = ".csv" if "--csv" in words else ".parquet"
    case = Case(10_000_000, (50, 150), (10, 50), ending, baseline=False)
    if "--short" in words:
        case = Case(1_000_000, (3, 7), (2, 3), ending, baseline=True)
    if "--rows" in words:
        case = case._replace(rows=int(words[words.index("--rows") + 1]))
    with tempfile.TemporaryDirectory() as name:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(generate, (Path(name), case))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            figures = pool.apply(measure, (Path(name), case))
    if "--json" in words:
        print(json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2))
        return
    print(
        f"audit of {figures['rows']:,} rows in {figures['lists']:,} lists: "
        f"{figures['audit_s']:.1f} s ({figures['audit_cpu_s']:.1f} s of processors), "
        f"peak {figures['audit_mb']:,.0f} MB"
    )


def generate(folder: Path, case: Case) -> None:
    rng = np.random.default_rng(0)
    shortest, longest = case.lengths
    lengths = rng.integers(shortest, longest + 1, 2 * case.rows // (shortest + longest))
    query = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(query)) - np.repeat(lengths.cumsum() - lengths, lengths)
    first, step = (rng.integers(1, ITEMS, len(lengths)) for _ in range(2))
    item = (np.repeat(first, lengths) + place * np.repeat(step, lengths)) % ITEMS
    of_item = rng.random((2, ITEMS))
    minority, region = of_item[0] < 0.3, (3 * of_item[1]).astype(np.int64)
    names = pl.Series(["north", "east", "south"])
    frame = pl.DataFrame(
        {
            "query": query,
            "item": item,
            "score": rng.normal(size=len(query)) - 0.2 * minority[item],
            "relevance": (rng.random(len(query)) < 0.1).astype(np.int8),
            "sex": pl.Series(["men", "women"]).gather(minority[item].astype(np.int64)),
            "region": names.gather(region[item]),
        }
    )
    _write(frame, folder / f"now{case.ending}")
    if case.baseline:
        frame = frame.with_columns(score=rng.normal(size=len(query)))
        _write(frame, folder / f"before{case.ending}")


def measure(folder: Path, case: Case) -> dict[str, float]:
    start, start_cpu = time.perf_counter(), time.process_time()
    found = ft.audit(
        folder / f"now{case.ending}",
        query="query",
        item="item",
        score="score",
        relevance="relevance",
        groups=["sex", "region"],
        k=case.ks,
        baseline=folder / f"before{case.ending}" if case.baseline else None,
    )
    data = found.to_dict()["data"]
    return {
        "rows": data["rows"],
        "lists": data["queries"],
        "audit_s": time.perf_counter() - start,
        "audit_cpu_s": time.process_time() - start_cpu,
        "audit_mb": peak_mb(),
    }


def _write(frame: pl.DataFrame, path: Path) -> None:
    (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)


if __name__ == "__main__":
    main()
