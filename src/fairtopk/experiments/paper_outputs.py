"""From the runs of the paper's experiments to its figures, tables and one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairtopk.data.files import write_text
from fairtopk.experiments.collecting import collect
from fairtopk.experiments.config import DataConfig
from fairtopk.experiments.config_file import load_config
from fairtopk.experiments.paper_files import (
    long_records,
    write_figure,
    write_records,
    write_table,
)
from fairtopk.experiments.paper_models import falls_of, pictures_of
from fairtopk.experiments.paper_words import first_words, missing_words
from fairtopk.experiments.rankings import loader
from fairtopk.experiments.reranked_results import with_reranked
from fairtopk.experiments.result import CONFIG, METRICS, Owner, read_result
from fairtopk.reporting import paper_figures as figures
from fairtopk.reporting.figures import slug
from fairtopk.reporting.paper_chosen import chosen_tables
from fairtopk.reporting.paper_fronts import (
    choice_table,
    hypervolume_table,
    published_area_table,
)
from fairtopk.reporting.paper_page import About, Section, paper_page
from fairtopk.reporting.paper_spread import spread_tables
from fairtopk.reporting.paper_tables import (
    Facts,
    flattening_table,
    points_table,
    time_table,
)
from fairtopk.reporting.paper_views import PaperView, folder, paper_view
from fairtopk.reporting.results import Result

if TYPE_CHECKING:
    from fairtopk.experiments.reproduce import Plan

RUNS, PAGE = "runs", "index.html"


def write_paper(planned: "Plan", out: Path) -> Path:
    """Write figures, tables, ``results.csv`` and the page of all that is done; return the page.

    Args:
        planned: What was to be done.
        out: The folder whose ``runs`` holds what was.
    """
    runs = out / RUNS
    titles = _titles(planned)
    sweep = with_reranked(runs, collect(runs))
    results: dict[str, list[Result]] = {found.title: [] for found in planned.found}
    for result in sweep.results:
        if folder(result.run) in titles:
            results[titles[folder(result.run)]].append(result)
    done = {folder(result.run) for of in results.values() for result in of}
    facts = {name: _facts(runs / name) for name in done}
    views = {
        protocol: [
            view
            for found in planned.found
            if (view := paper_view(found.title, found.paper, protocol, results[found.title]))
        ]
        for protocol in ("sampled", "full")
    }
    missing = missing_words(planned, sweep, done, runs)
    sections = _sections(views["sampled"], views["full"], facts, runs, missing)
    about = About(first_words(planned, facts), missing, RUNS)
    for section in sections:
        for drawn in section.figures:
            write_figure(drawn, out / "figures")
        for table in (*section.tables, *section.folded):
            write_table(table, out / "tables")
    records = (one for title, of in results.items() for one in long_records(title, of))
    write_records(records, out / "results.csv")
    write_text(out / PAGE, paper_page(about, sections, out / "figures"))
    return out / PAGE


def _sections(
    sampled: list[PaperView],
    full: list[PaperView],
    facts: Facts,
    runs: Path,
    missing: list[str],
) -> list[Section]:
    """Return the parts of the page; what of them is not to be had is added to `missing`."""
    of_full = {view.title: view for view in full}
    load, pictures, flat = loader(), [], []
    for view in sampled:  # data by data: the loader keeps the last
        found = pictures_of(runs, view, load)
        if isinstance(found, str):
            missing.append(f"Picture of rankings, {view.title}: left out, for {found}.")
        else:
            pictures.append(figures.rankings_figure(f"rankings-{slug(view.title)}", found))
        flat.append(flattening_table(view, *falls_of(runs, view, load)))
    both = [[view, *filter(None, [of_full.get(view.title)])] for view in sampled]
    ablation, protocols = figures.ablation(sampled), figures.protocols(sampled, of_full)
    for what, drawn in (("gamma varied", ablation), ("both protocols", protocols)):
        if drawn is None:
            missing.append(f"The figure with {what}: no runs of it are done.")
    points = [points_table(view) for view in (*sampled, *full)]
    chosen = [one for v in sampled for one in chosen_tables(v, of_full.get(v.title), facts)]
    return [
        Section(
            "Accuracy and fairness at top K",
            "The paper's main figure: mean absolute gap of Eq. 9. Then the same with the "
            "squared gap, with the gap that the released code computes, and with the gap by "
            "rank, which knows no scores.",
            [figures.trade_offs(sampled, gap) for gap in figures.TRADE_OFFS],
            [],
            points,
        ),
        Section(
            "Gamma",
            "The paper's ablation: how much the averages of the penalty remember. SO-RED with "
            "gamma = 1 remembers nothing: it is NG-DE.",
            [ablation] if ablation is not None else [],
            [],
            [],
        ),
        Section(
            "NDCG and fair loss at C = 0 and 100K",
            "The paper's table, and beside it what changes from K-SONG.",
            [],
            [table for view in sampled for table in spread_tables(view)],
            [],
        ),
        Section(
            "The most unfair rankings",
            "The paper's picture: a row is a list, a pixel a position, its colour a group.",
            pictures,
            [],
            [],
        ),
        Section("Training time", "As measured here.", [], [time_table(sampled, facts)], []),
        Section(
            "Beyond the paper: the full catalogue",
            "The two protocols can rank methods differently.",
            [protocols] if protocols is not None else [],
            [],
            [],
        ),
        Section(
            "Beyond the paper: in- against post-processing",
            "What a trained method gives without group labels when serving, and what "
            "re-rankers give with them.",
            [figures.in_and_post(sampled)],
            [choice_table(view, facts) for view in sampled],
            chosen,
        ),
        Section(
            "Beyond the paper: hypervolume",
            "One number for a whole trade-off.",
            [],
            [hypervolume_table(of, of[0].k) for of in both],
            [
                *(hypervolume_table(of, k) for of in both for k in of[0].ks if k != of[0].k),
                *(published_area_table(view) for view in sampled),
            ],
        ),
        Section(
            "Beyond the paper: order or scale",
            "A softmax gap shrinks when scores get flatter, with the order unchanged.",
            [],
            flat,
            [],
        ),
    ]


def _facts(run: Path) -> dict[str, Any]:
    """Return what the metrics file of a run says."""
    return read_result(run / METRICS, Owner(load_config(run / CONFIG)))


def _titles(planned: "Plan") -> dict[str, str]:
    """Return by name of a cell what its data is called."""
    known = [(DataConfig.model_validate(found.data), found) for found in planned.found]
    return {
        cell.name: next(found.title for data, found in known if data == cell.config.data)
        for cell in planned.cells
    }
