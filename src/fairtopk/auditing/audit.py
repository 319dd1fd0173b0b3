"""`ft.audit`: the exposure of groups in the top of rankings made elsewhere.

An audit can fail by a rule such as ``impact_ratio@10 < 0.8``, or for one column ``sex:...``. It
is read word by word and compared; nothing in it is ever run.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
from rich.console import Group

from fairtopk import checks
from fairtopk.auditing import rankings as reading
from fairtopk.auditing import records
from fairtopk.auditing.baseline import change_record, paired
from fairtopk.auditing.measures import BY_RANK, Compact, measure
from fairtopk.auditing.rankings import Columns, Labelled, OneSource, Source
from fairtopk.data.columns import as_polars, check_names, ratings_array, require_column
from fairtopk.data.tables import check_separator
from fairtopk.errors import InputError, KindError
from fairtopk.metrics.chance import SHUFFLES
from fairtopk.metrics.gaps import NOTIONS
from fairtopk.metrics.intervals import Key, Resampled
from fairtopk.metrics.names import AUDITED, SOFTMAX_GAPS, TERMS
from fairtopk.storage import jsonable, sha256_of, write_text
from fairtopk.terminal import Progress, shown

AUDIT = "audit.json"
LARGEST_SEED = 2**31
SHUFFLED_ROWS = 10**9  # of all shuffles of a column; these take some five seconds
ROWS_OF_A_LIST = 10  # rows that cost as much as a list
LEAST_SHUFFLES = 99
MOST_K = 100_000  # every place up to the largest K is counted
MOST_KS = 100
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CLOSE = 0.5  # of 1: how like another name is to be offered in its place
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
FORM = re.compile(
    r"\s*(?:(?P<column>\S.*?)\s*:\s*)??(?P<metric>[A-Za-z_]+)@(?P<k>[0-9]{1,9})"
    rf"\s*(?P<comparison><=|>=|<|>)\s*(?P<bound>{NUMBER})\s*"
)


class Rule(NamedTuple):
    """When an audit fails."""

    text: str  # as it was given
    column: str | None  # whose groups are meant; None: any column's
    metric: str  # such as `impact_ratio`
    k: int  # length of the top
    comparison: str  # one of `COMPARISONS`
    bound: float  # what the metric is compared with


def parsed_rule(text: str) -> Rule:
    """Return the rule that a text spells out."""
    found = FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None or not math.isfinite(float(found["bound"])):
        raise InputError(
            f"a rule is a metric@K, < <= > or >=, and a number, such as "
            f"'impact_ratio@10 < 0.8' or 'sex:impact_ratio@10 < 0.8', got {shown(text)}"
        )
    column, metric, comparison = found.group("column", "metric", "comparison")
    return Rule(text, column, metric, int(found["k"]), comparison, float(found["bound"]))


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
            checks.checked_text("each of groups", name)
        check_names({}, {"items_item": self.items_item})
        check_separator(self.separator)
        checks.checked_flag("local_items", self.local_items)
        checks.checked_flag("intersections", self.intersections)
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

    def check_rules(self, rules: Sequence[Rule]) -> None:
        """Refuse a rule on a metric, K or column that the audit does not have."""
        of_columns = ["impact_ratio", "impact_ratio_p"]
        needs: dict[str, str] = {}
        for gap in NOTIONS:
            forms = [f"{gap}{form}" for form in ("", "_signed", "_floor", "_p")]
            if self.columns.score is not None or gap in BY_RANK:
                of_columns += forms
            else:
                needs |= dict.fromkeys(forms, "scores (--score)")
        if self.columns.relevance is None:
            needs["ndcg"] = "a column of relevance (--relevance)"
        known = of_columns if "ndcg" in needs else ["ndcg", *of_columns]
        product = [reading.PRODUCT.join(self.groups)] if self.intersections else []
        columns, ks = [*self.groups, *product], ", ".join(map(str, self.ks))
        for rule in rules:
            said = f"the rule {rule.text!r}"
            if rule.column is not None and rule.column not in columns:
                raise InputError(
                    f"{said} names column {rule.column!r}: the columns are {', '.join(columns)}"
                )
            if rule.metric in needs:
                raise InputError(f"{said}: {rule.metric} needs {needs[rule.metric]}")
            if rule.metric not in known:
                named = [*known, *needs]
                close = get_close_matches(rule.metric.lower(), named, cutoff=CLOSE)
                # Each gap has forms, which the page on audits lists.
                there = close or [
                    name for name in ("ndcg", "impact_ratio", *NOTIONS) if name in known
                ]
                raise InputError(
                    f"{said}: no metric is called {rule.metric!r}; there is {', '.join(there)}"
                )
            if rule.column is not None and rule.metric == "ndcg":
                raise InputError(
                    f"{said}: ndcg is of whole lists, whatever their groups; leave out "
                    f"{rule.column + ':'!r}"
                )
            if rule.k not in self.ks:
                raise InputError(f"{said}: K is {ks}, no @{rule.k}; add {rule.k} to --k")


def labelled(
    source: Source,
    request: AuditRequest,
    *,
    like: Labelled | None = None,
    merit: str | None = None,
) -> Labelled:
    """Return the lists of a table and their groups, numbered as those of `like` if it is given.

    `merit` is a column of numbers that is read as well.
    """
    columns, items, item = request.columns, request.items, request.items_item
    origin = reading.ITEMS
    if isinstance(items, str | Path):
        items, origin = reading.read_file(Path(items), [item], [], request.separator)
    elif items is not None:
        as_polars(items, [item], origin)  # refuses one without ids
    there = [] if items is None else nw.from_native(items, eager_only=True).columns
    own = [name for name in request.groups if name not in there]
    if items is not None and len(own) == len(request.groups):
        require_column(own[0], there, origin)
    twice = [name for name in request.groups if name not in (*own, *columns.names())]
    needed = own if merit is None else [*own, merit]
    table = reading.read_source(
        source, columns, needed, separator=request.separator, optional=twice
    )
    rankings = reading.rankings_of(table, columns, local=request.local_items)
    attributes = []
    for name in request.groups:
        if items is None or name in own:
            attribute = reading.attribute_of_rows(rankings, name)
        else:
            compare = name in twice and name in table.frame.columns
            attribute = reading.attribute_of_items(
                rankings, name, items, item, origin=origin, compare=compare
            )
        attributes.append(attribute)
    if request.intersections:
        attributes.append(reading.intersection(attributes))
    if like is not None:
        for number, (one, other) in enumerate(zip(attributes, like.attributes, strict=True)):
            if not set(one.names) & set(other.names):
                raise InputError(
                    f"the baseline has other labels of {one.name}, such as {one.names[0]!r}, "
                    f"than the audited rankings, such as {other.names[0]!r}"
                )
            attributes[number] = reading.numbered_as(one, other.names)
    worth = None
    if merit is not None:
        worth = ratings_array(table.frame[merit], reading.EVERYTHING, table.origin)
        worth = worth if rankings.row is None else worth[rankings.row]
    kept = [name for name in table.frame.columns if name in (*columns.names(), *own)]
    table = table._replace(frame=table.frame.select(kept))
    return Labelled(replace(rankings, table=table), attributes, worth)


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
        return records.terminal_tables(self.record)

    def save(self, folder: str | Path) -> Path:
        """Write ``audit.json`` into a folder, all or nothing, and return its path."""
        path = checks.checked_path("folder", folder) / AUDIT
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
        ks=checks.one_or_several_ks(k),
        separator=separator,
        seed=checks.checked_whole("seed", seed, least=0, most=LARGEST_SEED),
    )
    for name, source in (("rankings", rankings), ("items", items), ("baseline", baseline)):
        if source is not None or name == "rankings":
            reading.check_source(name, source)
    min_group = checks.checked_whole("min_group", min_group, least=0)
    request.check()
    rules = [parsed_rule(text) for text in _several("fail_if", fail_if)]
    request.check_rules(rules)
    record: dict[str, Any] = jsonable(
        _record(rankings, baseline, request, min_group, progress or (lambda *_: None))
    )
    return Audit({**record, "checks": checks_record(rules, record)})


def _record(
    source: Source,
    baseline: Source | None,
    request: AuditRequest,
    min_group: int,
    progress: Progress,
) -> dict[str, Any]:
    """Return the record without the checks; both tables are read before one is measured."""
    ks, seed, items = request.ks, request.seed, request.items
    progress(f"reading {reading.name_of(source)}", 0, 0)
    now = labelled(source, request)
    if baseline is not None:
        progress(f"reading {reading.name_of(baseline)}", 0, 0)
        before = labelled(baseline, request, like=now)
        common = paired(before, now)
    rankings = now.rankings
    cost = len(rankings.item) + ROWS_OF_A_LIST * len(rankings.query_ids)
    shuffles = max(LEAST_SHUFFLES, min(SHUFFLES, SHUFFLED_ROWS // cost))
    found = measure(now, ks, shuffles=shuffles, seed=seed, progress=progress)
    progress("resampling lists", 0, 0)
    columns: dict[Key, Compact] = {(name,): values for name, values in found.lists.items()}
    for one in found.by_attribute:
        columns |= {(one.attribute.name, gap): values for gap, values in one.gaps.items()}
        for share, values in one.shares.items():
            for place, group in enumerate(one.attribute.names):
                columns[one.attribute.name, share, group] = values[:, place]
    means = Resampled(columns, seed=seed)
    metrics = {name: means.mean((name,))._asdict() for name in found.lists}
    if found.relevance_ties is not None:
        records.add_ties(metrics, found.relevance_ties, ks)
    left_out = [] if rankings.scored else [*SOFTMAX_GAPS, "score_spread"]
    if rankings.relevance is None:
        left_out.append("ndcg")
    of_items = None
    if isinstance(items, str | Path):
        of_items = {"name": Path(items).name, "sha256": sha256_of(Path(items))}
    record: dict[str, Any] = {
        "fairtopk": version("fairtopk"),
        "data": records.data_record(found),
        "items_table": of_items,
        "ks": list(ks),
        "seed": seed,
        "min_group": min_group,
        "metrics": metrics,
        "ties": records.ties_record(found.ties, ks, len(rankings.query_ids)),
        "columns": [
            records.column_record(found, one, means, ks=ks, min_group=min_group)
            for one in found.by_attribute
        ],
        "baseline": None,
        "definitions": {
            name: TERMS[name].definition for name in AUDITED if name not in left_out
        },
    }
    for column in record["columns"]:
        column["notes"] = records.column_notes(column, record)
    short = int((rankings.length <= ks[-1]).sum())
    record["notes"] = records.general_notes(record, short=short)
    if baseline is not None:
        old = measure(before, ks, shuffles=0, seed=seed, progress=progress)
        progress("comparing with the baseline", 0, 0)
        record["baseline"] = change_record(old, found, common, ks=ks, seed=seed)
        record["baseline"]["notes"] = records.baseline_notes(record)
    return record


def checks_record(rules: Sequence[Rule], record: records.Record) -> list[dict[str, Any]]:
    """Return a record of each rule and each value that it is on.

    `fired` says whether the rule holds, and the audit fails; None where the value is undefined.
    `tied` are the lists in which equal scores leave the value to the order of rows, and
    `tied_at_cut` those of them in which they leave to it who is in the top.
    """
    found = []
    for rule in rules:
        metric, holds = f"{rule.metric}@{rule.k}", COMPARISONS[rule.comparison]
        parts = [(column["name"], column["metrics"]) for column in record["columns"]]
        for column, metrics in (*parts, (None, record["metrics"])):
            if metric not in metrics or rule.column not in (None, column):
                continue
            cell = metrics[metric]
            value = cell.get("mean", cell.get("value"))
            tied, at_cut = cell["tied"], cell["tied_at_cut"]
            note = None
            if tied:
                note = (
                    f"{records.row_order(record)} {metric} in {records.of_lists(tied, record)}"
                )
                note += f", and in {at_cut:,} of them who is in the top" if at_cut else ""
            found.append(
                {
                    "rule": rule.text,
                    "column": column,
                    "metric": metric,
                    "value": value,
                    "fired": holds(value, rule.bound) if value is not None else None,
                    "tied": tied,
                    "tied_at_cut": at_cut,
                    "note": note,
                }
            )
    return found


def _several(name: str, given: Any) -> list[str]:
    """Return one text, or several in a list, as a list."""
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise KindError(f"{name} must be text, or a list of texts, got {shown(given)}")
    return [given] if isinstance(given, str) else list(given)
