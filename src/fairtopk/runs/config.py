"""What a run is made of: the tables of its config, checked key by key.

Everything but ``method.name`` has a default. Unknown keys are refused with their path.

What a config of documents with features has in place of the usual defaults, and cannot have.

Documents come in lists of their own: a list is ranked and measured whole, and queries, not
ratings of a user, are held out.

By which lists a run is measured beside its own, and on which its epochs are chosen.

A user sees the top of the whole catalogue. What looks fair on sampled lists can be less fair
there, so each run is measured by both protocols, and what was trained for the catalogue is
chosen on it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    field_validator,
    model_validator,
)

from fairtopk.data.groups import GroupRule
from fairtopk.data.registry import KNOWN
from fairtopk.objectives.methods import (
    ADVERSARIAL,
    DISTILL,
    METHODS,
    ROBUST,
    RUN_PRESETS,
    Count,
    CountFrom0,
    DistillSettings,
    DprSettings,
    Ks,
    Listed,
    ObjectiveSettings,
    RobustSettings,
    Widths,
    is_fair,
)

# Of methods whose weight means the same for all data; that of an exposure gap does not.
USUAL_C = {ROBUST: 1.0, DISTILL: 1.0} | {name: method.c for name, method in ADVERSARIAL.items()}


MethodName = Literal[(*METHODS, *ADVERSARIAL, ROBUST, DISTILL)]  # type: ignore[valid-type]
Share = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """A table of the TOML file; nothing is taken for another type but an int for a float."""


class DataConfig(Section):
    """Which data, grouped and split how."""

    source: str = "synthetic"  # a name of `fairtopk data list`
    path: str | None = None  # the published zip, its folder, or the table
    groups: GroupRule | None = None  # { column = "genres", contains = "Horror" }
    options: dict[str, Any] = {}  # what the reader of that source takes
    split: Literal["time", "random"] = "time"  # which ratings of a user are held out
    test: Count | Share = 5  # of each user; of documents, a share of the queries
    validation: Count | Share = 5  # the same, before those
    min_ratings: Count | None = None  # users with fewer stay in training

    @field_validator("source")
    @classmethod
    def _known(cls, source: str) -> str:
        if source not in KNOWN:
            raise ValueError(f"unknown data set {source!r}: the names are {', '.join(KNOWN)}")
        return source

    @field_validator("path")
    @classmethod
    def _is_path(cls, path: str | None) -> str | None:
        if path is not None and (not path or "\0" in path):
            raise ValueError(f"must name a file or folder, got {path!r}")
        return path

    @field_validator("groups", mode="before")
    @classmethod
    def _rule(cls, groups: Any) -> Any:
        return GroupRule.from_mapping(groups) if isinstance(groups, Mapping) else groups

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
        return of_documents({"source": self.source, "options": self.options})


class ModelConfig(Section):
    """Which scorer: two of users and items, three of documents with features."""

    name: Literal["neumf", "mf", "linear", "mlp", "attention"] = "neumf"
    width: Count = 64  # of each embedding
    hidden: Widths = (64,)  # layers of a network; the width of the attention
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    backend: Literal["auto", "torch", "compiled"] = "auto"  # compiled loops, or torch's own


class MethodConfig(ObjectiveSettings, frozen=True, extra="forbid", strict=True):
    """Which method, and its hyper-parameters; a preset fills in those that are left out."""

    name: MethodName
    preset: Literal[tuple(RUN_PRESETS)] = "default"  # type: ignore[valid-type]
    dpr: DprSettings = DprSettings()  # of DPR-RSP and DPR-REO, whose alpha is c
    robust: RobustSettings = RobustSettings()  # c is the share of the gap that it takes away
    distill: DistillSettings = DistillSettings()  # of fair-distill, whose strength is c

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        name, unweighed = str(given.get("name")), given.get("c_relative") is None
        usual = {"c": USUAL_C[name]} if name in USUAL_C and unweighed else {}
        preset = RUN_PRESETS.get(str(given.get("preset", "default")), {})
        return {**preset, **usual, **_of_python(given)}

    @model_validator(mode="after")
    def _weighed(self) -> "MethodConfig":
        if self.name in ADVERSARIAL and self.c is None:
            raise ValueError(f"{self.name} takes the weight of its adversary as c")
        if self.name in ADVERSARIAL and self.alpha != type(self).model_fields["alpha"].default:
            raise ValueError(f"alpha of {self.name} is called c; this one is psi's sharpness")
        if self.name == ROBUST and (self.c is None or self.c > 1):
            raise ValueError(
                f"robust needs the share of the gap that it takes away: c, from 0 to 1, got "
                f"{self.c}"
            )
        if self.name == DISTILL and (self.c is None or self.c > 1):
            raise ValueError(
                f"fair-distill needs its strength as c, from 0 (the teacher's own order) to 1 "
                f"(the fair one), got c = {self.c} and c_relative = {self.c_relative}"
            )
        if self.name == DISTILL and self.c and not self.distill.epochs:
            raise ValueError(
                "distill.epochs is 0, so that nothing is learnt of the fair order; give it "
                "some, or set c to 0"
            )
        unweighed = self.c is None and self.c_relative is None
        if unweighed and is_fair(self.name):
            raise ValueError(f"{self.name} needs the weight of its penalty: c, or c_relative")
        return self


class ListsConfig(Section):
    """How many items a training list holds; see `ListSizes`."""

    rated: Count = 10  # of the user's training ratings
    unrated: Count = 300  # of the other items
    # Of each group, drawn apart as B_a and B_b of Algorithm 1 where there is a penalty, which
    # lost less NDCG for the same gap than the list's own items did; 0 takes those.
    per_group: CountFrom0 = 30
    # Of the head: what the model ranks highest for the user now, of the items that the user has
    # not rated; looked up before each epoch. Such lists are weighted, and are their own groups.
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


class TrainingConfig(Section):
    """How long, how fast, on which lists."""

    warmup_epochs: CountFrom0 = 20  # of list-wise cross-entropy
    warmup_rate: PositiveFloat = 1e-3
    # Draw the output layer anew after the warm-up. None: where there is a penalty on softmax
    # exposure, which would otherwise first have to flatten the scores that the warm-up spread
    # out. Exposure by rank has nothing to flatten, and the anchor beside it would spread the
    # scores of a random layer before they mean anything (NDCG@50 of 0.07 on MovieLens 1M).
    restart_last_layer: bool | None = None
    # The paper's are 120 epochs at 4e-4. An epoch of MovieLens 1M has a 23rd of the steps that
    # one of 20M has: there these end higher, and in half the time.
    epochs: CountFrom0 = 60
    rate: PositiveFloat = 2e-3
    rate_factor: PositiveFloat = 0.25  # what the rate is multiplied by ...
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
    tolerance: NonNegativeFloat = 0.001  # of the best NDCG that a fairer epoch may lose
    patience: Count | None = None  # validations without a better one before stopping
    save_minutes: PositiveFloat = 5.0


class EvaluationConfig(Section):
    """What is measured on which lists."""

    k: Ks = (50, 100, 200)
    protocol: Literal["sampled", "full", "whole"] = "sampled"  # "whole": lists of documents
    unrated: Count = 300  # in sampled lists
    # What epochs are chosen on: sampled validation lists, or the catalogue of some users. None:
    # the catalogue where it is what the method learns, else sampled lists.
    select_on: Literal["sampled", "full"] | None = None
    select_k: Count | None = None  # K of that; None: the method's own, or the first of
    # `k` where the method's counts positions of the catalogue and the lists are sampled
    # The gap that chooses between epochs; None: by rank on the catalogue, else Eq. 9's.
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
        if isinstance(given, Mapping) and of_documents(given.get("data")):
            return with_defaults(_of_python(given))
        return _of_python(given)

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        if sentence := misfit(self):
            raise ValueError(sentence)
        return self

    @model_validator(mode="after")
    def _ranks_lists(self) -> "Config":
        if self.method.name == ROBUST and self.evaluation.protocol == "full":
            raise ValueError(
                "robust ranks a list as a whole, and the catalogue is too long for that; set "
                "evaluation.protocol to sampled"
            )
        return self

    @model_validator(mode="after")
    def _weighs_lists(self) -> "Config":
        if self.method.name not in METHODS and self.training.lists.top:
            raise ValueError(
                f"{self.method.name} has no use for top items in its training lists; set "
                f"training.lists.top to 0"
            )
        return self

    @model_validator(mode="after")
    def _chosen_where_it_counts(self) -> "Config":
        """Say on which lists, and by which gap, epochs are chosen."""
        if sentence := misplaced_choice(self):
            raise ValueError(sentence)
        return self.model_copy(update={"evaluation": with_choice(self)})

    @model_validator(mode="after")
    def _measured_where_trained(self) -> "Config":
        """Measure at the method's own K too, unless the file says where to measure."""
        method, evaluation = self.method, self.evaluation
        if "k" in evaluation.model_fields_set or method.k_of != "list":
            return self
        ks = tuple(sorted({*evaluation.k, *method.ks}))
        return self.model_copy(update={"evaluation": evaluation.model_copy(update={"k": ks})})


def _of_python(value: Any) -> Any:
    """Return a value with Python's own numbers in place of numpy's, which callers may have."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _of_python(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_of_python(one) for one in value]
    return value


MODELS = ("linear", "mlp", "attention")
RATES = {"linear": 1e-2, "mlp": 1e-3, "attention": 1e-3}
SHARE = 0.2  # of the queries, for test and for validation
USUAL: dict[str, dict[str, Any]] = {
    "data": {"split": "random", "test": SHARE, "validation": SHARE},
    "model": {"name": MODELS[0], "dropout": 0.1},
    "method": {"k": 10},
    "training": {"batch_size": 32, "weight_decay": 1e-4},
    "evaluation": {"protocol": "whole"},
}
KS = {5, 10, 20}  # where lists are measured, beside the method's own K


def of_documents(data: Any) -> bool:
    """Return whether a config's ``data`` table is of documents with features."""
    if not isinstance(data, Mapping):
        return False
    options = data.get("options")
    return data.get("source") == "letor" or (
        isinstance(options, Mapping) and "query" in options
    )


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a config of documents, with what was left out filled in."""
    model = values.get("model")
    name = model.get("name", MODELS[0]) if isinstance(model, Mapping) else MODELS[0]
    rate = RATES.get(str(name), RATES["mlp"])
    usual = USUAL | {"training": {"rate": rate, "warmup_rate": rate} | USUAL["training"]}
    filled = dict(values)
    for table, defaults in usual.items():
        given = values.get(table, {})
        if isinstance(given, Mapping):
            filled[table] = defaults | dict(given)
    evaluation, method = filled["evaluation"], filled["method"]
    if isinstance(evaluation, dict) and isinstance(method, dict):
        k = method["k"]
        own = k if isinstance(k, list | tuple) else [k]
        whole = {one for one in own if isinstance(one, int)}  # what is none is refused later
        filled["evaluation"] = {"k": sorted(KS | whole)} | evaluation
    return filled


def misfit(config: "Config") -> str | None:
    """Return what of a config does not go with its data, in a sentence; None if all does."""
    data, model = config.data, config.model.name
    shares = [name for name in ("test", "validation") if getattr(data, name) < 1]
    whole = config.evaluation.protocol == "whole"
    if not data.of_documents:
        if model in MODELS:
            return (
                f"model.name = {model!r} scores documents with features, and {data.source} "
                f"holds users and items; set it to neumf or mf"
            )
        if shares:
            return f"data.{shares[0]} is a number of ratings of each user, at least 1"
        if whole:
            return "evaluation.protocol of users and items is sampled or full, got 'whole'"
        return None
    if model not in MODELS:
        return (
            f"model.name = {model!r} scores users and items, and {data.source} holds documents "
            f"with features; set it to linear, mlp or attention"
        )
    if len(shares) < 2:
        return "data.test and data.validation are shares of the queries, above 0 and below 1"
    if data.split != "random" or data.min_ratings is not None:
        return "queries are held out at random; leave out data.split and data.min_ratings"
    if not whole:
        return (
            f"documents are ranked in whole lists; leave out evaluation.protocol, got "
            f"{config.evaluation.protocol!r}"
        )
    if config.training.lists.top:
        return "documents are trained on in whole lists; leave out training.lists.top"
    if config.method.penalty_of == "unrated":
        return (
            "a list of documents has no items that were rated before; set method.penalty_of to "
            "list"
        )
    return None


OTHER = {"sampled": "full", "full": "sampled"}
# By which gap epochs are chosen. On the catalogue Eq. 9 can fall while a group leaves the top.
GAPS = {"sampled": "exposure_gap", "full": "rank_exposure_gap"}


def other_protocol(config: "Config") -> str | None:
    """Return the protocol that is not the run's own; None where there is none."""
    return None if why_no_other(config) else OTHER[config.evaluation.protocol]


def why_no_other(config: "Config") -> str | None:
    """Return why a run can be measured by one protocol alone, in words; None if it cannot."""
    if config.method.name == ROBUST:
        return "robust ranks a list as a whole, and the catalogue is too long for that"
    if config.data.of_documents:
        return "documents are ranked in whole lists: there is no other protocol"
    return None


def trains_on_catalogue(config: "Config") -> bool:
    """Return whether a method learns the order of the catalogue, not of sampled lists."""
    return config.method.name == DISTILL or config.training.lists.top > 0


def with_choice(config: "Config") -> "EvaluationConfig":
    """Return how a run is measured, with on which lists, and by which gap, epochs are chosen.

    Of documents there is one kind of list.
    """
    evaluation, ranks_lists = config.evaluation, why_no_other(config) is not None
    catalogue = trains_on_catalogue(config) and not ranks_lists
    usual = None if config.data.of_documents else "full" if catalogue else "sampled"
    chosen = evaluation.select_on or usual
    gap = evaluation.select_gap or GAPS[chosen or "sampled"]
    return evaluation.model_copy(update={"select_on": chosen, "select_gap": gap})


def misplaced_choice(config: "Config") -> str | None:
    """Return why epochs cannot be chosen on the lists asked for; None if they can."""
    asked = config.evaluation.select_on
    if asked is None or (asked == "sampled" and not config.data.of_documents):
        return None
    why = why_no_other(config)
    return f"{why}; leave out evaluation.select_on" if why else None
