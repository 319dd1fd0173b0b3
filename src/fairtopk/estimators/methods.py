"""The methods as rows of a table: they differ only in their parts."""

from dataclasses import dataclass
from typing import Literal


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
