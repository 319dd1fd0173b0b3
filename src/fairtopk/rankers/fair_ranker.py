"""`ft.FairRanker`: one object that is fitted, ranks, recommends, is measured, saved and loaded.

It is an estimator of scikit-learn without needing scikit-learn: only the methods that
scikit-learn itself calls import it, and ``__init__`` stores its parameters as they are given.
"""

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import nn

from fairtopk import checks
from fairtopk.errors import InputError
from fairtopk.lists.users import HeldOut, Lists
from fairtopk.metrics.intervals import means_with_intervals
from fairtopk.rankers.fitted import DESCRIPTION, KIND, FeatureRanker, IdRanker
from fairtopk.rankers.fitting import feature_settings, id_config
from fairtopk.rankers.frames import frame_like, frame_of, ids_of
from fairtopk.robust.ranker import RobustRanker
from fairtopk.serving.recommend import recommend
from fairtopk.storage import load_tensors, save_tensors
from fairtopk.terminal import shown

AnyRanker = FeatureRanker | IdRanker
Ranker = TypeVar("Ranker", FeatureRanker, IdRanker)


class NotFittedError(InputError, AttributeError):
    """A ranker was used before `fit`."""


class FairRanker:
    """A ranker whose top K is relevant and fair, and which serves without groups.

    ``robust`` alone cannot: it ranks by `rank_with_groups`, and refuses `predict` and `rank`.

    It is fitted on users and items, or on documents with features::

        FairRanker(c=1e5).fit(ft.split(data))
        FairRanker(model="mlp", k=10).fit(X, y, qid=qid, groups=labels)

    Args:
        method: A method's name, as in a config. None is ``kso-red``, and ``blind`` for a model
            that is fitted.
        model: ``neumf`` or ``mf`` for users and items, or ``ease``, ``ials``, ``item-knn`` and
            ``popularity``, which are fitted to histories; ``linear``, ``mlp`` or ``attention``
            for features. None is ``neumf`` or ``linear``.
        k: Positions of a list that are its top, or several such numbers.
        c: Weight of the penalty; of ``dpr-rsp`` and ``dpr-reo`` that of the adversary, of
            ``robust`` the share of the gap that is taken away.
        c_relative: Instead of `c` of a penalty, its ratio to the squared length of a list; with
            neither, a penalty takes 0.5.
        epochs: How long to train; None is 60 for users and items, and for features as many as
            make 1,500 steps.
        rate: Learning rate; None takes the model's default.
        batch_size: Lists per step; None is 256 for users and items, 32 for features.
        hidden: Widths of hidden layers; ``attention`` takes the first.
        dropout: Share of hidden units left out in training; None takes the model's default.
        seed: Seed of everything random: one seed, one result.
        options: Further settings by their name in a config's ``method`` table, like
            ``gamma_0``; for users and items other tables too, as ``{"training": {...}}``.

    Attributes:
        scorer_: The trained `torch.nn.Module`.
        group_names_: The groups that it was trained to treat alike; signed gaps are about the
            first.
        notes_: What was found in the data, one sentence each.
    """

    def __init__(
        self,
        method: str | None = None,
        model: str | None = None,
        k: int | Sequence[int] = 50,
        c: float | None = None,
        c_relative: float | None = None,
        epochs: int | None = None,
        rate: float | None = None,
        batch_size: int | None = None,
        hidden: Sequence[int] = (64,),
        dropout: float | None = None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.method, self.model = method, model
        self.k, self.c, self.c_relative = k, c, c_relative
        self.epochs, self.rate, self.batch_size = epochs, rate, batch_size
        self.hidden, self.dropout = hidden, dropout
        self.seed, self.options = seed, options

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        qid: Any = None,
        groups: Any = None,
        item_groups: Any = None,
    ) -> Self:
        """Train on lists of users and items, or on documents with features.

        Args:
            X: A split of `ft.split`; or features, a row per document, as an array or a frame.
            y: Relevance of each row, not below 0.
            qid: The list of each row, in any order; left out, all rows are one list.
            groups: Group of each row, null for unknown; needed by methods with a penalty.
            item_groups: The same by a name that scikit-learn does not keep for its splitters.
        """
        if groups is not None and item_groups is not None:
            raise InputError("groups and item_groups mean the same; give one of them")
        if isinstance(X, Lists):
            given = {"y": y, "qid": qid, "groups": groups, "item_groups": item_groups}
            if extra := [name for name, value in given.items() if value is not None]:
                raise InputError(
                    f"lists of users and items hold all of it; leave out {extra[0]}"
                )
            self.fitted_: AnyRanker = IdRanker.fit(X, id_config(self.get_params()))
            return self
        if y is None:
            raise InputError(
                "FairRanker requires y to be passed, but the target y is None; only a split of "
                "ft.split is fitted without"
            )
        labels = groups if groups is not None else item_groups
        settings = feature_settings(self.get_params())
        self.fitted_ = FeatureRanker.fit(X, y, qid, labels, settings)
        return self

    def predict(self, X: Any, *, qid: Any = None) -> NDArray[np.float32]:  # noqa: N803
        """Return the score of each row, higher is better; it takes no groups.

        Args:
            X: Features, as in `fit`.
            qid: The list of each row, which only ``attention`` reads.
        """
        return self._fitted_without_groups("predict").predict(X, qid)

    def rank(self, X: Any, qid: Any = None, k: int | None = None) -> Any:  # noqa: N803
        """Return the rows of each list from the best on, as a frame of the kind of `X`.

        Its columns are ``qid``, ``row`` (of `X`, from 0), ``rank`` (from 1) and ``score``; of
        equal scores the earlier row is first. For an array it is a polars frame.

        Args:
            X: Features, as in `fit`.
            qid: The list of each row; left out, all rows are one list.
            k: How many of each list; None is all.
        """
        return self._fitted_without_groups("rank").rank(X, qid, None, k)

    def rank_with_groups(
        self,
        X: Any,  # noqa: N803
        qid: Any = None,
        *,
        groups: Any,
        k: int | None = None,
    ) -> Any:
        """Return what `rank` does, by ``robust``, the one method that needs groups to rank.

        Scores are logarithms of 1 / log2(1 + rank): they tell the order and nothing else.

        Args:
            X: Features, as in `fit`.
            qid: The list of each row; left out, all rows are one list.
            groups: Group of each row, one of those of `fit`; null for unknown.
            k: How many of each list; None is all.
        """
        ranker = self._fitted_as(FeatureRanker, "rank_with_groups")
        if not isinstance(ranker.scorer, RobustRanker):
            raise InputError("only robust needs groups to rank by; call rank, which takes none")
        return ranker.rank(X, qid, groups, k)

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        histories: Any = None,
        include_rated: bool = False,
    ) -> Any:
        """Return the best items of the whole catalogue for each user: user, item, rank, score.

        Users that were not trained on get the most rated items, and are marked: see
        `fairtopk.serving.recommend.recommend`. It is a frame of the kind of `users`, polars
        where that is no frame or series.

        Args:
            users: Ids of users, in a list, array or series, or in the column ``user`` of a
                frame; None is all that were trained on.
            k: Items for each; a warning tells that the catalogue has fewer.
            histories: Instead of `users`, a frame of what users rated, who may be new: columns
                ``user``, ``item`` and perhaps ``rating``. It takes a model that is fitted to
                histories, like ``ease``.
            include_rated: Whether items that a user rated in training may be among them.
        """
        ranker = self._fitted_as(IdRanker, "recommend")
        checks.checked_flag("include_rated", include_rated)
        ids, frame = ids_of(users)
        if histories is not None:
            frame = frame_of(histories)
        if ranker.config.method.row.needs_labels:
            raise InputError(
                "robust needs the group of each item when it ranks, which recommend never "
                "takes; measure it with evaluate, which has the groups of the split"
            )
        found = recommend(
            ranker.scorer,
            ranker.catalogue,
            ids,
            histories=histories,
            k=k,
            include_rated=include_rated,
        )
        if k > (n_items := len(ranker.catalogue.item_ids)):
            warnings.warn(
                f"k is {k:,}, and there are {n_items:,} items: users get all that are left",
                stacklevel=2,
            )
        return frame_like(found, frame)

    def evaluate(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        qid: Any = None,
        groups: Any = None,
        k: int | Sequence[int] | None = None,
        protocol: Literal["sampled", "full"] = "sampled",
        unrated: int = 300,
    ) -> Any:
        """Return NDCG and every gap with 95 % intervals, a row for each metric.

        It is a frame of the kind of `X`, polars where that is none.

        Args:
            X: A part of the split that the ranker was fitted on, like ``lists.test``; or
                features, as in `fit`.
            y: Relevance of each row of features.
            qid: The list of each row of features.
            groups: Group of each row of features; without them gaps are undefined.
            k: Where to cut; None is the `k` of the ranker.
            protocol: For users and items: sampled lists, or the full catalogue.
            unrated: Unrated items of a sampled list.
        """
        ks = list(checks.one_or_several_ks(self.k if k is None else k))
        if isinstance(X, HeldOut):
            way = checks.checked_choice("protocol", protocol, ("sampled", "full"))
            ids = self._fitted_as(IdRanker, "evaluate, given users and items,")
            values = ids.evaluate(X, ks, protocol=way, unrated=unrated)
        else:
            if isinstance(X, Lists):
                raise InputError("evaluate takes a part of a split; give lists.test")
            if y is None:
                raise InputError("evaluate needs y, the relevance of each row")
            documents = self._fitted_as(FeatureRanker, "evaluate, given features,")
            values = documents.evaluate(X, y, qid, groups, ks)
        means = means_with_intervals(values, seed=0)
        rows = [
            (name, one.mean, *one.ci95, one.n, one.undefined) for name, one in means.items()
        ]
        columns = ("metric", "mean", "low", "high", "n", "undefined")
        return frame_like(pl.DataFrame(rows, schema=columns, orient="row"), frame_of(X))

    def score(self, X: Any, y: Any = None, *, qid: Any = None) -> float:  # noqa: N803
        """Return the mean NDCG at the ranker's first `k`; scikit-learn's searches read it."""
        k = checks.one_or_several_ks(self.k)[0]
        found = nw.from_native(self.evaluate(X, y, qid=qid, k=k))
        return float(found.filter(nw.col("metric") == f"ndcg@{k}")["mean"][0])

    def save(self, path: str | Path) -> None:
        """Write the ranker to a safetensors file whose head says in JSON what it is."""
        saved, target = self._fitted("save").saved(), checks.checked_target("path", path)
        params = {name: _plain(value) for name, value in self.get_params().items()}
        save_tensors(target, saved.tensors, saved.about | {"ranker": KIND, "params": params})

    @classmethod
    def load(cls, path: str | Path) -> "FairRanker":
        """Return a ranker that `save` wrote."""
        path = checks.checked_path("path", path)
        if not path.is_file():
            raise InputError(f"{path} is no file; give one that FairRanker.save wrote")
        saved = load_tensors(path)
        if saved.about.get("ranker") != KIND:
            raise InputError(f"{path} holds no ranker; give a file that FairRanker.save wrote")
        try:
            DESCRIPTION.validate_python(saved.about)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"][1:])) or "its description"
            said = fault["msg"].removeprefix("Input ")
            raise InputError(f"{path} is damaged: {shown(place)} {said}") from None
        for name, value in saved.tensors.items():
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise InputError(f"{path} is damaged: {name} is not finite")
        try:
            ranker = cls(**saved.about["params"])
            home = FeatureRanker if saved.about["kind"] == "features" else IdRanker
            ranker.fitted_ = home.from_saved(saved)
        except InputError as error:
            raise InputError(f"{path} is damaged: {error}") from error
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged: its weights fit no ranker") from error
        return ranker

    @property
    def scorer_(self) -> nn.Module:
        """The trained model."""
        return self._fitted("scorer_").scorer

    @property
    def group_names_(self) -> tuple[str, ...]:
        """The groups of the training data."""
        return self._fitted("group_names_").group_names

    @property
    def notes_(self) -> tuple[str, ...]:
        """What was found in the training data."""
        return self._fitted("notes_").notes

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return len(self._fitted_as(FeatureRanker, "n_features_in_").names)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the columns of a frame that the ranker was fitted on."""
        fitted = self._fitted_as(FeatureRanker, "feature_names_in_")
        if not fitted.by_name:
            raise AttributeError("a ranker fitted on an array has no feature_names_in_")
        return np.array(fitted.names, dtype=object)

    def _fitted(self, what: str) -> AnyRanker:
        if not hasattr(self, "fitted_"):
            raise NotFittedError(f"this ranker is not fitted yet; call fit before {what}")
        return self.fitted_

    def _fitted_as(self, kind: type[Ranker], what: str) -> Ranker:
        """Return the trained ranker for `what`, which needs one of that kind."""
        fitted = self._fitted(what)
        if not isinstance(fitted, kind):
            needed, own = "features", "users and items"
            if isinstance(fitted, FeatureRanker):
                needed, own = own, needed
            raise InputError(f"{what} needs a ranker of {needed}, and this one is of {own}")
        return fitted

    def _fitted_without_groups(self, what: str) -> FeatureRanker:
        """Return the trained ranker of features for `what`, which takes no groups."""
        fitted = self._fitted_as(FeatureRanker, what)
        if isinstance(fitted.scorer, RobustRanker):
            raise InputError(
                f"robust needs the group of each document when it ranks, which {what} never "
                f"takes; call rank_with_groups(X, qid, groups)"
            )
        return fitted

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; there are none within others."""
        names = inspect.signature(type(self).__init__).parameters.keys() - {"self"}
        return {name: getattr(self, name) for name in sorted(names)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name, for the next `fit`."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InputError(
                    f"{type(self).__name__} has no parameter {name!r}; "
                    f"it has {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default and value != defaults[name].default
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags  # type: ignore[import-untyped]

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, positive_only=True),
            input_tags=InputTags(),
            requires_fit=True,
        )

    def get_metadata_routing(self) -> Any:
        """Return which arguments besides X and y scikit-learn hands to `fit` and `score`.

        scikit-learn keeps ``groups`` for its splitters, so that groups of items are called
        ``item_groups`` there.
        """
        from sklearn.utils import metadata_routing

        request = metadata_routing.MetadataRequest(owner=type(self).__name__)
        request.fit.add_request(param="item_groups", alias=True)
        for method in (request.fit, request.score, request.predict):
            method.add_request(param="qid", alias=True)
        return request


def _plain(value: Any) -> Any:
    """Return a parameter as JSON holds it."""
    if hasattr(value, "tolist"):  # of numpy or torch
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value
