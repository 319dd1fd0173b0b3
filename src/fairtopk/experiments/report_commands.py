"""`fairtopk report`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fairtopk.experiments.console import say


def report(
    folder: Annotated[Path, Argument(metavar="DIR", help="a folder of runs, at any depth")],
    out: Annotated[
        Path | None, Option(help="the page to write; default: report.html in the folder")
    ] = None,
    figures: Annotated[Path | None, Option(help="folder for the curves as PDF and PNG")] = None,
) -> None:
    """Write one page about all finished runs in a folder: it opens from disk, without network.

    Runs that are not finished, or cannot be read, are named and left out.

    Example: fairtopk report runs --out report.html --figures figures
    """
    from fairtopk.experiments.report import report as write_report

    page = write_report(folder, out=out, figures=figures)
    say(f"written to {page}")
    if figures is not None:
        say(f"figures in {figures}")
