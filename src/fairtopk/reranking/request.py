"""A re-ranking requested by name: groups have names, and lists have ids."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from fairtopk.checks import checked_choice, checked_whole
from fairtopk.errors import InputError
from fairtopk.reranking.lists import Candidates, Outcome, Settings
from fairtopk.reranking.rerank import RERANKERS, checked_settings, reordered_by

CHOICES = ("refuse", "mark")
NEEDS_LABELS = "needs group labels when serving"


class RerankRequest(NamedTuple):
    """What is asked of a re-ranker.

    Attributes:
        method: Its name.
        k: Length of the top; None where what is re-ranked says it.
        options: Those of the method, with groups by name.
        infeasible: What to do about lists that cannot have it: "refuse" all, or "mark" them.
    """

    method: str
    k: int | None
    options: Mapping[str, Any]
    infeasible: str = "refuse"

    def checked(self) -> "RerankRequest":
        """Return the same, refusing what cannot be asked of any lists."""
        checked_choice("method", self.method, RERANKERS)
        checked_choice("infeasible", self.infeasible, CHOICES)
        names = self.options.get("targets", {})
        if not isinstance(names, Mapping):
            raise InputError(
                f"{self.method}: targets must be shares by name of a group, got {names!r}"
            )
        checked_settings(
            self.method,
            # Any number does for a group whose name is not known yet.
            {
                **self.options,
                **({"group": 0} if "group" in self.options else {}),
                **({"targets": list(names.values())} if "targets" in self.options else {}),
            },
        )
        return self if self.k is None else self._replace(k=checked_whole("k", self.k, least=1))

    def settings(self, names: Sequence[str]) -> Settings:
        """Return the settings for groups that are called `names`, by number."""
        options = dict(self.options)
        if "group" in options:
            options["group"] = _number(options["group"], names)
        if "targets" in options:
            shares = options["targets"].items()
            options["targets"] = {_number(name, names): share for name, share in shares}
        return checked_settings(self.method, options)


class Unmet:
    """Counts the lists that have not what was asked for, and remembers the first.

    Attributes:
        count: How many there are.
        total: Of how many lists.
        first: Its number, and in words why.
    """

    def __init__(self) -> None:
        self.count, self.total = 0, 0
        self.first: tuple[int, str] | None = None

    def add(self, lists: Candidates, outcome: Outcome) -> None:
        """Count those of some lists."""
        (places,) = (~outcome.met).numpy().nonzero()
        self.count += len(places)
        self.total += len(outcome.met)
        if len(places):
            place = min(places.tolist(), key=lambda one: int(lists.query[one]))
            number = int(lists.query[place])
            if self.first is None or number < self.first[0]:
                self.first = number, outcome.why(place)

    def words(self, what: str, ids: pl.Series) -> str:
        """Return what is said of the first; `ids` are those of lists by number."""
        assert self.first is not None
        number, why = self.first
        return f"{what} {ids[number]!r} {why}"

    def refuse(self, asked: RerankRequest, what: str, ids: pl.Series) -> None:
        """Refuse lists that are not met, unless they may be marked."""
        if self.count and asked.infeasible == "refuse":
            raise InputError(
                f"{asked.method}: {self.words(what, ids)}, or say --infeasible mark "
                f"({self.count:,} of {self.total:,} lists are like this)"
            )


def reordered_lists(
    asked: RerankRequest, lists: Candidates, settings: Settings, unmet: Unmet
) -> Outcome:
    """Return what a method makes of some lists; those that are not met are counted."""
    outcome = reordered_by(asked.method, lists, asked.k, settings)
    unmet.add(lists, outcome)
    return outcome


def shares_of(given: Sequence[str]) -> dict[str, float]:
    """Return shares by name of a group from words such as ``women=0.4``."""
    found: dict[str, float] = {}
    for word in given:
        name, _, share = word.rpartition("=")
        if name in found:
            raise InputError(f"--target names {name!r} twice")
        try:
            found[name] = float(share)
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"--target takes a group and its share, women=0.4, got {word!r}")
    return found


def _number(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise InputError(f"no group is called {name!r}: the groups are {', '.join(names)}")
    return list(names).index(name)
