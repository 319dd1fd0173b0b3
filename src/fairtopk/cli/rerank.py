"""What `fairtopk rerank` prints.

`fairtopk rerank`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fairtopk.cli.console import console, say
from fairtopk.terminal import add_row, table

if TYPE_CHECKING:
    from fairtopk.metrics.chance import Floor
    from fairtopk.metrics.intervals import Mean
    from fairtopk.reranking.request import Asked, Unmet
    from fairtopk.tensors import Values
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from fairtopk.cli.audit import _progress as row_progress
from fairtopk.errors import InputError

if TYPE_CHECKING:
    from fairtopk.reranking.request import Asked


def show_change(
    title: str,
    before: Mapping[str, "Values"],
    after: Mapping[str, "Values"],
    floors: Mapping[str, "Floor"],
    ks: Sequence[int],
) -> None:
    """Print means over lists before and after, and of their difference.

    Args:
        title: Of the table.
        before: Metrics of the old order by name, one value per list, ``[Q]``.
        after: The same of the new order.
        floors: What chance leaves of its gaps, by name.
        ks: Where the metrics are cut.
    """
    from fairtopk.metrics.intervals import means_with_intervals
    from fairtopk.metrics.names import SHOWN

    shown = table(
        f"{title} (mean, half of a 95 % interval over lists)",
        *("", "K", "before", "after", "change"),
    )
    names = [f"{name}@{k}" for k in ks for name in SHOWN if f"{name}@{k}" in before]
    sides = {"before": before, "after": after}
    columns = {(side, name): sides[side][name] for side in sides for name in names}
    columns |= {("change", name): after[name] - before[name] for name in names}
    means = means_with_intervals({" ".join(key): values for key, values in columns.items()})
    for k in ks:
        for name, words in SHOWN.items():
            key = f"{name}@{k}"
            if key in floors:
                add_row(shown, words, str(k), "", f"{floors[key].value:.3g}", "")
            elif key in before:
                cells = (_cell(means[f"{side} {key}"]) for side in (*sides, "change"))
                add_row(shown, words, str(k), *cells)
        shown.add_section()
    console.print(shown)
    undefined = max(mean.undefined for mean in means.values())
    if undefined:
        say(f"up to {undefined:,} lists excluded where a metric is undefined")


def say_unmet(unmet: "Unmet", first: str) -> None:
    """Tell how many lists are marked, and why the first is."""
    say(f"marked: {unmet.count:,} of {unmet.total:,} lists cannot meet the targets; {first}")


def say_groups(asked: "Asked", names: Sequence[str], unknown: int, what: str) -> None:
    """Tell which group a re-ranker and signed gaps are about, and what is in no group.

    Args:
        asked: Of the re-ranker.
        names: Of the groups, by number.
        unknown: How many are in no group.
        what: Are counted: "rows" or "items".
    """
    from fairtopk.reranking.lists import FairPrefixes, GroupBonus

    settings = asked.settings(names)
    if isinstance(settings, FairPrefixes | GroupBonus):
        say(f"{asked.method} is for {names[settings.group]!r} against all others")
    say(f"signed gap = {names[0]!r} minus the rest; negative: it is under-exposed")
    if unknown:
        say(f"{unknown:,} {what} have no label: they stay, and nothing is asked for them")


def say_conditions(method: str) -> None:
    """Tell what must be there when a re-ranker serves."""
    from fairtopk.reranking.request import NEEDS_LABELS

    say(f"{method} {NEEDS_LABELS}: they decide the order of every list")
    if method == "exposure-lp":
        say("each list is one draw of a random ranking; its groups get the same on average")


def _cell(found: "Mean") -> str:
    if not found.n:
        return "undefined"
    low, high = found.ci95
    return f"{found.mean:.3g} ±{(high - low) / 2:.1g}"


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
        int | None, Option(help="length of the top; of a run, default: what it trained for")
    ] = None,
    out: Annotated[
        Path | None,
        Option(help="new .csv or .parquet; of a run, file for metrics, default: in its folder"),
    ] = None,
    infeasible: Annotated[
        str, Option(help="lists that cannot have what is asked for: refuse, or mark them")
    ] = "refuse",
    query: Annotated[str | None, Option(help="table: column of queries")] = None,
    item: Annotated[str | None, Option(help="table: column of items")] = None,
    groups: Annotated[
        str | None, Option(help="table: column of labels; of several their product")
    ] = None,
    score: Annotated[str | None, Option(help="table: column of scores, or else --rank")] = None,
    rank: Annotated[str | None, Option(help="table: column of ranks, 1 is best")] = None,
    relevance: Annotated[str | None, Option(help="table: column of grades, for NDCG")] = None,
    merit: Annotated[
        str | None, Option(help="table, exposure-lp: column of relevance to maximise")
    ] = None,
    items: Annotated[Path | None, Option(help="table of items that has the labels")] = None,
    items_item: Annotated[
        str | None, Option(help="its column of items; default: --item")
    ] = None,
    local_items: Annotated[
        bool, Option("--local-items", help="table: an id names another item in each query")
    ] = False,
    separator: Annotated[str | None, Option(help="csv: what separates fields; ,")] = None,
    csv_safe: Annotated[
        bool,
        Option("--csv-safe", help="table: an apostrophe before text that a sheet would run"),
    ] = False,
    protocol: Annotated[str | None, Option(help="run: sampled or full; the run's")] = None,
    part: Annotated[str | None, Option(help="run: test or validation; test")] = None,
    data: Annotated[Path | None, Option(help="run: where its data is, if it moved")] = None,
    p: Annotated[
        float | None, Option(help="fa-ir: share of the group; its share of the list")
    ] = None,
    alpha: Annotated[float | None, Option(help="fa-ir: how often chance may fail; 0.1")] = None,
    adjust: Annotated[
        str | None, Option(help="fa-ir: closest, conservative or none; closest")
    ] = None,
    group: Annotated[
        str | None, Option(help="fa-ir, group-bonus: which group; the smallest, or the named")
    ] = None,
    target: Annotated[
        list[str] | None, Option(help="det-*: 'women=0.4'; each group's share of the list")
    ] = None,
    notion: Annotated[
        str | None, Option(help="exposure-lp: parity, treatment or impact; parity")
    ] = None,
    slack: Annotated[float | None, Option(help="exposure-lp: allowed difference; 0")] = None,
    seed: Annotated[int | None, Option(help="exposure-lp: of the rankings drawn; 0")] = None,
    bonus: Annotated[
        str | None, Option(help="group-bonus: added to scores; for a run several, 0.1,0.2")
    ] = None,
) -> None:
    """Put lists into a fairer order: post-processing, which needs labels when it serves.

    A table holds all candidates of each list, not only its top. Of a run, the test lists are
    re-ranked and measured as the run was, for `fairtopk report` to show beside it.

    Example: fairtopk rerank ranked.csv --method det-const-sort --query user --item film
    --score score --groups genre --k 10 --out fair.csv
    """
    from fairtopk.reranking.request import Asked, shares_of

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
        "separator": separator,
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
    asked = [Asked(method, k, one, infeasible).checked() for one in swept]
    if source.is_dir():
        _refuse_given(of_table, "a table", "a run")
        _rerank_run(source, asked, of_run, out)
        return
    _refuse_given(of_run, "a run", "a table")
    if len(asked) > 1:
        raise InputError("a table takes one --bonus; several are for a run")
    _rerank_table(source, asked[0], of_table, out)


def _rerank_table(
    source: Path, asked: "Asked", given: Mapping[str, Any], out: Path | None
) -> None:
    from fairtopk.auditing.audit import Request
    from fairtopk.auditing.rankings import Columns
    from fairtopk.auditing.rerank import rerank_table, write_table
    from fairtopk.data.tables import check_csv_safe, guarded

    for name, value in (*given.items(), ("k", asked.k)):
        if value is None and name in NEEDED:
            raise InputError(f"--{name} is missing: a table needs it (a run's folder does not)")
    assert asked.k is not None
    if out is not None:
        _check_out(out, ENDINGS)
        check_csv_safe(bool(given["csv_safe"]), out)
    names = [one.strip() for one in given["groups"].split(",")]
    columns = Columns(
        *(given[name] for name in ("query", "item", "score", "rank", "relevance"))
    )
    separator = "," if given["separator"] is None else given["separator"]
    request = Request(
        columns=columns,
        groups=names,
        items=given["items"],
        items_item=given["items_item"] or given["item"],
        local_items=bool(given["local_items"]),
        intersections=len(names) > 1,
        ks=(asked.k,),
        separator="\t" if separator == "\\t" else separator,  # as a shell hands it over
        seed=0,
    )
    with row_progress() as told:
        found = rerank_table(source, request, asked, merit=given["merit"], progress=told)
    unmet = found.order.unmet
    title = f"{source.name}: {unmet.total:,} lists re-ranked by {asked.method}"
    show_change(title, found.before, found.after, found.floors, request.ks)
    if unmet.count:
        say_unmet(unmet, unmet.words("query", found.rankings.query_ids))
    group = found.attribute.group
    say_groups(asked, found.attribute.names, int((group < 0).sum()), "rows")
    say_conditions(asked.method)
    if out is not None:
        frame = found.frame(columns)
        write_table(guarded(frame) if given["csv_safe"] else frame, out)
        say(f"written to {out}; {columns.ordering()} is that of the new order")


def _rerank_run(
    source: Path, asked: Sequence["Asked"], given: Mapping[str, Any], out: Path | None
) -> None:
    from fairtopk.runs.rerank import open_run, rerank_run, result_name
    from fairtopk.runs.result import write_result

    if out is not None:
        if len(asked) > 1:
            raise InputError("--out is one file, and several bonuses need one each; leave it")
        _check_out(out, (".json",))
    changes = {"protocol": given["protocol"]} if given["protocol"] is not None else {}
    run = open_run(source, changes, part=given["part"] or "test", data=given["data"])
    for one in asked:
        with row_progress() as told:
            found = rerank_run(run, one, progress=told)
        result, queries, identity = found.measured
        title = (
            f"{result['method']} on {result['data']}, {run.part}, {result['protocol']} lists"
        )
        if "bonus" in one.options:
            title += f", bonus {one.options['bonus']:g}"
        beside = found.found.beside
        floors = beside.floors if beside is not None else {}
        show_change(title, run.own.values, found.found.values, floors, run.config.evaluation.k)
        if found.unmet.count:
            say_unmet(found.unmet, found.unmet.words("user", run.lists.data.user_ids))
        path = out or source / result_name(result)
        write_result(path, result, queries, identity)
        state = "" if result["finished"] else "; figures of the last checkpoint, not the end"
        say(f"written to {path}{state}")
    data_set = run.lists.data
    say_groups(asked[0], data_set.group_names, int((data_set.group < 0).sum()), "items")
    say_conditions(asked[0].method)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--bonus takes numbers such as 0.1,0.2, got {text!r}") from None


def _refuse_given(given: Mapping[str, Any], wanted: str, got: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"--{name.replace('_', '-')} is for {wanted}; leave it out of {got}"
            )


def _check_out(out: Path, endings: Sequence[str]) -> None:
    """Refuse a file that cannot be written, before there is something to write."""
    if out.suffix.lower() not in endings:
        raise InputError(f"--out {out} must end in {' or '.join(endings)}")
    if out.exists():
        raise InputError(f"--out {out} exists; choose a new file")
    above = next(folder for folder in out.absolute().parents if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise InputError(f"--out {out} cannot be written to: {above}: {what}") from error
