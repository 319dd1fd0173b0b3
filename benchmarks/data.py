"""Speed and memory of the data room at MovieLens-20M shape, each figure from one run.

Usage: python benchmarks/data.py [--json]

Each measurement runs in a process of its own, so that its peak memory is its own. Times are
medians of interleaved repeats; ratios compare measurements of the same run.
"""

import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from timing import peak_mb, seconds

import fairtopk as ft
from fairtopk.data.movielens import RATINGS_CSV, read_movielens
from fairtopk.data.synthetic import SIZES

REPEATS = 3
BATCH, RATED, UNRATED = 256, 10, 300


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = {
            **alone(measure_generating, folder),
            **alone(measure_loading, folder),
            **alone(measure_drawing, folder),
        }
    figures["load_ratio"] = figures["load_s"] / figures["parse_s"]
    for name in DRAWS:
        figures[f"{name}_draw_ratio"] = figures[f"{name}_draw_ms"] / figures["draw_ms"]
    if "--json" in sys.argv[1:]:
        print(json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2))
        return
    for line in (
        f"generating 20 M ratings: {figures['generate_s']:.1f} s (at most 90), "
        f"peak {figures['generate_mb']:,.0f} MB (at most 4,000)",
        f"ratings.csv to split CSR lists: {figures['load_s']:.2f} s, "
        f"{figures['load_ratio']:.2f}x polars' {figures['parse_s']:.2f} s just to parse it "
        f"(at most 3), peak {figures['load_mb']:,.0f} MB (at most 2,500)",
        f"drawing {BATCH} lists of {RATED} + {UNRATED}: {figures['draw_ms']:.2f} ms (under 2), "
        f"{figures['numpy_draw_ratio']:,.0f}x the per-user loop with numpy.random's "
        f"{figures['numpy_draw_ms']:,.0f} ms (at least 200), and "
        f"{figures['random_draw_ratio']:,.0f}x the same with the random module's "
        f"{figures['random_draw_ms']:,.0f} ms",
    ):
        print(line)


def alone(measure: Callable[[Path], dict[str, float]], folder: Path) -> dict[str, float]:
    """Run `measure` in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (folder,))


def measure_generating(folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    data = ft.make_synthetic(SIZES["movielens-20m"]).data
    taken, peak = time.perf_counter() - start, peak_mb()
    frame = data.to_frame().select(
        userId="user", movieId="item", rating="rating", timestamp="time"
    )
    frame.write_csv(folder / "ratings.csv", float_precision=1)
    films = pl.DataFrame({"movieId": data.item_ids}).with_columns(
        title=pl.format("Film {} (1990)", "movieId"),
        genres=pl.when(pl.Series(data.group == 0))
        .then(pl.lit("Horror"))
        .otherwise(pl.lit("War")),
    )
    films.write_csv(folder / "movies.csv")
    return {"generate_s": taken, "generate_mb": peak}


def measure_loading(folder: Path) -> dict[str, float]:
    """Time polars' parsing and our loading in turns; the peak is that of the loading."""
    warm_up()
    parse, load = [], []
    for _ in range(REPEATS + 1):
        parse.append(
            seconds(lambda: pl.read_csv(folder / "ratings.csv", schema_overrides=RATINGS_CSV))
        )
        load.append(seconds(lambda: split_lists(folder).train))
    # The first round may wait for the disk.
    parse_s, load_s = statistics.median(parse[1:]), statistics.median(load[1:])
    return {"parse_s": parse_s, "load_s": load_s, "load_mb": peak_mb()}


def measure_drawing(folder: Path) -> dict[str, float]:
    lists = split_lists(folder)
    sampler = ft.ListSampler(lists, ft.ListSizes(RATED, UNRATED), seed=0)
    train, n_items = lists.train, lists.data.n_items
    rng = np.random.default_rng(0)
    batches = rng.integers(0, lists.data.n_users, (40, BATCH))
    sampler.draw(batches[0], epoch=0)
    ours: list[float] = []
    plain: dict[str, list[float]] = {name: [] for name in DRAWS}
    for epoch, users in enumerate(batches):
        ours.append(seconds(partial(sampler.draw, users, epoch=epoch)))
        if epoch % 8 == 0:
            slots = [slice(*train.offsets[user : user + 2]) for user in users]
            owned = [train.item[slot].tolist() for slot in slots]
            for name, draw in DRAWS.items():
                plain[name].append(seconds(partial(draw_in_python, owned, n_items, draw)))
    return {"draw_ms": 1e3 * statistics.median(ours)} | {
        f"{name}_draw_ms": 1e3 * statistics.median(taken) for name, taken in plain.items()
    }


# Where a straightforward loop takes its numbers from; NumPy's is what recommender code calls.
DRAWS: dict[str, Callable[[int], int]] = {
    "numpy": np.random.randint,
    "random": random.randrange,
}


def draw_in_python(
    owned: list[list[int]], n_items: int, draw: Callable[[int], int]
) -> list[list[int]]:
    """Draw lists as one would write it down: per user, rejecting rated and drawn items."""
    lists = []
    for items in owned:
        rated, drawn = set(items), set()
        chosen = random.sample(items, min(RATED, len(items)))
        while len(drawn) < UNRATED:
            item = draw(n_items)
            if item not in rated and item not in drawn:
                drawn.add(item)
                chosen.append(item)
        lists.append(chosen)
    return lists


def split_lists(folder: Path) -> ft.Lists:
    tables = read_movielens(folder)
    assert tables.items is not None
    groups = ft.groups_from(tables.items, item="item_id", column="genres", contains="Horror")
    data = ft.Interactions.from_frame(
        tables.ratings,
        user="user_id",
        item="item_id",
        rating="rating",
        time="timestamp",
        groups=groups,
    )
    return ft.split(data)


def warm_up() -> None:
    """Load the compiled kernels, which a first call would otherwise wait for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = "".join(f"{u},{i},3.0,{i}\n" for u in range(3) for i in range(12))
        (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + rows)
        films = "".join(f"{i},Film,{'Horror' if i % 2 else 'War'}\n" for i in range(12))
        (folder / "movies.csv").write_text("movieId,title,genres\n" + films)
        _ = split_lists(folder).train


if __name__ == "__main__":
    main()
