"""What each method costs: an epoch, a fit, or 1,000 lists put in another order.

Usage: python benchmarks/methods.py [--only NAME ...] [--shapes 1m 20m] [--steps 60] [--json]

Generated ratings of the shape of MovieLens 1M (6,040 users, 3,706 items) and 20M (138,493 and
26,744); 256 lists of 10 + 300 a step, the defaults of each method, NeuMF, or matrix
factorisation where a name has -mf; -c0 is the same without its adversary.

An epoch is the median step, and what bringing all rows up to date takes for each step, times
the steps of an epoch: 24, which are all taken, and 541, of which `--steps` are. In a part of an
epoch rows miss in proportion fewer steps, so that this is no less than a whole one would give.
Validation is not in it.

An epoch of `fair-distill` is one of its student; its lesson, all lists of the teacher, is made
once before them (timed for 4,096 users, and given in proportion), and its teacher is trained as
`k-song` is.

Robust has rounds after the epochs of its scorer; a fit is 20 epochs of warm-up, 60 of K-SONG,
three rounds and the ranking of each user's validation list after each, put together from the
median epochs, the first round and about 1,000 lists; a run before it has compiled.
Re-rankers have lists of 305, two groups and K = 50.
"""

import argparse
import json
import time
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from timing import peak_mb, seconds

import fairtopk as ft
from fairtopk.data.synthetic import SIZES, SyntheticShape, make_synthetic
from fairtopk.distillation.student import DistillSampler
from fairtopk.distillation.teacher import Lesson, lesson_of
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import Lists, Ratings, split
from fairtopk.models.optimizers import LazyOptimizer
from fairtopk.models.scoring import score
from fairtopk.objectives.methods import METHODS, methods_of
from fairtopk.reranking.rerank import RERANKERS
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.runs.build import build_model, build_phases
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.trainer import build_trainer
from fairtopk.training.loop import threads_of, train_step

BATCH, WARM, K = 256, 3, 50
TAUGHT = 4_096  # users whose lesson is timed
RANKED, LENGTH, REPEATS = 1_000, 305, 5
SHAPES = {"1m": SyntheticShape(6_040, 3_706, 1_000_209), "20m": SIZES["movielens-20m"]}
EPOCHS = {"1m": 20, "20m": 1}  # of each phase before the round that is timed: 500 steps
Figures = dict[str, float]


class Trained(NamedTuple):
    """A method with a model, and the weight of its fairness part where it is not the usual."""

    method: str
    model: str = "neumf"
    c: float | None = None


TRAINED = {
    **{name: Trained(name) for name in METHODS if name != "robust"},
    **{f"{name}-mf": Trained(name, "mf") for name in methods_of("adversary")},
    # Without its adversary DPR-REO is the same.
    "dpr-rsp-c0": Trained("dpr-rsp", c=0.0),
    "dpr-rsp-mf-c0": Trained("dpr-rsp", "mf", c=0.0),
}
ROBUST = {"robust": "data", "robust-list": "list"}  # by their multipliers
PROGRAM_OF_FOUR = "exposure-lp-4"
LISTS = (*RERANKERS, PROGRAM_OF_FOUR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    names = (*TRAINED, *ROBUST, *LISTS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--steps", type=int, default=60, help="of an epoch, at most")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: dict[str, Figures] = {name: {} for name in asked.only}
    learned = [name for name in asked.only if name not in LISTS]
    for shape in asked.shapes if learned else ():
        lists = split(make_synthetic(SHAPES[shape]).data)
        for name in learned:
            if name in TRAINED:
                figures = epoch(lists, TRAINED[name], asked.steps)
            else:
                figures = fit(lists, ROBUST[name], EPOCHS[shape])
            found[name] |= {f"{figure}_{shape}": value for figure, value in figures.items()}
    for name in set(asked.only) & set(LISTS):
        found[name] = reranked(name)
    found["all"] = {"peak_mb": peak_mb()}
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        print_table(found)


def print_table(found: dict[str, Figures]) -> None:
    """Print a row per method and a column per figure, in Markdown."""
    columns = list(dict.fromkeys(figure for one in found.values() for figure in one))
    print(f"| method | {' | '.join(columns)} |\n|{' --- |' * (len(columns) + 1)}")
    for name, figures in found.items():
        values = [figures.get(one) for one in columns]
        cells = ["" if one is None else f"{one:,.{0 if one >= 100 else 2}f}" for one in values]
        print(f"| `{name}` | {' | '.join(cells)} |")


def config_of(one: Trained) -> Config:
    method: dict[str, object] = {"name": one.method, "k": K}
    if METHODS[one.method].fairness != "none":
        method["c_relative"] = 1.0
    if one.c is not None:
        method["c"] = one.c
    return check_config({"model": {"name": one.model}, "method": method}, "methods")


def epoch(lists: Lists, one: Trained, most: int) -> Figures:
    """Return how long a step takes, and an epoch, of which at most so many steps are taken."""
    config = config_of(one)
    scorer = build_model(config, lists)
    phase = build_phases(config, scorer, lists)[-1]
    for group in phase.optimizer.param_groups:
        group["lr"] = phase.rate(0)

    def take(batch: Batch) -> None:
        with threads_of(scorer):
            assert np.isfinite(train_step(scorer, phase.objective, phase.optimizer, batch))

    def settle() -> None:
        if isinstance(phase.optimizer, LazyOptimizer):
            phase.optimizer.settle()

    figures = {}
    if isinstance(phase.sampler, DistillSampler):
        figures["lesson_s"] = give_lesson(phase.sampler, lists)
    for batch in islice(phase.sampler.epoch(0, batch_size=BATCH), WARM):
        take(batch)
    settle()
    steps = -(-lists.data.n_users // BATCH)
    batches = phase.sampler.epoch(1, batch_size=BATCH)
    taken = [seconds(lambda: take(next(batches))) for _ in range(min(most, steps))]
    step = float(np.median(taken))
    return figures | {
        "step_ms": 1e3 * step,
        "epoch_s": steps * (step + seconds(settle) / len(taken)),
    }


def give_lesson(sampler: DistillSampler, lists: Lists) -> float:
    """Return how long the lesson of all users takes, by some, who then stand for the others."""
    train, n_users = lists.train, lists.data.n_users
    some = min(TAUGHT, n_users)
    few = Ratings(train.offsets[: some + 1], train.item, train.rating)

    def teach() -> Lesson:
        given = (sampler.teacher, sampler.group, few, sampler.settings)
        return lesson_of(*given, strength=1.0, seed=0)

    teach()  # compiles
    taken = seconds(lambda: sampler.__dict__.update(lesson=teach())) * n_users / some
    *columns, changed = sampler.lesson
    every = [np.resize(one, (n_users, *one.shape[1:])) for one in columns]
    sampler.__dict__["lesson"] = Lesson(*every, changed)
    return taken


def fit(lists: Lists, multiplier: str, epochs: int) -> Figures:
    """Return how long the pieces of a robust ranker's fit take, and all of it."""
    usual = check_config({"method": {"name": "robust"}}, "methods")
    robust = {"multiplier": multiplier, "rounds": 1}
    training = {"warmup_epochs": epochs, "epochs": epochs}
    values = {"method": {"name": "robust", "robust": robust}, "training": training}
    config = check_config(values, "methods")
    scorer = build_model(config, lists)
    trainer = build_trainer(config, lists, scorer)
    assert isinstance(trainer, RobustTrainer)
    trainer.validate = trainer.blind.validate = dict
    ended: dict[str, list[float]] = {"warm-up": [], "fine-tuning": [], "rounds": []}
    last = time.perf_counter()
    for record in trainer.run():
        if record is not None:
            last, before = time.perf_counter(), last
            ended[str(record["phase"])].append(last - before)
    block = Batch(*map(torch.cat, zip(*trainer.calibration, strict=True)))
    score(scorer, block)
    ranked = seconds(lambda: score(scorer, block)) * RANKED / len(block.query)
    warmup, fine, one_round = (float(np.median(ended[phase])) for phase in ended)
    validation = ranked * lists.data.n_users / RANKED
    rounds, long = usual.method.robust.rounds, usual.training
    scorers = long.warmup_epochs * warmup + long.epochs * fine
    return {
        "warmup_epoch_s": warmup,
        "epoch_s": fine,
        "round_s": one_round,
        "ranking_1000_s": ranked,
        "fit_s": scorers + rounds * (one_round + validation),
    }


def reranked(name: str) -> Figures:
    """Return how long 1,000 lists take; linear programs of four groups, in proportion."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(RANKED, LENGTH, generator=generator)
    groups = (torch.rand(RANKED, LENGTH, generator=generator) > 0.1).long()
    scores -= 0.5 * (groups == 0)
    method, few = name, RANKED
    if name == PROGRAM_OF_FOUR:
        groups = torch.randint(0, 4, (RANKED, LENGTH), generator=generator)
        method, few = "exposure-lp", 20
    options = {"bonus": 0.5} if name == "group-bonus" else {}

    def run(n_lists: int) -> None:
        ft.rerank(scores[:n_lists], groups[:n_lists], method=method, k=K, **options)

    run(2)  # compiles, imports
    taken = [seconds(lambda: run(few)) for _ in range(REPEATS)]
    return {"lists_1000_s": float(np.median(taken)) * RANKED / few}


if __name__ == "__main__":
    main()
