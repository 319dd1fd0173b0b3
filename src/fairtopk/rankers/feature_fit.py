"""Training a scorer of features on all lists: models, phases and loop are those of a run."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fairtopk.data.features import Features
from fairtopk.errors import InputError
from fairtopk.estimators.methods import is_fair
from fairtopk.experiments.build import build_model
from fairtopk.experiments.config import Config, MethodConfig
from fairtopk.experiments.config_file import check_config
from fairtopk.experiments.documents import DocumentLists
from fairtopk.experiments.run import build_trainer, threads_for
from fairtopk.kernels.splitting import TRAIN
from fairtopk.robust.ranker import RobustRanker
from fairtopk.scorers.features import FeatureModel, FeatureScorer, OfTable

BATCH_SIZE, DROPOUT = 32, 0.1
STEPS = 1_500  # that a ranker is trained for unless told otherwise
LEAST_EPOCHS = 30
WARMUP = 0.2  # share of the epochs that are warm-up
LAST_PART = 0.75  # of the epochs, after which the rate is a quarter


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


def fit_features(features: Features, settings: FeatureSettings) -> FeatureScorer | RobustRanker:
    """Return a scorer of features, trained on all lists.

    It is warmed up with the list-wise cross-entropy of ListNet, like scorers of users and
    items, and keeps its last weights: which epoch to stop at is not chosen on any list.
    """
    if is_fair(settings.method.name) and len(features.group_names) < 2:
        raise InputError(
            f"{settings.method.name} needs documents in at least two groups; give groups"
        )
    lists = DocumentLists(features, np.full(features.n_queries, TRAIN), rule="all for training")
    config = feature_config(settings, n_queries=features.n_queries)
    scorer = build_model(config, lists)
    trainer = build_trainer(config, lists, scorer)
    with threads_for(lists):
        for _ in trainer.run():
            pass
    return without_table(scorer).eval()


def feature_config(settings: FeatureSettings, *, n_queries: int) -> Config:
    """Return what a run with these settings on so many lists is made of."""
    epochs = settings.epochs
    if epochs is None:
        n_steps = math.ceil(n_queries / settings.batch_size)
        epochs = max(math.ceil(STEPS / n_steps), LEAST_EPOCHS)
    warmup = round(WARMUP * epochs)
    others: dict[str, Any] = {}
    if settings.rate is not None:
        others = {"rate": settings.rate, "warmup_rate": settings.rate}
    last = math.ceil(LAST_PART * (epochs - warmup))
    training = {
        "warmup_epochs": warmup,
        "epochs": epochs - warmup,
        "rate_epochs": [last] if last else [],
        "batch_size": settings.batch_size,
    }
    values = {
        "seed": settings.seed,
        "data": {"source": "letor"},  # whatever the documents came in
        "model": {
            "name": settings.model,
            "hidden": settings.hidden,
            "dropout": settings.dropout,
        },
        "method": settings.method.model_dump(),
        "training": training | others,
    }
    return check_config(values, "FairRanker")


def on_table(scorer: FeatureScorer | RobustRanker, values: torch.Tensor) -> nn.Module:
    """Return a scorer of batches whose items are rows of a table of features, ``[n, F]``."""
    if isinstance(scorer, RobustRanker):
        assert isinstance(scorer.base, OfTable)
        return scorer.over(OfTable(scorer.base.scorer, values))
    return OfTable(scorer, values)


def without_table(scorer: nn.Module) -> FeatureScorer | RobustRanker:
    """Return a scorer of batches without the documents that it was trained on."""
    if isinstance(scorer, RobustRanker):
        assert isinstance(scorer.base, OfTable)
        return scorer.over(OfTable(scorer.base.scorer, scorer.base.values[:0]))
    assert isinstance(scorer, OfTable)
    return scorer.scorer
