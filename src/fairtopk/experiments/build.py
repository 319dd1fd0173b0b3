"""From a config to the parts of a run: data, lists, model, objectives, optimizers."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from fairtopk.batches import ListSampler, ListSizes
from fairtopk.data.interactions import Interactions
from fairtopk.data.load import load
from fairtopk.errors import InputError
from fairtopk.estimators.dpr import Dpr
from fairtopk.estimators.dpr_lists import read_samples, read_whole
from fairtopk.estimators.membership import split_labels
from fairtopk.estimators.methods import ADVERSARIAL, METHODS, ROBUST, is_fair
from fairtopk.estimators.objective import Objective
from fairtopk.estimators.settings import ObjectiveSettings
from fairtopk.experiments.config import Config, DataConfig, MethodConfig, TrainingConfig
from fairtopk.experiments.documents import DocumentLists, document_scorer, split_documents
from fairtopk.feature_batches import FeatureSampler
from fairtopk.lists import Lists, split, split_random
from fairtopk.optimizers.adam import LazyAdam
from fairtopk.optimizers.momentum import LazyMomentum
from fairtopk.robust.ranker import RobustRanker
from fairtopk.scorers.mf import MatrixFactorization
from fairtopk.scorers.neumf import NeuMF
from fairtopk.training import Phase, key_of

# What the random parts of a run are keyed by, beside its seed.
START, RESTART, ADVERSARY = 1, 2, 3

# Tables with fewer rows are updated whole: about here, a dense step of Adam takes as long.
LAZY_ROWS = 20_000


AnyLists = Lists | DocumentLists
AnySampler = ListSampler | FeatureSampler


class Counted(Protocol):
    """Data whose users and items are numbered."""

    @property
    def n_users(self) -> int:
        """Number of users."""

    @property
    def n_items(self) -> int:
        """Number of items."""


def build_any_lists(config: DataConfig, *, seed: int) -> AnyLists:
    """Return the data of a config, loaded and split."""
    data = load(config.source, config.path, groups=config.groups, **config.options)
    if not isinstance(data, Interactions):
        return split_documents(data, config, seed=seed)
    sizes = {"test": int(config.test), "validation": int(config.validation)}
    if config.split == "random":
        return split_random(data, **sizes, min_ratings=config.min_ratings, seed=seed)
    return split(data, **sizes, min_ratings=config.min_ratings)


def build_lists(config: DataConfig, *, seed: int) -> Lists:
    """Return the same, refusing documents with features."""
    lists = build_any_lists(config, seed=seed)
    if not isinstance(lists, Lists):
        raise InputError(
            f"{config.source} holds documents with features, and this takes users and items"
        )
    return lists


def build_model(config: Config, lists: AnyLists) -> nn.Module:
    """Return the model of a config, at its random start."""
    if isinstance(lists, Lists):
        return build_scorer(config, lists.data)
    return _ranker(config, document_scorer(config, lists, seed=START))


def build_scorer(config: Config, data: Counted) -> nn.Module:
    """Return the model of users and items of a config, at its random start."""
    return _ranker(config, _scorer(config, data))


def _ranker(config: Config, scorer: nn.Module) -> nn.Module:
    method = config.method
    if method.name != ROBUST:
        return scorer
    return RobustRanker(scorer, method.robust, share=method.c or 0.0, seed=config.seed)


def _scorer(config: Config, data: Counted) -> nn.Module:
    model, rows = config.model, max(data.n_users, data.n_items)
    sparse = rows >= LAZY_ROWS
    generator = torch.Generator().manual_seed(key_of(config.seed, START))
    if model.name == "mf":
        return MatrixFactorization(
            data.n_users,
            data.n_items,
            width=model.width,
            backend=model.backend,
            sparse=sparse,
            generator=generator,
        )
    return NeuMF(
        data.n_users,
        data.n_items,
        width=model.width,
        hidden=model.hidden,
        dropout=model.dropout,
        backend=model.backend,
        sparse=sparse,
        generator=generator,
    )


def build_sampler(config: Config, method: MethodConfig, lists: AnyLists) -> AnySampler:
    """Return what gives the training lists of a method.

    Of a catalogue they are drawn, groups for a penalty only; of documents they are whole.
    """
    training = config.training
    selects = method.name in METHODS and METHODS[method.name].selects
    ideal_k = max(method.ks) if selects else None
    if isinstance(lists, DocumentLists):
        queries = lists.train.user
        return FeatureSampler(lists.data, seed=config.seed, ideal_k=ideal_k, queries=queries)
    sizes = training.lists.model_dump()
    if not is_penalised(method):
        sizes["per_group"] = 0
    return ListSampler(
        lists,
        ListSizes(**sizes),
        seed=config.seed,
        ideal_k=ideal_k,
        corrected=training.corrected,
    )


def build_phases(config: Config, scorer: nn.Module, lists: AnyLists) -> list[Phase]:
    """Return warm-up and fine-tuning, by the method; of a robust ranker's scorer by K-SONG."""
    training, method, alone = config.training, config.method, reads_features_alone(config)
    if method.name == ROBUST:
        _check_groups(method, build_sampler(config, method, lists))
        method = MethodConfig(name="k-song", k=method.k, k_of=method.k_of)
    warmup = MethodConfig(name="listnet")
    of_warmup, of_method = (build_sampler(config, one, lists) for one in (warmup, method))

    wanted = training.restart_last_layer
    if wanted is None:  # a linear scorer has no other layer
        only = config.model.name == "linear"
        wanted = is_penalised(method) and method.exposure == "softmax" and not only

    def restart() -> None:
        if wanted and training.warmup_epochs:
            generator = torch.Generator().manual_seed(key_of(config.seed, RESTART))
            scorer.restart_last_layer(generator)  # type: ignore[operator]

    first = Phase(
        name="warm-up",
        sampler=of_warmup,
        objective=build_objective(warmup, of_warmup),
        optimizer=_optimizer(training, scorer),
        epochs=0 if alone else training.warmup_epochs,
        rate=lambda epoch: training.warmup_rate,
    )
    second = Phase(
        name="fine-tuning",
        sampler=of_method,
        objective=build_objective(method, of_method),
        optimizer=_optimizer(training, scorer),
        epochs=0 if alone else training.epochs,
        rate=_schedule(training),
        before=restart,
    )
    return [first, second]


def reads_features_alone(config: Config) -> bool:
    """Return whether a method takes documents as they are, and trains no scorer."""
    return config.method.name == ROBUST and config.model.name == "linear"


def is_penalised(config: MethodConfig) -> bool:
    """Return whether a method penalises exposure with a weight above 0."""
    fair = config.name in METHODS and METHODS[config.name].fairness != "none"
    return fair and bool(config.c or config.c_relative)


def has_adversary(config: MethodConfig) -> bool:
    """Return whether a method has an adversary with a weight above 0."""
    return config.name in ADVERSARIAL and bool(config.c)


def build_objective(config: MethodConfig, sampler: AnySampler) -> Objective | Dpr:
    """Return the objective of a method for lists that `sampler` gives."""
    _check_groups(config, sampler)
    whole = isinstance(sampler, FeatureSampler)
    if config.name in ADVERSARIAL:
        known = torch.from_numpy(sampler.group[sampler.group >= 0])
        return Dpr(
            ADVERSARIAL[config.name],
            config.dpr,
            c=config.c or 0.0,
            member=split_labels(sampler.group_names, config.dpr.separator).member,
            count=torch.bincount(known, minlength=sampler.n_groups),
            generator=torch.Generator().manual_seed(key_of(sampler.seed, ADVERSARY)),
            reads=read_whole if whole else read_samples,
        )
    method = METHODS[config.name]
    return Objective(
        method,
        ObjectiveSettings(**config.model_dump(include=set(ObjectiveSettings.model_fields))),
        n_queries=sampler.n_queries,
        n_pairs=sampler.n_pairs if method.ranking == "ndcg" else 0,
        n_groups=sampler.n_groups,
    )


def _check_groups(config: MethodConfig, sampler: AnySampler) -> None:
    if is_fair(config.name) and sampler.n_groups < 2:
        raise InputError(
            f"{config.name} needs items in at least two groups; give data.groups a rule"
        )


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
