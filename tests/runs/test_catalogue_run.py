"""Runs on lists with top items: settings that go together, and going on after a stop."""

import signal
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import fairtopk as ft
from fairtopk.lists.users import Lists
from fairtopk.objectives.methods import METHODS
from fairtopk.runs import build
from fairtopk.runs import build as phases
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config, load_config
from fairtopk.runs.run import Hooks, train_run
from fairtopk.runs.trainer import AnyTrainer
from fairtopk.storage import load_pair, load_tensors
from fairtopk.training.samplers import ListSampler

METHOD = {"name": "kso-red", "preset": "catalogue", "k": 10, "c_relative": 1.0}
LISTS = {"rated": 4, "unrated": 40, "top": 12, "head": 30}


def config(lists: dict[str, int] = LISTS, **method: Any) -> Config:
    training = {"warmup_epochs": 1, "epochs": 1, "catalogue_epochs": 2, "lists": lists}
    values = {
        "model": {"width": 8, "hidden": [8]},
        "method": METHOD | method,
        "training": training,
        "evaluation": {"k": [10], "protocol": "full"},
    }
    return check_config(values, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(ft.load("synthetic"))


@pytest.mark.slow
@pytest.mark.parametrize("lazy", [False, True])
def test_a_run_stopped_in_the_middle_of_an_epoch_goes_on_to_the_same_bits(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lazy: bool
) -> None:
    """The head is that of the epoch's start, not of the step at which the run goes on."""
    if lazy:
        monkeypatch.setattr(build, "LAZY_ROWS", 0)
    settings, stops, seen = config(), [10, 12], []
    train_run(settings, tmp_path / "whole", lists=lists)

    def stop(trainer: AnyTrainer, record: dict[str, Any] | None) -> None:
        if stops and trainer.progress.total == stops[0]:
            stops.pop(0)
            signal.raise_signal(signal.SIGINT)

    while stops:
        resume = (tmp_path / "parts").exists()
        with pytest.raises(KeyboardInterrupt):
            train_run(
                settings,
                tmp_path / "parts",
                lists=lists,
                hooks=Hooks(report=stop),
                resume=resume,
            )
        state = load_pair(tmp_path / "parts")[1]
        seen.append((state.about["progress"]["step"], "sampler.head" in state.tensors))
    assert seen == [(2, True), (4, True)]
    train_run(settings, tmp_path / "parts", lists=lists, resume=True)
    # After an epoch there is nothing to remember.
    assert "sampler.head" not in load_pair(tmp_path / "parts")[1].tensors
    ours, theirs = (
        load_tensors(tmp_path / name / "model.safetensors").tensors
        for name in ("whole", "parts")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_the_head_is_looked_up_before_each_epoch(lists: Lists, tmp_path: Path) -> None:
    heads: dict[int, list[torch.Tensor]] = {0: [], 1: []}

    def watch(trainer: AnyTrainer, record: dict[str, Any] | None) -> None:
        if trainer.progress.phase == 2 and record is None:
            sampler = cast(ListSampler, trainer.phases[2].sampler)  # type: ignore[union-attr]
            heads[trainer.progress.epoch].append(sampler.state_dict()["head"].clone())

    result = train_run(config(), tmp_path / "run", lists=lists, hooks=Hooks(report=watch))
    assert result["chosen_epoch"] == 2  # the last
    first, second = heads[0], heads[1]
    assert len(first) > 1
    assert all(torch.equal(one, first[0]) for one in first)
    assert all(torch.equal(one, second[0]) for one in second)
    assert not torch.equal(first[0], second[0])


def test_a_method_goes_on_with_the_catalogue_where_k_song_has_led(lists: Lists) -> None:
    settings = config()
    found = phases.build_phases(settings, build.build_model(settings, lists), lists)
    samplers = [phase.sampler for phase in found]
    assert all(isinstance(one, ListSampler) for one in samplers)
    assert [one.sizes.top for one in samplers] == [0, 0, 12]  # type: ignore[attr-defined]
    assert [one.corrected for one in samplers] == [False, False, True]  # type: ignore[attr-defined]
    assert found[1].objective.method == METHODS["k-song"]  # type: ignore[attr-defined]
    assert found[2].objective.method == METHODS["kso-red"]  # type: ignore[attr-defined]
    assert settings.method.k_of == "catalogue"


@pytest.mark.slow
def test_runs_of_other_weights_and_k_song_itself_share_what_they_start_from(
    lists: Lists, tmp_path: Path
) -> None:
    seen: list[int] = []

    def watch(trainer: AnyTrainer, record: dict[str, Any] | None) -> None:
        seen.append(trainer.progress.phase)

    blind = config(
        {"rated": 4, "unrated": 40}, name="k-song", preset="default", c_relative=None
    )
    blind = blind.model_copy(
        update={"evaluation": blind.evaluation.model_copy(update={"select_on": "full"})}
    )
    train_run(blind, tmp_path / "blind", lists=lists, warmups=tmp_path / "warm")
    train_run(
        config(),
        tmp_path / "one",
        lists=lists,
        warmups=tmp_path / "warm",
        hooks=Hooks(report=watch),
    )
    assert set(seen) == {2}
    train_run(config(), tmp_path / "alone", lists=lists)
    ours, theirs = (
        load_tensors(tmp_path / name / "model.safetensors").tensors for name in ("one", "alone")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_lists_with_top_items_take_their_own_for_the_groups(tmp_path: Path) -> None:
    settings = config()
    assert settings.training.lists.per_group == 0
    (tmp_path / "c.toml").write_text(dump_config(settings))
    assert load_config(tmp_path / "c.toml") == settings
    assert config({"top": 0}).training.lists.per_group == 30


@pytest.mark.parametrize(
    ("sizes", "method", "words"),
    [
        (LISTS | {"per_group": 5}, {}, "speak for their groups themselves; leave out per_gr"),
        (LISTS | {"head": 11}, {}, "top is drawn from the head of 11 items, got 12"),
        (LISTS, {"name": "dpr-rsp", "c": 1.0, "c_relative": None}, "set training.lists.top to"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    sizes: dict[str, int], method: dict[str, Any], words: str
) -> None:
    with pytest.raises(ft.InputError, match=words):
        config(sizes, **method)


@pytest.mark.parametrize(
    ("table", "values", "words"),
    [
        ("training", {"lists": {"top": 5}}, "whole lists; leave out training.lists.top"),
        ("method", METHOD, "no items that were rated before; set method.penalty_of to list"),
    ],
)
def test_documents_have_no_catalogue(table: str, values: dict[str, Any], words: str) -> None:
    method = {"name": "kso-red", "c_relative": 1.0}
    with pytest.raises(ft.InputError, match=words):
        check_config({"data": {"source": "letor"}, "method": method, table: values}, "test")
