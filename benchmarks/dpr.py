"""An epoch of DPR-RSP at MovieLens-20M shape, where the original was stopped after 72 hours.

Usage: python benchmarks/dpr.py [--json] [--steps 541]

138,493 users, 26,744 items, 256 lists of 10 + 300 a step, the defaults of the method, with
matrix factorisation (64 wide, the divergence by moments of all items) and with NeuMF (by the
list's own items). Without the adversary is alpha = 0. DPR-REO takes no longer.
"""

import argparse
import json
import resource
import time

import numpy as np

from fairtopk.data.synthetic import load_synthetic
from fairtopk.experiments.build import build_phases, build_scorer
from fairtopk.experiments.config import check_config
from fairtopk.lists import Lists, split
from fairtopk.optimizers.lazy import LazyOptimizer
from fairtopk.steps import threads_of, train_step

BATCH, COMPILES = 256, 3
VARIANTS = {
    "mf": ("mf", 1.0),
    "mf_without_adversary": ("mf", 0.0),
    "neumf": ("neumf", 1.0),
    "neumf_without_adversary": ("neumf", 0.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--steps", type=int, help="take fewer than a whole epoch")
    asked = parser.parse_args()
    lists = split(load_synthetic(size="movielens-20m"))
    found = {name: epoch(lists, *VARIANTS[name], asked.steps) for name in VARIANTS}
    found["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for name, figures in found.items():
        print(f"{name:24}", figures)


def epoch(lists: Lists, model: str, c: float, most: int | None) -> dict[str, float]:
    """Return how long steps and an epoch of them take; of a part of one, in proportion."""
    values = {"model": {"name": model}, "method": {"name": "dpr-rsp", "c": c}}
    config = check_config({**values, "training": {"batch_size": BATCH}}, "dpr")
    scorer = build_scorer(config, lists.data)
    phase = build_phases(config, scorer, lists)[-1]
    for group in phase.optimizer.param_groups:
        group["lr"] = phase.rate(0)
    steps = -(-lists.data.n_users // BATCH)
    taken = []
    for place, batch in enumerate(phase.sampler.epoch(0, batch_size=BATCH)):
        if place == COMPILES:
            start = last = time.perf_counter()
        with threads_of(scorer):
            value = train_step(scorer, phase.objective, phase.optimizer, batch)
        assert np.isfinite(value)
        if place >= COMPILES:
            last, before = time.perf_counter(), last
            taken.append(last - before)
        if place + 1 == most:
            break
    if isinstance(phase.optimizer, LazyOptimizer):
        phase.optimizer.settle()
    whole = (time.perf_counter() - start) * steps / len(taken)
    return {"step_ms": round(1e3 * float(np.median(taken)), 1), "epoch_s": round(whole, 1)}


if __name__ == "__main__":
    main()
