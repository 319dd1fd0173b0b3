"""An audit as tables for the terminal, with notes and verdicts as lines below them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairtopk.metrics.names import GAPS, TERMS, label
from fairtopk.terminal import UNDEFINED, add_row, literal, mean_cell, number, table

Record = Mapping[str, Any]

ABREAST = 3  # lengths of the top in one table: more do not fit a terminal
NAMED = 3  # flagged lists that are shown
SMALL = "*"
LOUD = "bold yellow"
LEFT_OUT = ("exposure_gap_released", "score_spread")  # of the table of changes


def terminal_tables(record: Record) -> Group:
    """Return the findings of an audit, table by table."""
    data, ks = record["data"], record["ks"]
    parts: list[RenderableType] = [
        literal(
            f"{data['name']}: {data['rows']:,} rows, {data['queries']:,} lists, "
            f"{data['items']:,} different items, ordered by {data['ranked_by']}"
        )
    ]
    parts += [literal(f"{name} {_mean(found)}") for name, found in record["metrics"].items()]
    for column in record["columns"]:
        parts.append(_groups(column, record))
        for start in range(0, len(ks), ABREAST):
            parts.append(_gaps(column, ks[start : start + ABREAST]))
        parts += [*_notes(column["notes"]), *_flagged(column)]
    if record["baseline"] is not None:
        parts += [_changes(record["baseline"]), *_notes(record["baseline"]["notes"])]
    parts += [*_notes(record["notes"]), *map(_verdict, record["checks"])]
    return Group(*parts)


def is_loud(note: str) -> bool:
    """Return whether a note is a warning, which starts in capitals."""
    return note.split(" ", 1)[0].isupper()


def _groups(column: Record, record: Record) -> Table:
    shown = table(
        f"{column['name']}: exposure and selection of each group (95 % intervals over lists)",
        *("group", "items", "rows", "K", "exposure", "selected", "exposure ratio to highest"),
    )
    for group in column["groups"]:
        name = group["name"] + (SMALL if group["small"] else "")
        about = name, f"{group['items']:,}", f"{group['rows']:,}"
        for k in record["ks"]:
            exposure, rate = (group[f"{of}@{k}"] for of in ("rank_exposure", "representation"))
            ratio = group[f"ratio_to_most@{k}"]
            highest = ratio["most"] == group["name"]
            cells = _mean(exposure), _percent(rate), "highest" if highest else _ratio(ratio)
            add_row(shown, *about, str(k), *cells)
            about = "", "", ""
    unknown = column["unknown"]
    if unknown["rows"]:
        add_row(shown, "(unknown)", f"{unknown['items']:,}", f"{unknown['rows']:,}")
    if any(group["small"] for group in column["groups"]):
        least = record["min_group"]
        shown.caption = f"{SMALL} fewer than {least} items: too few to draw conclusions from"
    return shown


def _gaps(column: Record, ks: Sequence[int]) -> Table:
    metrics, groups = column["metrics"], [group["name"] for group in column["groups"]]
    signed = f"  {groups[0]} minus {groups[1] if len(groups) == 2 else 'the rest'}"
    shown = table(
        f"{column['name']}: differences between groups", "", *(f"K = {k}" for k in ks)
    )
    ratios, chances = (
        [metrics[f"{name}@{k}"] for k in ks] for name in ("impact_ratio", "impact_ratio_p")
    )
    add_row(shown, label("impact_ratio"), *map(_ratio, ratios))
    add_row(shown, "  lowest / highest", *map(_ends, ratios))
    add_row(shown, f"  {label('floor')}", *(_number(found["expected"]) for found in chances))
    add_row(shown, "  p", *(_number(found["value"]) for found in chances))
    for gap in sorted(GAPS, key=lambda gap: "rank" not in gap and "representation" not in gap):
        if f"{gap}@{ks[0]}" not in metrics:
            continue
        add_row(shown, label(gap), *(_mean(metrics[f"{gap}@{k}"]) for k in ks))
        add_row(shown, signed, *(_mean(metrics[f"{gap}_signed@{k}"]) for k in ks))
        for form, words in (("_floor", TERMS["floor"].label), ("_p", "p")):
            values = (metrics[f"{gap}{form}@{k}"]["value"] for k in ks)
            add_row(shown, f"  {words}", *map(_number, values))
    return shown


def _flagged(column: Record) -> Iterator[Text]:
    for k, lists in column["flagged"].items():
        named = (
            f"{one['query']} ({one['gap']:.3g}, {one['most']} over {one['least']})"
            for one in lists[:NAMED]
        )
        if lists:
            gap = label("rank_exposure_gap")
            yield literal(f"{column['name']}, largest {gap} at K = {k}: {', '.join(named)}")


def _changes(changes: Record) -> Table:
    shown = table(
        f"change from {changes['data']['name']} on the {changes['queries']:,} queries of both",
        *("", "before", "now", "difference", "p (Holm)"),
    )
    rows = [("", changes["metrics"])]
    rows += [(f"{column['name']}: ", column["metrics"]) for column in changes["columns"]]
    for prefix, metrics in rows:
        for name, found in metrics.items():
            if not name.startswith(LEFT_OUT):
                difference = mean_cell(found["difference"], found["ci95"])
                p = _number(found["p_holm"]) if "p" in found else ""
                sides = (_number(found[side]) for side in ("before", "now"))
                add_row(shown, prefix + name, *sides, difference, p)
    return shown


def _notes(notes: Iterable[str]) -> Iterator[Text]:
    for note in notes:
        yield literal(f"- {note}", style=LOUD if is_loud(note) else "")


def _verdict(check: Record) -> Text:
    where = f"{check['column']}: " if check["column"] is not None else ""
    if check["fired"] is None:
        return literal(f"NOT CHECKED {where}{check['metric']} is undefined ({check['rule']})")
    verdict = "FAILED" if check["fired"] else "PASSED"
    figure = f"{where}{check['metric']} = {check['value']:.4g}"
    line = literal(f"{verdict} {figure} (fails if {check['rule']})")
    if check["note"] is not None:
        line.append(literal(f"; {check['note']}", style=LOUD))
    return line


def _mean(found: Record) -> str:
    return mean_cell(found["mean"], found["ci95"])


def _percent(found: Record) -> str:
    if found["mean"] is None:
        return UNDEFINED
    low, high = (100 * end for end in found["ci95"])
    return f"{100 * found['mean']:.1f} % ({low:.1f}-{high:.1f} %)"


def _ratio(found: Record) -> str:
    if found["value"] is None:
        return UNDEFINED
    low, high = map(_number, found["ci95"])
    return f"{found['value']:.3f} ({low}-{high})"


def _ends(found: Record) -> str:
    if found["least"] is None:
        return ""
    return f"{found['least']} / {found['most']}" + (SMALL if found["small"] else "")


def _number(value: float | None) -> str:
    return number(value, digits=3, undefined=UNDEFINED)
