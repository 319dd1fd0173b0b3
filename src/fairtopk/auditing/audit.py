"""`audit`: who gets what in rankings made elsewhere, and how surely."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Group

from fairtopk.arguments import checked_path, checked_whole, one_or_several_ks, shown
from fairtopk.auditing.changes import change_record
from fairtopk.auditing.definitions import DEFINITIONS, SOFTMAX
from fairtopk.auditing.measures import Findings, Progress, measure
from fairtopk.auditing.notes import baseline_notes, check_note, column_notes, general_notes
from fairtopk.auditing.pairing import paired
from fairtopk.auditing.records import (
    column_record,
    data_record,
    jsonable,
    lists_record,
    resampled_findings,
    ties_record,
)
from fairtopk.auditing.requests import Request, labelled, shuffles_for
from fairtopk.auditing.rules import applied, check_rules, parsed_rule
from fairtopk.auditing.sources import Columns, OneSource, Source, check_source, name_of
from fairtopk.auditing.tables import terminal_tables
from fairtopk.data.files import write_text
from fairtopk.data.paths import sha256_of
from fairtopk.errors import KindError

AUDIT = "audit.json"
LARGEST_SEED = 2**31


@dataclass(frozen=True, repr=False)
class Audit:
    """What was found in rankings.

    Attributes:
        record: All of it, as JSON can hold it; undefined is None.
    """

    record: dict[str, Any]

    def __repr__(self) -> str:
        data = self.record["data"]
        return f"<Audit of {data['name']}: {data['queries']:,} lists, {data['rows']:,} rows>"

    @property
    def failed(self) -> bool:
        """Whether a rule of `fail_if` holds."""
        return any(check["fired"] for check in self.record["checks"])

    @property
    def unchecked(self) -> list[str]:
        """Rules that could not be checked since what they are on is undefined."""
        return [check["rule"] for check in self.record["checks"] if check["fired"] is None]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``audit.json`` holds."""
        return self.record

    def table(self) -> Group:
        """Return tables for the terminal, for `rich.print`."""
        return terminal_tables(self.record)

    def save(self, folder: str | Path) -> Path:
        """Write ``audit.json`` into a folder, all or nothing, and return its path."""
        path = checked_path("folder", folder) / AUDIT
        write_text(path, json.dumps(self.record, indent=2, allow_nan=False) + "\n")
        return path


def audit(
    rankings: Source,
    *,
    query: str,
    item: str,
    groups: str | Sequence[str],
    k: int | Sequence[int],
    score: str | None = None,
    rank: str | None = None,
    relevance: str | None = None,
    items: OneSource | None = None,
    items_item: str | None = None,
    local_items: bool = False,
    intersections: bool = False,
    min_group: int = 30,
    baseline: Source | None = None,
    fail_if: str | Sequence[str] = (),
    separator: str = ",",
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Return who gets what in the top of rankings, whatever made them.

    Lists are ordered by falling score or by rising rank; of equals the earlier row is first. A
    label that is missing is *unknown*: its row takes a place, and is in no group.

    Args:
        rankings: CSV or Parquet file, several of them, a folder of Parquet files, or a frame,
            with a row per query and item: all candidates of each list, not only its top. A path
            is literal, never a pattern.
        query: Column of the lists' ids.
        item: Column of the items' ids.
        groups: Columns of labels, each audited by itself; of `items` if that has the column,
            else of `rankings`.
        k: Lengths of the top.
        score: Column of scores; either this or `rank`.
        rank: Column of ranks; without scores there is no softmax exposure.
        relevance: Column of grades from 0, for NDCG.
        items: File or frame with a row per item, for groups.
        items_item: Its column of item ids, if that has another name there.
        local_items: Whether an item's id means something only within its query: then it may
            have another label in another query, and each row counts as an item of its own.
        intersections: Audit the product of all columns as well.
        min_group: A group with fewer items than this is marked as small.
        baseline: Other rankings with the same columns: what changes from them.
        fail_if: Rules such as ``impact_ratio@10 < 0.8``, of one column
            ``sex:impact_ratio@10 < 0.8``; see `Audit.failed`.
        separator: What separates the fields of a CSV.
        seed: Of the resamples and the shuffles.
        progress: Is told what is being done, how many rows are and of how many; 0 of 0 where
            that is not known.

    Raises:
        InputError: A column is absent, a value missing, an item twice in a list or with two
            labels, all known labels the same, or a rule on what is not measured.

    Examples:
        >>> import polars as pl
        >>> rows = pl.DataFrame({"q": [1] * 4 + [2] * 4, "i": list("abcd") * 2})
        >>> rows = rows.with_columns(s=pl.Series([4, 3, 2, 1, 1, 4, 3, 2]))
        >>> rows = rows.with_columns(sex=pl.Series(list("mmff") * 2))
        >>> found = audit(rows, query="q", item="i", score="s", groups="sex", k=2)
        >>> round(found.to_dict()["columns"][0]["metrics"]["impact_ratio@2"]["value"], 4)
        0.2398
    """
    request = Request(
        columns=Columns(query, item, score, rank, relevance),
        groups=_several("groups", groups),
        items=items,
        items_item=item if items_item is None else items_item,
        local_items=local_items,
        intersections=intersections,
        ks=one_or_several_ks(k),
        separator=separator,
        seed=checked_whole("seed", seed, least=0, most=LARGEST_SEED),
    )
    for name, source in (("rankings", rankings), ("items", items), ("baseline", baseline)):
        if source is not None or name == "rankings":
            check_source(name, source)
    min_group = checked_whole("min_group", min_group, least=0)
    request.check()
    rules = [parsed_rule(text) for text in _several("fail_if", fail_if)]
    check_rules(rules, request.offer())
    record: dict[str, Any] = jsonable(
        _record(rankings, baseline, request, min_group, progress or _silent)
    )
    by_column = {column["name"]: column["metrics"] for column in record["columns"]}
    checks = applied(rules, record["metrics"], by_column)
    return Audit(
        {**record, "checks": [{**one, "note": check_note(one, record)} for one in checks]}
    )


def _record(
    rankings: Source,
    baseline: Source | None,
    request: Request,
    min_group: int,
    progress: Progress,
) -> dict[str, Any]:
    """Return all but the checks; both tables are read and checked before one is measured."""
    ks, seed = request.ks, request.seed
    progress(f"reading {name_of(rankings)}", 0, 0)
    now = labelled(rankings, request)
    if baseline is not None:
        progress(f"reading {name_of(baseline)}", 0, 0)
        before = labelled(baseline, request, like=now)
        pairing = paired(before, now)
    shuffles = shuffles_for(now.rankings)
    found = measure(now, ks, shuffles=shuffles, seed=seed, progress=progress)
    progress("resampling lists", 0, 0)
    record = _audited(found, request, min_group)
    if baseline is not None:
        old = measure(before, ks, shuffles=0, seed=seed, progress=progress)
        progress("comparing with the baseline", 0, 0)
        record["baseline"] = change_record(old, found, pairing, ks=ks, seed=seed)
        record["baseline"]["notes"] = baseline_notes(record)
    return record


def _audited(found: Findings, request: Request, min_group: int) -> dict[str, Any]:
    ks, means = request.ks, resampled_findings(found, seed=request.seed)
    left_out = () if found.rankings.scored else SOFTMAX
    if found.rankings.relevance is None:
        left_out = (*left_out, "ndcg")
    record: dict[str, Any] = {
        "fairtopk": version("fairtopk"),
        "data": data_record(found),
        "items_table": _items_record(request.items),
        "ks": list(ks),
        "seed": request.seed,
        "min_group": min_group,
        "metrics": lists_record(found, means, ks),
        "ties": ties_record(found.ties, ks, len(found.rankings.query_ids)),
        "columns": [
            column_record(found, one, means, ks=ks, min_group=min_group)
            for one in found.by_attribute
        ],
        "baseline": None,
        "definitions": {
            name: words for name, words in DEFINITIONS.items() if name not in left_out
        },
    }
    for column in record["columns"]:
        column["notes"] = column_notes(column, record)
    short = int((found.rankings.length <= ks[-1]).sum())
    return {**record, "notes": general_notes(record, short=short)}


def _items_record(items: OneSource | None) -> dict[str, Any] | None:
    if not isinstance(items, str | Path):
        return None
    return {"name": Path(items).name, "sha256": sha256_of(Path(items))}


def _silent(what: str, done: int, total: int) -> None:
    """Tell nobody."""


def _several(name: str, given: Any) -> list[str]:
    """Return one text, or several in a list, as a list."""
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise KindError(f"{name} must be text, or a list of texts, got {shown(given)}")
    return [given] if isinstance(given, str) else list(given)
