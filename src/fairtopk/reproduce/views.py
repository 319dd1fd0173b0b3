"""The paper's experiments as named curves, changes over seeds, and the weight that is chosen.

At C = 0 KSO-RED, SO-RED and NG-DE are K-SONG, whatever gamma is, and DELTR is ListNet: their
curves start at that point. KSO-RED as in Algorithm 1 tracks its thresholds in the ranking part
too, and has no such start. The chosen weight of a method has the smallest gap among those that
lose at most 1 % of NDCG.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fairtopk.objectives.methods import METHODS
from fairtopk.reporting.curves import Cell, Point, point_of, seed_mean
from fairtopk.reporting.results import Result, Run

NAMES = {
    "kso-red": "KSO-RED",
    "so-red": "SO-RED",
    "ng-de": "NG-DE",
    "deltr": "DELTR",
    "dpr-rsp": "DPR-RSP",
    "dpr-reo": "DPR-REO",
    "robust": "Robust (labels when serving)",
    "k-song": "K-SONG",
    "song": "SONG",
    "listnet": "ListNet",
}
ALGORITHM_1 = "KSO-RED, Algorithm 1"  # the preset "paper"
BASE = NAMES["k-song"]
PLUS = " + "  # between a method and what re-ranks its lists
STARTS = {
    "KSO-RED": BASE,
    "SO-RED": BASE,
    "NG-DE": BASE,
    "DELTR": NAMES["listnet"],
}
ORDER = list(dict.fromkeys([NAMES["kso-red"], ALGORITHM_1, *NAMES.values()]))


Facts = Mapping[str, Mapping[str, Any]]  # folder of a run to what its metrics file says


@dataclass(frozen=True)
class PaperView:
    """What was measured of a data set by one protocol."""

    title: str  # what figures call the data
    paper: str | None  # what the paper calls it; None where it has none like it
    protocol: str  # `sampled` or `full`
    ks: list[int]  # every K, rising
    k: int  # the one that models were trained for
    curves: dict[str, list[Point]]  # trained methods by name, from their start on, by weight
    # Name of a method to gamma to its points, at the weights that all gammas have.
    gammas: dict[str, dict[float, list[Point]]]
    reranked: dict[str, list[Point]]  # re-rankers of K-SONG's lists by name, by weight

    @property
    def base(self) -> Point | None:
        """K-SONG, which others are compared with."""
        return self.curves[BASE][0] if BASE in self.curves else None

    @property
    def points(self) -> list[Point]:
        """Every point of a figure, starts as often as they are drawn."""
        series = [*self.curves.values(), *self.reranked.values()]
        series += [points for of in self.gammas.values() for points in of.values()]
        return [point for points in series for point in points]

    def at(self, curve: str, weight: float) -> Point | None:
        """Return the point of a curve at a weight, 0 being its start; None if there is none."""
        found = (point for point in self.curves.get(curve, []) if weight_of(point) == weight)
        return next(found, None)


def weight_of(point: Point) -> float:
    """Return the weight of a point's penalty; 0 where it has none."""
    weight = point.results[0].run.weight
    return weight[1] if weight is not None else 0.0


def folders(point: Point) -> tuple[str, ...]:
    """Return the folders of a point's runs, as seen from that of all runs."""
    return tuple(folder(result.run) for result in point.results)


def folder(run: Run) -> str:
    """Return a run's folder, that of the run itself where it was re-ranked."""
    return run.name.partition(", ")[0]


def paper_view(
    title: str, paper: str | None, protocol: str, results: Iterable[Result]
) -> PaperView | None:
    """Return the curves of a data set by one protocol; None where nothing was measured."""
    found = [result for result in results if result.lists["protocol"] == protocol]
    if not found:
        return None
    named: dict[tuple[str, float | None], list[Result]] = {}  # by curve and varied gamma
    reranked: dict[str, list[Result]] = {}
    for result in found:
        settings = result.run.settings
        method, _, reranker = result.run.method.partition(" (")[0].partition(PLUS)
        name, gamma = NAMES.get(method, method), settings.get("method.gamma_u")
        if reranker:
            reranked.setdefault(f"{name}{PLUS}{reranker}", []).append(result)
            continue
        if settings.get("method.preset") == "paper":
            name, gamma = ALGORITHM_1 if method == "kso-red" else f"{name}, preset paper", None
        named.setdefault((name, gamma), []).append(result)
    curves = {
        name: _by_weight(name, named[name, None]) for name in ORDER if (name, None) in named
    }
    for name, of in STARTS.items():
        if name in curves and of in curves:
            label = f"C = 0, which is {of}"
            curves[name] = [replace(curves[of][0], curve=name, label=label), *curves[name]]
    metrics = {name for result in found for name in result.metrics}
    return PaperView(
        title=title,
        paper=paper,
        protocol=protocol,
        ks=sorted(int(name[5:]) for name in metrics if name.startswith("ndcg@")),
        k=int(found[0].run.settings["method.k"]),
        curves=curves,
        gammas=_gammas(curves, named),
        reranked={name: _by_weight(name, runs) for name, runs in sorted(reranked.items())},
    )


def _gammas(
    curves: dict[str, list[Point]], named: dict[tuple[str, float | None], list[Result]]
) -> dict[str, dict[float, list[Point]]]:
    found = {}
    for method in ("so-red", "kso-red"):
        name, own = NAMES[method], METHODS[method].gamma_u
        varied = {
            gamma: _by_weight(f"{name}, gamma = {gamma:g}", runs)
            for (of, gamma), runs in named.items()
            if of == name and gamma is not None
        }
        if not varied or name not in curves:
            continue
        start = [point for point in curves[name] if not point.penalised]
        varied[own] = [point for point in curves[name] if point.penalised]
        common = set.intersection(*({weight_of(p) for p in of} for of in varied.values()))
        found[name] = {
            gamma: [
                replace(point, curve=f"{name}, gamma = {gamma:g}")
                for point in (*start, *points)
                if not point.penalised or weight_of(point) in common
            ]
            for gamma, points in sorted(varied.items())
        }
    return found


def _by_weight(name: str, results: list[Result]) -> list[Point]:
    by_weight: dict[float, list[Result]] = {}
    for result in results:
        weight = result.run.weight
        by_weight.setdefault(weight[1] if weight else 0.0, []).append(result)
    return [point_of(name, by_weight[weight]) for weight in sorted(by_weight)]


BySeed = Mapping[int, float]  # seed to value


def change_of(values: BySeed, blind: BySeed) -> Cell:
    """Return how a metric changes from one model to another, as a share of the other's."""
    return seed_mean([values[s] / blind[s] - 1 for s in values if blind.get(s)])


def by_seed(point: Point, metric: str) -> dict[int, float]:
    """Return a metric of each seed of a point that has it."""
    found = {one.run.seed: one.metrics.get(metric, {}).get("mean") for one in point.results}
    return {seed: float(mean) for seed, mean in found.items() if mean is not None}


LOSS = 0.01  # of K-SONG's NDCG, that a chosen model may lose


class Choice(NamedTuple):
    """The point of a method that is chosen for 1 % of NDCG."""

    point: Point  # the chosen one; where all lose more, the one that loses least
    within: bool  # whether it loses no more, by what it was chosen by
    how: str  # by what it was chosen, as text
    label: str  # the weight of the point, and whether more is lost for it


def choose(points: Sequence[Point], base: Point, gap: str, k: int, facts: Facts) -> Choice:
    """Return which point of a method is chosen for a loss of at most 1 % of the base's NDCG.

    There is one or more, all penalised; `facts` of each run tell which epoch was kept.
    """
    metrics = f"ndcg@{k}", f"{gap}@{k}"
    how, judged = "on validation", "validation"
    measured = [(point, *_shares(point, base, metrics, facts)) for point in points]
    if any(math.isnan(ndcg + of_gap) for _, ndcg, of_gap in measured):
        how, judged = "in hindsight", "test"
        measured = [(point, *_shares(point, base, metrics, None)) for point in points]
    if len(points) == 1:
        how = "one setting"
    within = [one for one in measured if one[1] >= 1 - LOSS]
    if within:  # what is not known is never smaller
        point = min(within, key=lambda one: (math.isnan(one[2]), one[2]))[0]
        return Choice(point, True, how, point.label)
    point = max(measured, key=lambda one: (not math.isnan(one[1]), one[1]))[0]
    return Choice(point, False, how, f"{point.label}, loses more on {judged}")


def _shares(
    point: Point, base: Point, metrics: tuple[str, str], facts: Facts | None
) -> tuple[float, float]:
    """Return NDCG as a share of the base's of the same seeds, and the gap; NaN if not known.

    Both are those of validation lists at the epoch that was kept, or without `facts` those of
    test lists.
    """
    seeds = {result.run.seed for result in point.results}
    blind = [result for result in base.results if result.run.seed in seeds]

    def mean(results: Sequence[Result], metric: str) -> float:
        values = []
        for result in results:
            if facts is None:
                value = result.metrics.get(metric, {}).get("mean")
            else:  # epochs count anew in each phase, and the last is the method's
                epoch = facts.get(result.run.name, {}).get("chosen_epoch")
                kept = [one for one in result.run.log if one.get("epoch") == epoch]
                known = kept and epoch is not None
                value = kept[-1].get(f"valid_{metric}") if known else None
            values.append(math.nan if value is None else value)
        return sum(values) / len(values) if values else math.nan

    ndcg, gap = metrics
    return mean(point.results, ndcg) / mean(blind, ndcg), mean(point.results, gap)
