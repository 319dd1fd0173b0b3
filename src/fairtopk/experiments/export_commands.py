"""`fairtopk export`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fairtopk.experiments.console import say, say_if_unfinished


def export(
    run: Annotated[Path, Argument(help="the folder of a run")],
    out: Annotated[
        Path, Argument(metavar="MODEL.onnx", help="the file to write; replaced if there")
    ],
    data: Annotated[Path | None, Option(help="where the data is now, if it moved")] = None,
) -> None:
    """Write a run's model as ONNX, checked against the original, with a card beside it.

    The model takes numbers of users and items, or features of documents, and no groups. The
    ids behind the numbers are written beside it.

    Example: fairtopk export runs/first model.onnx
    """
    from fairtopk.experiments.exported import export_run

    exported = export_run(run, out, data=data)
    say(
        f"takes {' and '.join(exported.inputs)}, no groups; scores are off by at most "
        f"{exported.off:.1g} of the largest"
    )
    files = ", ".join(str(file) for file in exported.files)
    say(f"written: {files}")
    say_if_unfinished(run)
