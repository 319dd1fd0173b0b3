"""Seconds and memory of an audit of ten million rows, each in a process of its own.

Usage: python benchmarks/audit.py [--json] [--rows N]

The rows are lists of 50 to 150 items with scores, grades and two columns of labels, of two and
of three groups, in a Parquet file; they are audited at K = 10 and 50 from file to result.
"""

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

import fairtopk as ft

ROWS = 10_000_000
SHORTEST, LONGEST = 50, 150
ITEMS = 1_000_003  # a prime, so that no step visits an item twice
FILE = "ranked.parquet"


def main() -> None:
    words = sys.argv[1:]
    rows = int(words[words.index("--rows") + 1]) if "--rows" in words else ROWS
    with tempfile.TemporaryDirectory() as name:
        alone(generate, Path(name), rows)
        figures = alone(measure, Path(name), rows)
    if "--json" in words:
        print(json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2))
        return
    print(
        f"audit of {figures['rows']:,} rows: {figures['audit_s']:.1f} s (under 60), "
        f"peak {figures['audit_mb']:,.0f} MB (under 4,000)"
    )


def alone(
    work: Callable[[Path, int], dict[str, float]], folder: Path, rows: int
) -> dict[str, float]:
    """Run `work` in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (folder, rows))


def generate(folder: Path, rows: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(SHORTEST, LONGEST + 1, 2 * rows // (SHORTEST + LONGEST))
    query = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(query)) - np.repeat(lengths.cumsum() - lengths, lengths)
    first, step = (rng.integers(1, ITEMS, len(lengths)) for _ in range(2))
    item = (np.repeat(first, lengths) + place * np.repeat(step, lengths)) % ITEMS
    of_item = rng.random((2, ITEMS))
    minority, region = of_item[0] < 0.3, (3 * of_item[1]).astype(np.int64)
    names = pl.Series(["north", "east", "south"])
    pl.DataFrame(
        {
            "query": query,
            "item": item,
            "score": rng.normal(size=len(query)) - 0.2 * minority[item],
            "relevance": (rng.random(len(query)) < 0.1).astype(np.int8),
            "sex": pl.Series(["men", "women"]).gather(minority[item].astype(np.int64)),
            "region": names.gather(region[item]),
        }
    ).write_parquet(folder / FILE)
    return {}


def measure(folder: Path, rows: int) -> dict[str, float]:
    start = time.perf_counter()
    found = ft.audit(
        folder / FILE,
        query="query",
        item="item",
        score="score",
        relevance="relevance",
        groups=["sex", "region"],
        k=[10, 50],
    )
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": found.to_dict()["data"]["rows"], "audit_s": seconds, "audit_mb": peak}


if __name__ == "__main__":
    main()
