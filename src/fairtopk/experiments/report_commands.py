"""`fairtopk report`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fairtopk.experiments.console import console


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
    console.print(f"written to {page}", highlight=False, soft_wrap=True)
    if figures is not None:
        console.print(f"figures in {figures}", highlight=False, soft_wrap=True)
