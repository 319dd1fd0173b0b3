"""The trainer of a run: how epochs are validated, which is kept, and alarms about fairness.

A penalty on softmax exposure can be met by flattening scores, by giving up on ranking, or by
turning the disadvantage round. An alarm about each is raised once, in the log and on screen.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from torch import nn

from fairtopk.evaluation import evaluate, evaluate_full
from fairtopk.lists.batch import Batch
from fairtopk.lists.queries import AnyLists
from fairtopk.lists.users import HeldOut, Lists
from fairtopk.robust.learning import draw_problem, feature_problem
from fairtopk.robust.ranker import RobustRanker, check_length
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.runs import build
from fairtopk.runs.config import Config
from fairtopk.runs.fitting import build_fit, build_rounds
from fairtopk.runs.measure import some_users
from fairtopk.runs.teacher import teacher_order
from fairtopk.training.fitting import FitTrainer
from fairtopk.training.loop import Prefers, Trainer

MOST_USERS = 2_000  # whose catalogue is ranked after each epoch
COLLAPSE = 0.5  # of the spread of scores after the warm-up, or at the first epoch without one
SETTLING = 5  # epochs that a last layer drawn anew may take to spread scores out again
FLIPPED = 0.5  # of the first gap, on the other side

AnyTrainer = Trainer | RobustTrainer | FitTrainer


def build_trainer(config: Config, lists: AnyLists, scorer: nn.Module) -> AnyTrainer:
    """Return the trainer of a run, which chooses an epoch on validation lists.

    Without such lists the last epoch is kept, and of a fitted model always.
    """
    training, method = config.training, config.method
    k, (validate, blocks) = validation_k(config), build_validation(config, lists)
    order, notice = teacher_order(config, lists, _trained)
    if config.model.is_fitted:
        fit = build_fit(config, scorer, validate, ndcg=f"valid_ndcg@{k}")
        if method.row.family == "distillation":
            assert isinstance(lists, Lists)
            fit.stages.append(build_rounds(config, scorer, lists, validate, order))
            fit.notice = "; ".join(filter(None, [fit.notice, notice]))
        return fit
    penalised = build.is_penalised(method) and not build.starts_from_baseline(config)
    gap = f"valid_{config.evaluation.select_gap}@{k}" if penalised else None
    prefers: Prefers = build.latest
    if not (method.row.keeps_last_epoch and method.c):
        ndcg, tolerance = f"valid_ndcg@{k}", training.tolerance
        prefers = partial(build.is_better, ndcg=ndcg, gap=gap, tolerance=tolerance)
    game = cast(RobustRanker, scorer) if method.row.family == "game" else None
    base = scorer if game is None else game.base
    trainer = Trainer(
        base,
        build.build_phases(config, base, lists, prefers, order),
        validate=partial(validate, base),
        watch=partial(alarms, gap=f"valid_exposure_gap_signed@{k}"),
        seed=config.seed,
        batch_size=training.batch_size,
        validate_every=training.validate_every,
        patience=training.patience,
        notice=notice,
    )
    if game is None:
        return trainer
    if game.settings.ranking == "sampled":  # refused now, not after a warm-up
        for part in (lists.validation, lists.test):
            check_length(int(part.lengths(unrated=config.evaluation.unrated).max(initial=0)))
    if isinstance(lists, Lists):
        draw = partial(draw_problem, game, lists)
    else:
        draw = partial(feature_problem, game, lists.data, lists.train.user)
        blocks = blocks or lists.train.batches()
    validated = partial(validate, game)
    return RobustTrainer(game, trainer, draw=draw, calibration=blocks, validate=validated)


def _trained(config: Config, lists: AnyLists) -> nn.Module:
    """Return the trained scorer of a config."""
    scorer = build.build_model(config, lists)
    trainer = build_trainer(config, lists, scorer)
    with lists.training_threads():
        for _ in trainer.run():
            pass
    scorer.load_state_dict(trainer.chosen)
    return scorer


def build_validation(
    config: Config, lists: AnyLists
) -> tuple[Callable[[nn.Module], dict[str, float]], list[Batch]]:
    """Return how a model is measured: on validation lists, or the catalogue of some users.

    Returns:
        A function from a model to metrics, by their names in the log, which has none without
        lists; and those lists, sampled ones or whole lists of documents.
    """
    k, seed, part = validation_k(config), config.seed, lists.validation
    blocks, users = [], None
    if config.evaluation.select_on != "full":
        blocks = part.batches(unrated=config.evaluation.unrated, seed=seed)
    elif isinstance(part, HeldOut):
        users = some_users(part, seed=seed, most=MOST_USERS)

    def validate(scorer: nn.Module) -> dict[str, float]:
        if blocks:
            values = evaluate(scorer, iter(blocks), [k])
        elif isinstance(part, HeldOut) and len(part.user):
            values = evaluate_full(scorer, part, [k], users=users)
        else:
            return {}
        means = {name: float(value.double().nanmean()) for name, value in values.items()}
        return {f"valid_{name}": mean for name, mean in means.items()} | {"valid": 1.0}

    return validate, blocks


def validation_k(config: Config) -> int:
    """Return the K at which epochs are compared."""
    method, evaluation = config.method, config.evaluation
    positions_fit = method.k_of == "list" or evaluation.select_on == "full"
    return evaluation.select_k or (method.ks[0] if positions_fit else evaluation.k[0])


def alarms(history: list[dict[str, Any]], gap: str) -> list[str]:
    """Return the alarms that a history's last record raises for the first time.

    `gap` is the name of the signed gap in a record.
    """
    raised = {alarm for record in history[:-1] for alarm in record.get("alarms", [])}
    last = history[-1]
    earlier = [record for record in history if record["phase"] != last["phase"]]
    # A last layer that is drawn anew starts with flat scores: compare with those before it.
    usual = earlier[-1] if earlier else history[0]
    first = next((record for record in history if gap in record), {})
    settled = not earlier or len(history) - len(earlier) > SETTLING
    found = []
    if settled and last.get("spread", math.inf) < COLLAPSE * usual.get("spread", 0):
        found.append("the spread of scores has halved: part of the gap's fall is flattening")
    if last.get("penalty_norm", 0) > last.get("ranking_norm", 0) > 0:
        found.append("the penalty's gradient outweighs the ranking's: expect NDCG to fall")
    if gap in first and gap in last and last[gap] * first[gap] < -FLIPPED * first[gap] ** 2:
        found.append("the signed gap has changed sides: it overshoots")
    return [alarm for alarm in found if alarm not in raised]
