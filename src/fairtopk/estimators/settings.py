"""Hyper-parameters of the objectives, named as in the paper, and presets of their values."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    model_validator,
)

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
