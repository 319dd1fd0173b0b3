"""Training a scorer of features: loop, objectives and phases are those of users and items."""

import math
from typing import NamedTuple

import torch
from torch import nn

from fairtopk.data.features import Features
from fairtopk.errors import InputError
from fairtopk.estimators.methods import METHODS
from fairtopk.estimators.objective import Objective
from fairtopk.estimators.settings import ObjectiveSettings
from fairtopk.experiments.config import MethodConfig
from fairtopk.feature_batches import FeatureSampler
from fairtopk.kernels.threads import torch_on_one_thread
from fairtopk.scorers.features import FeatureModel, OfTable, feature_scorer
from fairtopk.training import Phase, Trainer, key_of

START, RESTART = 1, 2  # what random parts are keyed by, beside the seed
BATCH_SIZE, DROPOUT, WEIGHT_DECAY = 32, 0.1, 1e-4
STEPS = 1_500  # that a ranker is trained for unless told otherwise
LEAST_EPOCHS = 30
WARMUP = 0.2  # share of the epochs that are warm-up
LAST_PART = 0.75  # of the epochs, after which the rate is a quarter
RATES: dict[FeatureModel, float] = {"linear": 1e-2, "mlp": 1e-3, "attention": 1e-3}


class FeatureSettings(NamedTuple):
    """How a scorer of features is made and trained; None is for what fits the data."""

    method: MethodConfig
    model: FeatureModel
    hidden: tuple[int, ...] = (64,)
    dropout: float = DROPOUT
    epochs: int | None = None
    rate: float | None = None
    batch_size: int = BATCH_SIZE
    seed: int = 0


def fit_features(features: Features, settings: FeatureSettings) -> nn.Module:
    """Return a scorer of features, trained on all lists.

    It is warmed up with the list-wise cross-entropy of ListNet, like scorers of users and
    items, and keeps its last weights: which epoch to stop at is not chosen on any list.
    """
    method = METHODS[settings.method.name]
    if method.fairness != "none" and len(features.group_names) < 2:
        raise InputError(
            f"{settings.method.name} needs documents in at least two groups; give groups"
        )
    scorer = feature_scorer(
        settings.model,
        len(features.feature_names),
        hidden=settings.hidden,
        dropout=settings.dropout,
        seed=key_of(settings.seed, START),
    )
    values = torch.from_numpy(features.values)
    scorer.scale.fit(values)  # type: ignore[union-attr, operator]
    trained = OfTable(scorer, values)
    trainer = Trainer(
        trained,
        _phases(features, settings, trained),
        validate=dict,
        prefers=lambda history, chosen: False,
        watch=lambda history: [],
        seed=settings.seed,
        batch_size=settings.batch_size,
    )
    # Steps are small: with more threads they take longer.
    with torch.random.fork_rng(devices=[]), torch_on_one_thread():
        for _ in trainer.run():
            pass
    return scorer.eval()


def _phases(features: Features, settings: FeatureSettings, scorer: OfTable) -> list[Phase]:
    n_steps = math.ceil(features.n_queries / settings.batch_size)
    epochs = settings.epochs
    if epochs is None:
        epochs = max(math.ceil(STEPS / n_steps), LEAST_EPOCHS)
    warmup = round(WARMUP * epochs)
    rate = settings.rate if settings.rate is not None else RATES[settings.model]
    method = settings.method
    penalised = METHODS[method.name].fairness != "none" and bool(method.c or method.c_relative)

    def restart() -> None:
        # As for users and items: a penalty on softmax exposure would first have to flatten the
        # scores that the warm-up spread out. Linear scorers have nothing but this layer.
        if warmup and penalised and method.exposure == "softmax" and settings.model != "linear":
            generator = torch.Generator().manual_seed(key_of(settings.seed, RESTART))
            scorer.restart_last_layer(generator)

    def phase(name: str, of: MethodConfig, count: int) -> Phase:
        selects = METHODS[of.name].selects
        sampler = FeatureSampler(
            features, seed=settings.seed, ideal_k=max(of.ks) if selects else None
        )
        last = LAST_PART * count
        return Phase(
            name=name,
            sampler=sampler,
            objective=_objective(of, features, sampler),
            optimizer=torch.optim.Adam(scorer.parameters(), weight_decay=WEIGHT_DECAY),
            epochs=count,
            rate=lambda epoch: rate if epoch < last else rate / 4,
            before=restart if name != "warm-up" else lambda: None,
        )

    first = phase("warm-up", MethodConfig(name="listnet"), warmup)
    return [first, phase("fine-tuning", method, epochs - warmup)]


def _objective(config: MethodConfig, features: Features, sampler: FeatureSampler) -> Objective:
    method = METHODS[config.name]
    return Objective(
        method,
        ObjectiveSettings(**config.model_dump(include=set(ObjectiveSettings.model_fields))),
        n_queries=features.n_queries,
        n_pairs=features.n_rows if method.ranking == "ndcg" else 0,
        n_groups=sampler.n_groups,
    )
