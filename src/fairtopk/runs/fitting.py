"""From a config to a fitted model: its scorer, the stages of its fit, what they take.

The ridge of EASE, if it is not set, is chosen from a grid by NDCG on validation. Along the grid
NDCG rises and falls once, up to noise, so the grid is climbed: neighbours of the best ridge so
far are tried until there are none left.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from fairtopk.distillation.closed_form import learn_in_rounds
from fairtopk.distillation.teacher import Order, Teaching
from fairtopk.errors import InputError
from fairtopk.kernels.random import key_of
from fairtopk.lists.users import Lists
from fairtopk.models import histories
from fairtopk.models.gram import SIDE, gram_matrix
from fairtopk.runs.config import Config
from fairtopk.storage import refuse_large
from fairtopk.training.fitting import FitTrainer, Stage
from fairtopk.training.loop import Record

RIDGES = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
FIRST = 1_000
RIDGE, FIT, DISTILLATION = "ridge", "fit", "distillation"  # names of stages
ALS_SEED = 4  # keys the start of the vectors of ials, with the run's seed
ALS_RIDGE = 10.0  # without a ridge in the config
BYTES = 4  # of a weight
MATRICES = (
    2  # of n_items^2 weights while EASE is fitted: X'X, and B in the place of its inverse
)
USUAL_TRIES = 4  # ridges that are tried, about

Validate = Callable[[nn.Module], dict[str, float]]


def build_history_scorer(config: Config, n_items: int) -> histories.HistoryScorer:
    """Return a fitted model as it is before its fit: without weights and without histories."""
    model, graded = config.model, config.model.input == "graded"
    match model.name:
        case "ease":
            refuse_large(
                MATRICES * BYTES * n_items**2,
                f"ease of {n_items:,} items",
                remedy="use model.name = 'ials' or 'neumf', whose tables grow with the items "
                "and not with their square, or a larger machine",
            )
            return histories.Ease(n_items, graded=graded)
        case "ials":
            refuse_large(
                BYTES * n_items * model.width,
                f"ials of width {model.width:,} for {n_items:,} items",
            )
            ridge = ALS_RIDGE if model.ridge is None else model.ridge
            return histories.Ials(
                n_items,
                width=model.width,
                ridge=ridge,
                confidence=model.confidence,
                graded=graded,
            )
        case "item-knn":
            neighbours = min(model.neighbours, n_items)
            refuse_large(
                2 * BYTES * n_items * neighbours,
                f"item-knn of {neighbours:,} neighbours for {n_items:,} items",
            )
            return histories.ItemKnn(n_items, neighbours=neighbours, graded=graded)
    return histories.Popularity(n_items)


def build_fit(
    config: Config, scorer: nn.Module, validate: Validate, *, ndcg: str
) -> FitTrainer:
    """Return the trainer of a fitted model.

    Args:
        config: The run.
        scorer: The model, which has the training histories.
        validate: Measures a model on validation lists; returns values by name.
        ndcg: The name of that by which a ridge is chosen.
    """
    model = config.model
    if isinstance(scorer, histories.Ease):
        fit = EaseFit(scorer, validate, ndcg, ridge=model.ridge)
        return FitTrainer(scorer, fit.stages(), notice=fit.notice())
    if isinstance(scorer, histories.Ials):
        histories.implicit_module("cpu.als")  # refused now, not when training begins
        seed = key_of(config.seed, ALS_SEED) % 2**32
        run = partial(_iterate, scorer, validate, iterations=model.iterations, seed=seed)
        return FitTrainer(scorer, [Stage(FIT, model.iterations, run)])
    fill: Callable[[], None]
    if isinstance(scorer, histories.ItemKnn):
        histories.implicit_module("nearest_neighbours")
        fill = partial(histories.fit_item_knn, scorer, model.similarity)
    else:
        fill = partial(histories.fit_popularity, cast(histories.Popularity, scorer))
    return FitTrainer(scorer, [Stage(FIT, 1, partial(_fill, scorer, validate, fill))])


class EaseFit:
    """The fit of EASE: ridges that are tried, and the fit with the best.

    Args:
        scorer: The model, which has the training histories.
        validate: Measures a model on validation lists; returns values by name.
        ndcg: The name of that by which a ridge is chosen.
        ridge: The ridge; None: it is chosen.
    """

    def __init__(
        self, scorer: histories.Ease, validate: Validate, ndcg: str, *, ridge: float | None
    ) -> None:
        self.scorer, self.validate, self.ndcg, self.ridge = scorer, validate, ndcg, ridge
        self.gram: Tensor | None = None  # of the training histories, until the fit is over

    def stages(self) -> list[Stage]:
        """Return the stages: the ridges, unless one is set, and the fit."""
        fit = Stage(FIT, 1, self._fit)
        return [fit] if self.ridge else [Stage(RIDGE, len(RIDGES), self._try_ridges), fit]

    def _fitted(self, ridge: float) -> Record:
        if self.gram is None:
            self.gram = gram_matrix(self.scorer.history, self.scorer.n_items)
        # Relative to the largest value, so that it means the same for graded input.
        histories.fit_ease(self.scorer, self.gram, ridge * self.scorer.unit**2)
        return {"ridge": float(ridge), **self.validate(self.scorer)}

    def _try_ridges(self, history: list[Record]) -> Iterator[Record]:
        tried = [record for record in history if record["phase"] == RIDGE]
        while (following := next_ridge(tried, self.ndcg)) is not None:
            record = self._fitted(following)
            if not math.isfinite(record.get(self.ndcg, math.nan)):
                raise InputError(
                    "the ridge of ease is chosen on validation ratings, and this data has "
                    "none; set model.ridge, such as 500"
                )
            tried.append(record)
            yield record

    def _fit(self, history: list[Record]) -> Iterator[Record]:
        if history and history[-1]["phase"] == FIT:
            return
        ridge = self.ridge or best_ridge(history, self.ndcg)
        record = self._fitted(ridge)
        self.gram = None
        yield record

    def notice(self) -> str:
        """Return how much memory and time the fit takes, in a sentence."""
        n_items, fits = self.scorer.n_items, 1 if self.ridge else USUAL_TRIES + 1
        block = torch.rand(SIDE, 4 * SIDE)
        started = time.perf_counter()
        for _ in range(3):
            block[:, :SIDE].T @ block
        each = (time.perf_counter() - started) / (3 * 4 * 2 * SIDE**3)
        memory = MATRICES * BYTES * n_items**2 / 1e9
        what = f"{fits} fits of" if fits > 1 else "a fit of"
        return (
            f"ease: {what} {n_items:,} items take {memory:,.2g} GB and about "
            f"{max(fits * each * n_items**3, 1):,.0f} seconds"
        )


def build_rounds(
    config: Config, scorer: nn.Module, lists: Lists, validate: Validate, order: Order | None
) -> Stage:
    """Return the stage in which a fitted model learns a fair order; compare `build_fit`.

    `order` is that of a teacher which is not the model itself.
    """
    settings, strength = config.method.distill, config.method.c or 0.0
    settings = settings.model_copy(update={"rounding": settings.rounding or "random"})
    teaching = Teaching(lists.data.group, settings, strength, config.seed, order)

    def run(history: list[Record]) -> Iterator[Record]:
        if not strength and order is None:
            return
        done = sum(record["phase"] == DISTILLATION for record in history)
        ease = cast(histories.Ease, scorer)
        for off in learn_in_rounds(ease, lists.train, teaching, done=done):
            yield {"off": off, **validate(scorer)}

    return Stage(DISTILLATION, settings.rounds, run)


def next_ridge(tried: Sequence[Record], ndcg: str) -> float | None:
    """Return the ridge to try next, None once both neighbours of the best are tried."""
    if not tried:
        return FIRST
    known = {record["ridge"] for record in tried}
    place = RIDGES.index(best_ridge(tried, ndcg))
    neighbours = RIDGES[place + 1 : place + 2] + RIDGES[max(place - 1, 0) : place]
    return next((ridge for ridge in neighbours if ridge not in known), None)


def best_ridge(tried: Sequence[Record], ndcg: str) -> float:
    """Return the ridge with the best NDCG, of equal ones the largest."""
    return float(max((record[ndcg], record["ridge"]) for record in tried)[1])


def _iterate(
    scorer: histories.Ials,
    validate: Validate,
    history: list[Record],
    *,
    iterations: int,
    seed: int,
) -> Iterator[Record]:
    """Fit ials, with a record for each iteration."""
    done = len(history)
    for _ in histories.als_steps(scorer, iterations=iterations, done=done, seed=seed):
        yield validate(scorer)


def _fill(
    scorer: nn.Module, validate: Validate, fill: Callable[[], None], history: list[Record]
) -> Iterator[Record]:
    """Fit a model that takes one step."""
    if not history:
        fill()
        yield validate(scorer)
