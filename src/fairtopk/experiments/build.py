"""From a config to the parts of a run: data, lists, model, samplers, objectives."""

from itertools import pairwise
from typing import Protocol

import torch
from torch import nn

from fairtopk.data.interactions import Interactions
from fairtopk.data.load import load
from fairtopk.data.paths import refuse_large
from fairtopk.errors import InputError
from fairtopk.estimators.dpr import Dpr
from fairtopk.estimators.dpr_lists import read_samples, read_whole
from fairtopk.estimators.membership import split_labels
from fairtopk.estimators.methods import ADVERSARIAL, DISTILL, METHODS, ROBUST, is_fair
from fairtopk.estimators.objective import Objective
from fairtopk.estimators.settings import ObjectiveSettings
from fairtopk.experiments.config import Config, DataConfig, MethodConfig, ModelConfig
from fairtopk.experiments.documents import DocumentLists, document_scorer, split_documents
from fairtopk.feature_batches import FeatureSampler
from fairtopk.lists import Lists, split, split_random
from fairtopk.robust.ranker import RobustRanker
from fairtopk.samplers import ListSampler, ListSizes
from fairtopk.scorers.features import LAYERS
from fairtopk.scorers.mf import MatrixFactorization
from fairtopk.scorers.neumf import NeuMF
from fairtopk.training import key_of

# What the random parts of a run are keyed by, beside its seed.
START, RESTART, ADVERSARY = 1, 2, 3  # RESTART: see `phases`

# Tables with fewer rows are updated whole: about here, a dense step of Adam takes as long.
LAZY_ROWS = 20_000

BYTES = 4  # of a weight
COPIES = 5  # of the weights: their own, gradients, two of an optimizer, the chosen ones
SLOT_BYTES = 64  # of an item in a training list: its number, grade, group, score and gradient


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
    n_features = len(lists.data.feature_names)
    _refuse_large(config.model, n_features, f"{n_features:,} features")
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
    many = f"{data.n_users:,} users and {data.n_items:,} items"
    _refuse_large(model, data.n_users + data.n_items, many)
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


def n_weights(model: ModelConfig, n_rows: int) -> int:
    """Return about how many weights a model has.

    Args:
        model: Which one.
        n_rows: Of its tables: users and items, or features of documents.
    """
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
            return n_rows * first + 8 * LAYERS * first**2


def _refuse_large(model: ModelConfig, n_rows: int, many: str) -> None:
    """Refuse a model that would not fit into memory, before it is made."""
    sizes = f"width {model.width:,} and " if model.name in ("mf", "neumf") else ""
    layers = ", ".join(f"{width:,}" for width in model.hidden[:3])
    what = f"{model.name} of {sizes}hidden layers of {layers} for {many}"
    refuse_large(COPIES * BYTES * n_weights(model, n_rows), f"training {what}")


def build_sampler(
    config: Config, method: MethodConfig, lists: AnyLists, *, top: bool = False
) -> AnySampler:
    """Return what gives the training lists of a method.

    Of a catalogue they are drawn, groups for a penalty only; of documents they are whole.

    Args:
        config: The run.
        method: What they are for.
        lists: The data.
        top: Whether they have the top items that the config asks for.
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
    check_groups(config, sampler)
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


def check_groups(config: MethodConfig, sampler: AnySampler) -> None:
    """Refuse data without the groups that a method needs."""
    least = 1 if config.name == DISTILL else 2  # of one group, every order is fair
    if is_fair(config.name) and sampler.n_groups < least:
        raise InputError(
            f"{config.name} needs items in at least two groups; give data.groups a rule"
        )
