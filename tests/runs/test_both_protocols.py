"""Both protocols at the end of a run, and what is said where they disagree."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.cli.train import show_result
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import Lists
from fairtopk.reporting.curves import views_of
from fairtopk.reporting.page import sweep_page
from fairtopk.reporting.results import collect
from fairtopk.runs import measure as measuring
from fairtopk.runs import sweep as cells
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.grid import Cell
from fairtopk.runs.measure import (
    Evaluation,
    disagreement,
    measure_other_protocol,
    measure_run,
    some_users,
)
from fairtopk.runs.open import OpenRun, open_run
from fairtopk.runs.result import Identity, sealed
from fairtopk.runs.run import train_run
from fairtopk.runs.sweep import run_cell
from fairtopk.storage import load_tensors

BASE: dict[str, Any] = {
    "data": {"source": "synthetic"},
    "model": {"width": 8, "hidden": [8]},
    "method": {"name": "kso-red", "k": 20, "c_relative": 1.0},
    "training": {"warmup_epochs": 1, "epochs": 1, "lists": {"rated": 5, "unrated": 60}},
    "evaluation": {"k": [10, 20], "unrated": 100},
}
FULL, SAMPLED = "metrics-full-test-k10-20.json", "metrics-sampled-test-k10-20.json"
SIGNED = "rank_exposure_gap_signed"
WHO = Identity("a run", "its config", "its data")


def config(**changes: dict[str, Any]) -> Config:
    values = {name: {**BASE[name], **changes.get(name, {})} for name in BASE}
    return check_config(values, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(ft.load("synthetic"))


@pytest.fixture(scope="module")
def run(lists: Lists, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("run") / "run"
    train_run(config(), out, lists=lists)
    return out


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the embedded catalogue count as much work."""
    monkeypatch.setattr(measuring, "MOST_SCORES", 1)
    monkeypatch.setattr(measuring, "LEAST_USERS", 70)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def without_identity(kept: dict[str, Any]) -> dict[str, Any]:
    of_tensors = isinstance(kept["metrics"], list)  # where the checksum is that of the data
    added = ("identity",) if of_tensors else ("identity", "checksum")
    return {name: value for name, value in kept.items() if name not in added}


def test_a_run_ends_with_what_evaluate_would_find_by_the_other_protocol(run: Path) -> None:
    kept, again = read(run / FULL), measure_run(open_run(run, {"protocol": "full"}))
    assert without_identity(kept) == again.result
    values = load_tensors(run / "per_query-full-test-k10-20.safetensors")
    assert without_identity(values.about) == again.queries.about
    for name, value in again.queries.tensors.items():
        torch.testing.assert_close(values.tensors[name], value, rtol=0, atol=0, equal_nan=True)


def test_the_metrics_file_tells_the_other_protocol_in_short_and_its_time_apart(
    run: Path,
) -> None:
    result, kept = read(run / "metrics.json"), read(run / FULL)
    told = result["other_protocol"]
    assert (result["protocol"], told["protocol"], told["file"]) == ("sampled", "full", FULL)
    assert told["users"] == {"measured": 1_000, "of": 1_000} == result["users"]
    for k in (10, 20):
        for name in ("ndcg", "exposure_gap", "rank_exposure_gap", SIGNED):
            assert told["metrics"][f"{name}@{k}"] == kept["metrics"][f"{name}@{k}"]["mean"]
    assert set(result["seconds"]) == {"training", "evaluation", "other_protocol"}


def test_a_run_of_the_catalogue_is_measured_on_sampled_lists_too(
    lists: Lists, tmp_path: Path
) -> None:
    settings = config(evaluation={"protocol": "full"})
    result = train_run(settings, tmp_path / "run", lists=lists)
    assert result["other_protocol"]["file"] == SAMPLED
    kept = read(tmp_path / "run" / SAMPLED)
    again = measure_run(open_run(tmp_path / "run", {"protocol": "sampled"})).result
    assert without_identity(kept) == again


@pytest.mark.slow
def test_a_run_stopped_between_its_two_results_ends_with_the_same(
    lists: Lists, run: Path, tmp_path: Path
) -> None:
    train_run(config(), tmp_path / "run", lists=lists)
    (tmp_path / "run" / "metrics.json").unlink()
    (tmp_path / "run" / FULL).write_text("half of it")
    result = train_run(config(), tmp_path / "run", lists=lists, resume=True)
    whole = read(run / "metrics.json")
    for key in ("metrics", "other_protocol", "warnings", "users"):
        assert result[key] == whole[key]
    assert read(tmp_path / "run" / FULL) == read(run / FULL)


@pytest.mark.slow
@pytest.mark.usefixtures("_few")
def test_of_a_large_catalogue_a_seeded_sample_of_users_is_measured(
    lists: Lists, tmp_path: Path
) -> None:
    users = some_users(lists.test, seed=0)
    assert users is not None
    assert len(users) == 70
    assert (np.diff(users) > 0).all()
    assert np.isin(users, lists.test.user).all()
    again, other = (some_users(lists.test, seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(users, again)
    assert not np.array_equal(users, other)

    result = train_run(config(), tmp_path / "run", lists=lists)
    assert result["other_protocol"]["users"] == {"measured": 70, "of": 1_000}
    assert result["users"] == {"measured": 1_000, "of": 1_000}
    kept = load_tensors(tmp_path / "run" / "per_query-full-test-k10-20.safetensors").tensors
    np.testing.assert_array_equal(kept["user"], users)
    whole = measure_run(open_run(tmp_path / "run", {"protocol": "full"})).queries.tensors
    mine = torch.isin(whole["user"], kept["user"])
    torch.testing.assert_close(kept["ndcg@20"], whole["ndcg@20"][mine])
    (_, sample) = collect(tmp_path).results
    assert sample.lists["users"] == "70 of 1,000 users"
    assert views_of([sample])[0].label.endswith("full catalogue of 70 of 1,000 users")


def test_all_users_are_measured_where_that_is_little_work(lists: Lists) -> None:
    assert some_users(lists.test, seed=0) is None


def swept(lists: Lists, out: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a cell of a sweep that asks for both protocols measures anew."""
    measured = []

    def spy(run: OpenRun, *, protocol: str) -> Evaluation:
        measured.append(protocol)
        return measure_run(run, protocol=protocol)

    monkeypatch.setattr(cells, "measure_run", spy)
    monkeypatch.setattr(cells, "_load", lambda data, seed: lists)
    run_cell(Cell("cell", config(), ("full",)), out)
    return measured


def test_a_sweep_does_not_measure_again_what_is_there(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert swept(lists, tmp_path, monkeypatch) == []
    assert (tmp_path / "cell" / FULL).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("_few")
def test_a_sweep_measures_all_users_where_there_is_a_sample(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert swept(lists, tmp_path, monkeypatch) == ["full"]
    assert read(tmp_path / "cell" / FULL)["users"] == {"measured": 1_000, "of": 1_000}
    assert swept(lists, tmp_path, monkeypatch) == []


def test_what_has_one_protocol_is_left_out_and_says_why(lists: Lists, tmp_path: Path) -> None:
    robust = config(method={"name": "robust", "c": 1.0, "c_relative": None})
    letor = {"data": {"source": "letor", "path": "x"}, "method": {"name": "k-song"}}
    documents = check_config(letor, "test")
    for settings, why in ((robust, "the catalogue is too long"), (documents, "whole lists")):
        run = OpenRun(tmp_path, settings, lists, WHO, nn.Identity())
        other, summary = measure_other_protocol(run)
        assert other is None
        assert why in summary["left_out"]
        assert disagreement({}, other, lists.data.group_names) is None
    assert not list(tmp_path.iterdir())


def metrics(signed: dict[int, tuple[float, float] | None], protocol: str) -> dict[str, Any]:
    """Return a metrics file with these intervals of the signed gap by rank."""
    cells: dict[str, Any] = {f"ndcg@{k}": {"mean": 0.3, "ci95": [0.2, 0.4]} for k in signed}
    for k, interval in signed.items():
        mean, ends = (None, [None, None]) if interval is None else (sum(interval) / 2, interval)
        cells[f"{SIGNED}@{k}"] = {"mean": mean, "ci95": list(ends)}
    return {"protocol": protocol, "metrics": cells}


def test_a_sentence_tells_where_the_protocols_favour_opposite_sides() -> None:
    sampled = metrics({10: (0.001, 0.003), 20: (0.002, 0.004), 50: (0.001, 0.002)}, "sampled")
    full = metrics({10: (-0.004, -0.002), 20: (-0.03, -0.01), 50: (-0.001, 0.001)}, "full")
    for own, other in ((sampled, full), (full, sampled)):
        said = disagreement(own, other, ["Horror", "other"])
        assert said is not None
        assert "at K = 10, 20, Horror gets more than the rest by rank on sampled lists" in said
        assert "(+0.002 at 10) and less on the whole catalogue (-0.003)" in said
    turned = disagreement(
        metrics({10: (-0.2, -0.1)}, "sampled"), metrics({10: (0.1, 0.2)}, "full"), ["a", "b"]
    )
    assert turned is not None
    assert "a gets less than the rest by rank on sampled lists" in turned


@pytest.mark.parametrize(
    ("sampled", "full"),
    [
        ((0.001, 0.003), (0.001, 0.003)),
        ((-0.001, 0.003), (-0.003, -0.001)),
        ((0.001, 0.003), (-0.003, 0.001)),
        ((0.001, 0.003), None),
    ],
)
def test_nothing_is_said_where_a_side_may_be_chance_or_is_the_same(
    sampled: tuple[float, float], full: tuple[float, float] | None
) -> None:
    own, other = metrics({10: sampled}, "sampled"), metrics({10: full}, "full")
    assert disagreement(own, other, ["a", "b"]) is None
    assert disagreement(own, None, ["a", "b"]) is None


class ByItem(nn.Module):
    """Scores an item by a table, whoever asks."""

    def __init__(self, of_item: Tensor) -> None:
        super().__init__()
        self.of_item = of_item

    def forward(self, batch: Batch) -> Tensor:
        return self.of_item[batch.item.long()]

    def score_all(self, users: Tensor) -> Tensor:
        return self.of_item.expand(len(users), -1)


def test_a_model_that_is_fair_on_short_lists_alone_is_warned_of(
    lists: Lists, tmp_path: Path
) -> None:
    """Some items of the rest, then the named group: a short list's top has both."""
    group = torch.from_numpy(lists.data.group)
    scores = torch.where(group == 0, 0.5, 0.0)
    scores[torch.nonzero(group == 1)[:60, 0]] = 1.0
    settings = config(evaluation={"k": [10], "unrated": 30})
    run = OpenRun(tmp_path, settings, lists, WHO, ByItem(scores))
    other, _ = measure_other_protocol(run)
    said = disagreement(measure_run(run).result, other, lists.data.group_names)
    assert said is not None
    assert f"{lists.data.group_names[0]} gets more than the rest by rank on sampled" in said
    fair = ByItem(torch.rand(len(group), generator=torch.Generator().manual_seed(0)))
    run = run._replace(scorer=fair)
    other, _ = measure_other_protocol(run)
    assert disagreement(measure_run(run).result, other, lists.data.group_names) is None


def test_a_warning_is_shown_after_training_and_on_the_page(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = read(run / "metrics.json") | {"warnings": ["they disagree"]}
    show_result(result)
    shown = capsys.readouterr().out
    assert "warning: they disagree" in shown
    assert "full catalogue, K = 10: NDCG" in shown
    out = tmp_path / "sweep" / "run"
    out.mkdir(parents=True)
    for file in run.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    (out / "metrics.json").write_text(json.dumps(sealed(result)))
    found = collect(out.parent)
    assert "run: they disagree." in sweep_page(found, views_of(found.results), {})
