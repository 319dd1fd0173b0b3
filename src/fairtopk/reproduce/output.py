"""The paper's experiments from end to end: data, runs, figures, tables, one page.

Runs are in ``runs``, where `fairtopk report` can read them too; everything else in the folder
is made from them, and made again at every call.
"""

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import polars as pl
from pydantic import TypeAdapter

from fairtopk import __version__
from fairtopk.metrics.names import PAGE_DEFINITIONS
from fairtopk.reporting.figures import STYLE, save
from fairtopk.reporting.page import rendered
from fairtopk.reporting.results import Result, Sweep, collect, with_reranked
from fairtopk.reporting.tables import latex_table
from fairtopk.reproduce import figures, tables, tradeoffs
from fairtopk.reproduce.figures import Drawn
from fairtopk.reproduce.plan import FULL, QUICK, Extent, PaperData, find_data, paper_cells
from fairtopk.reproduce.tables import PaperTable
from fairtopk.reproduce.views import Facts, PaperView, folder, paper_view
from fairtopk.reranking.request import NEEDS_LABELS
from fairtopk.runs.config import DataConfig
from fairtopk.runs.config_file import load_config
from fairtopk.runs.grid import Cell
from fairtopk.runs.open import cached_loader
from fairtopk.runs.result import CONFIG, FAILURES, METRICS, Owner, read_result
from fairtopk.runs.sweep import Event, run_sweep
from fairtopk.storage import read_text, replacing, write_text

RUNS, PAGE = "runs", "index.html"
FAILED = TypeAdapter(dict[str, str])  # runs and why they failed
NAMED = 20  # unfinished runs that are listed one by one; more are counted
PAPER_DATA = ("MovieLens-20M-H", "MovieLens-20M-D", "Netflix-20M")
MARKDOWN = str.maketrans({"|": r"\|", "*": r"\*", "<": r"\<"})


class Plan(NamedTuple):
    """What there is to do."""

    found: list[PaperData]  # the data at hand
    extent: Extent  # how much is done with it
    cells: list[Cell]  # the runs


def plan(data: Path | None, *, quick: bool) -> Plan:
    """Return the runs of all experiments on the data in a folder."""
    found, extent = find_data(data, quick=quick), QUICK if quick else FULL
    return Plan(found, extent, paper_cells(found, extent))


def reproduce(
    planned: Plan,
    out: Path,
    *,
    processes: int | None = None,
    watch: Callable[[Event], None] = lambda event: None,
) -> dict[str, str]:
    """Train what is not trained yet, and write figures, tables and page into a folder.

    Arguments and what is returned are those of `run_sweep`.
    """
    failures = run_sweep(planned.cells, out / RUNS, processes=processes, watch=watch)
    if len(failures) < len(planned.cells):
        write_paper(planned, out)
    return failures


def write_paper(planned: Plan, out: Path) -> Path:
    """Write figures, tables, ``results.csv`` and the page of all that is done; return the page.

    What is done is in the folder's ``runs``.
    """
    runs = out / RUNS
    named = [(DataConfig.model_validate(found.data), found.title) for found in planned.found]
    titles = {  # name of a cell to what its data is called
        cell.name: next(title for data, title in named if data == cell.config.data)
        for cell in planned.cells
    }
    sweep = with_reranked(runs, collect(runs))
    results: dict[str, list[Result]] = {found.title: [] for found in planned.found}
    for result in sweep.results:
        if folder(result.run) in titles:
            results[titles[folder(result.run)]].append(result)
    done = {folder(result.run) for of in results.values() for result in of}
    facts = {
        name: read_result(runs / name / METRICS, Owner(load_config(runs / name / CONFIG)))
        for name in done
    }
    sampled, full = (
        [
            view
            for found in planned.found
            if (view := paper_view(found.title, found.paper, protocol, results[found.title]))
        ]
        for protocol in ("sampled", "full")
    )
    missing = missing_sentences(planned, sweep, done, runs)
    sections = _sections(sampled, full, facts, runs, missing)
    pictures = {}  # name of a figure to an address that holds its PNG itself
    for section in sections:
        for drawn in section.figures:
            write_figure(drawn, out / "figures")
            picture = (out / "figures" / f"{drawn.name}.png").read_bytes()
            pictures[drawn.name] = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        for table in (*section.tables, *section.folded):
            write_table(table, out / "tables")
    records = (one for title, of in results.items() for one in long_records(title, of))
    write_records(records, out / "results.csv")
    page = rendered(
        "paper.html",
        {},
        title="Learning to rank with top-K fairness: the experiments again",
        summary=summary_sentences(planned, facts),
        missing=missing,
        sections=sections,
        pictures=pictures,
        meanings=PAGE_DEFINITIONS,
    )
    write_text(out / PAGE, page)
    return out / PAGE


class Section(NamedTuple):
    """A part of the page."""

    title: str  # its heading
    text: str  # what it is about
    figures: Sequence[Drawn] = ()  # with the pictures inside
    tables: Sequence[PaperTable] = ()  # shown below them
    folded: Sequence[PaperTable] = ()  # tables that are opened on demand


def _sections(
    sampled: list[PaperView],
    full: list[PaperView],
    facts: Facts,
    runs: Path,
    missing: list[str],
) -> list[Section]:
    """Return the parts of the page; what of them is not to be had is added to `missing`."""
    of_full = {view.title: view for view in full}
    load, pictures, flat = cached_loader(), [], []
    for view in sampled:  # data by data: the loader keeps the last
        found = figures.pictures_of(runs, view, load)
        if isinstance(found, str):
            missing.append(f"Picture of rankings, {view.title}: left out, for {found}.")
        else:
            pictures.append(found)
        flat.append(tables.flattening_table(view, *figures.falls_of(runs, view, load)))
    both = [[view, *filter(None, [of_full.get(view.title)])] for view in sampled]
    ablation, protocols = figures.ablation(sampled), figures.protocols(sampled, of_full)
    for what, drawn in (("gamma varied", ablation), ("both protocols", protocols)):
        if drawn is None:
            missing.append(f"The figure with {what}: no runs of it are done.")
    chosen = [
        one for v in sampled for one in tradeoffs.chosen_tables(v, of_full.get(v.title), facts)
    ]
    return [
        Section(
            "Accuracy and fairness at top K",
            "The paper's main figure: mean absolute gap of Eq. 9. Then the same with the "
            "squared gap, with the gap that the released code computes, and with the gap by "
            "rank, which knows no scores.",
            [figures.trade_offs(sampled, gap) for gap in figures.TRADE_OFFS],
            folded=[tables.points_table(view) for view in (*sampled, *full)],
        ),
        Section(
            "Gamma",
            "The paper's ablation: how much the averages of the penalty remember. SO-RED with "
            "gamma = 1 remembers nothing: it is NG-DE.",
            [ablation] if ablation is not None else [],
        ),
        Section(
            "NDCG and fair loss at C = 0 and 100K",
            "The paper's table, and beside it what changes from K-SONG.",
            tables=[table for view in sampled for table in tables.spread_tables(view)],
        ),
        Section(
            "The most unfair rankings",
            "The paper's picture: a row is a list, a pixel a position, its colour a group.",
            pictures,
        ),
        Section(
            "Training time", "As measured here.", tables=[tables.time_table(sampled, facts)]
        ),
        Section(
            "Beyond the paper: the full catalogue",
            "The two protocols can rank methods differently.",
            [protocols] if protocols is not None else [],
        ),
        Section(
            "Beyond the paper: in- against post-processing",
            "What a trained method gives without group labels when serving, and what "
            "re-rankers give with them.",
            [figures.in_and_post(sampled)],
            [tradeoffs.choice_table(view, facts) for view in sampled],
            chosen,
        ),
        Section(
            "Beyond the paper: hypervolume",
            "One number for a whole trade-off.",
            tables=[tradeoffs.hypervolume_table(of, of[0].k) for of in both],
            folded=[
                *(
                    tradeoffs.hypervolume_table(of, k)
                    for of in both
                    for k in of[0].ks
                    if k != of[0].k
                ),
                *(tradeoffs.published_area_table(view) for view in sampled),
            ],
        ),
        Section(
            "Beyond the paper: order or scale",
            "A softmax gap shrinks when scores get flatter, with the order unchanged.",
            tables=flat,
        ),
    ]


def summary_sentences(planned: Plan, facts: Facts) -> list[str]:
    """Return the sentences at the top of the page."""
    seeds = ", ".join(str(seed) for seed in planned.extent.seeds)
    methods = dict.fromkeys(cell.config.method.name for cell in planned.cells)
    done = [cell for cell in planned.cells if cell.name in facts]
    data = []
    for found in planned.found:
        config = DataConfig.model_validate(found.data)
        names = (facts[cell.name]["data"] for cell in done if cell.config.data == config)
        data.append(f"{found.title} ({next(names, 'no run is done')})")
    minutes = sum(fact.get("seconds", {}).get("training", 0.0) for fact in facts.values()) / 60
    spent = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
    sentences = [
        f"{len(facts):,} of {len(planned.cells):,} runs of {len(methods)} methods "
        f"({', '.join(methods)}), seed {seeds}, by fairtopk {__version__}.",
        f"Data: {'; '.join(data)}.",
        f"Training took {spent}, added up over runs.",
    ]
    if planned.extent == QUICK:
        sentences.append(
            "This is the quick version: few weights and one seed. It shows that everything "
            "works, not what methods are worth."
        )
    return sentences


def missing_sentences(planned: Plan, sweep: Sweep, done: set[str], runs: Path) -> list[str]:
    """Return sentences on planned runs that are missing, and on data of the paper."""
    try:
        failures = FAILED.validate_json(read_text(runs / FAILURES))
    except ValueError:
        failures = {}
    names = [cell.name for cell in planned.cells]
    absent = [name for name in names if name not in done]
    sentences = []
    for name in absent:
        if name in failures:
            # Where files are on this machine is nobody else's business.
            why = re.sub(r"[^\s'\"]*[/\\](?=[^\s/\\])", "", failures[name])
            sentences.append(f"{name}: failed, for {why}")
    waiting = [name for name in absent if name not in failures]
    if len(waiting) <= NAMED:
        sentences += [f"{name}: not trained to the end." for name in waiting]
    else:
        counts = Counter(name.partition("/")[0] for name in waiting)
        sentences += [
            f"{of}: {n:,} runs are not trained to the end." for of, n in counts.items()
        ]
    sentences += [one for one in sweep.missing if one.split(" ")[0] not in absent]
    others = {folder(one.run) for one in sweep.results}.difference(names)
    if others:
        sentences.append(
            f"{len(others):,} other runs in the folder are not part of this: left out."
        )
    at_hand = {found.paper for found in planned.found}
    not_here = [name for name in PAPER_DATA if name not in at_hand]
    if not_here:
        sentences.append(
            f"The paper's {', '.join(not_here)}: not available, or left out by --quick."
        )
    return sentences


def write_figure(drawn: Drawn, out: Path) -> None:
    """Write a figure as PDF and PNG."""
    with mpl.rc_context(STYLE):
        save(drawn.figure, out / drawn.name)


def write_table(table: PaperTable, out: Path) -> None:
    """Write a table as LaTeX, Markdown and CSV; the last has all figures, and the runs."""
    rows: list[list[str]] = []  # without the first cells that the row above has too
    above: tuple[str, ...] = ()
    for cells, _ in table.rows:
        alike = 0
        while alike < len(cells) - 1 and cells[: alike + 1] == above[: alike + 1]:
            alike += 1
        rows.append([*[""] * alike, *cells[alike:]])
        above = cells
    text = latex_table(table.header, rows, texts=table.texts, begins=table.begins)
    write_text(out / f"{table.name}.tex", f"% {table.title}\n{text}")
    whole = [table.header, ["---"] * len(table.header), *(row.cells for row in table.rows)]
    lines = [f"| {' | '.join(cell.translate(MARKDOWN) for cell in row)} |" for row in whole]
    parts = [f"**{table.title}**", "\n".join(lines), *table.notes]
    write_text(out / f"{table.name}.md", "\n\n".join(parts) + "\n")
    write_records(table.records, out / f"{table.name}.csv")


def write_records(records: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write records as CSV; what one of them lacks is empty, and so is NaN."""
    frame = pl.DataFrame(list(records), infer_schema_length=None).fill_nan(None)
    with replacing(path) as temporary:
        frame.write_csv(temporary)


def long_records(title: str, results: Iterable[Result]) -> Iterator[dict[str, Any]]:
    """Yield every number of the results of a data set as a record of its own."""
    for result in results:
        run = result.run
        weight = run.weight or (None, None)
        for name, found in result.metrics.items():
            metric, _, k = name.partition("@")
            low, high = found.get("ci95") or (None, None)
            yield {
                "data": title,
                "protocol": result.lists["protocol"],
                "method": run.method.partition(f" ({NEEDS_LABELS}")[0],
                "needs_labels_when_serving": NEEDS_LABELS in run.method,
                "weight_name": weight[0],
                "weight": weight[1],
                "preset": run.settings.get("method.preset"),
                "gamma_u": run.settings.get("method.gamma_u"),
                "seed": run.seed,
                "metric": metric,
                "k": int(k) if k else None,
                "mean": found["mean"],
                "low": low,
                "high": high,
                "run": folder(run),
            }
