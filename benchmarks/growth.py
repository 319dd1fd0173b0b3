"""How the time of a training step grows with users, items, batch and list length.

Usage: python benchmarks/growth.py [--json] [--repeats 15]

NeuMF and KSO-RED at MovieLens-20M shape, one size varied at a time. Lazy rows have missed as
many steps as they do in a run: half an epoch on average for users, a few steps for items.
Figures are medians in milliseconds, drawing the lists included.
"""

import argparse
import gc
import json
import math
import statistics
import time
from typing import NamedTuple

import numpy as np
import torch

from fairtopk.data.synthetic import SyntheticShape, make_synthetic
from fairtopk.lists.users import Lists, split
from fairtopk.models.optimizers import LazyOptimizer
from fairtopk.runs.build import build_model, build_phases
from fairtopk.runs.config_file import check_config
from fairtopk.training.loop import Phase, threads_of, train_step

RATINGS_PER_USER = 24


class Sizes(NamedTuple):
    """What is varied."""

    users: int = 138_493
    items: int = 26_744
    batch: int = 256
    length: int = 310


VARIED = {
    "users": (20_000, 138_493, 1_000_000),
    "items": (5_000, 26_744, 100_000, 300_000),
    "batch": (64, 256, 512, 1_024),
    "length": (110, 310, 610, 1_010),
}
# Largest ratio of two sizes' times that is asked for.
ASKED = {
    ("users", 20_000, 1_000_000): {"momentum": 1.3, "adam": 2.5},
    ("items", 26_744, 300_000): {"momentum": 3.0, "adam": 3.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=15)
    asked = parser.parse_args()
    times: dict[Sizes, dict[str, float]] = {}
    for varied, values in VARIED.items():
        for value in values:
            sizes = Sizes()._replace(**{varied: value})
            if sizes not in times:
                times[sizes] = measure(sizes, asked.repeats)
    table = {
        varied: {value: times[Sizes()._replace(**{varied: value})] for value in values}
        for varied, values in VARIED.items()
    }
    if asked.json:
        print(json.dumps(table, indent=2))
        return
    for varied, rows in table.items():
        for value, found in rows.items():
            shown = ", ".join(f"{name} {ms:.1f} ms" for name, ms in found.items())
            print(f"{varied} {value:,}: {shown}")
    for (varied, small, large), limits in ASKED.items():
        for name, limit in limits.items():
            ratio = table[varied][large][name] / table[varied][small][name]
            print(
                f"{varied} {large:,} against {small:,}, {name}: {ratio:.2f} (at most {limit})"
            )


def measure(sizes: Sizes, repeats: int) -> dict[str, float]:
    """Return the median time of a step with each optimizer."""
    shape = SyntheticShape(sizes.users, sizes.items, RATINGS_PER_USER * sizes.users)
    lists = split(make_synthetic(shape).data)
    found = {}
    for optimizer in ("momentum", "adam"):
        found[optimizer] = 1e3 * statistics.median(
            step_seconds(lists, sizes, optimizer, repeats)
        )
        gc.collect()
    return found


def step_seconds(lists: Lists, sizes: Sizes, optimizer: str, repeats: int) -> list[float]:
    config = check_config(
        {
            "method": {"name": "kso-red", "k": 50, "c_relative": 0.5},
            "training": {
                "optimizer": optimizer,
                "batch_size": sizes.batch,
                "lists": {"unrated": sizes.length - 10, "per_group": 0},
            },
        },
        "growth",
    )
    scorer = build_model(config, lists)
    phase = build_phases(config, scorer, lists)[-1]
    rng = np.random.default_rng(0)
    seconds = []
    for repeat in range(repeats + 2):
        users = rng.choice(sizes.users, sizes.batch, replace=False)
        start = time.perf_counter()
        batch = phase.sampler.draw(users, epoch=repeat)
        with threads_of(scorer):
            train_step(scorer, phase.objective, phase.optimizer, batch)
        seconds.append(time.perf_counter() - start)
        if repeat == 0:
            age(phase, sizes)
    return seconds[2:]


def age(phase: Phase, sizes: Sizes) -> None:
    """Make the rows of tables as old as they are in the middle of a run."""
    assert isinstance(phase.optimizer, LazyOptimizer)
    generator = torch.Generator().manual_seed(0)
    steps = max(sizes.users // sizes.batch, 1)
    drawn = sizes.batch * sizes.length / sizes.items
    read = min(1 - math.exp(-drawn), 1 - 1e-6)  # share of items that a batch has, roughly
    for state in phase.optimizer.state.values():
        last = state["last"]
        if len(last) == sizes.users:
            missed = torch.randint(steps, last.shape, generator=generator)
        elif len(last) == sizes.items and int(last.min()) == 0:
            missed = torch.empty(last.shape).geometric_(read, generator=generator).int() - 1
        else:
            missed = torch.zeros_like(last)
        state["step"].fill_(2 * steps)
        last.copy_((2 * steps - missed).clamp(min=0))


if __name__ == "__main__":
    main()
