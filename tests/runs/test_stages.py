"""What runs share, and which epochs the phases of a run end with."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fairtopk as ft
from fairtopk.lists.users import Lists
from fairtopk.runs.build import build_model
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.grid import Cell
from fairtopk.runs.run import Hooks, shared_stages, train_run
from fairtopk.runs.sweep import room_of
from fairtopk.runs.trainer import AnyTrainer
from fairtopk.storage import load_tensors

BASE: dict[str, Any] = {
    "model": {"name": "mf", "width": 8},
    "method": {"name": "fair-distill", "k": 20, "distill": {"epochs": 3, "head": 40}},
    "training": {"warmup_epochs": 1, "epochs": 2, "lists": {"rated": 5, "unrated": 40}},
    "evaluation": {"k": [10, 20], "unrated": 100},
}


def config(**changes: dict[str, Any]) -> Config:
    return check_config({name: BASE[name] | changes.get(name, {}) for name in BASE}, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(ft.load("synthetic"))


def log_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_a_teacher_is_shared_only_where_it_is_chosen_alike(lists: Lists) -> None:
    sampled = {"select_on": "sampled"}
    keys = [
        shared_stages(one, lists, Path())[1]
        for one in (
            config(),
            config(evaluation=sampled),
            # Where K counts positions of the catalogue, epochs are compared at the first K.
            config(evaluation=sampled, method={"k_of": "catalogue"}),
            config(evaluation={"select_k": 10}),
            config(evaluation=sampled | {"unrated": 50}),
            config(method={"k": 10}),
        )
    ]
    assert len(set(keys)) == len(keys)
    alike = [config(evaluation={"select_gap": "exposure_gap"}), config(method={"c": 0.3})]
    assert {shared_stages(one, lists, Path())[1] for one in alike} == {keys[0]}


@pytest.mark.slow
def test_a_teacher_that_ended_early_is_shared_too(lists: Lists, tmp_path: Path) -> None:
    training = BASE["training"] | {"epochs": 40, "patience": 1, "rate": 0.3}
    seen: list[int] = []

    def watch(trainer: AnyTrainer, record: dict[str, Any] | None) -> None:
        seen.append(trainer.progress.phase)

    settings = config(training=training)
    train_run(settings, tmp_path / "one", lists=lists, warmups=tmp_path / "warm")
    tuned = [one for one in log_of(tmp_path / "one") if one["phase"] == "fine-tuning"]
    assert 1 < len(tuned) < 40
    train_run(
        settings,
        tmp_path / "two",
        lists=lists,
        warmups=tmp_path / "warm",
        hooks=Hooks(report=watch),
    )
    assert set(seen) == {2}
    assert log_of(tmp_path / "one") == log_of(tmp_path / "two")
    ours, theirs = (
        load_tensors(tmp_path / name / "model.safetensors").tensors for name in ("one", "two")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_the_last_epoch_of_the_last_phase_is_kept_however_seldom_it_is_validated(
    lists: Lists, tmp_path: Path
) -> None:
    training = BASE["training"] | {"validate_every": 2}
    result = train_run(config(training=training), tmp_path / "run", lists=lists)
    validated = [
        (one["phase"], one["epoch"]) for one in log_of(tmp_path / "run") if "valid" in one
    ]
    assert validated == [("fine-tuning", 2), ("distillation", 2), ("distillation", 3)]
    assert result["chosen_epoch"] == 3


def test_without_a_last_phase_the_chosen_epoch_is_that_of_fine_tuning(
    lists: Lists, tmp_path: Path
) -> None:
    result = train_run(config(method={"c": 0.0}), tmp_path / "run", lists=lists)
    tuned = [one for one in log_of(tmp_path / "run") if one["phase"] == "fine-tuning"]
    best = max(tuned, key=lambda one: float(one["valid_ndcg@20"]))
    assert result["chosen_epoch"] == best["epoch"]


def test_room_is_told_for_each_teacher(lists: Lists) -> None:
    def kept(*settings: Config) -> int:
        return room_of([Cell(f"{place}", one) for place, one in enumerate(settings)])[0]

    shared = kept(config(), config(method={"c": 0.5}))
    model = build_model(config(), lists)
    apart = kept(config(), config(method={"k": 10}))
    assert apart - shared > 2 * 4 * sum(one.numel() for one in model.parameters())
