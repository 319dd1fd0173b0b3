"""A re-ranking requested by name: groups have names, and lists have ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from fairtopk.checks import checked_choice, checked_whole
from fairtopk.errors import InputError
from fairtopk.reranking.lists import Candidates, Outcome, Settings
from fairtopk.reranking.rerank import RERANKERS, checked_settings, reordered_by

CHOICES = ("refuse", "mark")
NEEDS_LABELS = "needs group labels when serving"


class RerankRequest(NamedTuple):
    """A re-ranker by name, with its options."""

    method: str
    k: int | None  # length of the top; None where the lists determine it
    options: Mapping[str, Any]  # those of the method, with groups by name
    infeasible: str = "refuse"  # or "mark": what to do with lists that cannot meet the targets

    def checked(self) -> "RerankRequest":
        """Return the same, refusing what no lists can meet."""
        checked_choice("method", self.method, RERANKERS)
        checked_choice("infeasible", self.infeasible, CHOICES)
        names = self.options.get("targets", {})
        if not isinstance(names, Mapping):
            raise InputError(
                f"{self.method}: targets must be shares by name of a group, got {names!r}"
            )
        # Any number will do for a group: the numbers of names are not known yet.
        numbered = {"group": 0, "targets": list(names.values())}
        known = {name: value for name, value in numbered.items() if name in self.options}
        checked_settings(self.method, {**self.options, **known})
        return self if self.k is None else self._replace(k=checked_whole("k", self.k, least=1))

    def settings(self, names: Sequence[str]) -> Settings:
        """Return the settings for groups that are called `names`, by number."""
        options = dict(self.options)
        numbers = {name: number for number, name in enumerate(names)}
        given = [options["group"]] if "group" in options else []
        for name in (*given, *options.get("targets", ())):
            if name not in numbers:
                raise InputError(
                    f"no group is called {name!r}: the groups are {', '.join(names)}"
                )
        if "group" in options:
            options["group"] = numbers[options["group"]]
        if "targets" in options:
            shares = options["targets"].items()
            options["targets"] = {numbers[name]: share for name, share in shares}
        return checked_settings(self.method, options)


@dataclass
class Unmet:
    """Counts the lists that cannot meet the targets, and remembers the first."""

    count: int = 0
    total: int = 0  # of all lists
    first: tuple[int, str] | None = None  # its number, and the reason as a clause

    def describe(self, noun: str, ids: pl.Series) -> str:
        """Return the first such list and the reason; `ids` are those of lists by number."""
        assert self.first is not None
        number, why = self.first
        return f"{noun} {ids[number]!r} {why}"

    def refuse(self, request: RerankRequest, noun: str, ids: pl.Series) -> None:
        """Refuse lists that are not met, unless they may be marked."""
        if self.count and request.infeasible == "refuse":
            raise InputError(
                f"{request.method}: {self.describe(noun, ids)}, or pass --infeasible mark "
                f"({self.count:,} of {self.total:,} lists are like this)"
            )


def reordered_lists(
    request: RerankRequest, lists: Candidates, settings: Settings, unmet: Unmet
) -> Outcome:
    """Return some lists in the order of a method; adds those that are not met to `unmet`."""
    outcome = reordered_by(request.method, lists, request.k, settings)
    (places,) = (~outcome.met).numpy().nonzero()
    unmet.count += len(places)
    unmet.total += len(outcome.met)
    if len(places):
        place = min(places.tolist(), key=lambda one: int(lists.query[one]))
        number = int(lists.query[place])
        if unmet.first is None or number < unmet.first[0]:
            unmet.first = number, outcome.why(place)
    return outcome
