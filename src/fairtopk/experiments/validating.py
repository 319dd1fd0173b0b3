"""What the epochs of a run are chosen by: metrics on validation lists at one K."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from fairtopk.batches import Batch
from fairtopk.evaluation import evaluate, evaluate_full
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config
from fairtopk.experiments.measuring import blocks_of, some_users
from fairtopk.lists import Lists

MOST_USERS = 2_000  # whose catalogue is ranked after each epoch
Validate = Callable[[nn.Module], dict[str, float]]


class Validation(NamedTuple):
    """How a model is validated.

    Attributes:
        validate: Model to metrics, as a record of the log has them; empty without lists.
        k: Their K.
        blocks: The validation lists, sampled or of documents whole.
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
    """Return what measures a model on validation lists, or on the catalogue of some users."""
    on_catalogue, k = config.evaluation.select_on == "full", validation_k(config)
    blocks = [] if on_catalogue else blocks_of(lists.validation, config)
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
