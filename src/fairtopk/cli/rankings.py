"""`fairtopk audit` and `fairtopk rerank`: measure rankings, or put them into a fairer order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fairtopk.cli.console import SECONDS_BETWEEN_LINES, console, lengths, progress_bar, say
from fairtopk.errors import Exit, InputError
from fairtopk.terminal import add_row, count, mean_cell, number, table

if TYPE_CHECKING:
    import polars as pl

    from fairtopk.metrics.chance import Floor
    from fairtopk.reranking.request import RerankRequest, Unmet
    from fairtopk.tensors import Values

PAGE = "audit.html"
NEEDED = ("query", "item", "groups", "k")  # of a table that is re-ranked

Items = Annotated[Path | None, Option(help="table of items with their labels")]
ItemsItem = Annotated[str | None, Option(help="column of items in that table; default: --item")]
Text = str | None
Number = float | None


def audit(
    query: Annotated[str, Option(help="column with the query of each row")],
    item: Annotated[str, Option(help="column with the item of each row")],
    groups: Annotated[str, Option(help="columns with group labels, such as sex,region")],
    k: Annotated[str, Option(help="lengths of the top, such as 10,50")],
    files: Annotated[
        list[Path] | None,
        Argument(
            metavar="FILE...",
            help="CSV or Parquet with a row per query and item; several files, or a folder of "
            "Parquet files, are read as one table",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        Text, Option("--glob", help="instead of FILE: a pattern such as 'parts/*.parquet'")
    ] = None,
    score: Annotated[Text, Option(help="column of scores; either this or --rank")] = None,
    rank: Annotated[Text, Option(help="column of ranks, 1 is best")] = None,
    relevance: Annotated[Text, Option(help="column of relevance grades, for NDCG")] = None,
    items: Items = None,
    items_item: ItemsItem = None,
    local_items: Annotated[
        bool, Option("--local-items", help="item ids are only unique within a query")
    ] = False,
    intersections: Annotated[
        bool, Option("--intersections", help="also audit all columns combined")
    ] = False,
    min_group: Annotated[int, Option(help="mark groups with fewer items than this")] = 30,
    baseline: Annotated[Path | None, Option(help="other rankings to compare with")] = None,
    fail_if: Annotated[
        list[str] | None, Option(help="rule for exit code 1, such as 'impact_ratio@10 < 0.8'")
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            help="folder for audit.json and audit.html, which replace those of an earlier audit"
        ),
    ] = None,
    separator: Annotated[str, Option(help="csv: separator of fields")] = ",",
    seed: Annotated[int, Option(help="seed of resamples and shuffles")] = 0,
) -> None:
    """Measure the exposure of groups in the top K of rankings made elsewhere.

    FILE holds all candidates of each list, not only its top; its name is taken literally. The
    exit code is 1 if a rule of --fail-if holds.

    Example: fairtopk audit ranked.csv --query user --item film --score score --groups genre
    --k 10,50 --fail-if "impact_ratio@10 < 0.8" --out audits/first
    """
    from fairtopk.auditing.audit import AUDIT
    from fairtopk.auditing.audit import audit as audit_rankings
    from fairtopk.auditing.rankings import matching, name_of
    from fairtopk.reporting.page import audit_page
    from fairtopk.storage import check_target, together, write_text

    if (pattern is None) == (not files):
        raise InputError("give either the files to audit or a pattern with --glob")
    source = matching(pattern) if pattern is not None else files or []
    if out is not None:
        if out.is_file():
            raise InputError(f"--out {out} is a file; give a folder")
        for name in (AUDIT, PAGE):
            check_target(out / name, endings=(".json", ".html"))
    with progress_bar(pause=SECONDS_BETWEEN_LINES) as bar:
        found = audit_rankings(
            source,
            query=query,
            item=item,
            score=score,
            rank=rank,
            relevance=relevance,
            groups=[one.strip() for one in groups.split(",")],
            items=items,
            items_item=items_item,
            local_items=local_items,
            k=lengths(k),
            intersections=intersections,
            min_group=min_group,
            baseline=baseline,
            fail_if=fail_if or (),
            separator="\t" if separator == "\\t" else separator,  # as a shell hands over a tab
            seed=seed,
            progress=bar,
        )
    console.print(found.table())
    if out is not None:
        with together(out / PAGE) as folder:  # both or none
            found.save(folder)
            write_text(folder / PAGE, audit_page(found.to_dict()))
        say(f"written to {out / AUDIT} and {out / PAGE}")
    if found.failed:
        raise typer.Exit(Exit.MISSED)
    if found.unchecked:
        raise InputError(
            f"the rule {found.unchecked[0]!r} cannot be checked: its metric is undefined in "
            f"{name_of(source)}"
        )


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
    query: Annotated[Text, Option(help="table: column of queries")] = None,
    item: Annotated[Text, Option(help="table: column of items")] = None,
    groups: Annotated[
        Text, Option(help="table: column of group labels; several are combined")
    ] = None,
    score: Annotated[Text, Option(help="table: column of scores, or --rank")] = None,
    rank: Annotated[Text, Option(help="table: column of ranks, 1 is best")] = None,
    relevance: Annotated[Text, Option(help="table: column of relevance, for NDCG")] = None,
    merit: Annotated[
        Text, Option(help="table, exposure-lp: column of relevance to maximise")
    ] = None,
    items: Items = None,
    items_item: ItemsItem = None,
    local_items: Annotated[
        bool, Option("--local-items", help="table: item ids are only unique within a query")
    ] = False,
    separator: Annotated[Text, Option(help="csv: separator of fields; default: ,")] = None,
    csv_safe: Annotated[
        bool, Option("--csv-safe", help="table: quote text that a spreadsheet would run")
    ] = False,
    protocol: Annotated[Text, Option(help="run: sampled or full; default: its own")] = None,
    part: Annotated[Text, Option(help="run: test (default) or validation")] = None,
    data: Annotated[Path | None, Option(help="run: where its data is, if it moved")] = None,
    p: Annotated[Number, Option(help="fa-ir: share of the group; default: in the list")] = None,
    alpha: Annotated[Number, Option(help="fa-ir: significance level; default: 0.1")] = None,
    adjust: Annotated[
        Text, Option(help="fa-ir: closest (default), conservative or none")
    ] = None,
    group: Annotated[
        Text, Option(help="fa-ir, group-bonus: protected group; default: the smallest")
    ] = None,
    target: Annotated[
        list[str] | None, Option(help="det-*: 'women=0.4'; default: share of the list")
    ] = None,
    notion: Annotated[
        Text, Option(help="exposure-lp: parity (default), treatment or impact")
    ] = None,
    slack: Annotated[Number, Option(help="exposure-lp: allowed difference; default: 0")] = None,
    rounding: Annotated[
        Text, Option(help="det-*: of shares to floors: down (default) or random")
    ] = None,
    seed: Annotated[
        int | None, Option(help="det-*, exposure-lp: seed of what is drawn; default: 0")
    ] = None,
    bonus: Annotated[
        Text, Option(help="group-bonus: added to scores; several for a run: 0.1,0.2")
    ] = None,
) -> None:
    """Put lists into a fairer order: post-processing, which needs labels when serving.

    A table holds all candidates of each list, not only its top. For a run, its test lists are
    re-ranked and measured as the run was, and `fairtopk report` shows both.

    Example: fairtopk rerank ranked.csv --method det-const-sort --query user --item film
    --score score --groups genre --k 10 --out fair.csv
    """
    from fairtopk.reranking.request import RerankRequest
    from fairtopk.storage import check_target

    of_table: dict[str, Any] = {
        "query": query, "item": item, "groups": groups, "score": score, "rank": rank,
        "relevance": relevance, "merit": merit, "items": items, "items_item": items_item,
        "local_items": local_items or None,
        "separator": "\t" if separator == "\\t" else separator, "csv_safe": csv_safe or None,
    }  # fmt: skip
    of_run = {"protocol": protocol, "part": part, "data": data}
    of_method: dict[str, Any] = {
        "p": p, "alpha": alpha, "adjust": adjust, "group": group,
        "targets": _shares(target) if target else None,
        "rounding": rounding, "notion": notion, "slack": slack, "seed": seed,
    }  # fmt: skip
    options = {name: value for name, value in of_method.items() if value is not None}
    sweep = [options]
    if bonus:
        try:
            sweep = [options | {"bonus": float(one)} for one in bonus.split(",")]
        except ValueError:
            raise InputError(f"--bonus takes numbers such as 0.1,0.2, got {bonus!r}") from None
    requests = [RerankRequest(method, k, one, infeasible).checked() for one in sweep]

    is_run = source.is_dir()
    wanted, got = ("a table", "a run") if is_run else ("a run", "a table")
    for name, value in (of_table if is_run else of_run).items():
        if value is not None:
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for {wanted}; leave it out for {got}")
    if len(requests) > 1 and not is_run:
        raise InputError("a table takes one --bonus; several are for a run")
    if len(requests) > 1 and out is not None:
        raise InputError("--out is one file, but each bonus writes its own; leave it out")
    for name, value in {**of_table, "k": k}.items():
        if value is None and name in NEEDED and not is_run:
            raise InputError(f"--{name} is missing: a table needs it (a run's folder does not)")
    if out is not None:
        if out.exists():
            raise InputError(f"--out {out} exists; choose a new file")
        check_target(out, endings=(".json",) if is_run else (".csv", ".parquet", ".pq"))
    if is_run:
        _rerank_run(source, requests, of_run, out)
    else:
        _rerank_table(source, requests[0], of_table, out)


def _shares(targets: Sequence[str]) -> dict[str, float]:
    """Return the share of each group, from texts such as ``women=0.4``."""
    shares: dict[str, float] = {}
    for text in targets:
        name, _, share = text.rpartition("=")
        if name in shares:
            raise InputError(f"--target names {name!r} twice")
        try:
            shares[name] = float(share)
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"--target takes a group and its share, women=0.4, got {text!r}")
    return shares


def _rerank_table(
    source: Path, request: "RerankRequest", given: Mapping[str, Any], out: Path | None
) -> None:
    from fairtopk.auditing.audit import AuditRequest
    from fairtopk.auditing.rankings import Columns
    from fairtopk.auditing.rerank import rerank_table, write_table
    from fairtopk.data.tables import check_csv_safe, guarded
    from fairtopk.evaluation import wholly_in_top

    assert request.k is not None
    if out is not None:
        check_csv_safe(bool(given["csv_safe"]), out)
    groups = [one.strip() for one in given["groups"].split(",")]
    columns = Columns(*(given[name] for name in Columns._fields))
    audited = AuditRequest(
        columns=columns,
        groups=groups,
        items=given["items"],
        items_item=given["items_item"] or given["item"],
        local_items=bool(given["local_items"]),
        intersections=len(groups) > 1,
        ks=(request.k,),
        separator=given["separator"] or ",",
        seed=0,
    )
    with progress_bar(pause=SECONDS_BETWEEN_LINES) as bar:
        found = rerank_table(source, audited, request, merit=given["merit"], progress=bar)
    unmet, attribute = found.order.unmet, found.attribute
    title = f"{source.name}: {unmet.total:,} lists re-ranked by {request.method}"
    _show_change(title, found.before, found.after, found.floors, audited.ks)
    for sentence in wholly_in_top(found.rankings.length, audited.ks):
        say(f"warning: {sentence}")
    _say_unmet(unmet, "query", found.rankings.query_ids)
    _say_conditions(request, attribute.names, count(int((attribute.group < 0).sum()), "row"))
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

    changes = {"protocol": given["protocol"]} if given["protocol"] is not None else {}
    run, part = open_run(source, changes, data=given["data"]), given["part"] or "test"
    data, own = run.user_lists.data, measure_run(run, part)
    for request in requests:
        with progress_bar(pause=SECONDS_BETWEEN_LINES) as bar:
            found = measure_run(run, part, rerank=request, progress=bar)
        result, unmet = found.result, found.unmet
        assert unmet is not None
        title = f"{result['method']} on {lists_label({**result, 'users': None})}"
        if "bonus" in request.options:
            title += f", bonus {request.options['bonus']:g}"
        ks = run.config.evaluation.k
        _show_change(title, own.values, found.values, found.context.floors, ks)
        for warning in result["warnings"]:
            say(f"warning: {warning}")
        _say_unmet(unmet, "user", data.user_ids)
        path = out or source / found.name
        found.save(path)
        state = "" if result["finished"] else "; measured at the last checkpoint, not the end"
        say(f"written to {path}{state}")
    _say_conditions(requests[0], data.group_names, count(int((data.group < 0).sum()), "item"))


def _show_change(
    title: str,
    before: Mapping[str, "Values"],
    after: Mapping[str, "Values"],
    floors: Mapping[str, "Floor"],
    ks: Sequence[int],
) -> None:
    """Print means over lists before, after and of the difference; `floors` are those after."""
    from fairtopk.metrics.intervals import means_with_intervals
    from fairtopk.metrics.names import TABLE_ROWS

    keys = [key for key in (f"{name}@{k}" for k in ks for name in TABLE_ROWS) if key in before]
    columns = {f"before {key}": before[key] for key in keys}
    columns |= {f"after {key}": after[key] for key in keys}
    columns |= {f"change {key}": after[key] - before[key] for key in keys}
    means, sides = means_with_intervals(columns), ("before", "after", "change")
    shown = table(f"{title} (mean ± half of a 95 % interval over lists)", *("", "K", *sides))
    for k in ks:
        for name, label in TABLE_ROWS.items():
            key = f"{name}@{k}"
            if key in floors:
                add_row(shown, label, str(k), "", number(floors[key].value, digits=3), "")
            elif key in before:
                found = (means[f"{side} {key}"] for side in sides)
                add_row(shown, label, str(k), *(mean_cell(one.mean, one.ci95) for one in found))
        shown.add_section()
    console.print(shown)
    undefined = max(mean.undefined for mean in means.values())
    if undefined:
        say(f"up to {count(undefined, 'list')} excluded where a metric is undefined")


def _say_unmet(unmet: "Unmet", noun: str, ids: "pl.Series") -> None:
    if unmet.count:
        how_many = f"{unmet.count:,} of {unmet.total:,} lists cannot meet the targets"
        say(f"marked: {how_many}; {unmet.describe(noun, ids)}")


def _say_conditions(request: "RerankRequest", names: Sequence[str], unknown: str) -> None:
    """Say which group is protected, how many `unknown` are in none, and what serving needs."""
    from fairtopk.reranking.lists import FairPrefixes, GroupBonus
    from fairtopk.reranking.request import NEEDS_LABELS

    settings = request.settings(names)
    if isinstance(settings, FairPrefixes | GroupBonus):
        say(f"{request.method} protects {names[settings.group]!r} against all others")
    say(f"signed gap = {names[0]!r} minus the rest; negative: it is under-exposed")
    if not unknown.startswith("0 "):
        say(f"no label: {unknown}, kept in the lists but in no group")
    say(f"{request.method} {NEEDS_LABELS}: they decide the order of every list")
    if request.method == "exposure-lp":
        say("each list is one draw from a random ranking; targets hold on average over draws")
