"""An audit as tables for the terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairtopk.terminal import plain

Record = Mapping[str, Any]

GAPS = {
    "rank_exposure_gap": "exposure gap by rank",
    "representation_gap": "gap in share of the top",
    "exposure_gap": "softmax exposure gap (Eq. 9)",
    "exposure_gap_released": "softmax exposure gap (released)",
}
ABREAST = 3  # lengths of the top in one table: more do not fit a terminal
NAMED = 3  # of the flagged lists are shown
SMALL = "*"
LOUD = "bold yellow"
UNTOLD = ("exposure_gap_released", "score_spread")  # in the table of changes


def terminal_tables(record: Record) -> Group:
    """Return what an audit found, a table or a line after another."""
    data = record["data"]
    parts: list[RenderableType] = [
        plain(
            f"{data['name']}: {data['rows']:,} rows, {data['queries']:,} lists, "
            f"{data['items']:,} different items, ordered by {data['ranked_by']}"
        )
    ]
    for name, found in record["metrics"].items():
        parts.append(plain(f"{name} {_cell(found)}"))
    ks = record["ks"]
    for column in record["columns"]:
        parts.append(_groups(column, record))
        for start in range(0, len(ks), ABREAST):
            parts.append(_metrics(column, ks[start : start + ABREAST]))
        parts += [*_notes(column["notes"]), *_flagged(column)]
    if record["baseline"] is not None:
        parts += [_changes(record["baseline"]), *_notes(record["baseline"]["notes"])]
    parts += _notes(record["notes"])
    parts += [_check(check) for check in record["checks"]]
    return Group(*parts)


def _groups(column: Record, record: Record) -> Table:
    shown = _table(
        f"{column['name']}: what groups get (mean, half of a 95 % interval over lists)",
        ("group", "items", "rows", "K", "exposure", "share in top", "of the most (95 %)"),
    )
    for group in column["groups"]:
        name = group["name"] + (SMALL if group["small"] else "")
        about = name, f"{group['items']:,}", f"{group['rows']:,}"
        for k in record["ks"]:
            shares = (
                _cell(group[f"{share}@{k}"]) for share in ("rank_exposure", "representation")
            )
            _add_row(shown, *about, str(k), *shares, _of_the_most(group, k))
            about = "", "", ""
    unknown = column["unknown"]
    if unknown["rows"]:
        _add_row(shown, "(unknown)", f"{unknown['items']:,}", f"{unknown['rows']:,}")
    if any(group["small"] for group in column["groups"]):
        shown.caption = f"{SMALL} fewer than {record['min_group']} items: little to go by"
    return shown


def _metrics(column: Record, ks: Sequence[int]) -> Table:
    metrics = column["metrics"]
    shown = _table(f"{column['name']}: differences", ("", *(f"K = {k}" for k in ks)))
    groups = [group["name"] for group in column["groups"]]
    favoured = f"{groups[0]} less {groups[1] if len(groups) == 2 else 'the rest'}"
    ratios = [metrics[f"impact_ratio@{k}"] for k in ks]
    _add_row(shown, "impact ratio (at most 1)", *map(_ratio, ratios))
    _add_row(shown, "  least / most", *map(_ends, ratios))
    by_chance = [metrics[f"impact_ratio_p@{k}"] for k in ks]
    _add_row(shown, "  by chance alone", *(_number(found["expected"]) for found in by_chance))
    _add_row(shown, "  p", *map(_p, by_chance))
    for gap, words in GAPS.items():
        if f"{gap}@{ks[0]}" not in metrics:
            continue
        _add_row(shown, words, *(_cell(metrics[f"{gap}@{k}"]) for k in ks))
        _add_row(shown, f"  {favoured}", *(_cell(metrics[f"{gap}_signed@{k}"]) for k in ks))
        _add_row(
            shown,
            "  by chance alone",
            *(_number(metrics[f"{gap}_floor@{k}"]["value"]) for k in ks),
        )
        _add_row(shown, "  p", *(_p(metrics[f"{gap}_p@{k}"]) for k in ks))
    undefined = max(metrics[f"rank_exposure_gap@{k}"]["undefined"] for k in ks)
    if undefined:
        shown.caption = f"left out of gaps: {undefined:,} lists that lack two groups"
    return shown


def _flagged(column: Record) -> Iterator[Text]:
    for k, lists in column["flagged"].items():
        named = (
            f"{one['query']} ({one['gap']:.3g}, {one['most']} over {one['least']})"
            for one in lists[:NAMED]
        )
        if lists:
            told = f"{column['name']}, largest gaps by rank at K = {k}: {', '.join(named)}"
            yield plain(told)


def _changes(changes: Record) -> Table:
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
            _add_row(
                shown,
                prefix + name,
                _number(found["before"]),
                _number(found["now"]),
                _with_interval(found["difference"], found["ci95"]),
                _number(found["p_holm"]) if "p" in found else "",
            )
    return shown


def _notes(notes: Iterable[str]) -> Iterator[Text]:
    """Yield notes as lines; one that starts in capitals is to be seen."""
    for note in notes:
        yield plain(f"- {note}", style=LOUD if note.split(" ", 1)[0].isupper() else "")


def _check(check: Record) -> Text:
    where = f"{check['column']}: " if check["column"] is not None else ""
    if check["fired"] is None:
        return plain(f"NOT CHECKED {where}{check['metric']} is undefined ({check['rule']})")
    verdict = "FAILED" if check["fired"] else "PASSED"
    figure = f"{where}{check['metric']} = {check['value']:.4g}"
    said = plain(f"{verdict} {figure} (fails if {check['rule']})")
    if check["note"] is not None:
        said.append(plain(f"; {check['note']}", style=LOUD))
    return said


def _ratio(found: Record) -> str:
    if found["value"] is None:
        return "undefined"
    return f"{found['value']:.3f}, {_number(found['ci95'][0])} to {_number(found['ci95'][1])}"


def _of_the_most(group: Record, k: int) -> str:
    found = group[f"ratio_to_most@{k}"]
    return "most" if found["most"] == group["name"] else _ratio(found)


def _ends(found: Record) -> str:
    if found["least"] is None:
        return ""
    return f"{found['least']} / {found['most']}" + (SMALL if found["small"] else "")


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
    """Return an empty table; what is too wide is folded, never cut."""
    title_text = plain(title, style="bold")
    shown = Table(title=title_text, title_justify="left", caption_justify="left")
    for place, column in enumerate(columns):
        shown.add_column(
            plain(column), justify="left" if place == 0 else "right", overflow="fold"
        )
    return shown


def _add_row(shown: Table, *cells: str) -> None:
    shown.add_row(*map(plain, cells))
