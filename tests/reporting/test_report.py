"""Reports on runs that were really trained, and the command."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from catalogues import full_lists

from fairtopk.lists.batch import candidate_batch
from fairtopk.lists.users import Lists
from fairtopk.models.scoring import score
from fairtopk.reporting.curves import views_of
from fairtopk.reporting.rankings import rankings_of
from fairtopk.reporting.results import Rankings, collect
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import cached_loader, open_run
from fairtopk.runs.run import train_run
from fairtopk.storage import load_tensors, save_tensors

K = 10


def config_of(method: dict[str, object]) -> Config:
    training = {"warmup_epochs": 1, "epochs": 1, "lists": {"rated": 5, "unrated": 20}}
    return check_config(
        {
            "model": {"name": "mf", "width": 4},
            "method": {"k": K, **method},
            "training": training,
            "evaluation": {"k": [K], "unrated": 50},
        },
        "the test",
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in ({"name": "k-song"}, {"name": "kso-red", "c_relative": 1.0}):
        out = folder / str(method["name"])
        train_run(config_of(method), out)
        measure_run(open_run(out), protocol="full").save(out / "metrics-full.json")
    return folder


def lists_of(config: Config) -> Lists:
    return cached_loader()(config.data, config.seed)


def test_rankings_are_those_of_the_most_unfair_lists(trained: Path) -> None:
    view = views_of(collect(trained).results)[0]
    found = rankings_of(trained, view, cached_loader())
    assert isinstance(found, Rankings)
    config = config_of({"name": "k-song"})
    lists = lists_of(config)
    (block,) = lists.test.batches(unrated=50, seed=config.seed)
    scores = score(open_run(trained / "k-song", load=lambda *_: lists).scorer, block)
    gaps = load_tensors(trained / "k-song" / "per_query.safetensors").tensors["exposure_gap@10"]
    worst = int(gaps.nan_to_num(-1).argmax())
    valid = torch.where(block.mask[worst], scores[worst], -torch.inf)
    top = valid.argsort(descending=True, stable=True)[:K]
    row = "".join(str(int(group)) for group in block.group[worst][top])
    assert found.rows_before[0] == row
    assert (found.of, len(found.rows_after)) == (int((~gaps.isnan()).sum()), 30)
    assert found.groups == ("a", "b")
    assert found.before.startswith("k-song, seed 0")
    assert found.after.startswith("kso-red, C/n² = 1, seed 0")


def test_rankings_of_the_full_catalogue_leave_out_what_was_rated(trained: Path) -> None:
    full = views_of(collect(trained).results)[1]
    assert full.label.endswith("full catalogue")
    found = rankings_of(trained, full, cached_loader())
    assert isinstance(found, Rankings)
    config = config_of({"name": "k-song"})
    lists = lists_of(config)
    kept = load_tensors(trained / "k-song" / "per_query-full.safetensors").tensors
    worst = int(kept["user"][kept["exposure_gap@10"].nan_to_num(-1).argmax()])
    (catalogue,) = (one for one in full_lists(lists.test, block=1) if one.user[0] == worst)
    batch = candidate_batch(catalogue, lists.data.group)
    scores = score(open_run(trained / "k-song", load=lambda *_: lists).scorer, batch)
    top = torch.where(batch.mask, scores, -torch.inf)[0].argsort(descending=True)[:K]
    row = "".join(str(int(group)) for group in batch.group[0][top])
    assert found.rows_before[0] == row


def test_rankings_need_the_models(trained: Path, tmp_path: Path) -> None:
    view = views_of(collect(trained).results)[0]
    said = rankings_of(tmp_path, view, cached_loader())
    assert said == "the data or the models could not be loaded again"


@pytest.mark.parametrize("undefined_in", [["k-song"], ["k-song", "kso-red"]])
def test_without_a_list_of_both_groups_there_are_no_rankings(
    trained: Path, tmp_path: Path, undefined_in: list[str]
) -> None:
    sampled = [one for one in collect(trained).results if one.lists["protocol"] == "sampled"]
    name, results = f"exposure_gap@{K}", []
    for one in sampled:
        if one.run.method in undefined_in:
            kept = load_tensors(one.per_query[0])
            tensors = kept.tensors | {name: torch.full_like(kept.tensors[name], torch.nan)}
            path = tmp_path / f"{one.run.method}.safetensors"
            save_tensors(path, tensors, kept.about)
            metrics = one.metrics | {name: one.metrics[name] | {"mean": None, "ci95": None}}
            one = replace(one, metrics=metrics, per_query=(path,))
        results.append(one)
    (view,) = views_of(results)
    assert rankings_of(trained, view, cached_loader()) == "no list has both groups"


def test_the_command_writes_a_page_with_rankings(run, trained: Path, tmp_path: Path) -> None:
    code, out, _ = run("report", trained, "--out", tmp_path / "new" / "page.html")
    assert code == 0
    assert "page.html" in out
    page = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert 'id="rankings"' in page
    assert "Nothing is missing." in page
    assert collect(trained).results[0].run.spread > 0


@pytest.mark.filterwarnings("always")
def test_the_command_says_in_a_line_each_which_runs_it_leaves_out(
    run, trained: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(trained, folder)
    for name in ("one", "two"):
        shutil.copytree(trained / "k-song", folder / name)
        (folder / name / "metrics.json").unlink()
    code, _, said = run("report", folder)
    assert code == 0
    lines = said.splitlines()
    assert len(lines) == 2
    for name, line in zip(("one", "two"), lines, strict=True):
        assert line.startswith(f"fairtopk: warning: {folder / name} is not finished, and left")
        assert line.endswith("--resume")


def test_the_command_refuses_a_folder_without_runs(run, tmp_path: Path) -> None:
    code, _, said = run("report", tmp_path)
    assert code == 2
    assert "holds no finished run" in said
    assert len(said.splitlines()) == 1
