"""What `fairtopk reproduce` writes from its runs: figures, tables, one page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from paper_runs import REAL, Made, failed

from fairtopk.reporting.results import Sweep
from fairtopk.reproduce.figures import has_seeds
from fairtopk.reproduce.output import missing_sentences
from fairtopk.reproduce.views import PaperView, folders, weight_of

pytestmark = pytest.mark.slow  # the paper's tables, pages and figures are written once


def test_every_figure_is_a_pdf_and_a_png(made: Made) -> None:
    names = {path.name for path in (made.out / "figures").iterdir()}
    gaps = ("exposure_gap", "exposure_gap_mse", "exposure_gap_released", "rank_exposure_gap")
    wanted = [f"tradeoff-{gap}" for gap in gaps]
    wanted += ["ablation-gamma", "in-and-post-processing", "protocols"]
    assert names == {f"{name}.{kind}" for name in wanted for kind in ("pdf", "png")}
    assert made.page.count("data:image/png;base64,") == len(wanted)
    assert (made.out / "figures" / f"{REAL}.pdf").read_bytes().startswith(b"%PDF")
    assert (made.out / "figures" / f"{REAL}.png").read_bytes().startswith(b"\x89PNG")


def test_every_table_is_latex_csv_and_markdown_and_is_on_the_page(made: Made) -> None:
    names = {path.name for path in (made.out / "tables").iterdir()}
    wanted = {"time"}
    for title in ("embedded", "horror"):
        wanted |= {f"points-{title}-{protocol}" for protocol in ("sampled", "full")}
        wanted |= {f"hypervolume-{title}-{k}" for k in (50, 100, 200)}
        wanted.add(f"hypervolume-published-{title}")
        kinds = ("std", "std-users", "differences", "in-and-post", "flattening")
        wanted |= {f"{kind}-{title}" for kind in kinds}
        gaps = ("exposure_gap", "rank_exposure_gap")
        wanted |= {f"chosen-{gap}-{title}-{of}" for gap in gaps for of in ("sampled", "full")}
    assert names == {f"{name}.{kind}" for name in wanted for kind in ("tex", "csv", "md")}
    for name in wanted:
        assert f'href="tables/{name}.csv"' in made.page


def test_latex_has_as_many_cells_in_each_row_as_columns(made: Made) -> None:
    for path in (made.out / "tables").glob("*.tex"):
        lines = path.read_text().splitlines()
        spec = re.search(r"\\begin\{tabular\}\{([lr]+)\}", path.read_text())
        assert spec is not None
        assert lines[-1] == r"\end{tabular}"
        rows = [line for line in lines if line.endswith(r"\\")]
        assert all(len(re.findall(r"(?<!\\)&", row)) == len(spec[1]) - 1 for row in rows), path
        for row in rows:
            assert len(re.findall(r"(?<!\\)\$", row)) % 2 == 0
            assert not re.search(r"(?<!\\)[%#_]", row)


def test_results_csv_holds_every_number_of_every_run(made: Made) -> None:
    rows = pl.read_csv(made.out / "results.csv", infer_schema_length=None)
    whole = 0
    for path in [*made.out.rglob("metrics*.json"), *made.out.rglob("rerank-*.json")]:
        whole += len(json.loads(path.read_text())["metrics"])
    assert len(rows) == whole
    cell = next(c for c in made.planned.cells if c.name.endswith("kso-red-c10000-k50/seed1"))
    told = json.loads((made.out / "runs" / cell.name / "metrics.json").read_text())
    one = rows.filter(
        (pl.col("run") == cell.name) & (pl.col("protocol") == "sampled")
        & (pl.col("metric") == "exposure_gap") & (pl.col("k") == 100)
    )  # fmt: skip
    assert one["mean"].to_list() == [told["metrics"]["exposure_gap@100"]["mean"]]
    assert one["weight_name"].to_list() == ["C"]
    assert one["weight"].to_list() == [1e4]
    labels = rows.filter(pl.col("needs_labels_when_serving"))["method"].unique().to_list()
    assert "robust" in labels
    assert all(name == "robust" or name.startswith("k-song + ") for name in labels)


def test_at_c_0_methods_are_k_song_and_deltr_is_listnet(views: dict[str, PaperView]) -> None:
    curves = views["embedded"].curves
    for name in ("KSO-RED", "SO-RED", "NG-DE", "DELTR"):
        of = "ListNet" if name == "DELTR" else "K-SONG"
        assert folders(curves[name][0]) == folders(curves[of][0])
        assert [weight_of(point) for point in curves[name]] == [0.0, 1e4, 1e5]
    assert [weight_of(point) for point in curves["KSO-RED, Algorithm 1"]] == [1e4, 1e5]


def test_gamma_is_varied_at_the_weights_that_all_have(views: dict[str, PaperView]) -> None:
    gammas = views["embedded"].gammas
    assert {name: list(of) for name, of in gammas.items()} == {
        "SO-RED": [0.2, 0.6, 1.0],
        "KSO-RED": [0.2, 0.6, 1.0],
    }
    for name, own in (("SO-RED", 0.2), ("KSO-RED", 1.0)):
        for points in gammas[name].values():
            assert [weight_of(point) for point in points] == [0.0, 1e5]
        main = views["embedded"].at(name, 1e5)
        assert main is not None
        assert folders(gammas[name][own][1]) == folders(main)


def test_a_method_that_failed_is_told_without_where_files_are(made: Made) -> None:
    names = [cell.name for cell in made.planned.cells if failed(cell)]
    assert len(names) == 8  # two seeds of two weights, and of two more gammas
    for name in names:
        assert f"{name}: failed, for cannot read films.zip: it is damaged" in made.page
    rows = (made.out / "tables" / "std-horror.md").read_text().splitlines()
    assert sum(row.startswith("| SO-RED | 100K |") and "not run" in row for row in rows) == 3
    assert "/home" not in made.page
    assert str(made.out) not in made.page


def test_data_of_the_paper_that_is_not_here_is_told(made: Made) -> None:
    assert "The paper&#39;s MovieLens-20M-D, Netflix-20M: not available" in made.page


def test_every_link_of_the_page_leads_to_something_in_the_folder(made: Made) -> None:
    links = set(re.findall(r'href="([^"#][^"]*)"', made.page))
    assert len([link for link in links if link.startswith("runs/")]) > 40
    assert all((made.out / link).exists() for link in links)
    assert not re.search(r'(?:src|href)="(?!data:|#|runs/|tables/|figures/|results)', made.page)


def test_models_that_are_gone_leave_out_pictures_and_say_so(made: Made) -> None:
    assert "Picture of rankings, embedded: left out" in made.page
    assert "could not be loaded again" in (made.out / "tables/flattening-horror.md").read_text()


def test_many_runs_that_are_not_done_are_told_by_data(made: Made, tmp_path: Path) -> None:
    names = [cell.name for cell in made.planned.cells]
    told = missing_sentences(made.planned, Sweep("", [], []), set(), tmp_path)
    of_data = [name for name in names if name.startswith("synthetic/")]
    assert f"synthetic: {len(of_data)} runs are not trained to the end." in told
    few = missing_sentences(made.planned, Sweep("", [], []), set(names[3:]), tmp_path)
    assert few[:3] == [f"{name}: not trained to the end." for name in names[:3]]


def test_a_curve_with_a_point_of_one_seed_has_no_bars(views: dict[str, PaperView]) -> None:
    first, second, *_ = views["embedded"].curves["KSO-RED"]
    assert has_seeds([first, second])
    assert not has_seeds([first, replace(second, results=second.results[:1])])
