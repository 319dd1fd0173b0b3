"""Sweeps on the embedded data: repeated, killed, gone on with."""

import fcntl
import gc
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from kills import SAVE, State, run
from torch import nn

import fairtopk as ft
from fairtopk import storage
from fairtopk.cli.sweep import say_room
from fairtopk.errors import Exit, InputError
from fairtopk.lists.users import Lists
from fairtopk.reporting.page import report
from fairtopk.runs.grid import load_sweep
from fairtopk.runs.result import AFTERWARDS
from fairtopk.runs.sweep import (
    Event,
    is_done,
    refuse_too_little,
    room_of,
    run_cell,
    run_sweep,
)
from fairtopk.runs.workers import Finished
from fairtopk.storage import save_tensors
from fairtopk.training.loop import Trainer

pytestmark = pytest.mark.slow  # processes that import torch, and train

SWEEP = """
[model]
width = 8
hidden = [8]
[training]
warmup_epochs = 1
epochs = 2
lists = { rated = 5, unrated = 60 }
[evaluation]
k = [10, 20]
unrated = 100
[sweep]
seed = [0, 1]
method = [{ name = "k-song", k = 20 }, { name = "kso-red", k = 20, c_relative = [0.5] }]
protocols = ["full"]
rerank = [{ method = "det-const-sort" }]
"""

MEASURED = "fairtopk.runs.result:write_result"

DOCUMENTS = """
[data]
source = "parquet"
path = "FOLDER/documents.parquet"
options = { query = "qid", relevance = "y", group = "group" }
[training]
warmup_epochs = 1
epochs = 2
[sweep]
method = [{ name = "k-song", k = 5 }, { name = "kso-red", k = 5, c_relative = [0.5] }]
protocols = ["full"]
"""


@pytest.fixture(scope="module")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "sweep.toml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def swept(toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep."""
    out = tmp_path_factory.mktemp("swept") / "out"
    assert run_sweep(load_sweep(toml), out, processes=2) == {}
    return out


def numbers(out: Path) -> dict[str, Any]:
    """Return every metric of every file of metrics, by its path."""
    return {
        path.relative_to(out).as_posix(): json.loads(path.read_text())["metrics"]
        for pattern in ("metrics*.json", "rerank-*.json")
        for path in out.rglob(pattern)
    }


def test_every_cell_is_a_run_folder_with_all_that_was_asked(swept: Path) -> None:
    found = numbers(swept)
    assert len(found) == 4 * 2 + 2  # sampled and full, and two colour-blind runs re-ranked
    results = json.loads((swept / "results.json").read_text())
    assert [(one["method"], one["seed"]) for one in results] == [
        ("k-song", 0), ("kso-red", 0), ("k-song", 1), ("kso-red", 1),
    ]  # fmt: skip
    for one in results:
        assert found[f"{one['run']}/metrics.json"] == one["metrics"]
    assert not list(swept.rglob("*state.safetensors"))


def test_a_sweep_that_is_killed_again_and_again_ends_with_the_same_numbers(
    toml: Path, swept: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    states = [
        (State(SAVE, 2, in_worker=True), signal.SIGINT),
        (State(SAVE, 3, in_worker=True), signal.SIGKILL),
        (State(MEASURED, 1, in_worker=True), signal.SIGKILL),
    ]
    ends = []
    for state, number in states:
        again = ["--resume"] if out.exists() else []
        words = ["sweep", toml, "--out", out, "--processes", "2", *again]
        ends.append(run(words, at=state, number=number, cwd=tmp_path).code)
        assert not (out / "results.json").exists()
    assert ends == [Exit.INTERRUPTED, -signal.SIGKILL, -signal.SIGKILL]
    assert run_sweep(load_sweep(toml), out, processes=2) == {}
    assert numbers(out) == numbers(swept)


def test_a_second_sweep_is_kept_out_of_a_folder_while_one_is_at_work(
    toml: Path, tmp_path: Path
) -> None:
    """The lock of another process is one that this process did not take through `alone_in`."""
    out = tmp_path / "out"
    out.mkdir()
    with (out / storage.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ft.InputError, match="another process is at work in"):
            run_sweep(load_sweep(toml), out)


def test_what_is_done_is_not_done_again(toml: Path, swept: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in swept.rglob("metrics*.json")}
    seen: list[Event] = []
    run_sweep(load_sweep(toml), swept, watch=seen.append)
    assert [event.what for event in seen] == ["done"] * 4
    assert before == {path: path.stat().st_mtime_ns for path in swept.rglob("metrics*.json")}


def test_a_cell_that_fails_is_told_of_and_does_not_stop_the_others(
    toml: Path, tmp_path: Path
) -> None:
    good, *_ = load_sweep(toml)
    bad = load_sweep(toml, ["data.test=10000"])[0]._replace(name="bad")
    failures = run_sweep([bad, good], tmp_path / "out", processes=1)
    assert list(failures) == ["bad"]
    assert json.loads((tmp_path / "out" / "failures.json").read_text()) == failures
    (kept,) = json.loads((tmp_path / "out" / "results.json").read_text())
    assert kept["run"] == good.name


@pytest.mark.parametrize(("warmup", "at_once"), [(1, [1, 1]), (0, [2])])
def test_of_runs_that_share_a_warmup_one_goes_first(
    warmup: int, at_once: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    class Quick:
        """Two workers that do nothing at once."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.begun: list[str] = []

        def __enter__(self) -> "Quick":
            return self

        def __exit__(self, *_: object) -> None: ...

        def is_free(self) -> bool:
            return len(self.begun) < 2

        def begin(self, name: str, *_: Any) -> None:
            self.begun.append(name)

        def finished(self) -> list[Finished]:
            over, self.begun = self.begun, []
            found.append(len(over))
            return [Finished(name, {}) for name in over]

    monkeypatch.setattr("fairtopk.runs.sweep.Workers", Quick)
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    cells = load_sweep(path, ["sweep.seed=[0]", f"training.warmup_epochs={warmup}"])
    run_sweep(cells, tmp_path / "out")
    assert found == at_once


def test_another_config_for_a_run_that_is_there_is_refused(toml: Path, swept: Path) -> None:
    with pytest.raises(InputError, match=r"of that run: training\.epochs was 2 and is now 3;"):
        run_sweep(load_sweep(toml, ["training.epochs=3"]), swept)


def test_new_wishes_are_granted_without_training_again(
    toml: Path, swept: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(swept, out)
    cell = load_sweep(toml, ['sweep.rerank=[{ method = "fa-ir" }]'])[0]
    log = (out / cell.name / "log.jsonl").stat().st_mtime_ns
    (out / cell.name / ".model.safetensors.1.part").touch()  # as a kill leaves it
    run_cell(cell, out)
    assert not list((out / cell.name).glob("*.part"))
    assert list((out / cell.name).glob("rerank-fa-ir*.json"))
    assert (out / cell.name / "log.jsonl").stat().st_mtime_ns == log


def test_what_a_sweep_did_not_write_is_not_removed(toml: Path, tmp_path: Path) -> None:
    cell = load_sweep(toml)[0]
    folder = tmp_path / cell.name
    folder.mkdir(parents=True)
    (folder / "notes.txt").touch()
    with pytest.raises(InputError, match="holds something else than a run"):
        run_cell(cell, tmp_path)
    assert (folder / "notes.txt").exists()


def test_a_model_that_was_not_kept_cannot_be_measured_in_new_ways(
    toml: Path, swept: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(swept, out)
    cell = load_sweep(toml, ["sweep.rerank=[]", "sweep.keep_models=false"])[0]
    run_cell(cell, out)
    assert not (out / cell.name / "model.safetensors").exists()
    run_cell(load_sweep(toml)[0], out)  # what was done before was not forgotten
    with pytest.raises(InputError, match="has not kept its model"):
        run_cell(load_sweep(toml, ['sweep.rerank=[{ method = "fa-ir" }]'])[0], out)


def test_less_may_be_asked_of_a_sweep_that_is_done(
    toml: Path, swept: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(swept, out)
    cells = load_sweep(toml, ["sweep.rerank=[]", "sweep.protocols=[]"])
    assert all(is_done(cell, out) for cell in cells)
    assert not any(
        is_done(cell, out)
        for cell in load_sweep(toml, ['sweep.rerank=[{ method = "fa-ir" }]'])
        if cell.reranked
    )


def test_a_damaged_metrics_file_fails_its_own_run_alone(
    toml: Path, swept: Path, tmp_path: Path
) -> None:
    out, cells = tmp_path / "out", load_sweep(toml)
    shutil.copytree(swept, out)
    (out / cells[1].name / "metrics.json").write_text('{"metrics": ')
    failures = run_sweep(cells, out, processes=1)
    assert list(failures) == [cells[1].name]
    assert "metrics.json is damaged; remove its folder" in failures[cells[1].name]
    kept = json.loads((out / "results.json").read_text())
    assert [one["run"] for one in kept] == [cells[place].name for place in (0, 2, 3)]


def test_what_a_kill_left_behind_is_removed(toml: Path, swept: Path, tmp_path: Path) -> None:
    out, cells = tmp_path / "out", load_sweep(toml)
    shutil.copytree(swept, out)
    left = [
        out / cells[0].name / "state.safetensors",
        out / "warmups" / ".a.safetensors.1.part",
    ]
    for path in left:
        path.touch()
    run_sweep(cells, out)
    assert not any(path.exists() for path in left)
    assert (out / cells[0].name / "model.safetensors").exists()
    assert list((out / "warmups").iterdir())


def test_room_is_told_for_the_checkpoint_that_is_being_written_too(
    toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, sizes = load_sweep(toml)[0], []

    def save(path: Path, *saved: Any, **how: Any) -> None:
        save_tensors(path, *saved, **how)
        if not how:  # else it is a warm-up that is kept for other runs
            sizes.append(sum(one.stat().st_size for one in path.parent.glob("*.safetensors")))

    monkeypatch.setattr(storage, "save_tensors", save)
    run_cell(cell, tmp_path)
    assert len(sizes) == 6  # three epochs, two files
    assert max(sizes) <= room_of([cell])[1] < 4 * max(sizes)


def test_nothing_is_left_in_memory_of_cells_that_are_done(toml: Path, tmp_path: Path) -> None:
    kinds = (Trainer, Lists, nn.Module)

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(one), kinds) for one in gc.get_objects())

    first, *others = load_sweep(toml, ["sweep.seed=[0, 1, 2]"])
    run_cell(first, tmp_path)
    after_one = alive()  # the data at hand is kept
    for cell in others:
        run_cell(cell, tmp_path)
    assert alive() == after_one


def test_room_on_disk_is_bounded_and_told_beforehand(toml: Path, swept: Path) -> None:
    kept, _ = room_of(load_sweep(toml))
    used = sum(path.stat().st_size for path in swept.rglob("*") if path.is_file())
    assert used <= kept < 20 * used
    with pytest.raises(InputError, match="GB free; choose another --out"):
        refuse_too_little(10**18, swept)


def test_room_is_told_of_what_is_left_to_do(
    toml: Path, swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, cells = tmp_path / "out", load_sweep(toml)
    shutil.copytree(swept, out)
    say_room(cells, out, 1)
    assert capsys.readouterr().out == ""
    (out / cells[0].name / AFTERWARDS).unlink()
    say_room(cells, out, 1)
    assert capsys.readouterr().out.startswith("1 run, at most")


def test_the_report_of_a_sweep_shows_what_was_reranked_beside_the_rest(
    swept: Path, tmp_path: Path
) -> None:
    page = report(swept, out=tmp_path / "page.html").read_text(encoding="utf-8")
    assert "k-song + det-const-sort (needs group labels when serving)" in page


def test_documents_are_swept_like_users_and_items(tmp_path: Path) -> None:
    x, y, qid, groups = ft.make_documents(20, 15)
    columns = {f"f{place}": column for place, column in enumerate(x.T)}
    frame = pl.DataFrame({**columns, "qid": qid, "y": y, "group": groups})
    frame.write_parquet(tmp_path / "documents.parquet")
    path = tmp_path / "sweep.toml"
    path.write_text(DOCUMENTS.replace("FOLDER", str(tmp_path)))
    assert run_sweep(load_sweep(path), tmp_path / "out", processes=1) == {}
