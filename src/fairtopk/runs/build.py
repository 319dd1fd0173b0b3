"""From a config to the parts of a run: lists, model, samplers, objectives and phases.

A run trains in phases: a warm-up, fine-tuning, and for some methods a third. `is_better` says
which epoch of fine-tuning is kept. Without a penalty (no fairness part, or C = 0) that is the
one with the best NDCG. With one, an epoch replaces the kept one if its NDCG is within the
tolerance of the best so far, and either its gap is smaller or the kept one's NDCG no longer is;
an undefined gap is the largest. Some methods keep their last epoch instead.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from fairtopk.data.groups import split_labels
from fairtopk.data.interactions import Interactions
from fairtopk.data.registry import load
from fairtopk.distillation.student import Distillation, DistillSampler, DocumentDistillSampler
from fairtopk.distillation.teacher import Order, Teaching, frozen_copy
from fairtopk.errors import InputError
from fairtopk.kernels.csr import TRAIN
from fairtopk.kernels.random import key_of
from fairtopk.kernels.threads import seeded
from fairtopk.lists.batch import list_batch
from fairtopk.lists.queries import AnyLists, QueryLists, query_parts
from fairtopk.lists.users import Lists, split, split_random
from fairtopk.models import features, mf, neumf, optimizers
from fairtopk.models.histories import HistoryScorer
from fairtopk.models.registry import MODELS
from fairtopk.models.scoring import score
from fairtopk.objectives.dpr import Dpr, Labels, read_samples, read_whole
from fairtopk.objectives.methods import BASELINE, ObjectiveSettings
from fairtopk.objectives.objective import Objective
from fairtopk.robust.ranker import RobustRanker
from fairtopk.runs.config import Config, DataConfig, MethodConfig, ModelConfig, TrainingConfig
from fairtopk.runs.fitting import build_history_scorer
from fairtopk.storage import refuse_large
from fairtopk.training.loop import Phase, Prefers, algorithm_1_optimizer
from fairtopk.training.samplers import FeatureSampler, ListSampler, ListSizes, Sampler

# Streams of random numbers, keyed with the run's seed.
START, RESTART, ADVERSARY = 1, 2, 3

# Smaller tables are updated whole: at about so many rows, a dense step of Adam takes as long.
LAZY_ROWS = 20_000

REGISTERED_OPTIONS = {"width", "hidden", "dropout"}  # keys of [model] that one is built with

BYTES = 4  # of a weight
COPIES = 5  # of the weights: their own, gradients, two of an optimizer, the chosen ones
SLOT_BYTES = 64  # of an item in a training list: its number, grade, group, score and gradient

# Shares of the third phase's epochs after which it goes on at a quarter of its rate: its last
# epoch is kept, and that is only as good as its last steps are small.
SLOWER = (0.75, 0.92)

AnySampler = ListSampler | FeatureSampler


def build_any_lists(config: DataConfig, seed: int) -> AnyLists:
    """Return the data of a config, loaded and split."""
    data = load(config.source, config.path, groups=config.groups, **config.options)
    if isinstance(data, Interactions):
        sizes = {"test": int(config.test), "validation": int(config.validation)}
        if config.split == "random":
            return split_random(data, **sizes, min_ratings=config.min_ratings, seed=seed)
        return split(data, **sizes, min_ratings=config.min_ratings)
    part = query_parts(data, test=config.test, validation=config.validation, seed=seed)
    rule = (
        f"random queries, {config.test:g} of them for test and {config.validation:g} for "
        f"validation, seed {seed}"
    )
    return QueryLists(data, part, rule)


def build_model(config: Config, lists: AnyLists) -> nn.Module:
    """Return the model of a config, at its random start, or before its fit."""
    if isinstance(lists, Lists):
        scorer = build_scorer(config, lists.data.n_users, lists.data.n_items)
        if isinstance(scorer, HistoryScorer):
            scorer.remember(lists.train)
        return scorer
    model, data = config.model, lists.data
    n_features = len(data.feature_names)
    _refuse_large(model, n_features, f"{n_features:,} features")
    documents = features.FeatureScorer(
        cast(features.FeatureModel, model.name),
        n_features,
        hidden=model.hidden,
        dropout=model.dropout,
        seed=key_of(config.seed, START),
    )
    values = torch.from_numpy(data.values)
    learnt = np.repeat(lists.part == TRAIN, np.diff(data.offsets))
    documents.scale.fit(values if learnt.all() else values[torch.from_numpy(learnt)])
    return _ranker(config, features.OfTable(documents, values))


def build_scorer(config: Config, n_users: int, n_items: int) -> nn.Module:
    """Return the model of users and items of a config, at its random start.

    A fitted one has no weights yet, and no histories. One that `register_model` has added is
    tried on one list.
    """
    model, key = config.model, key_of(config.seed, START)
    if model.is_fitted:
        return build_history_scorer(config, n_items)
    build = MODELS[model.name].build
    if build is None:
        _refuse_large(model, n_users + n_items, f"{n_users:,} users and {n_items:,} items")
        generator, width = torch.Generator().manual_seed(key), model.width
        own: mf.MatrixFactorization | neumf.NeuMF
        if model.name == "mf":
            own = mf.MatrixFactorization(n_users, n_items, width=width, generator=generator)
        else:
            own = neumf.NeuMF(
                n_users,
                n_items,
                width=width,
                hidden=model.hidden,
                dropout=model.dropout,
                generator=generator,
            )
        own.backend, own.sparse = model.backend, max(n_users, n_items) >= LAZY_ROWS
        return _ranker(config, own)
    with seeded(key):
        scorer = build(n_users, n_items, **model.model_dump(include=REGISTERED_OPTIONS))
    if not isinstance(scorer, nn.Module):
        raise InputError(
            f"the model {model.name} must be a torch.nn.Module, and build returned "
            f"{type(scorer).__name__}"
        )
    item = torch.tensor([[0, n_items - 1]], dtype=torch.int32)
    unknown, mask = torch.full_like(item, -1), torch.ones(1, 2, dtype=torch.bool)
    query = torch.zeros(1, dtype=torch.int64)
    found = score(scorer, list_batch(query, torch.zeros(1, 2), unknown, mask, item=item))
    if not isinstance(found, torch.Tensor) or found.shape != item.shape:
        what = list(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise InputError(
            f"the model {model.name} must give one score per item, [Q, L]: for one list of two "
            f"items it gave {what}"
        )
    return _ranker(config, scorer)


def _ranker(config: Config, scorer: nn.Module) -> nn.Module:
    """Return what ranks with a scorer: the scorer itself, or a game over its features."""
    method = config.method
    if method.row.family != "game":
        return scorer
    return RobustRanker(scorer, method.robust, share=method.c or 0.0, seed=config.seed)


def n_weights(model: ModelConfig, n_rows: int) -> int:
    """Return about how many weights a model has for so many users and items, or features."""
    first, last = model.hidden[0], model.hidden[-1]
    deeper = sum(one * other for one, other in pairwise(model.hidden))
    match model.name:
        case "mf":
            return n_rows * (model.width + 1)
        case "neumf":
            return 2 * model.width * (n_rows + first) + deeper + model.width + last
        case "linear":
            return n_rows
        case "mlp":
            return n_rows * first + deeper + last
        case "attention":
            return n_rows * first + 8 * features.LAYERS * first**2
    return n_rows * model.width  # a registered one: at least its tables


def _refuse_large(model: ModelConfig, n_rows: int, many: str) -> None:
    """Refuse a model that would not fit into memory, before it is made."""
    sizes = f"width {model.width:,} and " if MODELS[model.name].scores == "ids" else ""
    layers = ", ".join(f"{width:,}" for width in model.hidden[:3])
    what = f"{model.name} of {sizes}hidden layers of {layers} for {many}"
    refuse_large(COPIES * BYTES * n_weights(model, n_rows), f"training {what}")


def build_sampler(
    config: Config, method: MethodConfig, lists: AnyLists, *, top: bool = False
) -> AnySampler:
    """Return the sampler of a method's training lists.

    The method is not always the run's own. Lists of a catalogue are drawn, items of each group
    only for a penalty, and with `top` the top items that the config sets; lists of documents
    are whole.
    """
    training = config.training
    ideal_k = max(method.ks) if method.row.selects else None
    if isinstance(lists, QueryLists):
        queries = lists.train.user
        return FeatureSampler(lists.data, seed=config.seed, ideal_k=ideal_k, queries=queries)
    sizes = training.lists.model_dump()
    if not is_penalised(method):
        sizes["per_group"] = 0
    if not top:
        sizes["top"] = 0
    length = sizes["rated"] + sizes["unrated"] + sizes["top"]
    length += sizes["per_group"] * len(lists.data.group_names)
    count = min(training.batch_size, lists.data.n_users)
    refuse_large(count * length * SLOT_BYTES, f"a batch of {count:,} lists of {length:,} items")
    return ListSampler(
        lists,
        ListSizes(**sizes),
        seed=config.seed,
        ideal_k=ideal_k,
        corrected=training.corrected,
    )


def oversized(config: Config, lists: AnyLists) -> list[str]:
    """Return a sentence for each size of training lists that no user of the data fills."""
    if isinstance(lists, QueryLists) or config.model.is_fitted:
        return []
    counts, sizes = np.diff(lists.train.offsets), config.training.lists
    given = {
        "rated": (sizes.rated, int(counts.max()), "training ratings"),
        "unrated": (sizes.unrated, lists.data.n_items - int(counts.min()), "other items"),
    }
    return [
        f"training.lists.{name} is {size:,}, and no user has more than {most:,} {what}: the "
        f"rest of each training list is padding"
        for name, (size, most, what) in given.items()
        if size > most
    ]


def reads_features_alone(config: Config) -> bool:
    """Return whether a method takes the features of documents and trains no scorer."""
    return config.method.row.family == "game" and config.model.name == "linear"


def is_penalised(config: MethodConfig) -> bool:
    """Return whether a method penalises exposure with a weight above 0."""
    return config.row.fairness != "none" and bool(config.c or config.c_relative)


def build_objective(config: MethodConfig, sampler: AnySampler) -> Objective | Dpr:
    """Return the objective of a method for the lists of a sampler."""
    row = config.row
    if row.family == "adversary":
        known = torch.from_numpy(sampler.group[sampler.group >= 0])
        _, member = split_labels(sampler.group_names, config.dpr.separator)
        count = torch.bincount(known, minlength=sampler.n_groups)
        return Dpr(
            row,
            config.dpr,
            c=config.c or 0.0,
            labels=Labels(torch.from_numpy(member), count),
            generator=torch.Generator().manual_seed(key_of(sampler.seed, ADVERSARY)),
            reads=read_whole if isinstance(sampler, FeatureSampler) else read_samples,
        )
    return Objective(
        row,
        ObjectiveSettings(**config.model_dump(include=set(ObjectiveSettings.model_fields))),
        n_queries=sampler.n_queries,
        n_pairs=sampler.n_pairs if row.ranking == "ndcg" else 0,
        n_groups=sampler.n_groups,
    )


def is_better(
    history: list[dict[str, Any]],
    chosen: int | None,
    *,
    ndcg: str,
    gap: str | None,
    tolerance: float,
) -> bool:
    """Return whether a history's last record replaces the chosen one.

    There is a record per epoch, in which `ndcg` and `gap` are names; without a gap NDCG alone
    decides. `tolerance` is the share of the best NDCG that may be lost.
    """
    if chosen is None:
        return True
    new, old = history[-1], history[chosen]
    if gap is None:
        return bool(new[ndcg] > old[ndcg])
    window = (1 - tolerance) * max(record[ndcg] for record in history if ndcg in record)
    if new[ndcg] < window:
        return False
    smaller = new[gap] < old[gap] or (math.isnan(old[gap]) and not math.isnan(new[gap]))
    return bool(old[ndcg] < window or smaller)


def latest(history: list[dict[str, Any]], chosen: int | None) -> bool:
    """Return True: a history's last record replaces the chosen one."""
    return True


def starts_from_baseline(config: Config) -> bool:
    """Return whether a run first trains a colour-blind scorer to start from."""
    return config.method.row.starts_from is not None or config.training.lists.top > 0


def has_third_phase(config: Config) -> bool:
    """Return whether there is a phase after fine-tuning."""
    return starts_from_baseline(config) and config.method.row.family != "game"


def finetune_method(config: Config) -> MethodConfig:
    """Return the method of fine-tuning: the run's own, or the one that it starts from."""
    method = config.method
    if not starts_from_baseline(config):
        return method
    k_of = "list" if has_third_phase(config) else method.k_of
    return MethodConfig(name=method.row.starts_from or BASELINE, k=method.k, k_of=k_of)


def build_phases(
    config: Config,
    scorer: nn.Module,
    lists: AnyLists,
    prefers: Prefers = latest,
    order: Order | None = None,
) -> list[Phase]:
    """Return the phases: warm-up, fine-tuning, and a third if the method has one.

    `prefers` chooses between the epochs of fine-tuning; `order` is that of a teacher which is
    not the scorer itself.
    """
    training, only_features = config.training, reads_features_alone(config)
    if len(lists.data.group_names) < config.method.row.least_groups:
        raise InputError(
            f"{config.method.name} needs items in at least two groups; give data.groups a rule"
        )
    method = MethodConfig(name="listnet")
    sampler = build_sampler(config, method, lists)
    warmup = Phase(
        name="warm-up",
        sampler=sampler,
        objective=build_objective(method, sampler),
        optimizer=_optimizer(training, scorer),
        epochs=0 if only_features else training.warmup_epochs,
        rate=lambda epoch: training.warmup_rate,
    )
    method = finetune_method(config)
    restarts = training.restart_last_layer
    if restarts is None:  # a linear scorer has no other layer
        softmax = is_penalised(method) and method.exposure == "softmax"
        restarts = softmax and config.model.name != "linear"

    def restart() -> None:
        # A registered model may lack it.
        restart_last_layer = getattr(scorer, "restart_last_layer", None)
        if restarts and training.warmup_epochs and restart_last_layer is not None:
            restart_last_layer(torch.Generator().manual_seed(key_of(config.seed, RESTART)))

    sampler = build_sampler(config, method, lists)
    finetuning = Phase(
        name="fine-tuning",
        sampler=sampler,
        objective=build_objective(method, sampler),
        optimizer=_optimizer(training, scorer),
        epochs=0 if only_features else training.epochs,
        rate=lambda epoch: (
            training.rate
            * training.rate_factor ** sum(epoch >= one for one in training.rate_epochs)
        ),
        before=restart,
        prefers=prefers,
    )
    if not has_third_phase(config):
        return [warmup, finetuning]
    if config.method.row.family == "distillation":
        return [warmup, finetuning, _distillation(config, scorer, lists, order)]
    # The method goes on with lists that stand for the catalogue.
    sampler = build_sampler(config, config.method, lists, top=True)
    catalogue = Phase(
        name="catalogue",
        sampler=sampler,
        objective=build_objective(config.method, sampler),
        optimizer=_optimizer(training, scorer),
        epochs=training.catalogue_epochs,
        rate=_slowing(training.catalogue_rate, training.catalogue_epochs),
        prefers=latest,
    )
    return [warmup, finetuning, catalogue]


def _distillation(
    config: Config, scorer: nn.Module, lists: AnyLists, order: Order | None
) -> Phase:
    """Return the phase in which a scorer learns re-ranked lists, by default its own."""
    settings, strength = config.method.distill, config.method.c or 0.0
    baseline, teacher = finetune_method(config), frozen_copy(scorer)
    ranked = build_sampler(config, baseline, lists)  # lists of the ranking loss
    if isinstance(ranked, FeatureSampler):
        sampler: Sampler = DocumentDistillSampler(teacher, ranked, settings, strength=strength)
    else:
        assert isinstance(lists, Lists)
        sampler = DistillSampler(
            teacher,
            lists.train,
            Teaching(lists.data.group, settings, strength, config.seed, order),
            ranked=ranked if settings.mu else None,
        )
    ranking = build_objective(baseline, ranked) if settings.mu else None
    assert not isinstance(ranking, Dpr)
    return Phase(
        name="distillation",
        sampler=sampler,
        objective=Distillation(settings, teacher, ranking),
        optimizer=_optimizer(config.training, scorer),
        epochs=settings.epochs if strength or settings.mu or order is not None else 0,
        rate=_slowing(settings.rate, settings.epochs),
        before=lambda: teacher.load_state_dict(scorer.state_dict()),
        prefers=latest,
    )


def _slowing(start: float, epochs: int) -> Callable[[int], float]:
    ends = [round(share * epochs) for share in SLOWER]
    return lambda epoch: start * 0.25 ** sum(epoch >= end for end in ends)


def _optimizer(training: TrainingConfig, scorer: nn.Module) -> torch.optim.Optimizer:
    """Return a lazy optimizer for a scorer with sparse gradients, else a dense one."""
    parameters, decay = scorer.parameters(), training.weight_decay
    lazy = any(getattr(part, "sparse", False) for part in scorer.modules())
    if training.optimizer == "adam":
        if lazy:
            return optimizers.LazyAdam(parameters, weight_decay=decay)
        return torch.optim.Adam(parameters, weight_decay=decay, fused=True)
    return algorithm_1_optimizer(
        parameters, gamma_5=training.gamma_5, weight_decay=decay, lazy=lazy
    )
