"""The paper's experiments as named curves: a data set, ranked by a protocol.

At C = 0 KSO-RED, SO-RED and NG-DE are K-SONG, whatever gamma is, and DELTR is ListNet: their
curves start at that point. KSO-RED as in Algorithm 1 tracks its thresholds in the ranking part
too, and has no such start.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fairtopk.estimators.methods import METHODS
from fairtopk.reporting.curves import Point, point_of
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


@dataclass(frozen=True)
class PaperView:
    """What was measured of a data set by one protocol.

    Attributes:
        title: What figures call the data.
        paper: What the paper calls it; None where it has none like it.
        protocol: ``sampled`` or ``full``.
        ks: Every K, rising.
        k: The one that models were trained for.
        curves: Trained methods by name, from their start on, by weight.
        gammas: Name of a method to gamma to its points, at the weights that all gammas have.
        reranked: Re-rankers of K-SONG's lists by name, by weight.
    """

    title: str
    paper: str | None
    protocol: str
    ks: list[int]
    k: int
    curves: dict[str, list[Point]]
    gammas: dict[str, dict[float, list[Point]]]
    reranked: dict[str, list[Point]]

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
    named: dict[tuple[str, float | None], list[Result]] = {}
    reranked: dict[str, list[Result]] = {}
    for result in found:
        if PLUS in result.run.method:
            reranked.setdefault(_reranker(result.run), []).append(result)
        else:
            named.setdefault(_series(result.run), []).append(result)
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


def _series(run: Run) -> tuple[str, float | None]:
    """Return the name of a run's curve, and its gamma where that is varied."""
    method = run.method.partition(" (")[0]
    if run.settings.get("method.preset") == "paper":
        return (ALGORITHM_1 if method == "kso-red" else f"{NAMES[method]}, preset paper"), None
    return NAMES.get(method, method), run.settings.get("method.gamma_u")


def _reranker(run: Run) -> str:
    method, _, reranker = run.method.partition(" (")[0].partition(PLUS)
    return f"{NAMES.get(method, method)}{PLUS}{reranker}"


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
