"""The methods as rows of a table: they differ only in their parts."""

from dataclasses import dataclass
from typing import Literal, NamedTuple


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
