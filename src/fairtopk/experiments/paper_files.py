"""Figures and tables of the paper's experiments as files."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import polars as pl

from fairtopk.data.files import replacing, write_text
from fairtopk.experiments.latex import latex_words
from fairtopk.experiments.rerank_requests import NEEDS_LABELS
from fairtopk.reporting.figures import STYLE, save
from fairtopk.reporting.paper_figures import Drawn
from fairtopk.reporting.paper_table import PaperTable
from fairtopk.reporting.paper_views import folder
from fairtopk.reporting.results import Result

MARKDOWN = str.maketrans({"|": r"\|", "*": r"\*", "<": r"\<"})


def write_figure(drawn: Drawn, out: Path) -> None:
    """Write a figure as PDF and PNG."""
    with mpl.rc_context(STYLE):
        save(drawn.figure, out / drawn.name)


def write_table(table: PaperTable, out: Path) -> None:
    """Write a table as LaTeX, Markdown and CSV; the last has all figures, and the runs."""
    cells = [row.cells for row in table.rows]
    begins = [row.begins for row in table.rows]
    text = latex_words(table.header, _said_once(cells), texts=table.texts, lines=begins)
    write_text(out / f"{table.name}.tex", f"% {table.title}\n{text}")
    write_text(out / f"{table.name}.md", _markdown(table))
    write_records(table.records, out / f"{table.name}.csv")


def write_records(records: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write records as CSV; what one of them lacks is empty, and so is NaN."""
    frame = pl.DataFrame(list(records), infer_schema_length=None).fill_nan(None)
    with replacing(path) as temporary:
        frame.write_csv(temporary)


def long_records(title: str, results: Iterable[Result]) -> Iterator[dict[str, Any]]:
    """Yield every number of results as a record of its own.

    Args:
        title: What figures call the data.
        results: What was measured.
    """
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


def _said_once(rows: list[tuple[str, ...]]) -> list[list[str]]:
    """Return rows without the first cells that they share with the row above, save the last."""
    found: list[list[str]] = []
    above: tuple[str, ...] = ()
    for row in rows:
        alike = 0
        while alike < len(row) - 1 and row[: alike + 1] == above[: alike + 1]:
            alike += 1
        found.append([*[""] * alike, *row[alike:]])
        above = row
    return found


def _markdown(table: PaperTable) -> str:
    rows = [table.header, ["---"] * len(table.header), *(row.cells for row in table.rows)]
    lines = [f"| {' | '.join(cell.translate(MARKDOWN) for cell in row)} |" for row in rows]
    return "\n\n".join([f"**{table.title}**", "\n".join(lines), *table.notes]) + "\n"
