"""What the robust method may be told."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, PositiveFloat

from fairtopk.estimators.settings import Count


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
