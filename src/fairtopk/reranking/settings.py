"""What each re-ranker may be told beside the lists."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    model_validator,
)

LARGEST_SUM = 1 + 1e-6  # of shares, by rounding in single precision


def _no_flag(value: Any) -> Any:
    """Return a value that is no boolean: as a number True is 1, and in groups it marks 0."""
    if isinstance(value, bool):
        raise ValueError("must be a group's number (True in groups is 0)")
    return value


def _by_group(values: Any) -> Any:
    """Return shares in a sequence, array or tensor as a mapping from their group."""
    try:
        plain = values.tolist() if hasattr(values, "tolist") else values
    except (RuntimeError, NotImplementedError):  # a tensor without values
        plain = values
    if isinstance(plain, list | tuple):
        return dict(enumerate(plain))
    if plain is not None and not isinstance(plain, Mapping):
        raise ValueError("must be a list of shares, or map groups to shares")
    return plain


Chance = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Group = Annotated[int, BeforeValidator(_no_flag), Field(ge=0, lt=1_000)]  # as in the metrics


class Settings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What the settings of all re-rankers have in common."""


class FairPrefixes(Settings):
    """Settings of `fa-ir`."""

    p: Chance | None = None  # share of the group that is asked for; None: its share of the list
    alpha: Chance = 0.1  # probability that a fair process fails
    adjust: Literal["closest", "conservative", "none"] = "closest"  # for testing every prefix
    group: Group = 0  # the protected group; all other items are the rest


class Floors(Settings):
    """Settings of the Det* family."""

    # From group to share; what is left is for all others. None: each group's share of the list.
    targets: Annotated[dict[Group, Share], BeforeValidator(_by_group)] | None = None

    @model_validator(mode="after")
    def _at_most_everything(self) -> "Floors":
        total = sum((self.targets or {}).values())
        if total > LARGEST_SUM:
            raise ValueError(f"targets must add up to 1 at most, got {total:g}")
        return self


class ExposureProgram(Settings):
    """Settings of `exposure-lp`."""

    notion: Literal["parity", "treatment", "impact"] = "parity"
    slack: NonNegativeFloat = 0.0  # by which two groups may differ
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0  # of the draw of one ranking per list


class GroupBonus(Settings):
    """Settings of `group-bonus`."""

    bonus: float  # added to the scores of the group
    group: Group = 0
