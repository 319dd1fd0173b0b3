"""`ft.report` and the HTML pages of a sweep and of an audit.

A page is one HTML file with its styles, scripts and data inside. Text from data goes through
Jinja's escaping, data for scripts through `safe_json`; the page's own content policy keeps the
browser from using any network.
"""

import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from fairtopk.auditing.terminal import is_loud
from fairtopk.checks import checked_path
from fairtopk.errors import InputError
from fairtopk.metrics.names import LOGGED, heading, label, logged_label, page_definitions
from fairtopk.reporting.curves import Point, View, views_of
from fairtopk.reporting.rankings import rankings_of
from fairtopk.reporting.results import Rankings, Run, Sweep, collect, with_reranked
from fairtopk.reporting.tables import results_tables
from fairtopk.runs.open import cached_loader
from fairtopk.storage import check_target, jsonable, write_text
from fairtopk.terminal import count, number

PAGE = "report.html"
# JSON inside a script element must not hold what HTML would read as its end.
UNSAFE = {sign: f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
CALLED_FAIRER = ("exposure_gap", "rank_exposure_gap")  # any of these, on sampled lists
DECIDES = "rank_exposure_gap"  # on the catalogue: a softmax gap can fall by flatter scores
BY_PROTOCOL = ("protocol", "unrated", "users")  # which differ between the protocols
FORMS = ("_signed", "_floor", "_p")


def report(
    folder: str | Path, *, out: str | Path | None = None, figures: str | Path | None = None
) -> Path:
    """Write one page about all finished runs in a folder, and return its path.

    It is an HTML file that needs no network: trade-off curves, the table of results with paired
    tests, rankings before and after, training curves, definitions and provenance. It lists what
    could not be shown; an unfinished or damaged run raises a warning too. Data is loaded again
    for the rankings alone.

    Args:
        folder: A folder of runs, at any depth.
        out: The page to write; by default ``report.html`` in `folder`.
        figures: A folder for the trade-off curves as PDF and PNG.
    """
    folder = checked_path("folder", folder)
    path = folder / PAGE if out is None else checked_path("out", out)
    drawn = None if figures is None else checked_path("figures", figures)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file, such as {path / PAGE}")
    check_target(path, endings=(".html", ".htm"))
    sweep = collect(folder)
    for words in sweep.left_out:
        warnings.warn(words, stacklevel=2)
    views = views_of(sweep.results)
    rankings, reasons = _rankings(folder, views)
    sweep = with_reranked(folder, replace(sweep, missing=[*sweep.missing, *reasons]))
    views = views_of(sweep.results)
    if drawn is not None:
        from fairtopk.reporting.figures import write_figures  # matplotlib takes a while

        write_figures(views, rankings, drawn)
    write_text(path, sweep_page(sweep, views, rankings))
    return path


def _rankings(folder: Path, views: list[View]) -> tuple[dict[int, Rankings], list[str]]:
    """Return the rankings of each view, and the reasons why others have none."""
    load, found, reasons = cached_loader(), {}, []
    for place, view in enumerate(views):
        rankings = rankings_of(folder, view, load)
        if isinstance(rankings, Rankings):
            found[place] = rankings
        else:
            reasons.append(f"Rankings before and after, {view.label}: left out, {rankings}.")
    return found, reasons


def rendered(template: str, data: dict[str, Any], **values: Any) -> str:
    """Return a page: a template of this package filled in, with `data` for its script."""
    page = _environment().get_template(template)
    return page.render(
        data=safe_json(data),
        plotly=Markup(get_plotlyjs()),
        version=version("fairtopk"),
        **values,
    )


def safe_json(data: Any) -> Markup:
    """Return data as JSON that may stand in a script element; NaN becomes null."""
    text = json.dumps(_rounded(jsonable(data)), separators=(",", ":"), allow_nan=False)
    for sign, code in UNSAFE.items():
        text = text.replace(sign, code)
    return Markup(text)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fairtopk.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _rounded(value: Any) -> Any:
    """Return JSON with numbers of six digits."""
    if isinstance(value, dict):
        return {str(name): _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def disagreements(views: list[View]) -> list[str]:
    """Return a sentence for each method and weight on which the two protocols disagree.

    A point is fairer, or less fair, than the colour-blind point of the same lists if their
    intervals do not overlap.
    """
    return [
        sentence
        for sampled, full in _pairs(views)
        for sentence in _between(sampled, full, _by_both(sampled, full))
    ]


def _between(sampled: View, full: View, both: list[tuple[Point, Point]]) -> Iterator[str]:
    """Yield the sentences about two views, for the points that are in `both`."""
    base = next((pair for pair in both if pair[0] is sampled.base), None)
    if base is None:
        return
    for pair in both:
        for gap in CALLED_FAIRER:
            ks = [str(k) for k in sampled.ks if _opposite(base, pair, gap, k)]
            if ks:
                yield (
                    f"{pair[0].name}, {full.label}: at K = {', '.join(ks)} it is fairer than "
                    f"{base[0].name} on sampled lists ({label(gap)}), but less fair on the "
                    f"full catalogue ({label(DECIDES)})"
                )
                break


def _by_both(sampled: View, full: View) -> list[tuple[Point, Point]]:
    """Return the points that were measured with both protocols, as pairs."""
    on_catalogue = {point.name: point for point in full.points}
    return [
        (point, on_catalogue[point.name])
        for point in sampled.points
        if point.name in on_catalogue
    ]


def _opposite(base: tuple[Point, Point], pair: tuple[Point, Point], gap: str, k: int) -> bool:
    """Return whether a point is fairer than the base on sampled lists, but not on others."""
    fairer = _change(base[0], pair[0], f"{gap}@{k}") < 0
    return fairer and _change(base[1], pair[1], f"{DECIDES}@{k}") > 0


def _change(base: Point, point: Point, name: str) -> int:
    """Return -1 if a gap is smaller than the base's, 1 if it is larger, else 0."""
    before, after = base.values.get(name), point.values.get(name)
    if before is None or after is None:
        return 0
    return int(before.high < after.low) - int(after.high < before.low)


def _pairs(views: list[View]) -> Iterator[tuple[View, View]]:
    """Yield views of sampled lists and of the full catalogue that agree in all else."""
    for sampled in views:
        for full in views:
            kinds = (_of(sampled).get("protocol"), _of(full).get("protocol"))
            if kinds == ("sampled", "full") and _rest(sampled) == _rest(full):
                yield sampled, full


def _of(view: View) -> dict[str, object]:
    return view.points[0].results[0].lists


def _rest(view: View) -> dict[str, object]:
    return {key: value for key, value in _of(view).items() if key not in BY_PROTOCOL}


def sweep_page(sweep: Sweep, views: list[View], rankings: dict[int, Rankings]) -> str:
    """Return the page of a sweep as HTML.

    Args:
        sweep: The runs.
        views: `views_of` their results.
        rankings: Rankings before and after, by place of the view.
    """
    runs = list({result.run.name: result.run for result in sweep.results}.values())
    warned = [f"{run.name}: {warning}" for run in runs for warning in run.warnings]
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
        warnings=[*warned, *disagreements(views)],
        meanings=page_definitions(),
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
        "gaps": {gap: heading(gap) for gap in gaps},
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


def _logged(runs: list[Run]) -> dict[str, str]:
    """Return the labels of what can be drawn over epochs, by name."""
    names = dict.fromkeys(name for run in runs for record in run.log for name in record)
    valid = [name for name in names if name.startswith("valid_") and not name.endswith("_p")]
    shown = [name for name in valid if "_signed@" not in name and "_mse@" not in name]
    return {name: logged_label(name) for name in (*shown, *LOGGED) if name in names}


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


def _summary(views: list[View], runs: list[Run]) -> str:
    methods = list(dict.fromkeys(run.method for run in runs))
    seeds = len({run.seed for run in runs})
    return (
        f"{count(len(runs), 'run')} of {count(len(methods), 'method')} "
        f"({', '.join(methods)}), {count(seeds, 'seed')}, "
        f"measured on {count(len(views), 'set')} of lists."
    )


def _provenances(runs: list[Run]) -> list[tuple[list[tuple[str, str]], list[str]]]:
    """Return the provenances, and the runs that share each."""
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


def audit_page(record: dict[str, Any]) -> str:
    """Return the page of an audit as HTML.

    Args:
        record: The content of ``audit.json``.
    """
    ks, columns = record["ks"], record["columns"]
    drawn = ("name", "share_of_rows", "share_at_rank", "exposure_to_rank")
    data = {
        "ks": ks,
        "columns": [
            {
                "name": column["name"],
                "groups": [
                    {key: group[key] for key in drawn}
                    | {"gets": {k: group[f"rank_exposure@{k}"] for k in ks}}
                    for group in column["groups"]
                ],
                "ratios": [column["metrics"][f"impact_ratio@{k}"] for k in ks],
            }
            for column in columns
        ],
    }
    return rendered(
        "audit.html",
        data,
        title=f"Audit of {record['data']['name']}",
        record=record,
        lists=[(name, _interval(cell)) for name, cell in record["metrics"].items()],
        gaps=[_gap_rows(column["metrics"], ks) for column in columns],
        changes=_changes(record["baseline"]),
        interval=_interval,
        number=number,
        loud=is_loud,
    )


def _gap_rows(metrics: dict[str, Any], ks: list[int]) -> list[dict[str, Any]]:
    """Return a row per gap: its label, and for each K its mean, signed gap, floor and p."""
    names = dict.fromkeys(name.partition("@")[0] for name in metrics)
    gaps = [name for name in names if name.endswith("_gap") or name.endswith("_released")]
    return [
        {
            "words": heading(gap),
            "cells": [
                (
                    _interval(metrics[f"{gap}@{k}"]),
                    *(_value(metrics.get(f"{gap}{form}@{k}")) for form in FORMS),
                )
                for k in ks
            ],
        }
        for gap in gaps
    ]


def _changes(baseline: dict[str, Any] | None) -> list[tuple[str, dict[str, Any]]]:
    """Return the changes from the baseline, by name of the metric."""
    if baseline is None:
        return []
    rows = list(baseline["metrics"].items())
    for column in baseline["columns"]:
        rows += [(f"{column['name']}: {name}", of) for name, of in column["metrics"].items()]
    return rows


def _value(cell: dict[str, Any] | None) -> str:
    """Return the number of a cell, which is a mean or a value."""
    return number(None if cell is None else cell.get("mean", cell.get("value")))


def _interval(cell: dict[str, Any]) -> str:
    """Return the number of a cell with its interval."""
    low, high = cell["ci95"]
    text = _value(cell)
    return text if low is None else f"{text} ({number(low)} to {number(high)})"
