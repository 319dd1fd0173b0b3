"""`ft.audit`: the exposure of groups in the top of rankings made elsewhere."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
from narwhals.typing import IntoDataFrame
from rich.console import Group

from fairtopk.auditing.baseline import change_record, paired
from fairtopk.auditing.measures import Findings, gaps_of, measure
from fairtopk.auditing.rankings import (
    PRODUCT,
    Attribute,
    Columns,
    Labelled,
    OneSource,
    Rankings,
    Source,
    attribute_of_items,
    attribute_of_rows,
    check_source,
    intersection,
    name_of,
    numbered_as,
    rankings_of,
    read_items,
    read_source,
    refuse_other_labels,
)
from fairtopk.auditing.records import (
    baseline_notes,
    check_note,
    column_notes,
    column_record,
    data_record,
    general_notes,
    lists_record,
    resampled_findings,
    ties_record,
)
from fairtopk.auditing.rules import Offer, applied, check_rules, parsed_rule
from fairtopk.auditing.terminal import terminal_tables
from fairtopk.checks import (
    checked_flag,
    checked_path,
    checked_text,
    checked_whole,
    one_or_several_ks,
)
from fairtopk.data.columns import Origin, check_names, require_column
from fairtopk.data.tables import check_separator
from fairtopk.errors import InputError, KindError
from fairtopk.metrics.chance import SHUFFLES
from fairtopk.metrics.gaps import NOTIONS
from fairtopk.metrics.names import SOFTMAX_GAPS, audit_definitions
from fairtopk.storage import jsonable, sha256_of, write_text
from fairtopk.terminal import Progress, shown

AUDIT = "audit.json"
LARGEST_SEED = 2**31
SHUFFLED_ROWS = 10**9  # of all shuffles of a column; these take some five seconds
ROWS_OF_A_LIST = 10  # rows that cost as much as a list
LEAST_SHUFFLES = 99
MOST_K = 100_000  # every place up to the largest K is counted
MOST_KS = 100


class AuditRequest(NamedTuple):
    """The arguments of `audit` that describe a table."""

    columns: Columns
    groups: list[str]
    items: OneSource | None
    items_item: str
    local_items: bool
    intersections: bool
    ks: tuple[int, ...]
    separator: str
    seed: int

    def check(self) -> None:
        """Refuse arguments that fit no table."""
        given, columns = self.groups, self.columns
        optional = {name: getattr(columns, name) for name in ("score", "rank", "relevance")}
        check_names({"query": columns.query, "item": columns.item}, optional)
        for name in given:
            checked_text("each of groups", name)
        check_names({}, {"items_item": self.items_item})
        check_separator(self.separator)
        checked_flag("local_items", self.local_items)
        checked_flag("intersections", self.intersections)
        if not given or len(set(given)) < len(given):
            raise InputError(f"groups must name columns, each once, got {', '.join(given)!r}")
        if len(self.ks) > MOST_KS or self.ks[-1] > MOST_K:
            raise InputError(
                f"k must be up to {MOST_KS} lengths of the top of up to {MOST_K:,} each, got "
                f"{len(self.ks):,} up to {shown(self.ks[-1])}"
            )
        if columns.query == columns.item:
            raise InputError(
                f"query and item both name the column {columns.query!r}; give two columns"
            )
        if columns.query in given:
            raise InputError(
                f"groups names {columns.query!r}, the column of queries: each list would have "
                f"one group, and there would be nothing to compare"
            )
        if self.intersections and len(given) < 2:
            raise InputError("intersections need two columns of groups or more, got one")
        if self.local_items and self.items is not None:
            raise InputError(
                "ids of local items are only unique within a query, so a table of items cannot "
                "label them; give one of the two"
            )
        self.columns.ordering()

    def offer(self) -> Offer:
        """Return the metrics, columns and K that rules may use."""
        measured = gaps_of(self.columns.score is not None)
        missing = [gap for gap in NOTIONS if gap not in measured]
        needs = dict.fromkeys(_forms(missing), "scores (--score)")
        if self.columns.relevance is None:
            needs["ndcg"] = "a column of relevance (--relevance)"
        product = [PRODUCT.join(self.groups)] if self.intersections else []
        return Offer(
            ks=self.ks,
            columns=[*self.groups, *product],
            of_lists=["ndcg"] if self.columns.relevance is not None else [],
            of_columns=["impact_ratio", "impact_ratio_p", *_forms(measured)],
            needs=needs,
        )


def labelled(source: Source, request: AuditRequest, like: Labelled | None = None) -> Labelled:
    """Return the lists of a table and their groups, numbered as in `like` if it is given."""
    of_items, origin = None, Origin()
    if request.items is not None:
        of_items, origin = read_items(
            request.items, request.items_item, separator=request.separator
        )
    there = _columns(of_items)
    own = [name for name in request.groups if name not in there]
    if of_items is not None and len(own) == len(request.groups):
        require_column(own[0], there, origin)
    columns = request.columns
    twice = [name for name in request.groups if name not in (*own, *columns.names())]
    table = read_source(source, columns, own, separator=request.separator, optional=twice)
    rankings = rankings_of(table, columns, local=request.local_items)
    attributes = [
        attribute_of_rows(rankings, name)
        if of_items is None or name in own
        else attribute_of_items(rankings, name, of_items, request.items_item, origin)
        for name in request.groups
    ]
    for attribute in attributes:
        if attribute.name in twice and attribute.name in table.frame.columns:
            refuse_other_labels(rankings, attribute, origin)
    rankings = replace(
        rankings, table=table._replace(frame=table.frame.drop(twice, strict=False))
    )
    if request.intersections:
        attributes.append(intersection(attributes))
    if like is not None:
        attributes = [
            _numbered_like(one, other)
            for one, other in zip(attributes, like.attributes, strict=True)
        ]
    return Labelled(rankings, attributes)


def shuffles_for(rankings: Rankings) -> int:
    """Return the number of shuffles for a p-value: fewer if there are many rows."""
    once = len(rankings.item) + ROWS_OF_A_LIST * len(rankings.query_ids)
    return max(LEAST_SHUFFLES, min(SHUFFLES, SHUFFLED_ROWS // once))


def _forms(gaps: Iterable[str]) -> list[str]:
    return [f"{gap}{form}" for gap in gaps for form in ("", "_signed", "_floor", "_p")]


def _numbered_like(one: Attribute, other: Attribute) -> Attribute:
    if not set(one.names) & set(other.names):
        raise InputError(
            f"the baseline has other labels of {one.name}, such as {one.names[0]!r}, than the "
            f"audited rankings, such as {other.names[0]!r}"
        )
    return numbered_as(one, other.names)


def _columns(table: IntoDataFrame | None) -> list[str]:
    return [] if table is None else nw.from_native(table, eager_only=True).columns


@dataclass(frozen=True, repr=False)
class Audit:
    """The findings of an audit.

    Attributes:
        record: The content of ``audit.json``; undefined is None.
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
        """Rules that could not be checked because their metric is undefined."""
        return [check["rule"] for check in self.record["checks"] if check["fired"] is None]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``audit.json``."""
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
    """Return the exposure of groups in the top of rankings, whatever made them.

    Lists are ordered by falling score or by rising rank; ties keep row order. A label that is
    missing is *unknown*: its row takes a position and belongs to no group.

    Args:
        rankings: CSV or Parquet file, several of them, a folder of Parquet files, or a frame,
            with a row per query and item: all candidates of each list, not only its top. A path
            is literal, never a pattern.
        query: Column of the lists' ids.
        item: Column of the items' ids.
        groups: Columns of labels, each audited by itself: in `items` if it has the column, else
            in `rankings`. If both have it the labels must agree.
        k: Lengths of the top.
        score: Column of scores; either this or `rank`.
        rank: Column of ranks; without scores there is no softmax exposure.
        relevance: Column of grades from 0, for NDCG.
        items: File or frame with a row per item and its labels.
        items_item: The column of item ids in `items`, if it has another name there.
        local_items: Whether item ids are only unique within a query: then an id may have
            another label in another query, and each row counts as an item of its own.
        intersections: Also audit all columns combined.
        min_group: A group with fewer items than this is marked as small.
        baseline: Other rankings with the same columns, to compare with.
        fail_if: Rules such as ``impact_ratio@10 < 0.8``, for one column
            ``sex:impact_ratio@10 < 0.8``; see `Audit.failed`.
        separator: Separator of the fields of a CSV.
        seed: Seed of the resamples and the shuffles.
        progress: Called with what is being done, how many rows are done and of how many; 0 of 0
            where that is not known.

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
    request = AuditRequest(
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
        _record(rankings, baseline, request, min_group, progress or (lambda *_: None))
    )
    by_column = {column["name"]: column["metrics"] for column in record["columns"]}
    checks = applied(rules, record["metrics"], by_column)
    return Audit(
        {**record, "checks": [{**one, "note": check_note(one, record)} for one in checks]}
    )


def _record(
    rankings: Source,
    baseline: Source | None,
    request: AuditRequest,
    min_group: int,
    progress: Progress,
) -> dict[str, Any]:
    """Return the record without the checks; both tables are read before one is measured."""
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


def _audited(found: Findings, request: AuditRequest, min_group: int) -> dict[str, Any]:
    ks, means = request.ks, resampled_findings(found, seed=request.seed)
    left_out = [] if found.rankings.scored else [*SOFTMAX_GAPS, "score_spread"]
    if found.rankings.relevance is None:
        left_out.append("ndcg")
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
        "definitions": audit_definitions(left_out),
    }
    for column in record["columns"]:
        column["notes"] = column_notes(column, record)
    short = int((found.rankings.length <= ks[-1]).sum())
    return {**record, "notes": general_notes(record, short=short)}


def _items_record(items: OneSource | None) -> dict[str, Any] | None:
    if not isinstance(items, str | Path):
        return None
    return {"name": Path(items).name, "sha256": sha256_of(Path(items))}


def _several(name: str, given: Any) -> list[str]:
    """Return one text, or several in a list, as a list."""
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise KindError(f"{name} must be text, or a list of texts, got {shown(given)}")
    return [given] if isinstance(given, str) else list(given)
