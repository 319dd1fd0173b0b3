"""The page of an audit: what each group gets, how surely, and in which lists least."""

from typing import Any

from fairtopk.reporting.frame import rendered
from fairtopk.reporting.words import gap_words, number

FORMS = ("_signed", "_floor", "_p")


def audit_page(record: dict[str, Any]) -> str:
    """Return the page of an audit as HTML.

    Args:
        record: What ``audit.json`` holds.
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
        loud=lambda note: note.split(" ", 1)[0].isupper(),
    )


def _gap_rows(metrics: dict[str, Any], ks: list[int]) -> list[dict[str, Any]]:
    """Return a row per gap: what it is called, and of each K its mean, floor, sign and p."""
    names = dict.fromkeys(name.partition("@")[0] for name in metrics)
    gaps = [name for name in names if name.endswith("_gap") or name.endswith("_released")]
    return [
        {
            "words": gap_words(gap),
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
    """Return what changes from the baseline: name of a metric and its change, by column."""
    if baseline is None:
        return []
    rows = list(baseline["metrics"].items())
    for column in baseline["columns"]:
        rows += [(f"{column['name']}: {name}", of) for name, of in column["metrics"].items()]
    return rows


def _value(cell: dict[str, Any] | None) -> str:
    """Return the number of a cell, whether it calls it a mean or a value."""
    return number(None if cell is None else cell.get("mean", cell.get("value")))


def _interval(cell: dict[str, Any]) -> str:
    """Return a number with the interval that a cell has, in words."""
    low, high = cell["ci95"]
    text = _value(cell)
    return text if low is None else f"{text} ({number(low)} to {number(high)})"
