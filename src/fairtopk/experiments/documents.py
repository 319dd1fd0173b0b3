"""Documents with features, split by query: what a run is trained and measured on."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from fairtopk.batches import Batch
from fairtopk.data.features import Features
from fairtopk.experiments.config import Config, DataConfig
from fairtopk.feature_batches import feature_batches
from fairtopk.feature_lists import query_parts
from fairtopk.kernels.splitting import TEST, TRAIN, VALIDATION
from fairtopk.scorers.features import FeatureModel, OfTable, feature_scorer
from fairtopk.training import key_of

SLOTS = 2**18  # of lists that are scored at once


@dataclass(frozen=True, eq=False)
class DocumentPart:
    """The lists of one part.

    Attributes:
        data: All documents.
        user: The numbers of the part's queries, called as those of users are, ``[Q]``.
    """

    data: Features
    user: NDArray[np.int64]

    def blocks(self) -> list[Batch]:
        """Return the whole lists, some at a time."""
        return list(feature_batches(self.data, slots=SLOTS, queries=self.user))


@dataclass(frozen=True, eq=False)
class DocumentLists:
    """A split of queries into training, validation and test.

    Attributes:
        data: What was split.
        part: What each query is used for, ``[n_queries]``: train, validation or test.
        rule: How it was split, in words.
        short_users: None: a query is in one part as a whole.
    """

    data: Features
    part: NDArray[np.int8]
    rule: str
    short_users: int = 0

    @property
    def train(self) -> DocumentPart:
        """The lists to learn from."""
        return self._of(TRAIN)

    @property
    def validation(self) -> DocumentPart:
        """The lists to choose settings by."""
        return self._of(VALIDATION)

    @property
    def test(self) -> DocumentPart:
        """The lists to report on."""
        return self._of(TEST)

    def _of(self, code: np.int8) -> DocumentPart:
        return DocumentPart(self.data, np.flatnonzero(self.part == code))


def split_documents(data: Features, config: DataConfig, *, seed: int) -> DocumentLists:
    """Return the split of a config."""
    part = query_parts(data, test=config.test, validation=config.validation, seed=seed)
    rule = (
        f"random queries, {config.test:g} of them for test and {config.validation:g} for "
        f"validation, seed {seed}"
    )
    return DocumentLists(data, part, rule)


def document_scorer(config: Config, lists: DocumentLists, *, seed: int) -> OfTable:
    """Return the model of a config, at its random start, on the scale of the training rows."""
    model, data = config.model, lists.data
    scorer = feature_scorer(
        cast(FeatureModel, model.name),
        len(data.feature_names),
        hidden=model.hidden,
        dropout=model.dropout,
        seed=key_of(config.seed, seed),
    )
    values = torch.from_numpy(data.values)
    learnt = np.repeat(lists.part == TRAIN, np.diff(data.offsets))
    scorer.scale.fit(values if learnt.all() else values[torch.from_numpy(learnt)])
    return OfTable(scorer, values)
