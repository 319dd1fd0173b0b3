"""Fitted models as runs: folder, resume, both protocols, sweeps, reports, refusals."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from catalogues import full_lists
from kills import State
from kills import run as killed

import fairtopk as ft
from fairtopk import storage
from fairtopk.errors import InputError
from fairtopk.evaluation import evaluate, evaluate_full
from fairtopk.lists.users import Lists
from fairtopk.models import histories
from fairtopk.models.histories import HistoryScorer
from fairtopk.models.registry import fitted_models
from fairtopk.reporting.page import report
from fairtopk.reporting.results import collect
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config, load_config
from fairtopk.runs.fitting import FIRST, RIDGES, best_ridge, build_history_scorer, next_ridge
from fairtopk.runs.goal import check_goal
from fairtopk.runs.grid import load_sweep
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import open_run
from fairtopk.runs.result import RERANKED
from fairtopk.runs.run import Hooks, stage_settings, train_run
from fairtopk.runs.sweep import run_sweep
from fairtopk.storage import load_tensors, save_tensors

MODELS = ("ease", "ials", "item-knn", "popularity")
SMALL = {"width": 4, "iterations": 2, "neighbours": 20}


def values(name: str = "ease", **model: Any) -> dict[str, Any]:
    return {
        "data": {"source": "synthetic"},
        "model": {"name": name, **SMALL, **model},
        "method": {"name": "blind", "k": 20},
        "evaluation": {"k": [10, 20], "unrated": 100, "protocol": "full"},
    }


def config(name: str = "ease", **model: Any) -> Config:
    return check_config(values(name, **model), "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(ft.load("synthetic"))


@pytest.fixture(scope="module")
def runs(lists: Lists, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each model."""
    folder = tmp_path_factory.mktemp("fitted")
    for name in MODELS:
        train_run(config(name), folder / name, lists=lists)
    return folder


def log_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_these_are_the_models_that_are_fitted() -> None:
    assert tuple(fitted_models()) == MODELS


@pytest.mark.parametrize("name", MODELS)
def test_a_run_is_opened_with_the_scores_it_was_measured_with(runs: Path, name: str) -> None:
    run = open_run(runs / name)
    again = measure_run(run).result["metrics"]
    kept = json.loads((runs / name / "metrics.json").read_text())
    assert kept["metrics"] == again
    assert kept["method"] == "blind"
    assert kept["c"] is None
    assert kept["other_protocol"]["protocol"] == "sampled"


def ndcg_and_gap(
    scores: np.ndarray, relevance: np.ndarray, group: np.ndarray, k: int
) -> tuple[float, float]:
    """NDCG and the gap by rank of one list, item by item."""
    best = sorted(range(len(scores)), key=lambda item: (-scores[item], item))
    gains = sorted((2.0**grade - 1 for grade in relevance), reverse=True)
    ideal = sum(gain / np.log2(2 + place) for place, gain in enumerate(gains[:k]))
    dcg, exposure = 0.0, np.zeros(2)
    for place, item in enumerate(best[:k]):
        dcg += (2.0 ** relevance[item] - 1) / np.log2(2 + place)
        exposure[group[item]] += 1 / np.log2(2 + place)
    sizes = np.bincount(group, minlength=2)
    return dcg / ideal, abs(exposure[0] / sizes[0] - exposure[1] / sizes[1])


@pytest.mark.parametrize("name", [*MODELS, "mf", "neumf"])
def test_one_plain_loop_recomputes_both_protocols(
    lists: Lists, runs: Path, tmp_path: Path, name: str
) -> None:
    if name in MODELS:
        run = open_run(runs / name)
    else:
        given = values(name) | {"training": {"warmup_epochs": 1, "epochs": 1}}
        given["model"] = {"name": name, "width": 4, "hidden": [4]}
        train_run(check_config(given, "test"), tmp_path / "run", lists=lists)
        run = open_run(tmp_path / "run")
    scorer, part, data, k = run.scorer, lists.test, lists.data, 20
    found: dict[str, list[tuple[float, float]]] = {"full": [], "sampled": []}
    for block in full_lists(part):
        scores = histories_scores(scorer, block.user)
        for row in range(len(block.user)):
            kept = block.mask[row]
            found["full"].append(
                ndcg_and_gap(scores[row, kept], block.relevance[row, kept], data.group[kept], k)
            )
    for batch in part.batches(unrated=100, seed=0):
        scores = histories_scores(scorer, batch.query.numpy())
        for row in range(len(batch.query)):
            kept = batch.mask[row].numpy()
            item = batch.item[row].numpy()[kept]
            relevance = batch.relevance[row].numpy()[kept]
            found["sampled"].append(
                ndcg_and_gap(scores[row, item], relevance, data.group[item], k)
            )
    ours = {
        "full": evaluate_full(scorer, part, [k]),
        "sampled": evaluate(scorer, iter(part.batches(unrated=100, seed=0)), [k]),
    }
    for protocol, rows in found.items():
        for place, metric in enumerate(("ndcg", "rank_exposure_gap")):
            expected = [row[place] for row in rows]
            value = ours[protocol][f"{metric}@{k}"].double().numpy()
            np.testing.assert_allclose(value, expected, rtol=2e-4, atol=1e-6)


def histories_scores(scorer: torch.nn.Module, users: np.ndarray) -> np.ndarray:
    """Scores of all items; of a fitted model from the histories, as of a new user's."""
    if not isinstance(scorer, HistoryScorer):
        with torch.no_grad():
            return scorer.score_all(torch.from_numpy(users)).numpy()
    lists = ft.split(ft.load("synthetic"))
    return scorer.score_histories(histories.some_of(lists.train, users)).numpy()


def test_the_ridge_is_the_best_of_those_tried_and_the_log_shows_them(runs: Path) -> None:
    *tried, last = log_of(runs / "ease")
    assert {record["phase"] for record in tried} == {"ridge"}
    assert tried[0]["ridge"] == FIRST
    assert last["phase"] == "fit"
    best = max(record["valid_ndcg@20"] for record in tried)
    assert [one["ridge"] for one in tried if one["valid_ndcg@20"] == best] == [last["ridge"]]
    assert last["valid_ndcg@20"] == best
    place = RIDGES.index(last["ridge"])
    assert {*RIDGES[max(place - 1, 0) : place + 2]} <= {one["ridge"] for one in tried}


@pytest.mark.parametrize("best", [RIDGES[0], 50, FIRST, RIDGES[-1]])
def test_the_grid_is_climbed_to_its_best_ridge(best: int) -> None:
    tried: list[dict[str, Any]] = []
    while (ridge := next_ridge(tried, "n")) is not None:
        tried.append({"ridge": float(ridge), "n": -abs(np.log(ridge / best))})
    assert best_ridge(tried, "n") == best
    assert len(tried) == len({one["ridge"] for one in tried}) <= len(RIDGES)


def test_a_ridge_that_is_set_is_not_chosen(lists: Lists, tmp_path: Path) -> None:
    said: list[str] = []
    hooks = Hooks(notice=said.append)
    train_run(config(ridge=70.0), tmp_path / "run", lists=lists, hooks=hooks)
    (record,) = log_of(tmp_path / "run")
    assert (record["phase"], record["ridge"]) == ("fit", 70.0)
    (sentence,) = said
    assert "ease: a fit of" in sentence
    assert "GB and about" in sentence


def test_graded_histories_rank_otherwise(lists: Lists, tmp_path: Path) -> None:
    found = []
    for kind in ("binary", "graded"):
        out = tmp_path / kind
        train_run(config(ridge=100.0, input=kind), out, lists=lists)
        found.append(load_tensors(out / "model.safetensors").tensors["weight"])
    assert not torch.allclose(*found, atol=1e-3)


@pytest.mark.parametrize(("name", "saves"), [("ease", 2), ("ease", 4), ("ials", 1)])
def test_a_killed_fit_ends_with_the_bits_of_one_that_was_not(
    runs: Path, tmp_path: Path, name: str, saves: int
) -> None:
    (tmp_path / "c.toml").write_text(dump_config(config(name)))
    words = ["train", "c.toml", "--out", "out"]
    ended = killed(words, at=State("fairtopk.storage:save_pair", saves + 1), cwd=tmp_path)
    assert ended.code == -9
    assert len(log_of(tmp_path / "out")) == saves
    assert killed([*words, "--resume"], cwd=tmp_path).code == 0
    ours, whole = tmp_path / "out", runs / name
    assert log_of(ours) == log_of(whole)
    one, other = (load_tensors(out / "model.safetensors").tensors for out in (ours, whole))
    assert all(torch.equal(one[weight], other[weight]) for weight in other)
    metrics = [json.loads((out / "metrics.json").read_text()) for out in (ours, whole)]
    assert metrics[0]["metrics"] == metrics[1]["metrics"]


@pytest.mark.parametrize("name", MODELS)
def test_a_changed_model_file_is_refused(runs: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(runs / name, tmp_path / "copy")
    path = copy / "model.safetensors"
    saved = load_tensors(path)
    first = next(iter(saved.tensors))
    save_tensors(path, {**saved.tensors, first: saved.tensors[first][:-1]}, saved.about)
    with pytest.raises(InputError, match=f"does not fit the run's config and data: '{first}'"):
        open_run(copy)
    save_tensors(path, saved.tensors, {**saved.about, "identity": {}})
    with pytest.raises(InputError, match=r"model\.safetensors"):
        open_run(copy)
    whole = bytearray((runs / name / "model.safetensors").read_bytes())
    whole[-3] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(InputError, match="damaged"):
        open_run(copy)


def test_neighbours_that_are_no_items_are_refused_by_the_name_of_the_file(
    runs: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(runs / "item-knn", tmp_path / "copy")
    saved = load_tensors(copy / "model.safetensors")
    saved.tensors["neighbour"][0, 0] = 10**6
    save_tensors(copy / "model.safetensors", saved.tensors, saved.about)
    with pytest.raises(InputError, match=r"model\.safetensors does not fit .* do not exist"):
        open_run(copy)


def test_blind_is_k_song_for_a_model_that_an_objective_trains(tmp_path: Path) -> None:
    for name in ("neumf", "mf"):
        assert config(name).method.name == "k-song"
    named = config("neumf")
    assert named == check_config({**values("neumf"), "method": {"name": "k-song", "k": 20}}, "")
    documents = {"data": {"source": "letor", "path": "x"}, "method": {"name": "blind"}}
    assert check_config(documents, "test").method.name == "k-song"
    (tmp_path / "c.toml").write_text(dump_config(config("ease")))
    assert load_config(tmp_path / "c.toml") == config("ease")
    assert config("ease").method.name == "blind"


def test_a_fitted_model_takes_no_steps_and_chooses_on_the_catalogue() -> None:
    given = values("ease") | {"training": {"epochs": 9, "rate": 0.1}}
    found = check_config(given, "test")
    training = found.training
    assert (training.warmup_epochs, training.epochs, training.catalogue_epochs) == (0, 0, 0)
    assert found.evaluation.select_on == "full"
    assert stage_settings(found) == []


@pytest.mark.parametrize("method", ["k-song", "kso-red", "robust", "dpr-rsp"])
def test_another_method_is_refused_with_what_works(method: str) -> None:
    given = values() | {"method": {"name": method, "c": 1.0}}
    with pytest.raises(InputError) as error:
        check_config(given, "test")
    assert "ease is fitted as a whole and takes method.name = 'blind'" in str(error.value)
    assert "neumf or mf" in str(error.value)


def test_training_lists_with_top_items_are_refused() -> None:
    with pytest.raises(InputError, match=r"no training lists; set training\.lists\.top to 0"):
        check_config(values() | {"training": {"lists": {"top": 5}}}, "test")


def test_there_is_no_weight_to_search_for() -> None:
    goal = {"target": {"metric": "rank_exposure_gap@20", "at_most": 0.5}}
    with pytest.raises(InputError, match="blind has no weight to choose"):
        check_goal({**values(), "goal": goal}, "test")


def test_items_whose_square_does_not_fit_are_refused_with_the_alternative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "memory_bytes", lambda: 16_000_000_000)
    with pytest.raises(InputError) as error:
        build_history_scorer(config(), 100_000)
    assert "ease of 100,000 items takes 80.0 GB" in str(error.value)
    assert "'ials' or 'neumf'" in str(error.value)
    assert build_history_scorer(config("ials"), 100_000).n_items == 100_000
    with pytest.raises(InputError, match=r"item-knn of 1,000,000 neighbours for 2,000,000"):
        build_history_scorer(config("item-knn", neighbours=1_000_000), 2_000_000)
    with pytest.raises(InputError, match="ials of width 1,000,000"):
        build_history_scorer(config("ials", width=1_000_000), 2_000_000)


def test_a_ridge_cannot_be_chosen_without_validation_ratings(tmp_path: Path) -> None:
    data = ft.load("synthetic")
    lists = ft.split(data, test=5, validation=0)
    with pytest.raises(ft.InputError, match=r"set model\.ridge, such as 500"):
        ft.FairRanker(model="ease").fit(lists)


def test_a_sweep_measures_and_re_ranks_fitted_models_as_colour_blind(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "[evaluation]\nk = [10, 20]\nunrated = 100\n"
        '[sweep]\nmodel = [{ name = "popularity" }, { name = "ease", ridge = 100.0 }]\n'
        'method = [{ name = "blind", k = 20 }]\nprotocols = ["sampled"]\n'
        'rerank = [{ method = "det-const-sort", k = 20 }]\n'
    )
    cells = load_sweep(tmp_path / "s.toml")
    assert {cell.config.model.name for cell in cells} == {"popularity", "ease"}
    assert all(cell.reranked for cell in cells)
    assert run_sweep(cells, tmp_path / "out", processes=1) == {}
    for cell in cells:
        names = {file.name for file in (tmp_path / "out" / cell.name).iterdir()}
        assert any(name.startswith(RERANKED) for name in names)


def test_a_report_shows_fitted_models_beside_others_as_colour_blind(
    lists: Lists, runs: Path, tmp_path: Path
) -> None:
    found = collect(runs)
    assert {result.run.settings["model.name"] for result in found.results} == {*MODELS}
    assert not any(result.run.penalised for result in found.results)
    page = report(runs, out=tmp_path / "r.html")
    text = page.read_text()
    for name in MODELS:
        assert name in text


def test_a_ranker_is_fitted_saved_and_loaded_with_the_same_bits(
    lists: Lists, tmp_path: Path
) -> None:
    frame = pl.DataFrame({"user": ["new"] * 3, "item": lists.data.item_ids[[0, 5, 9]]})
    for name in MODELS:
        options = {"model": SMALL | ({"ridge": 100.0} if name == "ease" else {})}
        ranker = ft.FairRanker(model=name, k=10, options=options).fit(lists)
        assert isinstance(ranker.scorer_, HistoryScorer)
        ranker.save(tmp_path / name)
        loaded = ft.FairRanker.load(tmp_path / name)
        for ask in (
            partial(ft.FairRanker.recommend, users=lists.data.user_ids[[3, 4]], k=5),
            partial(ft.FairRanker.recommend, histories=frame, k=5),
        ):
            assert ask(ranker).equals(ask(loaded))
        values = (
            ranker.evaluate(lists.test, protocol="full"),
            loaded.evaluate(lists.test, protocol="full"),
        )
        assert values[0].equals(values[1])


def test_a_damaged_ranker_is_refused(lists: Lists, tmp_path: Path) -> None:
    ranker = ft.FairRanker(model="item-knn", k=10, options={"model": SMALL}).fit(lists)
    ranker.save(tmp_path / "ranker")
    saved = load_tensors(tmp_path / "ranker")
    changes = {
        "learnt": saved.tensors["learnt"][:-1],
        "scorer.neighbour": saved.tensors["scorer.neighbour"] - 10**6,
    }
    for name, value in changes.items():
        save_tensors(tmp_path / "bad", {**saved.tensors, name: value}, saved.about)
        with pytest.raises(InputError, match="is damaged"):
            ft.FairRanker.load(tmp_path / "bad")


@pytest.mark.slow
def test_ease_on_movielens_1m_is_what_the_prototype_was(real_data: Path) -> None:
    """NDCG@50/100/200 of .1108/.1437/.1773 at a ridge of 1,000; the best ridge is above it."""
    groups = {"column": "genres", "contains": "Horror"}
    data = ft.load("movielens-1m", real_data / "ml-1m-reconstructed.zip", groups=groups)
    lists = ft.split(data, test=5, validation=5)
    ks = (50, 100, 200)
    found = {}
    for ridge in (1_000.0, None):
        options = {"model": {"ridge": ridge}}
        ranker = ft.FairRanker(model="ease", k=50, options=options).fit(lists)
        metrics = evaluate_full(ranker.scorer_, lists.test, ks)
        found[ridge] = {name: float(one.double().nanmean()) for name, one in metrics.items()}
    ndcg = [found[1_000.0][f"ndcg@{k}"] for k in ks]
    assert ndcg == pytest.approx([0.1108, 0.1437, 0.1773], abs=1e-4)
    gap = [1e3 * found[1_000.0][f"rank_exposure_gap@{k}"] for k in ks]
    assert gap == pytest.approx([3.12, 4.57, 6.81], abs=0.01)
    assert found[None]["ndcg@50"] > found[1_000.0]["ndcg@50"]
