"""`report`: one page, and figures, from a folder of runs."""

import warnings
from dataclasses import replace
from pathlib import Path

from fairtopk.arguments import checked_path
from fairtopk.data.files import write_text
from fairtopk.errors import InputError
from fairtopk.experiments.collecting import collect
from fairtopk.experiments.rankings import loader, rankings_of
from fairtopk.experiments.reranked_results import with_reranked
from fairtopk.experiments.targets import check_target
from fairtopk.reporting.curves import View, views_of
from fairtopk.reporting.page import sweep_page
from fairtopk.reporting.results import Rankings

PAGE = "report.html"


def report(
    folder: str | Path, *, out: str | Path | None = None, figures: str | Path | None = None
) -> Path:
    """Return where the page is that was written about all finished runs in a folder.

    It is one HTML file that needs no network: trade-off curves, the table of results with
    paired tests, rankings before and after, training curves, definitions and provenance. It
    says what it could not show; of each run that is left out as a whole, not finished or
    damaged, there is a warning too. Data is loaded again for the rankings alone.

    Args:
        folder: Holds run folders, at any depth.
        out: Where to write; left out, ``report.html`` in `folder`.
        figures: A folder for the trade-off curves as PDF and PNG.
    """
    folder = checked_path("folder", folder)
    path = folder / PAGE if out is None else checked_path("out", out)
    drawn = None if figures is None else checked_path("figures", figures)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file, such as {path / PAGE}")
    check_target(path, endings=(".html", ".htm"))
    sweep = collect(folder)
    for words in sweep.left_out:
        warnings.warn(words, stacklevel=2)
    views = views_of(sweep.results)
    rankings, reasons = _rankings(folder, views)
    sweep = with_reranked(folder, replace(sweep, missing=[*sweep.missing, *reasons]))
    views = views_of(sweep.results)
    if drawn is not None:
        from fairtopk.reporting.figures import write_figures  # matplotlib takes a while

        write_figures(views, rankings, drawn)
    write_text(path, sweep_page(sweep, views, rankings))
    return path


def _rankings(folder: Path, views: list[View]) -> tuple[dict[int, Rankings], list[str]]:
    """Return the rankings of each view that has them, and why others have none."""
    load, found, reasons = loader(), {}, []
    for place, view in enumerate(views):
        rankings = rankings_of(folder, view, load)
        if isinstance(rankings, Rankings):
            found[place] = rankings
        else:
            words = f"Rankings before and after, {view.label}: left out, for {rankings}."
            reasons.append(words)
    return found, reasons
