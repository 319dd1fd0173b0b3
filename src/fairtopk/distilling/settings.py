"""What `fair-distill` may be told beside its strength."""

from typing import Literal

from pydantic import BaseModel, NonNegativeFloat, PositiveFloat

from fairtopk.estimators.settings import Count, CountFrom0

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
