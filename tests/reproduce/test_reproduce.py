"""`fairtopk reproduce` from end to end, on runs that are trained in seconds."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fairtopk.cli.sweep import reproduce as command
from fairtopk.errors import InputError
from fairtopk.reproduce import output as paper_outputs
from fairtopk.reproduce.figures import Drawn
from fairtopk.reproduce.output import Plan, plan, reproduce
from fairtopk.runs.config_file import check_config
from fairtopk.runs.grid import Cell
from fairtopk.runs.sweep import Event
from fairtopk.storage import write_text

SHORT = {
    "model": {"name": "mf", "width": 4},
    "training": {"warmup_epochs": 1, "epochs": 1, "lists": {"rated": 5, "unrated": 60}},
}
KEPT = ("k-song", "listnet", "kso-red")


def shortened(cell: Cell) -> Cell:
    values: dict[str, Any] = {**cell.config.model_dump(), **SHORT}
    return cell._replace(
        config=check_config(values, "the test"),
        reranked=cell.reranked[-1:],
        protocols=("full",),
    )


def short_plan() -> Plan:
    """Three runs of the quick plan, as short as can be."""
    planned = plan(None, quick=True)
    cells = [cell for cell in planned.cells if cell.config.method.name in KEPT]
    cells = [cell for cell in cells if cell.config.method.c in (None, 1e5)][:3]
    return planned._replace(cells=[shortened(cell) for cell in cells])


def write_none(drawn: Drawn, out: Path) -> None:
    """Leave files without drawing: that takes seconds."""
    for kind in ("pdf", "png"):
        write_text(out / f"{drawn.name}.{kind}", "a figure")


@pytest.mark.slow
def test_from_runs_to_a_page_and_again_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper_outputs, "write_figure", write_none)
    planned, events = short_plan(), list[Event]()
    assert reproduce(planned, tmp_path, processes=1, watch=events.append) == {}
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "3 of 3 runs of 3 methods (k-song, listnet, kso-red), seed 0" in page
    assert (tmp_path / "figures" / "rankings-embedded.pdf").exists()
    rows = pl.read_csv(tmp_path / "results.csv")
    for cell in planned.cells:
        told = json.loads((tmp_path / "runs" / cell.name / "metrics.json").read_text())
        of_run = rows.filter(
            (pl.col("run") == cell.name) & (pl.col("protocol") == "sampled")
            & (pl.col("metric") == "ndcg") & (pl.col("k") == 50)
            & ~pl.col("method").str.contains("+", literal=True)
        )  # fmt: skip
        assert of_run["mean"].to_list() == [told["metrics"]["ndcg@50"]["mean"]]
    falls = pl.read_csv(tmp_path / "tables" / "flattening-embedded.csv")
    assert set(falls["method"]) == {"KSO-RED"}

    (tmp_path / "index.html").unlink()
    events.clear()
    reproduce(planned, tmp_path, processes=1, watch=events.append)
    assert [event.what for event in events] == ["done"] * 3
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == page


def test_a_folder_of_something_else_and_one_without_the_papers_data_are_refused(
    tmp_path: Path,
) -> None:
    used, empty = tmp_path / "used", tmp_path / "empty"
    used.mkdir()
    empty.mkdir()
    (used / "index.html").write_text("mine")
    with pytest.raises(InputError, match="exists and is not empty"):
        command(used, quick=True)
    assert (used / "index.html").read_text() == "mine"
    with pytest.raises(InputError, match="leave --data out to use the embedded data alone"):
        command(tmp_path / "out", empty, quick=True)
    assert not (tmp_path / "out").exists()
