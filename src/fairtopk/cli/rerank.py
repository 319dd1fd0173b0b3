"""`fairtopk rerank`: put the lists of a table or a run into a fairer order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from fairtopk.cli.console import (
    SECONDS_BETWEEN_LINES,
    ProgressBar,
    as_separator,
    console,
    say,
)
from fairtopk.errors import InputError
from fairtopk.storage import check_target
from fairtopk.terminal import add_row, count, mean_cell, number, table

if TYPE_CHECKING:
    from fairtopk.metrics.chance import Floor
    from fairtopk.reranking.request import RerankRequest, Unmet
    from fairtopk.tensors import Values

ENDINGS = (".csv", ".parquet", ".pq")
NEEDED = ("query", "item", "groups", "k")  # of a table


def rerank(
    source: Annotated[
        Path, Argument(help="CSV or Parquet with a row per query and item; or a run's folder")
    ],
    method: Annotated[
        str,
        Option(
            help="fa-ir, det-greedy, det-cons, det-relaxed, det-const-sort, exposure-lp or "
            "group-bonus"
        ),
    ],
    k: Annotated[
        int | None, Option(help="length of the top; default for a run: the K it trained for")
    ] = None,
    out: Annotated[
        Path | None,
        Option(help="new .csv or .parquet; for a run: metrics file, default: in its folder"),
    ] = None,
    infeasible: Annotated[
        str, Option(help="lists that cannot meet the targets: refuse, or mark them")
    ] = "refuse",
    query: Annotated[str | None, Option(help="table: column of queries")] = None,
    item: Annotated[str | None, Option(help="table: column of items")] = None,
    groups: Annotated[
        str | None, Option(help="table: column of group labels; several are combined")
    ] = None,
    score: Annotated[str | None, Option(help="table: column of scores, or --rank")] = None,
    rank: Annotated[str | None, Option(help="table: column of ranks, 1 is best")] = None,
    relevance: Annotated[
        str | None, Option(help="table: column of relevance, for NDCG")
    ] = None,
    merit: Annotated[
        str | None, Option(help="table, exposure-lp: column of relevance to maximise")
    ] = None,
    items: Annotated[Path | None, Option(help="table of items with their labels")] = None,
    items_item: Annotated[
        str | None, Option(help="column of items in that table; default: --item")
    ] = None,
    local_items: Annotated[
        bool, Option("--local-items", help="table: item ids are only unique within a query")
    ] = False,
    separator: Annotated[
        str | None, Option(help="csv: separator of fields; default: ,")
    ] = None,
    csv_safe: Annotated[
        bool,
        Option("--csv-safe", help="table: quote text that a spreadsheet would run"),
    ] = False,
    protocol: Annotated[
        str | None, Option(help="run: sampled or full; default: its own")
    ] = None,
    part: Annotated[str | None, Option(help="run: test (default) or validation")] = None,
    data: Annotated[Path | None, Option(help="run: where its data is, if it moved")] = None,
    p: Annotated[
        float | None, Option(help="fa-ir: share of the group; default: in the list")
    ] = None,
    alpha: Annotated[
        float | None, Option(help="fa-ir: significance level; default: 0.1")
    ] = None,
    adjust: Annotated[
        str | None, Option(help="fa-ir: closest (default), conservative or none")
    ] = None,
    group: Annotated[
        str | None, Option(help="fa-ir, group-bonus: protected group; default: the smallest")
    ] = None,
    target: Annotated[
        list[str] | None, Option(help="det-*: 'women=0.4'; default: share of the list")
    ] = None,
    notion: Annotated[
        str | None, Option(help="exposure-lp: parity (default), treatment or impact")
    ] = None,
    slack: Annotated[
        float | None, Option(help="exposure-lp: allowed difference; default: 0")
    ] = None,
    seed: Annotated[
        int | None, Option(help="exposure-lp: seed of drawn rankings; default: 0")
    ] = None,
    bonus: Annotated[
        str | None, Option(help="group-bonus: added to scores; several for a run: 0.1,0.2")
    ] = None,
) -> None:
    """Put lists into a fairer order: post-processing, which needs labels when serving.

    A table holds all candidates of each list, not only its top. For a run, its test lists are
    re-ranked and measured as the run was, and `fairtopk report` shows both.

    Example: fairtopk rerank ranked.csv --method det-const-sort --query user --item film
    --score score --groups genre --k 10 --out fair.csv
    """
    from fairtopk.reranking.request import RerankRequest, shares_of

    of_table = {
        "query": query,
        "item": item,
        "groups": groups,
        "score": score,
        "rank": rank,
        "relevance": relevance,
        "merit": merit,
        "items": items,
        "items_item": items_item,
        "local_items": local_items or None,
        "separator": None if separator is None else as_separator(separator),
        "csv_safe": csv_safe or None,
    }
    of_run = {"protocol": protocol, "part": part, "data": data}
    of_method: dict[str, Any] = {
        "p": p,
        "alpha": alpha,
        "adjust": adjust,
        "group": group,
        "targets": shares_of(target) if target else None,
        "notion": notion,
        "slack": slack,
        "seed": seed,
    }
    options = {name: value for name, value in of_method.items() if value is not None}
    swept = [options | {"bonus": one} for one in _numbers(bonus)] if bonus else [options]
    requests = [RerankRequest(method, k, one, infeasible).checked() for one in swept]
    if source.is_dir():
        _refuse_given(of_table, "a table", "a run")
        _rerank_run(source, requests, of_run, out)
        return
    _refuse_given(of_run, "a run", "a table")
    if len(requests) > 1:
        raise InputError("a table takes one --bonus; several are for a run")
    _rerank_table(source, requests[0], of_table, out)


def _rerank_table(
    source: Path, request: "RerankRequest", given: Mapping[str, Any], out: Path | None
) -> None:
    from fairtopk.auditing.audit import AuditRequest
    from fairtopk.auditing.rankings import Columns
    from fairtopk.auditing.rerank import rerank_table, write_table
    from fairtopk.data.tables import check_csv_safe, guarded

    for name, value in (*given.items(), ("k", request.k)):
        if value is None and name in NEEDED:
            raise InputError(f"--{name} is missing: a table needs it (a run's folder does not)")
    assert request.k is not None
    if out is not None:
        _check_out(out, ENDINGS)
        check_csv_safe(bool(given["csv_safe"]), out)
    groups = [one.strip() for one in given["groups"].split(",")]
    columns = Columns(
        *(given[name] for name in ("query", "item", "score", "rank", "relevance"))
    )
    audited = AuditRequest(
        columns=columns,
        groups=groups,
        items=given["items"],
        items_item=given["items_item"] or given["item"],
        local_items=bool(given["local_items"]),
        intersections=len(groups) > 1,
        ks=(request.k,),
        separator="," if given["separator"] is None else given["separator"],
        seed=0,
    )
    with ProgressBar(pause=SECONDS_BETWEEN_LINES) as bar:
        found = rerank_table(source, audited, request, merit=given["merit"], progress=bar)
    unmet, group = found.order.unmet, found.attribute.group
    title = f"{source.name}: {unmet.total:,} lists re-ranked by {request.method}"
    _show_change(title, found.before, found.after, found.floors, audited.ks)
    if unmet.count:
        _say_unmet(unmet, unmet.words("query", found.rankings.query_ids))
    _say_conditions(request, found.attribute.names, f"{int((group < 0).sum()):,} rows")
    if out is not None:
        frame = found.frame(columns)
        write_table(guarded(frame) if given["csv_safe"] else frame, out)
        say(f"written to {out}; its column {columns.ordering()} follows the new order")


def _rerank_run(
    source: Path,
    requests: Sequence["RerankRequest"],
    given: Mapping[str, Any],
    out: Path | None,
) -> None:
    from fairtopk.metrics.names import lists_label
    from fairtopk.runs.measure import measure_run
    from fairtopk.runs.open import open_run

    if out is not None:
        if len(requests) > 1:
            raise InputError("--out is one file, but each bonus writes its own; leave it out")
        _check_out(out, (".json",))
    changes = {"protocol": given["protocol"]} if given["protocol"] is not None else {}
    run, part = open_run(source, changes, data=given["data"]), given["part"] or "test"
    data, own = run.user_lists.data, measure_run(run, part)
    for request in requests:
        with ProgressBar(pause=SECONDS_BETWEEN_LINES) as bar:
            found = measure_run(run, part, rerank=request, progress=bar)
        result, unmet = found.result, found.unmet
        assert unmet is not None
        title = f"{result['method']} on {lists_label({**result, 'users': None})}"
        if "bonus" in request.options:
            title += f", bonus {request.options['bonus']:g}"
        ks = run.config.evaluation.k
        _show_change(title, own.values, found.values, found.context.floors, ks)
        if unmet.count:
            _say_unmet(unmet, unmet.words("user", data.user_ids))
        path = out or source / found.name
        found.save(path)
        state = "" if result["finished"] else "; measured at the last checkpoint, not the end"
        say(f"written to {path}{state}")
    unknown = f"{int((data.group < 0).sum()):,} items"
    _say_conditions(requests[0], data.group_names, unknown)


def _show_change(
    title: str,
    before: Mapping[str, "Values"],
    after: Mapping[str, "Values"],
    floors: Mapping[str, "Floor"],
    ks: Sequence[int],
) -> None:
    """Print means over lists before and after, and of their difference.

    Args:
        title: Title of the table.
        before: Metrics of the old order by name, one value per list, ``[Q]``.
        after: The same of the new order.
        floors: Chance levels of the gaps of the new order, by name.
        ks: Lengths of the top.
    """
    from fairtopk.metrics.intervals import means_with_intervals
    from fairtopk.metrics.names import TABLE_ROWS

    columns = {
        f"{side} {name}": values
        for name in (f"{name}@{k}" for k in ks for name in TABLE_ROWS)
        if name in before
        for side, values in (
            ("before", before[name]),
            ("after", after[name]),
            ("change", after[name] - before[name]),
        )
    }
    means = means_with_intervals(columns)
    shown = table(
        f"{title} (mean ± half of a 95 % interval over lists)",
        *("", "K", "before", "after", "change"),
    )
    for k in ks:
        for name, label in TABLE_ROWS.items():
            key = f"{name}@{k}"
            if key in floors:
                add_row(shown, label, str(k), "", number(floors[key].value, digits=3), "")
            elif key in before:
                found = (means[f"{side} {key}"] for side in ("before", "after", "change"))
                cells = (mean_cell(one.mean, one.ci95) for one in found)
                add_row(shown, label, str(k), *cells)
        shown.add_section()
    console.print(shown)
    undefined = max(mean.undefined for mean in means.values())
    if undefined:
        say(f"up to {count(undefined, 'list')} excluded where a metric is undefined")


def _say_unmet(unmet: "Unmet", first: str) -> None:
    say(f"marked: {unmet.count:,} of {unmet.total:,} lists cannot meet the targets; {first}")


def _say_conditions(request: "RerankRequest", names: Sequence[str], unknown: str) -> None:
    """Say which group is meant, how many `unknown` are in none, and what serving needs."""
    from fairtopk.reranking.lists import FairPrefixes, GroupBonus
    from fairtopk.reranking.request import NEEDS_LABELS

    settings = request.settings(names)
    if isinstance(settings, FairPrefixes | GroupBonus):
        say(f"{request.method} protects {names[settings.group]!r} against all others")
    say(f"signed gap = {names[0]!r} minus the rest; negative: it is under-exposed")
    if not unknown.startswith("0 "):
        say(f"{unknown} have no label: they stay in the lists and belong to no group")
    say(f"{request.method} {NEEDS_LABELS}: they decide the order of every list")
    if request.method == "exposure-lp":
        say("each list is one draw from a random ranking; targets hold on average over draws")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--bonus takes numbers such as 0.1,0.2, got {text!r}") from None


def _refuse_given(given: Mapping[str, Any], wanted: str, got: str) -> None:
    for name, value in given.items():
        if value is not None:
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for {wanted}; leave it out for {got}")


def _check_out(out: Path, endings: Sequence[str]) -> None:
    if out.exists():
        raise InputError(f"--out {out} exists; choose a new file")
    check_target(out, endings=endings)
