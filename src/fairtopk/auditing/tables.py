"""An audit as tables for the terminal."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

Record = Mapping[str, Any]

GAPS = {
    "rank_exposure_gap": "exposure gap by rank",
    "representation_gap": "gap in share of the top",
    "exposure_gap": "softmax exposure gap (Eq. 9)",
    "exposure_gap_released": "softmax exposure gap (released)",
}
SHARES = {"rank_exposure": "exposure", "representation": "share in top"}
NAMED = 3  # of the flagged lists are shown
SMALL = "*"
UNTOLD = ("exposure_gap_released", "score_spread")  # in the table of changes


def terminal_tables(record: Record) -> Group:
    """Return what an audit found, a table or a line after another."""
    data = record["data"]
    parts: list[RenderableType] = [
        _line(
            f"{data['name']}: {data['rows']:,} rows, {data['queries']:,} lists, "
            f"{data['items']:,} different items, ordered by {data['ranked_by']}"
        )
    ]
    for name, found in record["metrics"].items():
        parts.append(_line(f"{name} {_cell(found)}"))
    for column in record["columns"]:
        parts += [_groups(column, record), _metrics(column, record), *_flagged(column)]
    if record["baseline"] is not None:
        parts += _changes(record)
    parts += [_line(f"- {note}") for note in record["notes"]]
    parts += [_line(_check(check)) for check in record["checks"]]
    return Group(*parts)


def _groups(column: Record, record: Record) -> Table:
    shown = _table(
        f"{column['name']}: what groups get (mean, half of a 95 % interval over lists)",
        (
            "group",
            "items",
            "rows",
            *(f"{word}@{k}" for k in record["ks"] for word in SHARES.values()),
        ),
    )
    small = False
    for group in column["groups"]:
        small |= group["small"]
        shown.add_row(
            escape(group["name"]) + (SMALL if group["small"] else ""),
            f"{group['items']:,}",
            f"{group['rows']:,}",
            *(_cell(group[f"{name}@{k}"]) for k in record["ks"] for name in SHARES),
        )
    unknown = column["unknown"]
    if unknown["rows"]:
        empty = [""] * (len(SHARES) * len(record["ks"]))
        shown.add_row("(unknown)", f"{unknown['items']:,}", f"{unknown['rows']:,}", *empty)
    if small:
        shown.caption = f"{SMALL} fewer than {record['min_group']} items: little to go by"
    return shown


def _metrics(column: Record, record: Record) -> Table:
    metrics, ks = column["metrics"], record["ks"]
    shown = _table(f"{column['name']}: differences", ("", *(f"K = {k}" for k in ks)))
    groups = [group["name"] for group in column["groups"]]
    favoured = f"{groups[0]} less {groups[1] if len(groups) == 2 else 'the rest'}"
    ratios = [metrics[f"impact_ratio@{k}"] for k in ks]
    shown.add_row("impact ratio", *map(_ratio, ratios))
    shown.add_row("  least / most", *map(_ends, ratios))
    by_chance = [metrics[f"impact_ratio_p@{k}"] for k in ks]
    shown.add_row("  by chance alone", *(_number(found["expected"]) for found in by_chance))
    shown.add_row("  p", *map(_p, by_chance))
    for gap, words in GAPS.items():
        if f"{gap}@{ks[0]}" not in metrics:
            continue
        shown.add_row(words, *(_cell(metrics[f"{gap}@{k}"]) for k in ks))
        shown.add_row(
            f"  {escape(favoured)}",
            *(_cell(metrics[f"{gap}_signed@{k}"]) for k in ks),
        )
        shown.add_row(
            "  by chance alone", *(_number(metrics[f"{gap}_floor@{k}"]["value"]) for k in ks)
        )
        shown.add_row("  p", *(_p(metrics[f"{gap}_p@{k}"]) for k in ks))
    undefined = max(metrics[f"rank_exposure_gap@{k}"]["undefined"] for k in ks)
    if undefined:
        shown.caption = f"left out of gaps: {undefined:,} lists that lack two groups"
    return shown


def _flagged(column: Record) -> Iterable[Text]:
    for k, lists in column["flagged"].items():
        named = (
            f"{one['query']} ({one['gap']:.3g}, {one['most']} over {one['least']})"
            for one in lists[:NAMED]
        )
        if lists:
            yield _line(
                f"{column['name']}, largest gaps by rank at K = {k}: {', '.join(named)}"
            )


def _changes(record: Record) -> list[RenderableType]:
    changes = record["baseline"]
    shown = _table(
        f"what changes from {changes['data']['name']}, over the {changes['queries']:,} queries "
        f"of both",
        ("", "before", "now", "difference", "p (Holm)"),
    )
    rows = [("", changes["metrics"])]
    rows += [(f"{column['name']}: ", column["metrics"]) for column in changes["columns"]]
    for prefix, metrics in rows:
        for name, found in metrics.items():
            if name.startswith(UNTOLD):
                continue
            shown.add_row(
                escape(prefix + name),
                _number(found["before"]),
                _number(found["now"]),
                _with_interval(found["difference"], found["ci95"]),
                _number(found["p_holm"]) if "p" in found else "",
            )
    return [shown]


def _check(check: Record) -> str:
    where = f"{check['column']}: " if check["column"] is not None else ""
    if check["fired"] is None:
        return f"not checked: {check['rule']} ({where}{check['metric']} is undefined)"
    verdict = "FAILED:" if check["fired"] else "passed, for it is not so:"
    return f"{verdict} {check['rule']} ({where}{check['metric']} is {check['value']:.4g})"


def _ratio(found: Record) -> str:
    if found["value"] is None:
        return "undefined"
    return f"{found['value']:.3f}, {_number(found['ci95'][0])} to {_number(found['ci95'][1])}"


def _ends(found: Record) -> str:
    if found["least"] is None:
        return ""
    return escape(f"{found['least']} / {found['most']}") + (SMALL if found["small"] else "")


def _p(found: Record) -> str:
    return "undefined" if found["value"] is None else f"{found['value']:.3g}"


def _cell(found: Record) -> str:
    return _with_interval(found["mean"], found["ci95"])


def _with_interval(value: float | None, bounds: list[float | None]) -> str:
    low, high = bounds
    if value is None or low is None or high is None:
        return "undefined"
    return f"{value:.3g} ±{(high - low) / 2:.1g}"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3g}"


def _table(title: str, columns: Iterable[str]) -> Table:
    shown = Table(
        title=escape(title), title_justify="left", title_style="bold", caption_justify="left"
    )
    for place, column in enumerate(columns):
        shown.add_column(column, justify="left" if place == 0 else "right")
    return shown


def _line(words: str) -> Text:
    return Text(words)
