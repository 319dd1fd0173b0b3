"""The paper's experiments on MovieLens, from training to the pages of docs/results.

Usage: python -m studies.movielens.run --data DIR --out DIR [--pages docs/results] [--recorded]
           [--trained]

`DIR` of the data holds a published archive; of several, the largest is taken. Trains in the
folder of `--out` what is not trained there yet, writes figures and tables there as `fairtopk
reproduce` does, and puts them on the pages: tables between the marks of ``movielens.md``,
``findings.md`` and the README, a page of its own for each grouping, figures, and
``movielens.csv``. With `--trained` nothing is trained: pages are of what is done so far, and
say how much that is.

``movielens-runs.jsonl.xz`` beside the pages has a record of every run, see `records`. With
`--recorded` such runs are not trained again; without their models, pictures of rankings stay
as they are.
"""

import argparse
import json
import subprocess
from pathlib import Path

import polars as pl
from PIL import Image

from fairtopk.cli.sweep import say_failures, say_room, sweep_progress
from fairtopk.reporting.figures import slug
from fairtopk.reproduce.output import RUNS, Plan, reproduce, write_paper
from fairtopk.reproduce.plan import FULL, KS, TRAINED_K, find_data, paper_cells
from fairtopk.reproduce.tradeoffs import GAPS, PROTOCOLS
from studies.movielens.records import bring_back, commits, keep, noting
from studies.movielens.rows import NOTHING, Read, read_rows
from studies.movielens.tables import findings, included, seeds
from studies.page import fill_marks

ABLATION = "ablation-gamma"
FIGURES = ("tradeoff-exposure_gap", "tradeoff-exposure_gap_mse",
           "tradeoff-exposure_gap_released", "tradeoff-rank_exposure_gap", "protocols",
           ABLATION, "in-and-post-processing")  # fmt: skip
WIDTH, COLOURS = 1400, 256  # of a figure on a page
NAME = "movielens"
RECORDS = f"{NAME}-runs.jsonl.xz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pages", type=Path, default=Path("docs/results"))
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--trained", action="store_true")
    asked = parser.parse_args()
    planned, runs = movielens_plan(asked.data), asked.out / RUNS
    if asked.recorded:
        bring_back(planned.cells, runs, asked.pages / RECORDS)
    try:
        if asked.trained:
            write_paper(planned, asked.out)
        else:
            say_room(planned.cells, runs, None)
            with sweep_progress(planned.cells, "the same command") as progress:
                failures = reproduce(planned, asked.out, watch=noting(commit(), runs, progress))
            say_failures(failures, "rerun the command")
    finally:  # of what is done when it is stopped
        keep(planned.cells, runs, asked.pages / RECORDS)
    titles = [found.title for found in planned.found]
    write_pages(asked.out, asked.pages, asked.readme, titles)


def movielens_plan(data: Path) -> Plan:
    """Return the runs of `fairtopk reproduce` that are of MovieLens."""
    found = [
        one
        for one in find_data(data, quick=False)
        if str(one.data["source"]).startswith("movielens")
    ]
    return Plan(found, FULL, paper_cells(found, FULL))


def commit() -> str:
    """Return the commit of the code at hand, and whether it has changes."""
    changes = _git("status", "--porcelain", "src")
    return _git("rev-parse", "--short", "HEAD") + (" with changes" if changes else "")


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], capture_output=True, text=True).stdout.strip()


def write_pages(out: Path, pages: Path, readme: Path, titles: list[str]) -> None:
    """Write all pages, figures and the CSV from what `write_paper` left in a folder.

    Args:
        out: The folder of runs, figures and tables.
        pages: Where ``movielens.md`` and ``findings.md`` are, with marks for tables.
        readme: A page with a mark for the table that sums them up.
        titles: What the data sets are called.
    """
    read = _read(out, titles)
    read.rows.write_csv(pages / f"{NAME}.csv")
    for name in FIGURES:
        _smaller(out / "figures" / f"{name}.png", pages / f"{NAME}-{name}.png")
    for title in titles:
        page = pages / _page_of(title)
        rankings = out / "figures" / f"rankings-{slug(title)}.png"
        _smaller(rankings, page.with_name(f"{page.stem}-rankings.png"))
        page.write_text(_of_data(read, title, _made(out, read, [title]), page))
    shown = {
        "made": _made(out, read, titles),
        "seeds": seeds(read),
        "pages": "\n".join(f"- [{title}]({_page_of(title)})" for title in titles),
        "ablation": _shown(
            pages / f"{NAME}-{ABLATION}.png",
            "Accuracy against the gap of Eq. 9 for each gamma of SO-RED and KSO-RED",
        ),
        "hypervolume": _of_each(read, f"hypervolume-{{}}-{TRAINED_K}"),
        "flattening": _of_each(read, "flattening-{}"),
        "time": included(read, "time", ""),
        "config": _config(out),
    }
    found = findings(read)
    for path in (pages / f"{NAME}.md", pages / "findings.md", readme):
        path.write_text(fill_marks(path.read_text(), shown | found))


def _read(out: Path, titles: list[str]) -> Read:
    results = pl.read_csv(out / "results.csv", infer_schema_length=None)
    tables = out / "tables"
    chosen = {
        title: [f"chosen-{gap}-{slug(title)}-{of}" for gap in GAPS for of in PROTOCOLS]
        for title in titles
    }
    falls = {title: [f"flattening-{slug(title)}"] for title in titles}
    rows = read_rows(results)
    return Read(
        results, rows, _records(tables, chosen), _records(tables, falls), tables, titles
    )


def _records(tables: Path, names: dict[str, list[str]]) -> pl.DataFrame:
    """Return the records of tables under one another, with the data that they are of."""
    found = [
        pl.read_csv(path, infer_schema_length=None).with_columns(data=pl.lit(title))
        for title, of in names.items()
        for name in of
        if (path := tables / f"{name}.csv").exists() and path.stat().st_size > 1
    ]
    return pl.concat(found, how="diagonal_relaxed") if found else pl.DataFrame()


def _smaller(picture: Path, to: Path) -> None:
    """Write a figure in the size of a page and few colours, if it was drawn."""
    if not picture.exists():
        return
    with Image.open(picture) as whole:
        height = round(whole.height * WIDTH / whole.width)
        small = whole.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
        small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(to, optimize=True)


def _page_of(title: str) -> str:
    return f"{NAME}-{slug(title.rpartition(', ')[2])}.md"


def _of_data(read: Read, title: str, made: str, page: Path) -> str:
    """Return the page of a grouping: the paper's table, choices, areas, points, a picture."""
    parts = [f"# {title}", made, included(read, "std-{}", title)]
    for gap in GAPS:
        for protocol in PROTOCOLS:
            parts.append(included(read, f"chosen-{gap}-{{}}-{protocol}", title))
    others = [k for k in KS if k != TRAINED_K]
    parts += [included(read, f"hypervolume-{{}}-{k}", title) for k in others]
    parts.append(included(read, "hypervolume-published-{}", title))
    parts += [included(read, f"points-{{}}-{protocol}", title) for protocol in PROTOCOLS]
    words = (
        "The lists that K-SONG ranks most unfairly by Eq. 9 at K = 50, and the same lists by "
        "KSO-RED: a row is a list, a pixel a position"
    )
    picture = page.with_name(f"{page.stem}-rankings.png")
    parts += [_shown(picture, words), f"{words}."] if picture.exists() else []
    return "\n\n".join(dict.fromkeys(parts)) + "\n"


def _shown(picture: Path, words: str) -> str:
    """Return a picture as a page shows it; in words that there is none."""
    return f"![{words}]({picture.name})" if picture.exists() else NOTHING


def _of_each(read: Read, name: str) -> str:
    found = [included(read, name, title) for title in read.titles]
    return "\n\n".join(one for one in found if one != NOTHING) or NOTHING


def _made(out: Path, read: Read, titles: list[str]) -> str:
    """Return how many runs there are, what code made them, and what is known of the data."""
    runs = read.results.filter(pl.col("data").is_in(titles))["run"].unique().sort()
    told = [json.loads((out / RUNS / run / "provenance.json").read_text()) for run in runs]
    data = dict.fromkeys(note for one in told for note in one["data"].get("notes", ()))
    by = (
        " and ".join(commits(out / RUNS / run for run in runs)) or "a commit that was not noted"
    )
    about = [f"{len(runs):,} runs by commit {by}", *data]
    return "\n".join(f"- {one}" for one in about)


def _config(out: Path) -> str:
    """Return the config of one run, without where its data is."""
    runs = sorted((out / RUNS).glob("*/k-song*/seed*/config.toml"))
    if not runs:
        return NOTHING
    lines = [line for line in runs[0].read_text().split("\n") if not line.startswith("path")]
    return "\n".join(["```toml", *lines[:-1], "```"])


if __name__ == "__main__":
    main()
