"""`audit`: who gets what in rankings made elsewhere, and how surely."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from narwhals.typing import IntoDataFrame
from rich.console import Group

from fairtopk.auditing.attributes import PRODUCT
from fairtopk.auditing.changes import change_record
from fairtopk.auditing.definitions import DEFINITIONS, SOFTMAX
from fairtopk.auditing.measures import Findings, gaps_of
from fairtopk.auditing.rankings import Columns, sha256_of
from fairtopk.auditing.records import (
    column_record,
    data_record,
    jsonable,
    lists_record,
    resampled_findings,
)
from fairtopk.auditing.requests import Request, findings
from fairtopk.auditing.rules import applied, check_rules, parsed_rule
from fairtopk.auditing.tables import terminal_tables
from fairtopk.data.files import write_text
from fairtopk.errors import InputError
from fairtopk.metrics.inputs import checked_ks, checked_whole

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
        path = Path(folder) / AUDIT
        write_text(path, json.dumps(self.record, indent=2, allow_nan=False) + "\n")
        return path


def audit(
    rankings: IntoDataFrame | str | Path,
    *,
    query: str,
    item: str,
    groups: str | Sequence[str],
    k: int | Sequence[int],
    score: str | None = None,
    rank: str | None = None,
    relevance: str | None = None,
    items: IntoDataFrame | str | Path | None = None,
    items_item: str | None = None,
    intersections: bool = False,
    min_group: int = 30,
    baseline: IntoDataFrame | str | Path | None = None,
    fail_if: str | Sequence[str] = (),
    separator: str = ",",
    seed: int = 0,
) -> Audit:
    """Return who gets what in the top of rankings, whatever made them.

    Lists are ordered by falling score or by rising rank; of equals the earlier row is first. A
    label that is missing is *unknown*: its row takes a place, and is in no group.

    Args:
        rankings: CSV or Parquet file, or a frame, with a row per query and item: all
            candidates of each list, not only its top.
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
        intersections: Audit the product of all columns as well.
        min_group: A group with fewer items than this is marked as small.
        baseline: Other rankings with the same columns: what changes from them.
        fail_if: Rules such as ``impact_ratio@10 < 0.8``, of one column
            ``sex:impact_ratio@10 < 0.8``; see `Audit.failed`.
        separator: What separates the fields of a CSV.
        seed: Of the resamples and the shuffles.

    Raises:
        InputError: A column is absent, a value missing, an item twice in a list, all known
            labels the same, or a rule on what is not measured.

    Example:
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
        groups=[groups] if isinstance(groups, str) else list(groups),
        items=items,
        items_item=items_item or item,
        intersections=intersections,
        ks=checked_ks([k] if isinstance(k, int) else k),
        separator=separator,
        seed=checked_whole("seed", seed, least=0, most=LARGEST_SEED),
    )
    min_group = checked_whole("min_group", min_group, least=0)
    _check(request)
    rules = [parsed_rule(text) for text in ([fail_if] if isinstance(fail_if, str) else fail_if)]
    check_rules(rules, *_names(request))
    found = findings(rankings, request)
    record = _record(found, request, min_group)
    if baseline is not None:
        before = findings(baseline, request, like=found)
        record["baseline"] = change_record(before, found, ks=request.ks, seed=request.seed)
    plain: dict[str, Any] = jsonable(record)
    by_column = {column["name"]: column["metrics"] for column in plain["columns"]}
    return Audit({**plain, "checks": applied(rules, plain["metrics"], by_column)})


def _check(request: Request) -> None:
    given = request.groups
    if not given or len(set(given)) < len(given):
        raise InputError(f"groups must name columns, each once, got {', '.join(given)!r}")
    if request.intersections and len(given) < 2:
        raise InputError("intersections need two columns of groups or more, got one")
    request.columns.ordering()


def _record(found: Findings, request: Request, min_group: int) -> dict[str, Any]:
    means = resampled_findings(found, seed=request.seed)
    left_out = () if found.rankings.scored else SOFTMAX
    if found.rankings.relevance is None:
        left_out = (*left_out, "ndcg")
    return {
        "fairtopk": version("fairtopk"),
        "data": data_record(found),
        "items_table": _items_record(request.items),
        "ks": list(request.ks),
        "seed": request.seed,
        "min_group": min_group,
        "metrics": lists_record(found, means),
        "columns": [
            column_record(found, one, means, ks=request.ks, min_group=min_group)
            for one in found.by_attribute
        ],
        "baseline": None,
        "notes": _notes(found, request),
        "definitions": {
            name: words for name, words in DEFINITIONS.items() if name not in left_out
        },
    }


def _names(request: Request) -> tuple[list[str], dict[str, list[str]]]:
    """Return the metrics that rules may be on: of lists, and of each column."""
    of_lists = [f"ndcg@{k}" for k in request.ks if request.columns.relevance is not None]
    gaps = gaps_of(request.columns.score is not None)
    forms = [f"{gap}{form}" for gap in gaps for form in ("", "_signed", "_floor", "_p")]
    names = ("impact_ratio", "impact_ratio_p", *forms)
    metrics = [f"{name}@{k}" for name in names for k in request.ks]
    columns = list(request.groups)
    if request.intersections:
        columns.append(PRODUCT.join(request.groups))
    return of_lists, dict.fromkeys(columns, metrics)


def _items_record(items: IntoDataFrame | str | Path | None) -> dict[str, Any] | None:
    if not isinstance(items, str | Path):
        return None
    return {"name": Path(items).name, "sha256": sha256_of(Path(items))}


def _notes(found: Findings, request: Request) -> list[str]:
    notes = []
    if not found.rankings.scored:
        notes.append(
            "exposure_gap and exposure_gap_released are left out: they take the softmax of "
            "scores, and there are only ranks"
        )
    length, k = found.rankings.length, request.ks[-1]
    if found.tied:
        what = "scores" if found.rankings.scored else "ranks"
        notes.append(
            f"lists with equal {what} in their first {k} places: {found.tied:,}; of equals the "
            f"earlier row is first"
        )
    short = int((length <= k).sum())
    if short:
        notes.append(
            f"lists with at most {k} items, all of which are in the top {k}: {short:,}; give "
            f"all candidates of a list, not only its top"
        )
    return notes
