"""The methods as rows of a table: they differ only in their parts.

Hyper-parameters of the objectives, named as in the paper, and presets of their values.

What `fair-distill` may be told beside its strength.

What the robust method may be told.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    model_validator,
)


@dataclass(frozen=True)
class Method:
    """The parts of a method.

    Attributes:
        ranking: The ranking loss.
        selects: Whether the ranking loss looks at the top K only.
        fairness: What the exposure penalty looks at: nothing, whole lists (Eq. 7), or the top K
            (Eq. 11).
        gamma_u: Weight of a fresh batch in the penalty's averages unless set; 1 has no memory.
        averages: Whether `gamma_u` may be set.
    """

    ranking: Literal["ndcg", "listnet"]
    selects: bool = False
    fairness: Literal["none", "list", "top"] = "none"
    gamma_u: float = 1.0
    averages: bool = False


METHODS: dict[str, Method] = {
    "song": Method("ndcg"),
    "k-song": Method("ndcg", selects=True),
    "listnet": Method("listnet"),
    "deltr": Method("listnet", fairness="list"),
    "ng-de": Method("ndcg", selects=True, fairness="list"),
    "so-red": Method("ndcg", selects=True, fairness="list", gamma_u=0.2, averages=True),
    "kso-red": Method("ndcg", selects=True, fairness="top", averages=True),
}


@dataclass(frozen=True)
class Adversarial:
    """A method whose fairness part is an adversary that guesses groups from scores.

    Attributes:
        hears: Whose scores the adversary is given: of relevant items, for equal opportunity, or
            of both items of each pair, for parity.
        c: Weight of its loss unless set.
    """

    hears: Literal["relevant", "pairs"]
    c: float


ADVERSARIAL: dict[str, Adversarial] = {
    "dpr-rsp": Adversarial("pairs", c=0.3),
    "dpr-reo": Adversarial("relevant", c=1.0),
}


# Which are no objectives of scores alone: see `fairtopk.robust` and `fairtopk.distilling`.
ROBUST, DISTILL = "robust", "fair-distill"


def is_fair(name: str) -> bool:
    """Return whether a method has a fairness part, and so a weight C."""
    return name in (*ADVERSARIAL, ROBUST, DISTILL) or METHODS[name].fairness != "none"


class Weight(NamedTuple):
    """What `c` of a fair method is: the name that it has there, and what it says."""

    name: str
    words: str


def weight_of(name: str) -> Weight:
    """Return what `c` is in a fair method, for whoever sees one beside another."""
    if name == ROBUST:
        return Weight("share of the gap", "share of the gap that is taken away, from 0 to 1")
    if name == DISTILL:
        return Weight("strength", "from 0, the teacher's own order, to 1, the fair one")
    if name in ADVERSARIAL:
        return Weight("alpha", "weight of the loss of the adversary")
    return Weight("C", "weight of 1/2 gap^2")


MOST = 10_000_000  # of anything that is counted
MOST_ENTRIES = 100  # of a list: of widths, of K, of epochs

UnitInterval = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(gt=0, le=MOST)]
CountFrom0 = Annotated[int, Field(ge=0, le=MOST)]
T = TypeVar("T")
# Not strict, for TOML has lists and no tuples; what is in it may be strict.
Listed = Annotated[tuple[T, ...], Field(max_length=MOST_ENTRIES, strict=False)]
K = Annotated[int, Field(gt=0, le=MOST, strict=True)]  # strict, for true would be a 1
Ks = Annotated[Listed[K], Field(min_length=1)]
Widths = Annotated[Listed[Count], Field(min_length=1)]


class ObjectiveSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What an objective needs to know beside the method's name."""

    k: K | Ks = 50  # K: positions of the top; several: penalties averaged
    k_of: Literal["list", "catalogue"] = "list"  # what K counts positions of
    c: NonNegativeFloat | None = None  # C: weight of 1/2 gap^2
    # C / n^2, which carries over between lengths; with exposure by rank, C as it is. n is the
    # length of the list, or where its slots are weighted of the catalogue that it stands for.
    c_relative: NonNegativeFloat | None = None

    # Whose exposure is made equal: of all items, or without those that the user has rated in
    # training, which are not recommended but rank high in training lists.
    penalty_of: Literal["list", "unrated"] = "list"

    gamma_0: UnitInterval = 0.3  # averages of the surrogate ranks u_{q,i}
    gamma_u: UnitInterval | None = (
        None  # averages u_{q,a}, u_{q,b}, u_q; None: the method's own
    )
    margin: PositiveFloat = 1.0  # c of the squared hinge
    start: Literal["first", "zero"] = "first"  # where averages begin

    alpha: PositiveFloat = 2.0  # sharpness of psi in the ranking part (K-SONG's)
    beta: PositiveFloat = 10.0  # sharpness of psi in the fairness part
    beta_of: Literal["spread", "score"] = "spread"  # beta / (spread of the list), or as it is
    gradient: Literal["frozen", "psi", "full"] = (
        "frozen"  # through nothing, psi, psi and lambda
    )
    # The same of the penalty alone; None: as `gradient`. Frozen, it cannot lift what is below
    # the top; through psi alone, all scores drift.
    penalty_gradient: Literal["frozen", "psi", "full"] | None = None

    threshold: Literal["exact", "tracked"] = "exact"  # lambda: by selection, or Algorithm 1
    eta_0: PositiveFloat = 0.01  # step of the tracked lambda
    gamma_4: UnitInterval = 0.9  # averages of its derivatives
    tau_1: PositiveFloat = 0.001  # its smoothing
    tau_2: NonNegativeFloat = 1e-4  # its quadratic term
    epsilon: Annotated[float, Field(ge=0, lt=1)] = 0.25  # added to K

    exposure: Literal["softmax", "rank"] = "softmax"  # "rank" is experimental
    anchor: NonNegativeFloat = 0.0  # weight of 1/2 (spread - 1)^2, which "rank" needs

    @model_validator(mode="after")
    def _one_weight(self) -> "ObjectiveSettings":
        if self.c is not None and self.c_relative is not None:
            raise ValueError("give c or c_relative, not both")
        if self.exposure == "rank" and self.gamma_u is not None:
            raise ValueError('gamma_u has no effect on exposure = "rank"; leave it out')
        return self

    @property
    def ks(self) -> tuple[int, ...]:
        """Every K, rising."""
        return tuple(sorted(self.k)) if isinstance(self.k, tuple) else (self.k,)


class DprSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """What DPR-RSP and DPR-REO need to know beside the weight of their adversary."""

    normal: NonNegativeFloat = 1.0  # weight of the divergence of scores from N(0, 1)
    loss: Literal["cross-entropy", "squared"] = "cross-entropy"  # of the adversary's guesses
    batches: Count = 5  # that the adversary learns from before each step of the model
    samples: Count = 2_000  # scores in such a batch, and in what the model hears back
    rate: PositiveFloat = 5e-3  # of the adversary
    hidden: Widths = (50, 50, 50, 50)
    # Between the groups of an item that is in several, as "|" in the label "Horror|War".
    separator: Annotated[str, Field(min_length=1)] | None = None


# A preset is a row of values; what it leaves out keeps its default.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # Algorithm 1 as written, save that averages are read new and start at the first value.
    "paper": {"threshold": "tracked", "beta": 2.0, "beta_of": "score", "gamma_u": 0.2},
    # What the authors' code sets; its swapped labels and 1e-10 denominators are not copied.
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

# Of runs there is one more, for lists with top items, which stand for the catalogue.
RUN_PRESETS = PRESETS | {
    "catalogue": {
        "k_of": "catalogue",
        "penalty_of": "unrated",
        "penalty_gradient": "full",
    }
}


Reranker = Literal["det-const-sort", "det-greedy", "det-cons", "det-relaxed", "exposure-lp"]


class DistillSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """Settings of the teacher's lists, and of how a student learns them."""

    reranker: Reranker = "det-const-sort"  # puts the head of each list in a fair order
    head: Count = 600  # items of that order that are kept for each user
    tail: Count = 300  # other items that are kept, any of those behind the head
    drawn: Count = 150  # of each of the two, in a step
    loss: Literal["regression", "listwise"] = "regression"  # squared error, or cross-entropy
    reach: PositiveFloat = 100.0  # the place where an item counts an eighth of the first
    mu: NonNegativeFloat = 0.0  # weight of K-SONG beside that
    epochs: CountFrom0 = 60
    rate: PositiveFloat = 8e-3


class RobustSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False, strict=True):
    """Settings of the game, and of how it is learned."""

    notion: Literal["parity", "treatment"] = "parity"  # what groups get the same of
    multiplier: Literal["data", "list"] = "data"  # one of all lists, or one of each
    ranking: Literal["assignment", "sampled"] = "assignment"  # how a list is read off P
    mu: Annotated[float, Field(ge=0.1)] = 1.0  # smoothing; a tenth takes P twenty times as long
    gamma: PositiveFloat = 1.0  # weight of 1/2 |theta|^2: how loosely means of features agree
    rated: Count = 10  # of a training list
    unrated: Count = 20  # of a training list
    users: Count = 10_000  # at most, that have a training list
    rounds: Count = 3  # each with a multiplier of its own
    iterations: Count = 20  # of L-BFGS in a round
