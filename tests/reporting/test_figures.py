"""The figures as files."""

from dataclasses import replace
from pathlib import Path

import pytest

import fairtopk as ft
from fairtopk.reporting.curves import views_of
from fairtopk.reporting.figures import write_figures
from fairtopk.reporting.results import Rankings, collect


def test_each_gap_is_a_pdf_and_a_png(sweep: Path, tmp_path: Path) -> None:
    ft.report(sweep, figures=tmp_path / "figures")
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    gaps = ("exposure_gap", "exposure_gap_mse", "rank_exposure_gap", "rank_exposure_gap_mse")
    assert names == [f"tradeoff-{gap}.{kind}" for gap in gaps for kind in ("pdf", "png")]
    assert (tmp_path / "figures" / names[0]).read_bytes().startswith(b"%PDF")
    assert (tmp_path / "figures" / names[1]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_names_with_signs_of_tex_are_drawn_as_they_are(sweep: Path, tmp_path: Path) -> None:
    (view,) = views_of(collect(sweep).results)
    views = [replace(view, gaps=view.gaps[:1])]  # each takes its time
    found = Rankings("$a_", "b$", "", "", 9, ("$_{", "^"), ["01-", "1"], ["10", "0"])
    files = write_figures(views, {0: found}, tmp_path)
    assert {path.name for path in files} >= {"rankings.pdf", "rankings.png"}
