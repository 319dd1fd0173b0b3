"""How a run trains: a warm-up, fine-tuning, and what some methods add to that."""

from collections.abc import Callable

import torch
from torch import nn

from fairtopk.distilling.objective import Distillation
from fairtopk.distilling.samplers import DistillSampler, DocumentDistillSampler
from fairtopk.distilling.teacher import frozen_copy
from fairtopk.estimators.dpr import Dpr
from fairtopk.estimators.methods import DISTILL, ROBUST
from fairtopk.experiments.build import (
    RESTART,
    AnyLists,
    build_objective,
    build_sampler,
    check_groups,
    is_penalised,
    reads_features_alone,
)
from fairtopk.experiments.choosing import latest
from fairtopk.experiments.config import Config, MethodConfig, TrainingConfig
from fairtopk.feature_batches import FeatureSampler
from fairtopk.lists import Lists
from fairtopk.optimizers.adam import LazyAdam
from fairtopk.optimizers.momentum import LazyMomentum
from fairtopk.samplers import Sampler
from fairtopk.training import Phase, Prefers, key_of

# Where the last phase of three goes on at a quarter of its rate, as shares of its epochs: its
# last epoch is kept, and that is only as good as its last steps are small.
SLOWER = (0.75, 0.92)

BLIND = "k-song"  # what the others start from


def starts_blind(config: Config) -> bool:
    """Return whether a method starts from a scorer that K-SONG has trained, blind to groups."""
    return config.method.name in (ROBUST, DISTILL) or config.training.lists.top > 0


def has_third(config: Config) -> bool:
    """Return whether there is a phase after fine-tuning."""
    return starts_blind(config) and config.method.name != ROBUST


def tuned_method(config: Config) -> MethodConfig:
    """Return the method of fine-tuning: the run's own, or K-SONG."""
    method = config.method
    if not starts_blind(config):
        return method
    k_of = method.k_of if method.name == ROBUST else "list"
    return MethodConfig(name=BLIND, k=method.k, k_of=k_of)


def build_phases(
    config: Config, scorer: nn.Module, lists: AnyLists, prefers: Prefers = latest
) -> list[Phase]:
    """Return warm-up, fine-tuning, and where a method starts from those what comes after.

    Args:
        config: The run.
        scorer: What is trained.
        lists: The data.
        prefers: Chooses between the epochs of fine-tuning.
    """
    if starts_blind(config):
        check_groups(config.method, build_sampler(config, config.method, lists))
    method = tuned_method(config)
    phases = [_warmup(config, scorer, lists), _tuning(config, scorer, lists, method, prefers)]
    if config.method.name == DISTILL:
        phases.append(_distillation(config, scorer, lists, method))
    elif has_third(config):
        phases.append(_on_catalogue(config, scorer, lists))
    return phases


def _warmup(config: Config, scorer: nn.Module, lists: AnyLists) -> Phase:
    training, method = config.training, MethodConfig(name="listnet")
    sampler = build_sampler(config, method, lists)
    return Phase(
        name="warm-up",
        sampler=sampler,
        objective=build_objective(method, sampler),
        optimizer=_optimizer(training, scorer),
        epochs=0 if reads_features_alone(config) else training.warmup_epochs,
        rate=lambda epoch: training.warmup_rate,
    )


def _tuning(
    config: Config,
    scorer: nn.Module,
    lists: AnyLists,
    method: MethodConfig,
    prefers: Prefers,
) -> Phase:
    training, sampler = config.training, build_sampler(config, method, lists)
    wanted = training.restart_last_layer
    if wanted is None:  # a linear scorer has no other layer
        only = config.model.name == "linear"
        wanted = is_penalised(method) and method.exposure == "softmax" and not only

    def restart() -> None:
        if wanted and training.warmup_epochs:
            generator = torch.Generator().manual_seed(key_of(config.seed, RESTART))
            scorer.restart_last_layer(generator)  # type: ignore[operator]

    return Phase(
        name="fine-tuning",
        sampler=sampler,
        objective=build_objective(method, sampler),
        optimizer=_optimizer(training, scorer),
        epochs=0 if reads_features_alone(config) else training.epochs,
        rate=_schedule(training),
        before=restart,
        prefers=prefers,
    )


def _on_catalogue(config: Config, scorer: nn.Module, lists: AnyLists) -> Phase:
    """Return the phase in which a method goes on with lists that stand for the catalogue."""
    training = config.training
    sampler = build_sampler(config, config.method, lists, top=True)
    return Phase(
        name="catalogue",
        sampler=sampler,
        objective=build_objective(config.method, sampler),
        optimizer=_optimizer(training, scorer),
        epochs=training.catalogue_epochs,
        rate=_slowing(training.catalogue_rate, training.catalogue_epochs),
        prefers=latest,
    )


def _distillation(
    config: Config, scorer: nn.Module, lists: AnyLists, blind: MethodConfig
) -> Phase:
    """Return the phase in which a scorer learns from a copy of itself, made fair."""
    settings, strength = config.method.distill, config.method.c or 0.0
    teacher, of_blind = frozen_copy(scorer), build_sampler(config, blind, lists)
    if isinstance(of_blind, FeatureSampler):
        sampler: Sampler = DocumentDistillSampler(
            teacher, of_blind, settings, strength=strength
        )
    else:
        assert isinstance(lists, Lists)
        beside = of_blind if settings.mu else None
        sampler = DistillSampler(
            teacher, lists, settings, strength=strength, seed=config.seed, beside=beside
        )
    ranking = build_objective(blind, of_blind) if settings.mu else None
    assert not isinstance(ranking, Dpr)
    return Phase(
        name="distillation",
        sampler=sampler,
        objective=Distillation(settings, teacher, ranking),
        optimizer=_optimizer(config.training, scorer),
        epochs=settings.epochs if strength or settings.mu else 0,
        rate=_slowing(settings.rate, settings.epochs),
        before=lambda: _copy_weights(scorer, teacher),
        prefers=latest,
    )


def _copy_weights(source: nn.Module, target: nn.Module) -> None:
    target.load_state_dict(source.state_dict())


def _optimizer(training: TrainingConfig, scorer: nn.Module) -> torch.optim.Optimizer:
    """Return a lazy optimizer for a scorer with sparse gradients, else a dense one."""
    parameters, decay = scorer.parameters(), training.weight_decay
    lazy = any(getattr(part, "sparse", False) for part in scorer.modules())
    if training.optimizer == "adam":
        if lazy:
            return LazyAdam(parameters, weight_decay=decay)
        return torch.optim.Adam(parameters, weight_decay=decay, fused=True)
    # Lines 11 and 12 of Algorithm 1: z <- (1 - gamma_5) z + gamma_5 G; w <- w - eta_1 z.
    keep = 1 - training.gamma_5
    momentum = LazyMomentum if lazy else torch.optim.SGD
    return momentum(parameters, momentum=keep, dampening=keep, weight_decay=decay)


def _schedule(training: TrainingConfig) -> Callable[[int], float]:
    def rate(epoch: int) -> float:
        passed = sum(epoch >= one for one in training.rate_epochs)
        return training.rate * training.rate_factor**passed

    return rate


def _slowing(start: float, epochs: int) -> Callable[[int], float]:
    ends = [round(share * epochs) for share in SLOWER]
    return lambda epoch: start * 0.25 ** sum(epoch >= end for end in ends)
