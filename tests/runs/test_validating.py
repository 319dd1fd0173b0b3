"""On which lists epochs are chosen."""

import json
from pathlib import Path
from typing import Any

import pytest

import fairtopk as ft
from fairtopk.evaluation import evaluate_full
from fairtopk.lists.users import Lists
from fairtopk.runs import trainer as validating
from fairtopk.runs.build import build_model
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config, load_config
from fairtopk.runs.measure import measure_run, some_users
from fairtopk.runs.open import open_run
from fairtopk.runs.run import train_run
from fairtopk.runs.trainer import build_validation, validation_k

BASE: dict[str, Any] = {
    "data": {"source": "synthetic"},
    "model": {"width": 8, "hidden": [8]},
    "method": {"name": "kso-red", "k": 20, "c_relative": 1.0},
    "training": {"warmup_epochs": 1, "epochs": 2, "lists": {"rated": 5, "unrated": 60}},
    "evaluation": {"k": [10, 20], "unrated": 100},
}


def config(**changes: dict[str, Any]) -> Config:
    values = {name: {**BASE[name], **changes.get(name, {})} for name in BASE}
    return check_config(values, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(ft.load("synthetic"))


@pytest.mark.slow
@pytest.mark.parametrize("select_on", ["sampled", "full"])
def test_the_log_has_what_is_measured_on_the_lists_that_choose(
    lists: Lists, tmp_path: Path, select_on: str
) -> None:
    settings = config(evaluation={"select_on": select_on})
    result = train_run(settings, tmp_path / "run", lists=lists)
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    log = [one for one in map(json.loads, lines) if one["phase"] == "fine-tuning"]
    kept = log[result["chosen_epoch"] - 1]
    measured = measure_run(open_run(tmp_path / "run"), "validation", select_on).result
    for name in ("ndcg@20", "rank_exposure_gap@20"):
        assert kept[f"valid_{name}"] == pytest.approx(measured["metrics"][name]["mean"])


def test_the_catalogue_is_ranked_for_a_seeded_sample_of_users(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "MOST_USERS", 50)
    settings = config(evaluation={"select_on": "full"})
    scorer = build_model(settings, lists)
    found = [build_validation(settings, lists)[0](scorer) for _ in range(2)]
    users = some_users(lists.validation, seed=0, most=50)
    assert users is not None
    assert len(users) == 50
    exact = evaluate_full(scorer, lists.validation, [20], users=users)["ndcg@20"]
    assert found[0] == found[1]
    assert found[0]["valid_ndcg@20"] == float(exact.double().mean())


def test_sampled_lists_choose_unless_the_catalogue_is_what_is_learnt() -> None:
    plain = config()
    assert (plain.evaluation.select_on, plain.evaluation.select_gap) == (
        "sampled", "exposure_gap",
    )  # fmt: skip
    learnt = config(
        method={"k_of": "catalogue"}, training={"lists": {"rated": 5, "unrated": 60, "top": 20}}
    )
    assert (learnt.evaluation.select_on, learnt.evaluation.select_gap) == (
        "full", "rank_exposure_gap",
    )  # fmt: skip


def test_the_catalogue_chooses_by_the_gap_by_rank_unless_another_is_named() -> None:
    full = config(evaluation={"select_on": "full"})
    assert full.evaluation.select_gap == "rank_exposure_gap"
    named = {"select_on": "full", "select_gap": "representation_gap"}
    assert config(evaluation=named).evaluation.select_gap == "representation_gap"


def test_what_was_filled_in_is_in_the_file_of_the_run(tmp_path: Path) -> None:
    full = config(evaluation={"select_on": "full"})
    (tmp_path / "c.toml").write_text(dump_config(full))
    assert load_config(tmp_path / "c.toml") == full
    assert 'select_gap = "rank_exposure_gap"' in dump_config(full)


def test_k_of_the_catalogue_chooses_on_the_catalogue_only() -> None:
    method = {"k_of": "catalogue", "k": 7}
    on_full = config(method=method, evaluation={"select_on": "full"})
    assert validation_k(on_full) == 7
    assert validation_k(config(method=method)) == 10


def test_what_ranks_lists_as_a_whole_cannot_be_chosen_on_the_catalogue() -> None:
    robust = {"name": "robust", "c": 1.0, "c_relative": None}
    with pytest.raises(ft.InputError, match=r"too long for that; leave out evaluation\.select"):
        config(method=robust, evaluation={"select_on": "full"})
    letor = {"data": {"source": "letor", "path": "x"}, "method": {"name": "k-song"}}
    for asked in ("full", "sampled"):
        with pytest.raises(ft.InputError, match="whole lists"):
            check_config({**letor, "evaluation": {"select_on": asked}}, "test")
