"""What a ranker of users and items does once it is trained.

What a ranker of features does once it is trained.
"""

from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.data.features import Features
from fairtopk.data.interactions import Interactions
from fairtopk.errors import InputError
from fairtopk.evaluation import evaluate, evaluate_full
from fairtopk.lists.queries import SLOTS, feature_batches
from fairtopk.lists.users import HeldOut, Lists, Ratings
from fairtopk.models.features import FeatureModel, FeatureScorer, OfTable
from fairtopk.models.scoring import score
from fairtopk.objectives.methods import RobustSettings
from fairtopk.rankers.fitting import FeatureSettings, fit_features, on_table
from fairtopk.rankers.frames import (
    QID,
    RELEVANCE,
    Table,
    column_of,
    features_of,
    frame_like,
    group_numbers,
    table_of,
)
from fairtopk.rankers.saved import check_rated, check_weights
from fairtopk.robust.ranker import RobustRanker
from fairtopk.runs.build import build_model, build_scorer
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.trainer import build_trainer
from fairtopk.serving.recommend import Catalogue, catalogue_of, recommend
from fairtopk.storage import Saved
from fairtopk.training.loop import under


class IdRanker(NamedTuple):
    """A trained scorer of users and items.

    Attributes:
        scorer: Scores batches of users and items.
        config: What it was made and trained with.
        catalogue: Users and items by their original ids, and what was rated already.
        group_names: The groups that it was trained to treat alike.
        notes: What was found in the data, one sentence each.
    """

    scorer: nn.Module
    config: Config
    catalogue: Catalogue
    group_names: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def fit(cls, lists: Lists, config: Config) -> "IdRanker":
        """Return a ranker trained on a split, at the epoch that its validation part chose."""
        scorer = build_model(config, lists)
        trainer = build_trainer(config, lists, scorer)
        for _ in trainer.run():
            pass
        scorer.load_state_dict(trainer.model())
        data = lists.data
        return cls(scorer.eval(), config, catalogue_of(lists), data.group_names, data.notes)

    def recommend(self, users: Any, k: int, *, include_rated: bool) -> pl.DataFrame:
        """Return the best items of each user; see `fairtopk.serving.recommend.recommend`."""
        if self.config.method.row.needs_labels:
            raise InputError(
                "robust needs the group of each item when it ranks, which recommend never "
                "takes; measure it with evaluate, which has the groups of the split"
            )
        return recommend(self.scorer, self.catalogue, users, k=k, include_rated=include_rated)

    def evaluate(
        self, part: HeldOut, ks: list[int], *, protocol: str, unrated: int
    ) -> dict[str, Tensor]:
        """Return every metric by name, one value per user of the part, ``[Q]``."""
        self._same_ids(part.data)
        if protocol == "full":
            return evaluate_full(self.scorer, part, ks)
        blocks = part.batches(unrated=unrated, seed=self.config.seed)
        return evaluate(self.scorer, iter(blocks), ks)

    def saved(self) -> Saved:
        """Return weights and description, from which `from_saved` makes the same ranker."""
        tensors = {f"scorer.{name}": value for name, value in self.scorer.state_dict().items()}
        for name, value in vars(self.catalogue.rated).items():
            tensors[f"rated.{name}"] = torch.from_numpy(value)
        tensors["popularity"] = torch.from_numpy(self.catalogue.popularity)
        about = {
            "kind": "ids",
            "config": self.config.model_dump(mode="json"),
            "user_ids": self.catalogue.user_ids.to_list(),
            "item_ids": self.catalogue.item_ids.to_list(),
            "group_names": self.group_names,
            "notes": self.notes,
        }
        return Saved(tensors, about)

    @classmethod
    def from_saved(cls, saved: Saved) -> Self:
        """Return the ranker that `saved` described."""
        about, tensors = saved.about, saved.tensors
        config = check_config(about["config"], "the ranker's config")
        ids = Ids(pl.Series(about["user_ids"]), pl.Series(about["item_ids"]))
        weights = under("scorer", tensors)
        rest = {name: value for name, value in tensors.items() if name[:7] != "scorer."}
        check_rated(rest, ids.n_users, ids.n_items)
        scorer = build_scorer(config, ids.n_users, ids.n_items)
        check_weights(weights, scorer.state_dict())
        scorer.load_state_dict(weights)
        rated = {name: value.numpy() for name, value in under("rated", tensors).items()}
        catalogue = Catalogue(*ids, Ratings(**rated), tensors["popularity"].numpy())
        names, notes = tuple(about["group_names"]), tuple(about["notes"])
        return cls(scorer.eval(), config, catalogue, names, notes)

    def _same_ids(self, data: Interactions) -> None:
        own = self.catalogue
        pairs = ((own.user_ids, data.user_ids), (own.item_ids, data.item_ids))
        if not all(one.equals(other) for one, other in pairs):
            raise InputError(
                f"{data.name} has other users or items than the ranker was fitted on; evaluate "
                f"on a part of the same split"
            )


class Ids(NamedTuple):
    """Users and items by their original ids."""

    user_ids: pl.Series
    item_ids: pl.Series

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)


class FeatureRanker(NamedTuple):
    """A trained scorer of features.

    Attributes:
        scorer: Maps features and a mask to scores; of robust, ranks lists with their groups.
        model: Its name; of robust, that of the scorer that its features come from.
        hidden: Widths of its hidden layers.
        names: The features, by name in frames and by place in arrays.
        by_name: Whether it was fitted on a frame.
        group_names: The groups that it was trained to treat alike.
        notes: What was found in the data, one sentence each.
    """

    scorer: FeatureScorer | RobustRanker
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
            notes=features.notes + _odd_lists(features, max(settings.method.ks)),
        )

    @property
    def needs_groups(self) -> bool:
        """Whether it needs the group of each document when it ranks."""
        return isinstance(self.scorer, RobustRanker)

    def predict(self, x: Any, qid: Any) -> NDArray[np.float32]:
        """Return the score of each row."""
        self._refuse_robust("predict")
        if self.model != "attention":
            qid = None
        elif qid is None:
            raise InputError("attention scores a document among its list; give predict the qid")
        table = table_of(x, names=self.names)
        return self._scores(features_of(table, np.zeros(len(table.values)), qid, None))

    def rank(self, x: Any, qid: Any, k: int | None) -> Any:
        """Return the rows of each list from the best on, as a frame of the kind of `x`."""
        self._refuse_robust("rank")
        return self._ranked(x, qid, None, k)

    def rank_with_groups(self, x: Any, qid: Any, groups: Any, k: int | None) -> Any:
        """Return the same of a ranker that needs the group of each row to rank it."""
        if not self.needs_groups:
            raise InputError("only robust needs groups to rank by; call rank, which takes none")
        return self._ranked(x, qid, groups, k)

    def _ranked(self, x: Any, qid: Any, groups: Any, k: int | None) -> Any:
        table = table_of(x, names=self.names)
        n_rows = len(table.values)
        lists = column_of(QID, np.zeros(n_rows, np.int64) if qid is None else qid, n_rows)
        scores = self._scores(self._features(table, np.zeros(n_rows), lists, groups))
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
        features = self._features(table_of(x, names=self.names), y, qid, groups)
        scorer = on_table(self.scorer, torch.from_numpy(features.values))
        return evaluate(scorer, feature_batches(features, slots=SLOTS), ks)

    def saved(self) -> Saved:
        """Return weights and description, from which `from_saved` makes the same ranker."""
        about = self._asdict() | {"scorer": None, "kind": "features"}
        if isinstance(self.scorer, RobustRanker):
            game = self.scorer
            about["robust"] = {
                "settings": game.settings.model_dump(mode="json"),
                "share": game.share,
                "seed": game.seed,
            }
        return Saved(dict(self.scorer.state_dict()), about)

    @classmethod
    def from_saved(cls, saved: Saved) -> Self:
        """Return the ranker that `saved` described."""
        about = {name: saved.about[name] for name in cls._fields}
        for name in ("hidden", "names", "group_names", "notes"):
            about[name] = tuple(about[name])
        n_features, robust = len(about["names"]), saved.about.get("robust")
        scorer: FeatureScorer | RobustRanker
        scorer = base = FeatureScorer(about["model"], n_features, hidden=about["hidden"])
        if robust is not None:
            settings = RobustSettings(**robust["settings"])
            table = OfTable(base, torch.empty(0, n_features))
            scorer = RobustRanker(table, settings, share=robust["share"], seed=robust["seed"])
        check_weights(saved.tensors, scorer.state_dict())
        scorer.load_state_dict(saved.tensors)
        return cls(**(about | {"scorer": scorer.eval()}))

    def _features(self, table: Table, y: Any, qid: Any, groups: Any) -> Features:
        """Return rows as lists; groups of training keep their numbers, which robust goes by.

        Other groups are numbered anew, but robust cannot rank them.
        """
        if groups is None:
            return features_of(table, y, qid, None)
        numbers, strange = group_numbers(groups, self.group_names, len(table.values))
        if strange is not None and not self.needs_groups:
            return features_of(table, y, qid, groups)
        if strange is not None:
            raise InputError(
                f"groups has {strange!r}, which the ranker was not fitted on; it knows "
                f"{', '.join(self.group_names)}"
            )
        features = features_of(table, y, qid, None)
        return replace(features, group=numbers[features.row], group_names=self.group_names)

    def _scores(self, features: Features) -> NDArray[np.float32]:
        """Return the scores of all rows, in the order that they came in."""
        scorer = on_table(self.scorer, torch.from_numpy(features.values))
        parts = []
        for batch in feature_batches(features, slots=SLOTS):
            found = score(scorer, batch)
            if not bool(found[batch.mask].isfinite().all()):
                raise InputError("scores are not finite; the model may have diverged")
            parts.append(found[batch.mask])
        scores = np.empty(features.n_rows, np.float32)
        scores[features.row] = torch.cat(parts).numpy()
        return scores

    def _refuse_robust(self, what: str) -> None:
        if self.needs_groups:
            raise InputError(
                f"robust needs the group of each document when it ranks, which {what} never "
                f"takes; call rank_with_groups(X, qid, groups)"
            )


def _odd_lists(features: Features, k: int) -> tuple[str, ...]:
    """Return which lists teach a ranker less than others, counted."""
    sizes = np.diff(features.offsets)
    relevant = np.add.reduceat(features.relevance > 0, features.offsets[:-1], dtype=np.int64)
    counts = {
        "one document only": int((sizes == 1).sum()),
        f"no document of {RELEVANCE} above 0": int((relevant == 0).sum()),
        f"at most k = {k} documents: all are in the top": int((sizes <= k).sum()),
    }
    if len(features.group_names) > 1:
        starts, group = features.offsets[:-1], features.group
        least = np.minimum.reduceat(
            np.where(group < 0, len(features.group_names), group), starts
        )
        alike = least >= np.maximum.reduceat(group, starts)
        counts["fewer than two groups: no gap, no penalty"] = int(alike.sum())
    return tuple(
        f"{count:,} {'list has' if count == 1 else 'lists have'} {what}"
        for what, count in counts.items()
        if count
    )
