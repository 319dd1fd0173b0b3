"""Validation of an epoch: metrics on validation lists, and alarms about fairness.

A penalty on softmax exposure can be met by flattening scores, by giving up on ranking, or by
turning the disadvantage round. An alarm about each is raised once, in the log and on screen.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from fairtopk.evaluation import evaluate, evaluate_full
from fairtopk.lists.batch import Batch
from fairtopk.lists.queries import AnyLists
from fairtopk.lists.users import Lists
from fairtopk.runs.config import Config
from fairtopk.runs.measure import some_users

MOST_USERS = 2_000  # whose catalogue is ranked after each epoch
COLLAPSE = 0.5  # of the spread of scores after the warm-up, or at the first epoch without one
SETTLING = 5  # epochs that a last layer drawn anew may take to spread scores out again
FLIPPED = 0.5  # of the first gap, on the other side

Validate = Callable[[nn.Module], dict[str, float]]


class Validation(NamedTuple):
    """How a model is validated.

    Attributes:
        validate: Model to metrics, by their names in the log; empty without lists.
        k: K of the metrics.
        blocks: The validation lists: sampled ones, or whole lists of documents.
    """

    validate: Validate
    k: int
    blocks: list[Batch]


def validation_k(config: Config) -> int:
    """Return the K at which epochs are compared."""
    method, evaluation = config.method, config.evaluation
    positions_fit = method.k_of == "list" or evaluation.select_on == "full"
    return evaluation.select_k or (method.ks[0] if positions_fit else evaluation.k[0])


def build_validation(config: Config, lists: AnyLists) -> Validation:
    """Return how a model is measured: on validation lists, or the catalogue of some users."""
    on_catalogue, k = config.evaluation.select_on == "full", validation_k(config)
    unrated, seed = config.evaluation.unrated, config.seed
    blocks = [] if on_catalogue else lists.validation.batches(unrated=unrated, seed=seed)
    measured = _on_catalogue(config, lists, k) if on_catalogue else _on_blocks(blocks, k)

    def validate(scorer: nn.Module) -> dict[str, float]:
        values = measured(scorer)
        if not values:
            return {}
        means = {name: float(value.double().nanmean()) for name, value in values.items()}
        return {f"valid_{name}": mean for name, mean in means.items()} | {"valid": 1.0}

    return Validation(validate, k, blocks)


def _on_blocks(blocks: list[Batch], k: int) -> Callable[[nn.Module], dict[str, Tensor]]:
    return lambda scorer: evaluate(scorer, iter(blocks), [k]) if blocks else {}


def _on_catalogue(
    config: Config, lists: AnyLists, k: int
) -> Callable[[nn.Module], dict[str, Tensor]]:
    assert isinstance(lists, Lists)  # a config of documents is refused
    part = lists.validation
    users = some_users(part, seed=config.seed, most=MOST_USERS)
    if not len(part.user):
        return lambda scorer: {}
    return lambda scorer: evaluate_full(scorer, part, [k], users=users)


def alarms(history: list[dict[str, Any]], gap: str) -> list[str]:
    """Return the alarms that a history's last record raises for the first time.

    Args:
        history: A record per epoch; the last one carries no alarms yet.
        gap: Name of the signed gap in a record.
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
