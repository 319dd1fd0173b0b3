"""The records of runs that studies/movielens/records.py keeps beside the pages."""

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest
from paper_runs import SECRET, Made, write_fake

from fairtopk.reporting.rankings import Fall, falls_once
from fairtopk.reporting.results import Result, collect, with_reranked
from fairtopk.reranking.request import RerankRequest
from fairtopk.runs.grid import Cell
from fairtopk.runs.result import ResultFile, sealed
from fairtopk.runs.sweep import Event, is_done
from studies.movielens import records

pytestmark = pytest.mark.slow  # the paper's tables, pages and figures are written once

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def cells(made: Made) -> list[Cell]:
    """K-SONG, with what was re-ranked, and a run of the other data."""
    films = [cell for cell in made.planned.cells if cell.config.data.path == SECRET]
    return [made.planned.cells[0], films[0], films[-1]]


@pytest.fixture
def runs(cells: list[Cell], tmp_path: Path) -> Path:
    for cell in cells:
        write_fake(cell, tmp_path / "runs")
    return tmp_path / "runs"


def told(runs: Path) -> dict[tuple[str, str], tuple[dict[str, float], dict[str, Any]]]:
    """Return what pages read of each result: means, and the epoch that was kept."""

    def means(result: Result) -> dict[str, float]:
        return {name: of["mean"] for name, of in result.metrics.items()}

    found = with_reranked(runs, collect(runs)).results
    return {
        (one.run.name, one.lists["protocol"]): (means(one), (one.run.log or [{}])[-1])
        for one in found
    }


def test_published_records_are_metrics_files_of_this_version() -> None:
    found = records._read(REPOSITORY / "docs" / "results" / "movielens-runs.jsonl.xz")
    whose = {"run": "", "config": "", "data": ""}
    for record in found.values():
        for told in record["files"].values():
            if "metrics" in told:
                ResultFile.model_validate_json(json.dumps(sealed(told | {"identity": whose})))
    assert len(found) > 100


@pytest.mark.slow
def test_pages_read_the_same_of_runs_that_were_brought_back(
    cells: list[Cell], runs: Path, tmp_path: Path
) -> None:
    path, again = tmp_path / "runs.jsonl.xz", tmp_path / "again"
    records.keep(cells, runs, path)
    assert records.bring_back(cells, again, path) == len(cells)
    assert all(is_done(cell, again) for cell in cells)
    first, second = told(runs), told(again)
    assert first.keys() == second.keys()
    assert len(first) > len(cells)  # both protocols, re-rankers
    for name, (means, _) in first.items():
        assert second[name][0] == pytest.approx(means, rel=1e-5)
    (_, kept), (_, again_kept) = (found[cells[0].name, "sampled"] for found in (first, second))
    assert kept["epoch"] == again_kept["epoch"] == 2
    assert again_kept["valid_ndcg@50"] == pytest.approx(kept["valid_ndcg@50"], rel=1e-5)


def test_a_record_does_not_tell_where_data_is(
    cells: list[Cell], runs: Path, tmp_path: Path
) -> None:
    records.keep(cells, runs, tmp_path / "runs.jsonl.xz")
    text = lzma.decompress((tmp_path / "runs.jsonl.xz").read_bytes()).decode()
    assert cells[1].name in text
    assert SECRET not in text


def test_runs_at_hand_and_records_of_another_config_are_left_alone(
    cells: list[Cell], runs: Path, tmp_path: Path
) -> None:
    path = tmp_path / "runs.jsonl.xz"
    records.keep(cells, runs, path)
    shutil.rmtree(runs / cells[0].name)
    longer = cells[0].config.training.model_copy(update={"epochs": 999})
    other = cells[0]._replace(config=cells[0].config.model_copy(update={"training": longer}))
    assert records.bring_back([other, *cells[1:]], runs, path) == 0
    assert not (runs / other.name).exists()
    more = cells[0]._replace(
        reranked=(*cells[0].reranked, RerankRequest("fa-ir", 7, {}, "mark"))
    )
    assert records.bring_back([more], runs, path) == 0
    assert records.bring_back(cells, runs, path) == 1


def test_a_record_stays_where_its_run_is_not_at_hand(
    cells: list[Cell], runs: Path, tmp_path: Path
) -> None:
    path, again = tmp_path / "runs.jsonl.xz", tmp_path / "again"
    records.keep(cells, runs, path)
    records.keep(cells, tmp_path / "elsewhere", path)
    assert records.bring_back(cells, again, path) == len(cells)
    records.keep(cells[:1], again, path)
    assert records.bring_back(cells, tmp_path / "third", path) == 1


def test_falls_are_known_again_of_runs_that_were_brought_back(
    cells: list[Cell], runs: Path, tmp_path: Path
) -> None:
    path, again, found = tmp_path / "runs.jsonl.xz", tmp_path / "again", {"gap": Fall(1, 2, 3)}

    def falls(of: Path) -> dict[str, Fall]:
        by_name = {one.run.name: one for one in collect(of).results}
        before, after = (by_name[cell.name] for cell in cells[1:])
        return falls_once(of, before, after, [50, 100], lambda *pair: found)

    assert falls(runs) == found
    records.keep(cells, runs, path)
    records.bring_back(cells, again, path)
    found = {"gap": Fall(4, 5, 6)}
    assert falls(again) == {"gap": Fall(1, 2, 3)}


def test_a_run_that_is_not_done_has_no_record(
    cells: list[Cell], runs: Path, tmp_path: Path
) -> None:
    (runs / cells[0].name / "metrics.json").unlink()
    records.keep(cells, runs, tmp_path / "runs.jsonl.xz")
    assert records.bring_back(cells, tmp_path / "again", tmp_path / "runs.jsonl.xz") == 2
    assert records.bring_back(cells, tmp_path / "none", tmp_path / "no-file.xz") == 0


def test_a_commit_is_noted_for_runs_that_were_trained_now(
    cells: list[Cell], runs: Path, tmp_path: Path
) -> None:
    seen: list[Event] = []
    watch = records.noting("abc1234", runs, seen.append)
    watch(Event(cells[0], "done"))  # long since
    watch(Event(cells[1], "running"))
    watch(Event(cells[1], "done", {}))
    assert len(seen) == 3
    folders = [runs / cell.name for cell in cells]
    assert records.commits(folders) == ["abc1234", records.UNKNOWN]
    records.noting("def5678", runs, seen.append)(Event(cells[1], "done", {}))  # gone on with
    assert records.commits(folders[1:2]) == ["abc1234", "def5678"]
    records.keep(cells, runs, tmp_path / "runs.jsonl.xz")
    records.bring_back(cells, tmp_path / "again", tmp_path / "runs.jsonl.xz")
    assert records.commits([tmp_path / "again" / cells[1].name]) == ["abc1234", "def5678"]
