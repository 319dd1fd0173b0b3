"""A training step at MovieLens-20M shape, against the step as a competent user writes it.

Usage: python benchmarks/step.py [--json] [--repeats 12]

138,493 users, 26,744 items, 256 lists of 10 + 300, NeuMF, KSO-RED. The baseline draws lists in
Python per user, repeats user vectors by `torch.cat`, differentiates the pairwise loss by
autograd and takes a dense Adam step. Ours is timed in the middle of an epoch, where lazy rows
have missed as many steps as they do on average; once more as `torch_only`, without the compiled
scorer. Repeats of all variants are interleaved; figures are medians.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
import torch
from data import DRAWS, draw_in_python
from timing import peak_mb
from torch import Tensor, nn

from fairtopk.data.synthetic import load_synthetic
from fairtopk.evaluation import evaluate
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import Lists, split
from fairtopk.objectives.objective import Objective
from fairtopk.runs.build import build_model, build_phases, build_sampler
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.training.loop import threads_of, train_step

K, C_RELATIVE, WIDTH, DROPOUT, RATE = 50, 0.5, 64, 0.2, 4e-4
BATCH, RATED, UNRATED = 256, 10, 300
WARM = 3  # steps of a kind before one counts: until caches hold what it reads, one or two pass
PAPER_EPOCH_S = 63  # 127 minutes for 120 epochs on a V100S
Step = Callable[["Clock", int], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=12)
    asked = parser.parse_args()
    lists = split(load_synthetic(size="movielens-20m"))
    figures, adam = whole_epoch(lists)
    _, momentum = whole_epoch(lists, "momentum")
    _, torch_only = whole_epoch(lists, backend="torch")
    steps: dict[str, Step] = {
        "fairtopk": adam,
        "momentum": momentum,
        "torch_only": torch_only,
        "baseline": baseline(lists),
    }
    clocks = {name: Clock() for name in steps}
    for repeat in range(asked.repeats + 1):
        for name, step in steps.items():
            for warm in range(WARM):  # after its own kind, as in a run, not after another's
                step(Clock(), (WARM + 1) * repeat + warm)
            step(clocks[name], (WARM + 1) * repeat + WARM)
    for name, clock in clocks.items():
        figures |= clock.medians(name)
    for name in ("fairtopk", "momentum", "torch_only"):
        ratio = "ratio" if name == "fairtopk" else f"ratio_{name}"
        figures[ratio] = figures["baseline_ms"] / figures[f"{name}_ms"]
    quick = figures["baseline_ms"] - figures["baseline_draw_ms"] + figures["quick_draw_ms"]
    figures["ratio_quick_draw"] = quick / figures["fairtopk_ms"]
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2))


class Clock:
    """Collects how long the pieces of a step took."""

    def __init__(self) -> None:
        self.pieces: dict[str, list[float]] = {}
        self.last = 0.0

    def start(self) -> None:
        """Begin a piece now."""
        self.last = time.perf_counter()

    def lap(self, piece: str) -> None:
        """End a piece, and begin the next."""
        now = time.perf_counter()
        self.pieces.setdefault(piece, []).append(now - self.last)
        self.last = now

    def medians(self, name: str) -> dict[str, float]:
        """Return the medians in milliseconds; the first repeat does not count."""
        kept = {piece: np.array(seconds[1:]) for piece, seconds in self.pieces.items()}
        quick = kept.pop("quick_draw", None)
        total = sum(kept.values())
        found = {f"{name}_ms": total} | {f"{name}_{piece}_ms": kept[piece] for piece in kept}
        if quick is not None:
            found["quick_draw_ms"] = quick
        return {piece: 1e3 * float(np.median(seconds)) for piece, seconds in found.items()}


def config_of(optimizer: str = "adam") -> Config:
    return check_config(
        {
            "data": {"source": "synthetic", "options": {"size": "movielens-20m"}},
            "method": {"name": "kso-red", "k": K, "c_relative": C_RELATIVE},
            "training": {"optimizer": optimizer, "lists": {"per_group": 0}},
        },
        "step",
    )


def whole_epoch(
    lists: Lists, optimizer: str = "adam", *, backend: str = "auto"
) -> tuple[dict[str, float], Step]:
    """Train an epoch, validate, and train half an epoch; return times, and a step to go on.

    The `backend` is that of the step.
    """
    config = config_of(optimizer)
    scorer = build_model(config, lists)
    phase = build_phases(config, scorer, lists)[-1]

    def take(batch: Batch) -> None:
        with threads_of(scorer):
            train_step(scorer, phase.objective, phase.optimizer, batch)

    users = draw_users(lists)
    for number in range(3):  # compiles
        take(phase.sampler.draw(users[number], epoch=0))
    blocks = lists.validation.batches(unrated=UNRATED, seed=0)  # drawn once for a run
    evaluate(scorer, iter(blocks[:1]), [K])
    start = time.perf_counter()
    for batch in phase.sampler.epoch(0, batch_size=BATCH):
        take(batch)
    phase.optimizer.settle()  # type: ignore[attr-defined]
    trained = time.perf_counter()
    evaluate(scorer, iter(blocks), [K])
    validated = time.perf_counter()
    figures = {
        "epoch_s": validated - start,
        "validation_s": validated - trained,
        "paper_epoch_s": PAPER_EPOCH_S,
        "peak_mb": peak_mb(),
    }
    half = lists.data.n_users // BATCH // 2
    batches = phase.sampler.epoch(1, batch_size=BATCH)
    for batch in islice(batches, half):
        take(batch)
    scorer.backend = backend  # type: ignore[assignment]
    return figures, our_step(batches, scorer, phase.objective, phase.optimizer)


def our_step(
    batches: Iterator[Batch],
    scorer: nn.Module,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
) -> Step:
    """Return a step of our loop."""

    def step(clock: Clock, repeat: int) -> None:
        clock.start()
        batch = next(batches)
        clock.lap("draw")
        with threads_of(scorer), timed(clock, scorer, objective, optimizer):
            train_step(scorer, objective, optimizer, batch)

    return step


@contextmanager
def timed(
    clock: Clock, scorer: nn.Module, objective: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[None]:
    """Record the pieces of a call of `train_step`, told apart by hooks."""

    def lap(piece: str) -> Callable[..., None]:
        return lambda *_: clock.lap(piece)

    hooks = [
        scorer.register_forward_pre_hook(lap("catch_up")),
        scorer.register_forward_hook(lap("forward")),
        objective.register_forward_hook(lap("objective")),
        optimizer.register_step_pre_hook(lap("backward")),
        optimizer.register_step_post_hook(lap("optimizer")),
    ]
    yield
    for hook in hooks:
        hook.remove()


class PlainNeuMF(nn.Module):
    """NeuMF as one writes it down."""

    def __init__(self, n_users: int, n_items: int) -> None:
        super().__init__()
        self.product_user, self.network_user = (nn.Embedding(n_users, WIDTH) for _ in range(2))
        self.product_item, self.network_item = (nn.Embedding(n_items, WIDTH) for _ in range(2))
        self.network = nn.Sequential(
            nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT)
        )
        self.output = nn.Linear(2 * WIDTH, 1, bias=False)

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of a batch."""
        user = batch.query[:, None].expand(batch.item.shape)
        product = self.product_user(user) * self.product_item(batch.item)
        both = torch.cat([self.network_user(user), self.network_item(batch.item)], -1)
        scores: Tensor = self.output(torch.cat([product, self.network(both)], -1))[..., 0]
        return scores


def baseline(lists: Lists) -> Step:
    """Return the straightforward step."""
    train, data = lists.train, lists.data
    scorer = PlainNeuMF(data.n_users, data.n_items)
    optimizer = torch.optim.Adam(scorer.parameters(), lr=RATE)
    averages = torch.zeros(len(train.item))
    group = torch.from_numpy(data.group)
    config = config_of()
    sampler = build_sampler(config, config.method, lists)
    users = draw_users(lists)

    def step(clock: Clock, repeat: int) -> None:
        slots = [slice(*train.offsets[user : user + 2]) for user in users[repeat]]
        owned = [train.item[slot].tolist() for slot in slots]
        for piece, draw in (("quick_draw", DRAWS["random"]), ("draw", DRAWS["numpy"])):
            clock.start()
            item = torch.tensor(draw_in_python(owned, data.n_items, draw))
            clock.lap(piece)
        # Of the list just the items are replaced; its grades and slots cost the loop nothing.
        batch = sampler.draw(users[repeat], epoch=1)._replace(item=item)
        clock.start()
        scores = scorer(batch)
        clock.lap("forward")
        loss = plain_loss(scores, batch, group[item], averages)
        clock.lap("objective")
        optimizer.zero_grad()
        loss.backward()
        clock.lap("backward")
        optimizer.step()
        clock.lap("optimizer")

    return step


def plain_loss(scores: Tensor, batch: Batch, group: Tensor, averages: Tensor) -> Tensor:
    """Return a loss whose gradient by autograd is KSO-RED's, written without care for speed."""
    n = scores.shape[1]
    lam = scores.detach().sort(-1, descending=True).values[:, K, None]
    beta = 10 / scores.detach().std(-1, keepdim=True)
    lead = (scores[:, None, :] - scores[:, :RATED, None] + 1).relu() ** 2
    fresh = lead.mean(-1)
    averages[batch.pair] = 0.7 * averages[batch.pair] + 0.3 * fresh.detach()
    rank = batch.n_items[:, None] * averages[batch.pair]
    gain = (2 ** batch.relevance[:, :RATED] - 1) / batch.ideal_dcg[:, None]
    slope = gain * batch.n_items[:, None] / ((1 + rank) * (1 + rank).log() ** 2)
    inside = torch.sigmoid(2 * (scores.detach() - lam))[:, :RATED]
    ranking = (inside * slope * fresh).sum(-1) * batch.n_relevant / RATED
    exposure = scores.softmax(-1) * torch.sigmoid(beta * (scores.detach() - lam))
    ours = group == 0
    gap = (exposure * ours).sum(-1) / ours.sum(-1).clamp(min=1)
    gap = gap - (exposure * ~ours).sum(-1) / (~ours).sum(-1)
    return (ranking + C_RELATIVE * n**2 / 2 * gap**2).mean()


def draw_users(lists: Lists) -> np.ndarray:
    """Return batches of users, no user twice in one."""
    rng = np.random.default_rng(1)
    return np.stack([rng.permutation(lists.data.n_users)[:BATCH] for _ in range(256)])


if __name__ == "__main__":
    main()
