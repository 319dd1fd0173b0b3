"""What a ranker of features does once it is trained."""

from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.checkpoints import Saved
from fairtopk.data.features import Features
from fairtopk.errors import InputError
from fairtopk.evaluation import evaluate
from fairtopk.feature_batches import feature_batches
from fairtopk.rankers.feature_fit import FeatureSettings, fit_features
from fairtopk.rankers.tables import QID, RELEVANCE, column_of, features_of, frame_like, table_of
from fairtopk.scorers.features import FeatureModel, OfTable, feature_scorer
from fairtopk.scoring import score

SLOTS = 2**18  # of lists that are scored at once


class FeatureRanker(NamedTuple):
    """A trained scorer of features.

    Attributes:
        scorer: Maps features and a mask to scores.
        model: Its name.
        hidden: Widths of its hidden layers.
        names: The features, by name in frames and by place in arrays.
        by_name: Whether it was fitted on a frame.
        group_names: The groups that it was trained to treat alike.
        notes: What was found in the data, one sentence each.
    """

    scorer: nn.Module
    model: FeatureModel
    hidden: tuple[int, ...]
    names: tuple[str, ...]
    by_name: bool
    group_names: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def fit(
        cls, x: Any, y: Any, qid: Any, groups: Any, settings: FeatureSettings
    ) -> "FeatureRanker":
        """Return a ranker trained on documents with features, relevance, list and group."""
        table = table_of(x)
        features = features_of(table, y, qid, groups)
        return cls(
            scorer=fit_features(features, settings),
            model=settings.model,
            hidden=settings.hidden,
            names=table.names,
            by_name=table.frame is not None,
            group_names=features.group_names,
            notes=features.notes + _odd_lists(features),
        )

    def predict(self, x: Any, qid: Any) -> NDArray[np.float32]:
        """Return the score of each row."""
        table = table_of(x, names=self.names)
        if self.model != "attention":
            qid = None
        elif qid is None:
            raise InputError("attention scores a document among its list; give predict the qid")
        features = features_of(table, np.zeros(len(table.values)), qid, None)
        scores = np.empty(len(table.values), np.float32)
        scores[features.row] = self._scores(features)
        return scores

    def rank(self, x: Any, qid: Any, k: int | None) -> Any:
        """Return the rows of each list from the best on, as a frame of the kind of `x`."""
        table = table_of(x, names=self.names)
        one = np.zeros(len(table.values), np.int64)
        lists = column_of(QID, one if qid is None else qid, len(one))
        scores = self.predict(x, lists)
        rows = pl.DataFrame({QID: lists, "row": np.arange(len(scores)), "score": scores})
        # Lists in order of first appearance; of equal scores the earlier row is first.
        ranked = (
            rows.with_columns(first=pl.col("row").min().over(QID))
            .sort("first", "score", "row", descending=[False, True, False])
            .with_columns(rank=pl.int_range(1, pl.len() + 1).over("first"))
            .filter(pl.lit(True) if k is None else pl.col("rank") <= k)
            .select(QID, "row", "rank", "score")
        )
        return frame_like(ranked, table.frame)

    def evaluate(
        self, x: Any, y: Any, qid: Any, groups: Any, ks: list[int]
    ) -> dict[str, Tensor]:
        """Return every metric by name, one value per list, ``[Q]``."""
        features = features_of(table_of(x, names=self.names), y, qid, groups)
        scorer = OfTable(self.scorer, torch.from_numpy(features.values))
        return evaluate(scorer, feature_batches(features, slots=SLOTS), ks)

    def saved(self) -> Saved:
        """Return weights and description, from which `from_saved` makes the same ranker."""
        about = self._asdict() | {"scorer": None, "kind": "features"}
        return Saved(dict(self.scorer.state_dict()), about)

    @classmethod
    def from_saved(cls, saved: Saved) -> Self:
        """Return the ranker that `saved` described."""
        about = {name: saved.about[name] for name in cls._fields}
        for name in ("hidden", "names", "group_names", "notes"):
            about[name] = tuple(about[name])
        scorer = feature_scorer(about["model"], len(about["names"]), hidden=about["hidden"])
        scorer.load_state_dict(saved.tensors)
        return cls(**(about | {"scorer": scorer.eval()}))

    def _scores(self, features: Features) -> NDArray[np.float32]:
        """Return the scores of all rows, list by list."""
        scorer = OfTable(self.scorer, torch.from_numpy(features.values))
        parts = []
        for batch in feature_batches(features, slots=SLOTS):
            found = score(scorer, batch)
            if not bool(found[batch.mask].isfinite().all()):
                raise InputError("scores are not finite; the model may have diverged")
            parts.append(found[batch.mask])
        scores: NDArray[np.float32] = torch.cat(parts).numpy()
        return scores


def _odd_lists(features: Features) -> tuple[str, ...]:
    """Return what a ranker cannot learn from, counted."""
    sizes = np.diff(features.offsets)
    relevant = np.add.reduceat(features.relevance > 0, features.offsets[:-1], dtype=np.int64)
    counts = {
        "one document only": int((sizes == 1).sum()),
        f"no document of {RELEVANCE} above 0": int((relevant == 0).sum()),
    }
    return tuple(f"{count:,} lists have {what}" for what, count in counts.items() if count)
