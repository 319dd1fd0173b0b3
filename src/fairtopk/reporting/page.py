"""`ft.report` and the HTML pages of a sweep and of an audit.

A page is one HTML file with its styles, scripts and data inside. Text from data goes through
Jinja's escaping, data for scripts through `safe_json`; the page's own content policy keeps the
browser from using any network.
"""

import json
import warnings
from dataclasses import asdict, replace
from importlib.metadata import version
from itertools import permutations
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from fairtopk.auditing.records import is_loud
from fairtopk.checks import checked_path
from fairtopk.errors import InputError
from fairtopk.metrics.names import LOGGED, PAGE_DEFINITIONS, heading, label
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
TEMPLATES = Environment(
    loader=PackageLoader("fairtopk.reporting", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


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
    for sentence in sweep.left_out:
        warnings.warn(sentence, stacklevel=2)
    views = views_of(sweep.results)
    load, rankings, reasons = cached_loader(), {}, []
    for place, view in enumerate(views):
        found = rankings_of(folder, view, load)
        if isinstance(found, Rankings):
            rankings[place] = found
        else:
            reasons.append(f"Rankings before and after, {view.label}: left out, {found}.")
    sweep = with_reranked(folder, replace(sweep, missing=[*sweep.missing, *reasons]))
    views = views_of(sweep.results)
    if drawn is not None:
        from fairtopk.reporting.figures import write_figures  # matplotlib takes a while

        write_figures(views, rankings, drawn)
    write_text(path, sweep_page(sweep, views, rankings))
    return path


def rendered(template: str, data: dict[str, Any], **values: Any) -> str:
    """Return a page: a template of this package filled in, with `data` for its script."""
    return TEMPLATES.get_template(template).render(
        data=safe_json(data),
        plotly=Markup(get_plotlyjs()),
        version=version("fairtopk"),
        **values,
    )


def safe_json(data: Any) -> Markup:
    """Return data as JSON that may stand in a script element, with numbers of six digits.

    NaN becomes null.
    """
    text = json.dumps(jsonable(data), allow_nan=False)
    rounded = json.loads(text, parse_float=lambda digits: float(f"{float(digits):.6g}"))
    text = json.dumps(rounded, separators=(",", ":"))
    for sign, code in UNSAFE.items():
        text = text.replace(sign, code)
    return Markup(text)


def disagreements(views: list[View]) -> list[str]:
    """Return a sentence for each method and weight on which the two protocols disagree.

    A point is fairer, or less fair, than the colour-blind point of the same lists if their
    intervals do not overlap.
    """
    sentences = []
    for sampled, full in permutations(views, 2):
        lists = [view.points[0].results[0].lists for view in (sampled, full)]
        if [of.get("protocol") for of in lists] != ["sampled", "full"]:
            continue
        rest = [{key: of[key] for key in of if key not in BY_PROTOCOL} for of in lists]
        if rest[0] != rest[1]:
            continue
        on_catalogue = {point.name: point for point in full.points}
        base = sampled.base
        if base is None or base.name not in on_catalogue:
            continue
        for point in sampled.points:
            if point.name not in on_catalogue:
                continue
            less_fair = [
                k
                for k in sampled.ks
                if _change(on_catalogue[base.name], on_catalogue[point.name], DECIDES, k) > 0
            ]
            for gap in CALLED_FAIRER:
                ks = [str(k) for k in less_fair if _change(base, point, gap, k) < 0]
                if ks:
                    sentences.append(
                        f"{point.name}, {full.label}: at K = {', '.join(ks)} it is fairer than "
                        f"{base.name} on sampled lists ({label(gap)}), but less fair on the "
                        f"full catalogue ({label(DECIDES)})"
                    )
                    break
    return sentences


def _change(base: Point, point: Point, gap: str, k: int) -> int:
    """Return -1 if a gap is smaller than the base's, 1 if it is larger, else 0."""
    before, after = (of.values.get(f"{gap}@{k}") for of in (base, point))
    if before is None or after is None:
        return 0
    return int(before.high < after.low) - int(after.high < before.low)


def sweep_page(sweep: Sweep, views: list[View], rankings: dict[int, Rankings]) -> str:
    """Return the page of a sweep as HTML; `rankings` are by place of the view."""
    runs = list({result.run.name: result.run for result in sweep.results}.values())
    methods = list(dict.fromkeys(run.method for run in runs))
    seeds = len({run.seed for run in runs})
    warned = [f"{run.name}: {warning}" for run in runs for warning in run.warnings]
    alarms = [
        (run.name, record.get("epoch", 0), alarm)
        for run in runs
        for record in run.log
        for alarm in record.get("alarms", [])
    ]
    sharing: dict[tuple[tuple[str, str], ...], list[str]] = {}  # provenance to its runs
    for run in runs:
        if run.provenance:
            known = {key: value for key, value in run.provenance.items() if key != "seed"}
            sharing.setdefault(tuple(_flat(known)), []).append(run.name)
    return rendered(
        "sweep.html",
        _script_data(views, runs, rankings),
        title=sweep.title,
        summary=(
            f"{count(len(runs), 'run')} of {count(len(methods), 'method')} "
            f"({', '.join(methods)}), {count(seeds, 'seed')}, "
            f"measured on {count(len(views), 'set')} of lists."
        ),
        views=views,
        tables=results_tables(views),
        has_rankings=bool(rankings),
        logged=_logged(runs),
        alarms=alarms,
        warnings=[*warned, *disagreements(views)],
        meanings=PAGE_DEFINITIONS,
        missing=sweep.missing,
        provenances=list(sharing.items()),
        runs=runs,
    )


def _script_data(
    views: list[View], runs: list[Run], rankings: dict[int, Rankings]
) -> dict[str, Any]:
    names = dict.fromkeys(name for view in views for name in view.curves)
    places = {run.name: place for place, run in enumerate(runs)}
    drawn = []
    for view in views:
        points = [
            {
                "curve": point.curve,
                "name": point.name,
                "label": point.label,
                "values": point.values,
                "runs": [
                    {
                        "run": places[result.run.name],
                        "seed": result.run.seed,
                        "spread": result.spread,
                        "values": {name: of["mean"] for name, of in result.metrics.items()},
                    }
                    for result in point.results
                ],
            }
            for point in view.points
        ]
        base = view.points.index(view.base) if view.base is not None else None
        about = {"label": view.label, "ks": view.ks, "gaps": view.gaps, "base": base}
        drawn.append(about | {"points": points})
    logs = [
        {name: [record.get(name) for record in run.log] for name in _logged([run])}
        for run in runs
    ]
    return {
        "styles": {name: place for place, name in enumerate(names)},
        "gaps": {gap: heading(gap) for view in views for gap in view.gaps},
        "views": drawn,
        "runs": [{"name": run.name, "log": log} for run, log in zip(runs, logs, strict=True)],
        "logged": _logged(runs),
        "rankings": {place: asdict(found) for place, found in rankings.items()},
    }


def _logged(runs: list[Run]) -> dict[str, str]:
    """Return the labels of what can be drawn over epochs, by name."""
    names = dict.fromkeys(name for run in runs for record in run.log for name in record)
    valid = [name for name in names if name.startswith("valid_") and not name.endswith("_p")]
    labels = {}
    for name in (one for one in valid if "_signed@" not in one and "_mse@" not in one):
        metric, _, k = name.removeprefix("valid_").partition("@")
        labels[name] = f"Validation: {label(metric)}, K = {k}"
    return labels | {name: text for name, text in LOGGED.items() if name in names}


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
    """Return the page of an audit as HTML, from the content of ``audit.json``."""
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
    # A row per gap: its label, and for each K its mean, signed gap, floor and p.
    gaps = []
    for column in columns:
        metrics = column["metrics"]
        names = dict.fromkeys(name.partition("@")[0] for name in metrics)
        rows = []
        for gap in names:
            if gap.endswith(("_gap", "_released")):
                cells = [
                    (
                        _interval(metrics[f"{gap}@{k}"]),
                        *(_value(metrics.get(f"{gap}{form}@{k}")) for form in FORMS),
                    )
                    for k in ks
                ]
                rows.append({"label": heading(gap), "cells": cells})
        gaps.append(rows)
    changes: list[tuple[str, dict[str, Any]]] = []
    if record["baseline"] is not None:
        changes += record["baseline"]["metrics"].items()
        for column in record["baseline"]["columns"]:
            named = column["metrics"].items()
            changes += [(f"{column['name']}: {name}", change) for name, change in named]
    return rendered(
        "audit.html",
        data,
        title=f"Audit of {record['data']['name']}",
        record=record,
        lists=[(name, _interval(cell)) for name, cell in record["metrics"].items()],
        gaps=gaps,
        changes=changes,
        interval=_interval,
        number=number,
        loud=is_loud,
    )


def _value(cell: dict[str, Any] | None) -> str:
    """Return the number of a cell, which is a mean or a value."""
    return number(None if cell is None else cell.get("mean", cell.get("value")))


def _interval(cell: dict[str, Any]) -> str:
    """Return the number of a cell with its interval."""
    low, high = cell["ci95"]
    text = _value(cell)
    return text if low is None else f"{text} ({number(low)} to {number(high)})"
