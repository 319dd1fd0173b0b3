"""The page of a sweep: what its template shows and what its script draws."""

from dataclasses import asdict
from typing import Any

from fairtopk.reporting.curves import Point, View
from fairtopk.reporting.disagreements import disagreements
from fairtopk.reporting.frame import rendered
from fairtopk.reporting.results import Rankings, Run, Sweep
from fairtopk.reporting.tables import results_tables
from fairtopk.reporting.words import MEANINGS, gap_words, logged_words

LOGGED = ("loss", "ranking", "penalty", "ranking_norm", "penalty_norm", "spread")


def sweep_page(sweep: Sweep, views: list[View], rankings: dict[int, Rankings]) -> str:
    """Return the page of a sweep as HTML.

    Args:
        sweep: What was found.
        views: `views_of` its results.
        rankings: Before and after, by place of the view.
    """
    runs = _runs(sweep)
    return rendered(
        "sweep.html",
        _script_data(views, runs, rankings),
        title=sweep.title,
        summary=_summary(views, runs),
        views=views,
        tables=results_tables(views),
        has_rankings=bool(rankings),
        logged=_logged(runs),
        alarms=_alarms(runs),
        warnings=[*_warnings(runs), *disagreements(views)],
        meanings=MEANINGS,
        missing=sweep.missing,
        provenances=_provenances(runs),
        runs=runs,
    )


def _script_data(
    views: list[View], runs: list[Run], rankings: dict[int, Rankings]
) -> dict[str, Any]:
    names = list(dict.fromkeys(name for view in views for name in view.curves))
    places = {run.name: place for place, run in enumerate(runs)}
    gaps = dict.fromkeys(gap for view in views for gap in view.gaps)
    return {
        "styles": {name: place for place, name in enumerate(names)},
        "gaps": {gap: gap_words(gap) for gap in gaps},
        "views": [_view_data(view, places) for view in views],
        "runs": [{"name": run.name, "log": _log_columns(run)} for run in runs],
        "logged": _logged(runs),
        "rankings": {place: asdict(found) for place, found in rankings.items()},
    }


def _view_data(view: View, places: dict[str, int]) -> dict[str, Any]:
    points = view.points
    return {
        "label": view.label,
        "ks": view.ks,
        "gaps": view.gaps,
        "base": points.index(view.base) if view.base is not None else None,
        "points": [_point_data(point, places) for point in points],
    }


def _point_data(point: Point, places: dict[str, int]) -> dict[str, Any]:
    return {
        "curve": point.curve,
        "name": point.name,
        "label": point.label,
        "values": point.values,
        "runs": [
            {
                "run": places[result.run.name],
                "seed": result.run.seed,
                "spread": result.spread,
                "values": {name: found["mean"] for name, found in result.metrics.items()},
            }
            for result in point.results
        ],
    }


def _runs(sweep: Sweep) -> list[Run]:
    return list({result.run.name: result.run for result in sweep.results}.values())


def _logged(runs: list[Run]) -> dict[str, str]:
    """Return what can be drawn over epochs: name to words."""
    names = dict.fromkeys(name for run in runs for record in run.log for name in record)
    valid = [name for name in names if name.startswith("valid_") and not name.endswith("_p")]
    shown = [name for name in valid if "_signed@" not in name and "_mse@" not in name]
    return {name: logged_words(name) for name in (*shown, *LOGGED) if name in names}


def _log_columns(run: Run) -> dict[str, list[float | None]]:
    names = _logged([run])
    return {name: [record.get(name) for record in run.log] for name in names}


def _alarms(runs: list[Run]) -> list[tuple[str, int, str]]:
    return [
        (run.name, record.get("epoch", 0), alarm)
        for run in runs
        for record in run.log
        for alarm in record.get("alarms", [])
    ]


def _warnings(runs: list[Run]) -> list[str]:
    return [f"{run.name}: {warning}" for run in runs for warning in run.warnings]


def _summary(views: list[View], runs: list[Run]) -> str:
    methods = list(dict.fromkeys(run.method for run in runs))
    seeds = len({run.seed for run in runs})
    return (
        f"{_count(len(runs), 'run')} of {_count(len(methods), 'method')} "
        f"({', '.join(methods)}), {_count(seeds, 'seed')}, "
        f"measured on {_count(len(views), 'set')} of lists."
    )


def _count(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def _provenances(runs: list[Run]) -> list[tuple[list[tuple[str, str]], list[str]]]:
    """Return what is said of where results come from, and the runs of which it is true."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run in runs:
        if run.provenance:
            said = tuple(_flat({k: v for k, v in run.provenance.items() if k != "seed"}))
            found.setdefault(said, []).append(run.name)
    return [(list(said), names) for said, names in found.items()]


def _flat(values: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{before}{name} ")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            rows.append((f"{before}{name}", text))
    return rows
