"""The tables of a run's config, checked key by key and against each other.

Everything but ``method.name`` has a default. Unknown keys are refused with their path.

Documents with features have defaults of their own: a list is ranked and measured whole, and
queries, not ratings of a user, are held out.

A user sees the top of the whole catalogue, and a model that is fair on sampled lists can be
less fair there. So each run is measured by both protocols, and the epochs of a method that
learns the catalogue are chosen on the catalogue.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fairtopk.data.groups import GroupRule
from fairtopk.data.registry import KNOWN
from fairtopk.models.registry import MODELS, Model, find_model, models_of, trained_models
from fairtopk.objectives import methods
from fairtopk.objectives.methods import Count, CountFrom0, Ks, Listed, Widths

SHARE = 0.2  # of the queries, for test and for validation
DOCUMENT_DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"split": "random", "test": SHARE, "validation": SHARE},
    "model": {"name": models_of("features")[0], "dropout": 0.1},
    "method": {"k": 10},
    "training": {"batch_size": 32, "weight_decay": 1e-4},
    "evaluation": {"protocol": "whole"},
}
DOCUMENT_KS = {5, 10, 20}  # where documents are measured, and at the method's own K
OTHER_PROTOCOL = {"sampled": "full", "full": "sampled"}
# The gap that chooses epochs. On the catalogue Eq. 9 can fall while a group leaves the top.
CHOOSING_GAPS = {"sampled": "exposure_gap", "full": "rank_exposure_gap"}


def _listed(name: Any, rows: Mapping[str, Any], find: Callable[[str], Any]) -> Any:
    """Return the name of a method or model, refused unless its table has a row for it."""
    if not isinstance(name, str) or find(name) is None:
        names = ", ".join(rows)
        raise PydanticCustomError(
            "name",
            f"Input should be one of {names}, or one that an installed package registers",
        )
    return name


MethodName = Annotated[
    str, BeforeValidator(partial(_listed, rows=methods.METHODS, find=methods.find_method))
]
ModelName = Annotated[str, BeforeValidator(partial(_listed, rows=MODELS, find=find_model))]
Share = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """A table of the TOML file; the only conversion is from whole numbers to floats."""


class DataConfig(Section):
    """Which data, its groups and its split."""

    source: str = "synthetic"  # a name of `fairtopk data list`
    path: str | None = None  # the published zip, its folder, or the table
    groups: GroupRule | None = None  # { column = "genres", contains = "Horror" }
    options: dict[str, Any] = {}  # arguments of the reader of that source
    split: Literal["time", "random"] = "time"  # which ratings of a user are held out
    test: Count | Share = 5  # ratings of each user; a share of the queries
    validation: Count | Share = 5  # the same, before the test part
    min_ratings: Count | None = None  # users with fewer stay in training

    @field_validator("source", "path", "groups", mode="before")
    @classmethod
    def _readable(cls, given: Any, info: ValidationInfo) -> Any:
        match info.field_name, given:
            case "groups", Mapping():
                return GroupRule.from_mapping(given)
            case "source", str() if given not in KNOWN:
                names = ", ".join(KNOWN)
                raise ValueError(f"unknown data set {given!r}: the names are {names}")
            case "path", str() if not given or "\0" in given:
                raise ValueError(f"must name a file or folder, got {given!r}")
        return given

    @model_validator(mode="after")
    def _embedded(self) -> "DataConfig":
        given = [key for key in ("path", "groups") if getattr(self, key) is not None]
        if self.source == "synthetic" and given:
            unset = " ".join(f"--set data.{key}=" for key in given)
            raise ValueError(
                f"synthetic data takes no path and brings its own groups; leave out "
                f"{' and '.join(given)}, or add: {unset}"
            )
        return self

    @property
    def of_documents(self) -> bool:
        """Whether it holds documents with features, not users and items."""
        return _has_documents({"source": self.source, "options": self.options})


class ModelConfig(Section):
    """Which scorer: of users and items, or of documents with features."""

    name: ModelName = "neumf"
    width: Count = 64  # of each embedding
    hidden: Widths = (64,)  # layers of a network; the width of the attention
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    backend: Literal["auto", "torch", "compiled"] = "auto"  # compiled loops, or torch's own
    # Of models that are fitted to histories, which have no use for the others but `width`:
    input: Literal["binary", "graded"] = "binary"  # an item counts 1, or 2^rating - 1
    # Penalty on squared weights. None: of ease, chosen on validation; of ials, 10.
    ridge: PositiveFloat | None = None
    confidence: PositiveFloat = 1.0  # ials: in a rated item, added to the 1 that all items have
    iterations: Count = 15  # ials: of alternating least squares
    neighbours: Count = 20  # item-knn: of each item
    similarity: Literal["cosine", "tfidf", "bm25"] = "cosine"  # item-knn: of two items

    @property
    def is_fitted(self) -> bool:
        """Whether it is fitted to all histories at once, not trained by an objective."""
        return MODELS[self.name].is_fitted


class MethodConfig(methods.ObjectiveSettings, frozen=True, extra="forbid", strict=True):
    """Which method, and its hyper-parameters; a preset fills in those that are left out."""

    name: MethodName
    preset: Literal[tuple(methods.RUN_PRESETS)] = "default"  # type: ignore[valid-type]
    dpr: methods.DprSettings = methods.DprSettings()  # of DPR-RSP and DPR-REO, whose alpha is c
    robust: methods.RobustSettings = methods.RobustSettings()  # c: share of the gap taken away
    distill: methods.DistillSettings = methods.DistillSettings()  # whose strength is c

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        row, weight = methods.find_method(str(given.get("name"))), {}
        if row is not None and row.default_weight is not None:
            weight = {"c": row.default_weight} if given.get("c_relative") is None else {}
        preset = methods.RUN_PRESETS.get(str(given.get("preset", "default")), {})
        return {**preset, **weight, **_python_numbers(given)}

    @model_validator(mode="after")
    def _check_weight(self) -> "MethodConfig":
        row, (least, most) = self.row, self.row.weight_range
        if (
            row.weight_label == "alpha"
            and self.alpha != type(self).model_fields["alpha"].default
        ):
            raise ValueError(f"alpha of {self.name} is called c; this one is psi's sharpness")
        if row.weight_key == "c" and (self.c is None or not least <= self.c <= most):
            given = f"c_relative = {self.c_relative}" if self.c is None else f"c = {self.c}"
            raise ValueError(
                f"{self.name} needs its {row.weight_label} as c ({row.weight_meaning}), got "
                f"{given}"
            )
        if row.family == "distillation" and self.c and not self.distill.epochs:
            raise ValueError(
                "distill.epochs is 0, so that the student learns nothing; raise it, or set c "
                "to 0"
            )
        if row.is_fair and self.c is None and self.c_relative is None:
            raise ValueError(f"{self.name} needs the weight of its penalty: c, or c_relative")
        return self

    @property
    def row(self) -> methods.Method:
        """The method's row of the table."""
        return methods.METHODS[self.name]


class ListsConfig(Section):
    """How many items a training list holds; see `ListSizes`."""

    rated: Count = 10  # of the user's training ratings
    unrated: Count = 300  # of the other items
    # Items of each group, drawn apart for the penalty as B_a and B_b of Algorithm 1, which lost
    # less NDCG for the same gap than the list's own items; 0 takes the list's own.
    per_group: CountFrom0 = 30
    # Items of the head: the unrated ones that the model ranks highest for the user, looked up
    # before each epoch. Such lists are weighted, and the penalty takes their own items.
    top: CountFrom0 = 0
    head: Count = 400

    @model_validator(mode="before")
    @classmethod
    def _own_groups(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("top"):
            return {"per_group": 0, **given}
        return given

    @model_validator(mode="after")
    def _drawn_from_head(self) -> "ListsConfig":
        if self.top and self.per_group:
            raise ValueError(
                "lists with top items speak for their groups themselves; leave out per_group"
            )
        if self.top > self.head:
            raise ValueError(f"top is drawn from the head of {self.head} items, got {self.top}")
        return self


# A fitted model takes no steps.
NO_EPOCHS = {"warmup_epochs": 0, "epochs": 0, "catalogue_epochs": 0}


class TrainingConfig(Section):
    """How long, how fast, on which lists."""

    warmup_epochs: CountFrom0 = 20  # of list-wise cross-entropy
    warmup_rate: PositiveFloat = 1e-3
    # Draw the output layer anew after the warm-up. None: if there is a penalty on softmax
    # exposure, which would otherwise first have to flatten the scores that the warm-up spread
    # out. Exposure by rank has nothing to flatten.
    restart_last_layer: bool | None = None
    # The paper has 120 epochs at 4e-4. An epoch of MovieLens 1M has a 23rd of the steps of one
    # of 20M: there these values end higher, in half the time.
    epochs: CountFrom0 = 60
    rate: PositiveFloat = 2e-3
    rate_factor: PositiveFloat = 0.25  # multiplies the rate ...
    rate_epochs: Listed[Count] = (45,)  # ... after each of these (the paper's: 60)
    catalogue_epochs: CountFrom0 = 8  # after those, on lists with top items
    catalogue_rate: PositiveFloat = 5e-4
    optimizer: Literal["adam", "momentum"] = "adam"
    gamma_5: Annotated[float, Field(gt=0, le=1)] = 0.1  # momentum: weight of the new gradient
    weight_decay: NonNegativeFloat = 1e-7
    batch_size: Count = 256
    lists: ListsConfig = ListsConfig()
    corrected: bool = False  # weigh slots by how many items they stand for
    validate_every: Count = 1  # epochs
    tolerance: NonNegativeFloat = 0.001  # share of the best NDCG that a fairer epoch may lose
    patience: Count | None = None  # validations without a better one before stopping
    save_minutes: PositiveFloat = 5.0


class EvaluationConfig(Section):
    """Which lists are measured, at which K, and how epochs are chosen."""

    k: Ks = (50, 100, 200)
    protocol: Literal["sampled", "full", "whole"] = "sampled"  # "whole": lists of documents
    unrated: Count = 300  # in sampled lists
    # The lists that epochs are chosen on: sampled validation lists, or the catalogue of some
    # users. None: the catalogue if the method learns it, else sampled lists.
    select_on: Literal["sampled", "full"] | None = None
    # K of that. None: the method's own, or the first of `k` if the method's K counts positions
    # of the catalogue and the lists are sampled.
    select_k: Count | None = None
    # The gap that chooses between epochs. None: by rank on the catalogue, else Eq. 9's.
    select_gap: Literal["exposure_gap", "rank_exposure_gap", "representation_gap"] | None = None

    @field_validator("k", mode="before")
    @classmethod
    def _several(cls, k: Any) -> Any:
        return (k,) if isinstance(k, int) else k


class Config(Section):
    """A whole run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    method: MethodConfig
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        """Fill in what follows from the model, and the defaults of documents."""
        given = _python_numbers(given)
        if not isinstance(given, Mapping):
            return given
        given = _by_model(given)
        if not _has_documents(given.get("data")):
            return given
        model = given.get("model")
        named = model if isinstance(model, Mapping) else {}
        row = find_model(str(named.get("name", DOCUMENT_DEFAULTS["model"]["name"])))
        rate = (row and row.rate) or MODELS["mlp"].rate  # a wrong name is refused later
        rates = {"rate": rate, "warmup_rate": rate}
        filled = dict(given)
        for name, defaults in DOCUMENT_DEFAULTS.items():
            table = given.get(name, {})
            if isinstance(table, Mapping):
                usual = rates | defaults if name == "training" else defaults
                filled[name] = usual | dict(table)
        evaluation, method = filled["evaluation"], filled["method"]
        if isinstance(evaluation, dict) and isinstance(method, dict):
            own = method["k"] if isinstance(method["k"], list) else [method["k"]]
            whole = {one for one in own if isinstance(one, int)}  # others are refused later
            filled["evaluation"] = {"k": sorted(DOCUMENT_KS | whole)} | evaluation
        return filled

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        """Refuse tables that do not go together."""
        data, model, method = self.data, self.model.name, self.method
        protocol, top = self.evaluation.protocol, self.training.lists.top
        if data.of_documents:
            rules = [
                (
                    MODELS[model].scores != "features",
                    f"model.name = {model!r} scores users and items, and {data.source} holds "
                    f"documents with features; set it to linear, mlp or attention",
                ),
                (
                    data.test >= 1 or data.validation >= 1,
                    "data.test and data.validation are shares of the queries, above 0 and "
                    "below 1",
                ),
                (
                    data.split != "random" or data.min_ratings is not None,
                    "queries are held out at random; leave out data.split and data.min_ratings",
                ),
                (
                    protocol != "whole",
                    f"documents are ranked in whole lists; leave out evaluation.protocol, got "
                    f"{protocol!r}",
                ),
                (
                    top > 0,
                    "documents are trained on in whole lists; leave out training.lists.top",
                ),
                (
                    method.penalty_of == "unrated",
                    "a list of documents has no items that were rated before; set "
                    "method.penalty_of to list",
                ),
            ]
        else:
            rules = [
                (
                    MODELS[model].scores != "ids",
                    f"model.name = {model!r} scores documents with features, and {data.source} "
                    f"holds users and items; set it to {' or '.join(models_of('ids'))}",
                ),
                (data.test < 1, "data.test is a number of ratings of each user, at least 1"),
                (
                    data.validation < 1,
                    "data.validation is a number of ratings of each user, at least 1",
                ),
                (
                    protocol == "whole",
                    "evaluation.protocol of users and items is sampled or full, got 'whole'",
                ),
            ]
        fits, teacher = MODELS[model].methods, method.distill.teacher
        taught_by = find_model(teacher) if isinstance(teacher, str) else None
        rules += [
            (
                isinstance(teacher, str) and (taught_by is None or taught_by.scores != "ids"),
                f"method.distill.teacher must be one of {', '.join(models_of('ids'))}, or a "
                f"table, got {teacher!r}",
            ),
            (
                teacher is not None and data.of_documents,
                "a model of documents is its own teacher; leave out method.distill.teacher",
            ),
            (
                isinstance(teacher, methods.TeacherTable)
                and method.distill.reranker == "exposure-lp",
                "exposure-lp needs scores, and of a table only the order is read; set "
                "method.distill.reranker to one of the det- family",
            ),
            (
                fits is not None and method.name not in fits,
                f"{model} is fitted as a whole and takes method.name = "
                f"{' or '.join(map(repr, fits or ()))}, got {method.name!r}; a model that "
                f"{method.name} can train is {' or '.join(trained_models())}",
            ),
            (
                fits is not None and top > 0,
                f"{model} is fitted to whole histories and has no training lists; set "
                f"training.lists.top to 0",
            ),
            (
                protocol == "full" and not method.row.ranks_catalogue,
                f"{method.name} ranks a list as a whole, and the catalogue is too long for "
                f"that; set evaluation.protocol to sampled",
            ),
            (
                top > 0 and method.row.family != "objective",
                f"{method.name} has no use for top items in its training lists; set "
                f"training.lists.top to 0",
            ),
        ]
        for broken, sentence in rules:
            if broken:
                raise ValueError(sentence)
        return self

    @model_validator(mode="after")
    def _complete(self) -> "Config":
        """Fill in how epochs are chosen, and the method's own K among those measured."""
        method, evaluation, (_, why) = self.method, self.evaluation, other_protocol(self)
        on, ks = evaluation.select_on, evaluation.k
        if why is not None and (on == "full" or (on and self.data.of_documents)):
            raise ValueError(f"{why}; leave out evaluation.select_on")
        if on is None and not self.data.of_documents:
            learns_catalogue = (
                method.row.learns_catalogue
                or self.training.lists.top > 0
                or self.model.is_fitted
            )
            on = "full" if learns_catalogue and why is None else "sampled"
        if "k" not in evaluation.model_fields_set and method.k_of == "list":
            ks = tuple(sorted({*ks, *method.ks}))
        gap = evaluation.select_gap or CHOOSING_GAPS[on or "sampled"]
        chosen = evaluation.model_copy(update={"k": ks, "select_on": on, "select_gap": gap})
        return self.model_copy(update={"evaluation": chosen})


def other_protocol(config: Config) -> tuple[str | None, str | None]:
    """Return the protocol that is not the run's own, or None and why there is none."""
    name = config.method.name
    if not config.method.row.ranks_catalogue:
        return None, f"{name} ranks a list as a whole, and the catalogue is too long for that"
    if config.data.of_documents:
        return None, "documents are ranked in whole lists: there is no other protocol"
    return OTHER_PROTOCOL[config.evaluation.protocol], None


def _by_model(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config's values with what follows from its model.

    The plain fit of a model that an objective trains is the colour-blind method; a fitted model
    has no epochs.
    """
    filled, model, method = dict(given), given.get("model"), given.get("method")
    default = DOCUMENT_DEFAULTS["model"]["name"] if _has_documents(given.get("data")) else None
    name = model.get("name", default) if isinstance(model, Mapping) else default
    row = find_model(str(name)) or Model("ids")
    if row.is_fitted:
        training = given.get("training", {})
        if isinstance(training, Mapping):
            filled["training"] = dict(training) | NO_EPOCHS
    elif isinstance(method, Mapping) and method.get("name") == methods.BLIND:
        filled["method"] = dict(method) | {"name": methods.BASELINE}
    elif isinstance(method, MethodConfig) and method.name == methods.BLIND:
        filled["method"] = method.model_copy(update={"name": methods.BASELINE})
    return filled


def _has_documents(data: Any) -> bool:
    """Return whether a config's ``data`` table is about documents with features."""
    if not isinstance(data, Mapping):
        return False
    options = data.get("options")
    return data.get("source") == "letor" or (
        isinstance(options, Mapping) and "query" in options
    )


def _python_numbers(value: Any) -> Any:
    """Return a value in which numpy's numbers are replaced by Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _python_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_python_numbers(one) for one in value]
    return value
