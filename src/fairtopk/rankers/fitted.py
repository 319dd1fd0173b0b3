"""A ranker of users and items, or of features: trained, at work, and saved."""

import math
import warnings
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field, TypeAdapter
from torch import Tensor, nn

from fairtopk.checks import checked_whole
from fairtopk.data.features import Features
from fairtopk.errors import InputError
from fairtopk.evaluation import evaluate, evaluate_full, wholly_in_top
from fairtopk.kernels.csr import TRAIN
from fairtopk.lists.queries import SLOTS, QueryLists, feature_batches
from fairtopk.lists.users import HeldOut, Lists, Ratings, kept_ratings
from fairtopk.models.features import FeatureModel, FeatureScorer, OfTable
from fairtopk.models.histories import HistoryScorer
from fairtopk.models.scoring import score
from fairtopk.objectives.methods import RobustSettings
from fairtopk.rankers import frames
from fairtopk.rankers.fitting import MOST_WIDTH, FeatureSettings
from fairtopk.robust.ranker import RobustRanker
from fairtopk.runs.build import build_model, build_scorer
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.trainer import build_trainer
from fairtopk.serving.recommend import Catalogue, catalogue_of
from fairtopk.storage import Saved, check_tensors
from fairtopk.training.loop import under

STEPS = 1_500  # training steps of a ranker of features, by default
LEAST_EPOCHS = 30
WARMUP = 0.2  # share of the epochs that are warm-up
LAST_PART = 0.75  # of the epochs, after which the rate is a quarter


class IdRanker(NamedTuple):
    """A trained scorer of users and items."""

    scorer: nn.Module  # scores batches of users and items
    config: Config  # what it was made and trained with
    catalogue: Catalogue  # users and items by their original ids, and what was rated already
    group_names: tuple[str, ...]  # the groups that it was trained to treat alike
    notes: tuple[str, ...]  # what was found in the data, one sentence each
    learnt: NDArray[np.bool_]  # which of the catalogue's ratings are training histories

    @classmethod
    def fit(cls, lists: Lists, config: Config) -> "IdRanker":
        """Return a ranker trained on a split, at the epoch that its validation part chose."""
        scorer = build_model(config, lists)
        trainer = build_trainer(config, lists, scorer)
        for _ in trainer.run():
            pass
        scorer.load_state_dict(trainer.model())
        data = lists.data
        return cls(
            scorer.eval(),
            config,
            catalogue_of(lists),
            data.group_names,
            data.notes,
            lists.part == TRAIN,
        )

    def evaluate(
        self, part: HeldOut, ks: list[int], *, protocol: str, unrated: int
    ) -> dict[str, Tensor]:
        """Return every metric by name, one value per user of the part, ``[Q]``."""
        own, data = self.catalogue, part.data
        if not (own.user_ids.equals(data.user_ids) and own.item_ids.equals(data.item_ids)):
            raise InputError(
                f"{data.name} has other users or items than the ranker was fitted on; evaluate "
                f"on a part of the same split"
            )
        lengths = part.lengths(unrated=unrated if protocol == "sampled" else None)
        for sentence in wholly_in_top(lengths, ks):
            warnings.warn(sentence, stacklevel=3)
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
        if isinstance(self.scorer, HistoryScorer):
            tensors["learnt"] = torch.from_numpy(self.learnt)
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
        """Return the ranker that `saved` described, refusing parts that do not go together."""
        tensors, about = saved
        config = check_config(about["config"], "the ranker's config")
        user_ids, item_ids = pl.Series(about["user_ids"]), pl.Series(about["item_ids"])
        n_users, n_items = len(user_ids), len(item_ids)
        scorer = build_scorer(config, n_users, n_items)
        item = tensors.get("rated.item", torch.empty(0))
        exact = tensors.get("rated.rating", item).dtype == torch.float64
        wanted = {f"scorer.{name}": value for name, value in scorer.state_dict().items()} | {
            "rated.offsets": torch.empty(n_users + 1, dtype=torch.int64),
            "rated.item": torch.empty(item.numel(), dtype=torch.int32),
            "rated.rating": torch.empty(
                item.numel(), dtype=torch.float64 if exact else torch.float32
            ),
            "popularity": torch.empty(n_items, dtype=torch.int64),
        }
        if isinstance(scorer, HistoryScorer):
            wanted["learnt"] = torch.empty(item.numel(), dtype=torch.bool)
        check_tensors("its", tensors, wanted)
        offsets = tensors["rated.offsets"]
        rising = bool((offsets.diff() >= 0).all()) and int(offsets[0]) == 0
        inside = bool(((item >= 0) & (item < n_items)).all())
        if not rising or int(offsets[-1]) != item.numel() or not inside:
            raise InputError("its ratings do not fit its users and items")
        scorer.load_state_dict(under("scorer", tensors))
        rated = {name: value.numpy() for name, value in under("rated", tensors).items()}
        popularity = tensors["popularity"].numpy()
        catalogue = Catalogue(user_ids, item_ids, Ratings(**rated), popularity)
        names, notes = tuple(about["group_names"]), tuple(about["notes"])
        learnt = tensors["learnt"].numpy() if "learnt" in tensors else np.empty(0, np.bool_)
        if isinstance(scorer, HistoryScorer):
            scorer.remember(kept_ratings(catalogue.rated, learnt))
        return cls(scorer.eval(), config, catalogue, names, notes, learnt)


class FeatureRanker(NamedTuple):
    """A trained scorer of features."""

    # Maps features and a mask to scores; of robust, ranks lists with their groups.
    scorer: FeatureScorer | RobustRanker
    model: FeatureModel  # its name; of robust, that of the scorer that its features come from
    hidden: tuple[int, ...]  # widths of its hidden layers
    names: tuple[str, ...]  # the features, by name in frames and by place in arrays
    by_name: bool  # whether it was fitted on a frame
    group_names: tuple[str, ...]  # the groups that it was trained to treat alike
    notes: tuple[str, ...]  # what was found in the data, one sentence each

    @classmethod
    def fit(
        cls, x: Any, y: Any, qid: Any, groups: Any, settings: FeatureSettings
    ) -> "FeatureRanker":
        """Return a ranker trained on documents with features, relevance, list and group.

        It is warmed up with the list-wise cross-entropy of ListNet, like scorers of users and
        items, and keeps its last weights: which epoch to stop at is not chosen on any list.
        """
        table = frames.table_of(x)
        features = frames.features_of(table, y, qid, groups)
        if settings.method.row.is_fair and len(features.group_names) < 2:
            raise InputError(
                f"{settings.method.name} needs documents in at least two groups; give groups"
            )
        epochs = settings.epochs
        if epochs is None:
            n_steps = math.ceil(features.n_queries / settings.batch_size)
            epochs = max(math.ceil(STEPS / n_steps), LEAST_EPOCHS)
        warmup = round(WARMUP * epochs)
        last = math.ceil(LAST_PART * (epochs - warmup))
        training: dict[str, Any] = {
            "warmup_epochs": warmup,
            "epochs": epochs - warmup,
            "rate_epochs": [last] if last else [],
            "batch_size": settings.batch_size,
        }
        if settings.rate is not None:
            training |= {"rate": settings.rate, "warmup_rate": settings.rate}
        values = {
            "seed": settings.seed,
            "data": {"source": "letor"},  # whatever the documents came in
            "model": {
                "name": settings.model,
                "hidden": settings.hidden,
                "dropout": settings.dropout,
            },
            "method": settings.method.model_dump(),
            "training": training,
        }
        config = check_config(values, "FairRanker")
        every = np.full(features.n_queries, TRAIN)
        lists = QueryLists(features, every, rule="all for training")
        trained = build_model(config, lists)
        trainer = build_trainer(config, lists, trained)
        with lists.training_threads():
            for _ in trainer.run():
                pass
        # The documents that it was trained on are no part of it.
        if isinstance(trained, RobustRanker):
            empty = torch.from_numpy(features.values[:0])
            scorer: Any = on_table(trained, empty)
        else:
            scorer = cast(OfTable, trained).scorer.eval()
        return cls(
            scorer=scorer,
            model=settings.model,
            hidden=settings.hidden,
            names=table.names,
            by_name=table.frame is not None,
            group_names=features.group_names,
            notes=features.notes + _odd_lists(features, max(settings.method.ks)),
        )

    def predict(self, x: Any, qid: Any) -> NDArray[np.float32]:
        """Return the score of each row."""
        if self.model != "attention":
            qid = None
        elif qid is None:
            raise InputError("attention scores a document among its list; give predict the qid")
        table = frames.table_of(x, names=self.names)
        return self._scores(frames.features_of(table, np.zeros(len(table.values)), qid, None))

    def rank(self, x: Any, qid: Any, groups: Any, k: int | None) -> Any:
        """Return the rows of each list from the best on, as a frame of the kind of `x`."""
        if k is not None:
            checked_whole("k", k, least=1)
        table = frames.table_of(x, names=self.names)
        n_rows, name = len(table.values), frames.QID
        given = np.zeros(n_rows, np.int64) if qid is None else qid
        lists = frames.column_of(name, given, n_rows)
        scores = self._scores(self._features(table, np.zeros(n_rows), lists, groups))
        rows = pl.DataFrame({name: lists, "row": np.arange(len(scores)), "score": scores})
        # Lists in order of first appearance; of equal scores the earlier row is first.
        ranked = (
            rows.with_columns(first=pl.col("row").min().over(name))
            .sort("first", "score", "row", descending=[False, True, False])
            .with_columns(rank=pl.int_range(1, pl.len() + 1).over("first"))
            .filter(pl.lit(True) if k is None else pl.col("rank") <= k)
            .select(name, "row", "rank", "score")
        )
        return frames.frame_like(ranked, table.frame)

    def evaluate(
        self, x: Any, y: Any, qid: Any, groups: Any, ks: list[int]
    ) -> dict[str, Tensor]:
        """Return every metric by name, one value per list, ``[Q]``."""
        features = self._features(frames.table_of(x, names=self.names), y, qid, groups)
        scorer = on_table(self.scorer, torch.from_numpy(features.values))
        for sentence in wholly_in_top(np.diff(features.offsets), ks):
            warnings.warn(sentence, stacklevel=3)
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
        check_tensors("its", saved.tensors, scorer.state_dict())
        scorer.load_state_dict(saved.tensors)
        return cls(**(about | {"scorer": scorer.eval()}))

    def _features(self, table: frames.Table, y: Any, qid: Any, groups: Any) -> Features:
        """Return rows as lists; groups of training keep their numbers, which robust goes by.

        Other groups are numbered anew, but robust cannot rank them.
        """
        if groups is None:
            return frames.features_of(table, y, qid, None)
        column = frames.column_of(frames.GROUPS, groups, len(table.values))
        known = column.fill_nan(None) if column.dtype.is_float() else column
        labels = known.cast(pl.String).replace("", None)
        strange = labels.filter(labels.is_not_null() & ~labels.is_in(self.group_names)).min()
        if strange is not None and not isinstance(self.scorer, RobustRanker):
            return frames.features_of(table, y, qid, groups)
        if strange is not None:
            raise InputError(
                f"groups has {strange!r}, which the ranker was not fitted on; it knows "
                f"{', '.join(self.group_names)}"
            )
        number = {name: place for place, name in enumerate(self.group_names)}
        numbers = np.array([number.get(label, -1) for label in labels], np.int32)
        features = frames.features_of(table, y, qid, None)
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


def on_table(scorer: FeatureScorer | RobustRanker, values: Tensor) -> nn.Module:
    """Return a scorer of batches whose items are rows of a table of features, ``[n, F]``."""
    if isinstance(scorer, RobustRanker):
        assert isinstance(scorer.base, OfTable)
        return scorer.over(OfTable(scorer.base.scorer, values))
    return OfTable(scorer, values)


def _odd_lists(features: Features, k: int) -> tuple[str, ...]:
    """Return which lists teach a ranker less than others, counted."""
    sizes = np.diff(features.offsets)
    relevant = np.add.reduceat(features.relevance > 0, features.offsets[:-1], dtype=np.int64)
    counts = {
        "one document only": int((sizes == 1).sum()),
        f"no document of {frames.RELEVANCE} above 0": int((relevant == 0).sum()),
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


# The schema of a saved ranker, which is input like any other: checked before it is used.
Width = Annotated[int, Field(ge=1, le=MOST_WIDTH)]
Ids = Annotated[list[int] | list[str] | list[float], Field(min_length=1)]


class _Described(BaseModel, strict=True, extra="forbid"):
    ranker: Literal["fairtopk ranker 1"]
    params: dict[str, Any]
    group_names: list[str]
    notes: list[str]


class _Robust(BaseModel, strict=True, extra="forbid"):
    settings: dict[str, Any]
    share: Annotated[float, Field(ge=0, le=1)]
    seed: Annotated[int, Field(ge=0)]


class _OfFeatures(_Described):
    kind: Literal["features"]
    scorer: None
    model: Literal["linear", "mlp", "attention"]
    hidden: Annotated[list[Width], Field(min_length=1)]
    names: Annotated[list[str], Field(min_length=1)]
    by_name: bool
    robust: _Robust | None = None


class _OfIds(_Described):
    kind: Literal["ids"]
    config: dict[str, Any]
    user_ids: Ids
    item_ids: Ids


KIND = "fairtopk ranker 1"
DESCRIPTION: TypeAdapter[Any] = TypeAdapter(
    Annotated[_OfFeatures | _OfIds, Field(discriminator="kind")]
)
