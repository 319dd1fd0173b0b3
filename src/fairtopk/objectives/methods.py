"""The table of methods, and the settings that a config may give them.

A method is a row. Code that depends on which method runs reads a field of the row and never
compares names, so that `register_method` can add one from outside the package.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, NonNegativeFloat, PositiveFloat, model_validator

from fairtopk.checks import checked_choice, checked_number
from fairtopk.errors import InputError, KindError
from fairtopk.models.registry import check_name, load_plugins

MOST = 10_000_000  # the largest count in a config
MOST_ENTRIES = 100  # of a list in a config: widths, K, epochs

BASELINE = "k-song"  # the colour-blind method that other methods start from
BLIND = "blind"  # the plain fit of any model; of one that an objective trains, BASELINE


@dataclass(frozen=True, kw_only=True)
class Method:
    """A row of the table: the parts of a method and all else that depends on its name."""

    # What it trains: a ranking loss plus C times an exposure penalty, a ranking loss against an
    # adversary, a game that ranks whole lists, a student of a re-ranked teacher, or nothing: a
    # model that is fitted as a whole.
    family: Literal["objective", "adversary", "game", "distillation", "fit"] = "objective"
    ranking: str | Callable[..., Any] = "ndcg"  # the ranking loss; see `register_method`
    selects: bool = False  # whether the ranking loss looks at the top K only
    # What the exposure penalty looks at: nothing, whole lists (Eq. 7), or the top K (Eq. 11).
    fairness: Literal["none", "list", "top"] = "none"
    gamma_u: float = 1.0  # of a fresh batch in the penalty's averages unless set; 1: no memory
    averages: bool = False  # whether `gamma_u` may be set
    # Whose scores an adversary is given: of relevant items, for equal opportunity, or of both
    # items of each pair, for parity.
    hears: Literal["relevant", "pairs"] = "pairs"
    least_groups: int = 0  # of items, without which it cannot be trained
    # The key of its weight in a config; `c_relative` carries over between list lengths.
    weight_key: Literal["c", "c_relative"] = "c_relative"
    weight_label: str = "C"  # what `c` is called
    weight_meaning: str = "weight of 1/2 gap^2"  # what `c` weighs
    weight_range: tuple[float, float] = (0.0, math.inf)  # the smallest and the largest `c`
    default_weight: float | None = None  # `c` without either weight; None where one must be
    # Where the search for a goal looks for a weight: its start, the largest, and the factor of
    # a step; no factor means that weights are shares, halved linearly. The paper's largest C,
    # 1e9, is about 1e4 for lists of 310.
    search_scale: tuple[float, float, float | None] = (1.0, 1e4, 10.0)
    needs_labels: bool = False  # whether it needs the groups of items when it ranks
    ranks_catalogue: bool = True  # whether it can rank the whole catalogue
    learns_catalogue: bool = False  # whether it learns the catalogue's order, not of samples
    starts_from: str | None = None  # whose scorer it starts from; None: its own warm-up alone
    is_teacher: bool = False  # whether other methods start from the scorer that it trains
    # Whether the last epoch is kept, not the best: a game against an adversary has no best one,
    # and in the first epochs, where NDCG is high, the adversary has had no effect yet.
    keeps_last_epoch: bool = False

    @property
    def is_fair(self) -> bool:
        """Whether it has a fairness part, and so a weight."""
        return self.family not in ("objective", "fit") or self.fairness != "none"


_ADVERSARIAL = Method(
    family="adversary",
    ranking="bpr",
    least_groups=2,
    weight_key="c",
    weight_label="alpha",
    weight_meaning="weight of the loss of the adversary",
    keeps_last_epoch=True,
)
# Methods whose `c` is a share from 0 to 1, and which start from the colour-blind scorer.
_SHARED = Method(
    weight_key="c",
    weight_range=(0.0, 1.0),
    default_weight=1.0,
    search_scale=(0.5, 1.0, None),
    starts_from=BASELINE,
)

METHODS: dict[str, Method] = {
    BLIND: Method(family="fit"),
    "song": Method(),
    BASELINE: Method(selects=True, is_teacher=True),
    "listnet": Method(ranking="listnet"),
    "sl-at-k": Method(ranking="softmax", selects=True),
    "deltr": Method(ranking="listnet", fairness="list", least_groups=2),
    "ng-de": Method(selects=True, fairness="list", least_groups=2),
    "so-red": Method(selects=True, fairness="list", gamma_u=0.2, averages=True, least_groups=2),
    "kso-red": Method(selects=True, fairness="top", averages=True, least_groups=2),
    "dpr-rsp": replace(_ADVERSARIAL, default_weight=0.3, search_scale=(0.3, 100.0, 5.0)),
    "dpr-reo": replace(
        _ADVERSARIAL, hears="relevant", default_weight=1.0, search_scale=(1.0, 100.0, 5.0)
    ),
    "robust": replace(  # see `fairtopk.robust`
        _SHARED,
        family="game",
        ranking="game",
        least_groups=2,
        weight_label="share of the gap",
        weight_meaning="share of the gap that is taken away, from 0 to 1",
        needs_labels=True,
        ranks_catalogue=False,
    ),
    "fair-distill": replace(  # see `fairtopk.distillation`
        _SHARED,
        family="distillation",
        ranking="distillation",
        least_groups=1,  # with one group every order is fair
        weight_label="strength",
        weight_meaning="from 0, the teacher's own order, to 1, the fair one",
        learns_catalogue=True,
    ),
}


def find_method(name: str) -> Method | None:
    """Return the row of a method; None if neither this package nor a plugin has it."""
    if name not in METHODS:
        load_plugins()
    return METHODS.get(name)


def methods_of(family: str) -> list[str]:
    """Return the names of the methods of a family."""
    return [name for name, row in METHODS.items() if row.family == family]


def register_method(
    name: str,
    *,
    ranking: str | Callable[..., Any] = "ndcg",
    fairness: Literal["none", "list", "top"] = "none",
    selects: bool = False,
    gamma_u: float = 1.0,
) -> None:
    """Add a method: a ranking loss plus C times an exposure penalty.

    From then on `name` is a ``method.name`` of configs, sweeps, goals and `FairRanker`. A
    package whose methods the command line should find as well names a module that registers
    them in its entry points, group ``fairtopk.plugins``.

    Args:
        name: Lower-case letters, digits and ``-``; not a name that is taken.
        ranking: ``"ndcg"`` (Eq. 3), ``"listnet"`` (Eq. 4), or a loss: a function of ``(scores,
            batch)``, or a class of `torch.nn.Module` that is made anew for each run as
            ``ranking(n_queries=...)`` and called alike. Scores are ``[Q, L]``, without a graph;
            `batch` is an `ft.Batch`, whose ``mask`` is False on padding. It returns the loss,
            averaged over lists, and its gradient with respect to them, ``[Q, L]``.
        fairness: What the exposure penalty looks at: nothing (``"none"``), whole lists
            (``"list"``, Eq. 7) or the top K (``"top"``, Eq. 11).
        selects: Whether ``"ndcg"`` looks at the top K only.
        gamma_u: Weight of a fresh batch in the penalty's averages; 1 has no memory.
    """
    check_name("method", name, METHODS)
    if isinstance(ranking, str):
        checked_choice("ranking", ranking, ("ndcg", "listnet"))
    elif not callable(ranking):
        raise KindError(
            f"ranking must be a name, a function of (scores, batch) or a class of "
            f"torch.nn.Module, got {ranking!r}"
        )
    checked_choice("fairness", fairness, ("none", "list", "top"))
    if selects and ranking != "ndcg":
        raise InputError('selects is about ranking="ndcg"; leave it out')
    if not 0 < checked_number("gamma_u", gamma_u) <= 1:
        raise InputError(f"gamma_u must be above 0 and at most 1, got {gamma_u:g}")
    fair = fairness != "none"
    METHODS[name] = Method(
        ranking=ranking,
        selects=selects,
        fairness=fairness,
        gamma_u=gamma_u,
        averages=fair,
        least_groups=2 if fair else 0,
    )


UnitInterval = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(gt=0, le=MOST)]
CountFrom0 = Annotated[int, Field(ge=0, le=MOST)]
T = TypeVar("T")
# Not strict, because TOML has lists and no tuples; its entries may be strict.
Listed = Annotated[tuple[T, ...], Field(max_length=MOST_ENTRIES, strict=False)]
K = Annotated[int, Field(gt=0, le=MOST, strict=True)]  # strict: true is no 1
Ks = Annotated[Listed[K], Field(min_length=1)]
Widths = Annotated[Listed[Count], Field(min_length=1)]


class ObjectiveSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Hyper-parameters of an objective, named as in the paper."""

    k: K | Ks = 50  # K: positions of the top; several: penalties averaged
    k_of: Literal["list", "catalogue"] = "list"  # whose positions K counts
    c: NonNegativeFloat | None = None  # C: weight of 1/2 gap^2
    # C / n^2, which carries over between lengths. n is the length of the list, or of the
    # catalogue that a list with weighted slots stands for.
    c_relative: NonNegativeFloat | None = None

    # Which items the penalty compares: all, or those that the user has not rated in training;
    # rated ones are not recommended but rank high in training lists.
    penalty_of: Literal["list", "unrated"] = "list"

    gamma_0: UnitInterval = 0.3  # averages of the surrogate ranks u_{q,i}
    # Averages u_{q,a}, u_{q,b}, u_q; None: the method's own.
    gamma_u: UnitInterval | None = None
    margin: PositiveFloat = 1.0  # c of the squared hinge
    start: Literal["first", "zero"] = "first"  # where averages begin

    alpha: PositiveFloat = 2.0  # sharpness of psi in the ranking part (K-SONG's); 1 / tau_w
    tau_d: PositiveFloat = 0.5  # temperature of the softmax of SL@K
    beta: PositiveFloat = 10.0  # sharpness of psi in the fairness part
    beta_of: Literal["spread", "score"] = "spread"  # beta / (spread of the list), or beta
    # What gradients go through: not through psi, through psi, through psi and lambda.
    gradient: Literal["frozen", "psi", "full"] = "frozen"
    # The same for the penalty alone; None: as `gradient`. Frozen, it cannot lift items from
    # below the top; through psi alone, all scores drift.
    penalty_gradient: Literal["frozen", "psi", "full"] | None = None

    threshold: Literal["exact", "tracked"] = "exact"  # lambda: by selection, or Algorithm 1
    eta_0: PositiveFloat = 0.01  # step of the tracked lambda
    gamma_4: UnitInterval = 0.9  # averages of its derivatives
    tau_1: PositiveFloat = 0.001  # its smoothing
    tau_2: NonNegativeFloat = 1e-4  # its quadratic term
    epsilon: Annotated[float, Field(ge=0, lt=1)] = 0.25  # added to K

    exposure: Literal["softmax", "rank"] = "softmax"  # Eq. 5, or the discount of the rank
    temperature: PositiveFloat = 0.5  # of soft ranks, in spreads of the list's scores

    @model_validator(mode="after")
    def _one_weight(self) -> "ObjectiveSettings":
        if self.c is not None and self.c_relative is not None:
            raise ValueError("give c or c_relative, not both")
        if self.exposure == "rank" and self.gamma_u is not None:
            raise ValueError('gamma_u has no effect on exposure = "rank"; leave it out')
        if self.exposure == "rank" and self.penalty_gradient in ("frozen", "psi"):
            raise ValueError(
                'exposure = "rank" is differentiated in full; leave out penalty_gradient'
            )
        return self

    @property
    def ks(self) -> tuple[int, ...]:
        """Every K, rising."""
        return tuple(sorted(self.k)) if isinstance(self.k, tuple) else (self.k,)


class DprSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """Settings of DPR-RSP and DPR-REO, apart from the weight of the adversary."""

    normal: NonNegativeFloat = 1.0  # weight of the divergence of scores from N(0, 1)
    loss: Literal["cross-entropy", "squared"] = "cross-entropy"  # of the adversary's guesses
    batches: Count = 5  # for the adversary, before each step of the model
    samples: Count = 2_000  # scores in such a batch, and in the penalty of a step
    rate: PositiveFloat = 5e-3  # of the adversary
    hidden: Widths = (50, 50, 50, 50)
    # Separates the groups of an item that is in several, like "|" in the label "Horror|War".
    separator: Annotated[str, Field(min_length=1)] | None = None


# A preset is a row of values; other settings keep their defaults.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # Algorithm 1 as written, but averages and lambda are read new, averages start at the first
    # value, and the optimizer is set apart (training.optimizer).
    "paper": {"threshold": "tracked", "beta": 2.0, "beta_of": "score", "gamma_u": 0.2},
    # The values in the authors' code, without its swapped labels and 1e-10 denominators.
    "released": {
        "threshold": "tracked",
        "k_of": "catalogue",
        "epsilon": 0.0,
        "start": "zero",
        "beta": 2.0,
        "beta_of": "score",
        "gamma_0": 0.1,
        "gamma_u": 0.5,
    },
}

# Runs have one more, for lists with top items, which stand for the catalogue.
RUN_PRESETS = PRESETS | {
    "catalogue": {"k_of": "catalogue", "penalty_of": "unrated", "penalty_gradient": "full"}
}

Reranker = Literal["det-const-sort", "det-greedy", "det-cons", "det-relaxed", "exposure-lp"]


class TeacherTable(BaseModel, frozen=True, extra="forbid", strict=True):
    """Rankings of another system: a row for each user and item, and its columns."""

    path: Annotated[str, Field(min_length=1)]  # CSV or Parquet
    user: str
    item: str
    score: str  # higher is better


class DistillSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """Settings of fair-distill: the teacher's lists, and how a student learns them."""

    # Whose order is made fair: the student's own as it is at first, that of another model by
    # name, or that of another system's rankings in a table.
    teacher: str | TeacherTable | None = None
    reranker: Reranker = "det-const-sort"  # puts the head of each list in a fair order
    # Of its floors. None: at random for a student that is fitted, else down.
    rounding: Literal["down", "random"] | None = None
    head: Count = 600  # items of that order that are kept for each user
    tail: Count = 300  # items that are kept from behind the head
    drawn: Count = 150  # items of the head, and of the tail, in a step
    loss: Literal["regression", "listwise"] = "regression"  # squared error, or cross-entropy
    reach: PositiveFloat = 100.0  # the place that weighs an eighth of the first
    mu: NonNegativeFloat = 0.0  # weight of K-SONG's loss, added to that
    epochs: CountFrom0 = 60
    rate: PositiveFloat = 8e-3
    # Of a student that is fitted, in closed form:
    rounds: Count = 4  # each with the student of the one before as its teacher
    ridge: PositiveFloat = 100.0  # penalty on squared changes of weights


class RobustSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """Settings of robust: the game, and how it is learned."""

    notion: Literal["parity", "treatment"] = "parity"  # equal exposure, or per relevance
    multiplier: Literal["data", "list"] = "data"  # one for all lists, or one for each
    ranking: Literal["assignment", "sampled"] = "assignment"  # how a list is read off P
    mu: Annotated[float, Field(ge=0.1)] = 1.0  # smoothing; at 0.1, P takes 20 times as long
    gamma: PositiveFloat = 1.0  # weight of 1/2 |theta|^2: how loosely means of features agree
    rated: Count = 10  # items of a training list
    unrated: Count = 20  # items of a training list
    users: Count = 10_000  # with a training list, at most
    rounds: Count = 3  # each with a multiplier of its own
    iterations: Count = 20  # of L-BFGS in a round
