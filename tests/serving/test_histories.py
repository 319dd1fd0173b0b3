"""New users: recommendations by their histories, and model files that take histories."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from commands import Run

import fairtopk as ft
from fairtopk.errors import InputError
from fairtopk.lists.users import Lists, Ratings
from fairtopk.models.histories import Ease, Ials, ItemKnn, Popularity
from fairtopk.models.mf import MatrixFactorization
from fairtopk.runs.build import build_model
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config
from fairtopk.runs.open import open_run
from fairtopk.runs.trainer import build_trainer
from fairtopk.serving import export as exporting
from fairtopk.serving.export import ServedHistories, export_scorer
from fairtopk.serving.recommend import catalogue_of, recommend

N_USERS, N_ITEMS = 40, 25
MODELS = ("ease", "ials", "item-knn", "popularity")
needs_onnx = pytest.mark.skipif(
    any(exporting.find_spec(name) is None for name in exporting.NEEDED),
    reason="onnx, onnxruntime and onnxscript are not installed",
)


def table() -> pl.DataFrame:
    chance = np.random.default_rng(0)
    user, item = (part.ravel() for part in np.mgrid[:N_USERS, :N_ITEMS])
    keep = chance.random(len(user)) < 0.5
    return pl.DataFrame(
        {
            "user": [f"u{one}" for one in user[keep]],
            "item": 100 + item[keep],
            "rating": chance.integers(1, 6, keep.sum()).astype(float),
            "time": chance.integers(0, 99, keep.sum()),
            "kind": ["odd" if one % 3 == 0 else "even" for one in item[keep]],
        }
    )


def config(name: str, **model: Any) -> Config:
    given = {"name": name, "width": 4, "iterations": 2, "neighbours": 6, **model}
    values = {"model": given, "method": {"name": "blind", "k": 5}, "evaluation": {"k": [5]}}
    return check_config(values, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    data = ft.Interactions.from_frame(
        table(), user="user", item="item", rating="rating", time="time",
        groups={"column": "kind", "equals": "odd"},
    )  # fmt: skip
    return ft.split(data, test=2, validation=2)


def trained(lists: Lists, name: str, **model: Any) -> Any:
    settings = config(name, **({"ridge": 5.0} | model if name == "ease" else model))
    scorer = build_model(settings, lists)
    for _ in build_trainer(settings, lists, scorer).run():
        pass
    return scorer.eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_new_user_gets_the_best_items_that_are_not_in_the_history(
    lists: Lists, name: str
) -> None:
    scorer, catalogue, data = trained(lists, name), catalogue_of(lists), lists.data
    new = pl.DataFrame({"user": ["x", "y", "x"], "item": [103, 107, 109]})
    found = recommend(scorer, catalogue, histories=new, k=6)
    assert found["user"].to_list() == ["x"] * 6 + ["y"] * 6
    assert not found["fallback"].any()
    for user, items in (("x", [103, 109]), ("y", [107])):
        number = np.array([data.item_ids.index_of(item) for item in items], np.int32)
        history = Ratings(np.array([0, len(items)]), number, np.ones(len(items), np.float32))
        scores = scorer.score_histories(history)[0].numpy()
        left = [item for item in range(N_ITEMS) if item not in number]
        best = sorted(left, key=lambda item: (-scores[item], item))[:6]
        own = found.filter(pl.col("user") == user)
        assert own["item"].to_list() == [data.item_ids[item] for item in best]
        assert own["score"].to_list() == scores[best].tolist()
    whole = recommend(scorer, catalogue, histories=new, k=N_ITEMS, include_rated=True)
    assert len(whole) == 2 * N_ITEMS


def test_a_known_users_training_history_gives_the_scores_of_that_user(lists: Lists) -> None:
    scorer, train, data = trained(lists, "ease"), lists.train, lists.data
    own = slice(train.offsets[7], train.offsets[8])
    items = data.item_ids.gather(train.item[own])
    history = pl.DataFrame({"user": ["new"] * len(items), "item": items})
    catalogue = catalogue_of(lists)
    known = recommend(scorer, catalogue, data.user_ids[7:8], k=N_ITEMS, include_rated=True)
    new = recommend(scorer, catalogue, histories=history, k=N_ITEMS, include_rated=True)
    assert new.drop("user").equals(known.drop("user"))


def test_items_that_are_unknown_are_passed_over_and_users_without_others_are_marked(
    lists: Lists,
) -> None:
    scorer, catalogue = trained(lists, "ease"), catalogue_of(lists)
    new = pl.DataFrame({"user": [1, 2, 2], "item": [999, 103, 998]})
    found = recommend(scorer, catalogue, histories=new, k=3)
    assert found["fallback"].to_list() == [True] * 3 + [False] * 3
    popular = recommend(scorer, catalogue, ["nobody"], k=3)
    assert found["item"][:3].to_list() == popular["item"].to_list()
    alone = recommend(scorer, catalogue, histories=new[1:2], k=3)
    assert alone["score"].to_list() == found["score"][3:].to_list()


def test_a_graded_model_reads_ratings_and_refuses_histories_without(lists: Lists) -> None:
    scorer, catalogue = trained(lists, "ease", input="graded"), catalogue_of(lists)
    frame = pl.DataFrame({"user": ["x"] * 2, "item": [103, 109], "rating": [1.0, 5.0]})
    turned = frame.with_columns(rating=pl.col("rating").reverse())
    one, other = (recommend(scorer, catalogue, histories=each, k=5) for each in (frame, turned))
    assert one["score"].to_list() != other["score"].to_list()
    with pytest.raises(InputError, match="no column 'rating', and this model reads graded"):
        recommend(scorer, catalogue, histories=frame.drop("rating"), k=5)


def test_what_cannot_be_read_is_refused_in_one_sentence(lists: Lists) -> None:
    scorer, catalogue = trained(lists, "popularity"), catalogue_of(lists)
    frame = pl.DataFrame({"user": ["x"], "item": [103]})
    mf = MatrixFactorization(N_USERS, N_ITEMS, width=2, generator=torch.Generator())
    with pytest.raises(InputError, match="the models ease, ials, item-knn, popularity can"):
        recommend(mf, catalogue, histories=frame)
    with pytest.raises(InputError, match="leave out users"):
        recommend(scorer, catalogue, ["x"], histories=frame)
    with pytest.raises(InputError, match="must be a frame with the columns user and item"):
        recommend(scorer, catalogue, histories=[1, 2])
    with pytest.raises(InputError, match="'item'"):
        recommend(scorer, catalogue, histories=frame.drop("item"))
    with pytest.raises(InputError, match="rates"):
        recommend(scorer, catalogue, histories=pl.concat([frame, frame]))


def test_the_command_ranks_new_users_and_counts_what_it_ignores(
    run: Run, tmp_path: Path
) -> None:
    table().write_csv(tmp_path / "ratings.csv")
    values = config("ease", ridge=5.0).model_dump()
    values["data"] |= {
        "source": "csv", "path": str(tmp_path / "ratings.csv"), "test": 2, "validation": 2,
        "options": {"user": "user", "item": "item", "rating": "rating", "time": "time"},
        "groups": {"column": "kind", "equals": "odd"},
    }  # fmt: skip
    (tmp_path / "c.toml").write_text(dump_config(check_config(values, "test")))
    ended = run("train", tmp_path / "c.toml", "--out", tmp_path / "run")
    assert ended.code == 0, ended.stderr
    assert "ease: a fit of 25 items" in ended.stdout
    new = tmp_path / "new.csv"
    new.write_text("user,item\n007,103\n007,99\n8,98\n")
    ended = run(
        "recommend", tmp_path / "run", "--histories", new, "--k", 2, "--out", tmp_path / "r.csv"
    )
    assert ended.code == 0, ended.stderr
    assert "ignored: 2 ratings of items that are not in the data" in ended.stdout
    assert "4 items for 2 users, 1 of them without a known item" in ended.stdout
    found = pl.read_csv(tmp_path / "r.csv", schema_overrides={"user": pl.String})
    assert found["user"].to_list() == ["007", "007", "8", "8"]
    assert found["fallback"].to_list() == [False, False, True, True]
    opened = open_run(tmp_path / "run")
    assert opened.scorer(opened.lists.test.batches(unrated=5, seed=0)[0]).isfinite().all()
    ended = run("recommend", tmp_path / "run", "--histories", new, "--out", new)
    assert "new.csv is one of the files that are read" in ended.stderr


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_served_scores_padded_histories_like_the_model(
    lists: Lists, name: str, graded: bool
) -> None:
    scorer = trained(lists, name, input="graded" if graded else "binary")
    history = torch.tensor([[3, 9, 4], [7, -1, -1], [-1, -1, -1]])
    rating = torch.tensor([[1.0, 5.0, 2.0], [3.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    value = torch.exp2(rating) - 1 if graded else torch.ones(3, 3)
    found = ServedHistories(scorer)(history, value)
    there = history >= 0
    given = Ratings(np.array([0, 3, 4, 4]), history[there].int().numpy(), rating[there].numpy())
    expected = scorer.score_histories(given)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("confidence", [0.1, 5.0, 40.0])
def test_the_steps_of_ials_end_at_the_solution_whatever_the_scale_of_vectors(
    confidence: float,
) -> None:
    generator = torch.Generator().manual_seed(0)
    scorer = Ials(300, width=64, ridge=1.0, confidence=confidence)
    scorer.factors.normal_(generator=generator).mul_(torch.linspace(3, 0.1, 64))
    item = torch.randperm(300, generator=generator)[:120]
    given = Ratings(np.array([0, 120]), item.int().numpy(), np.ones(120, np.float32))
    found = ServedHistories(scorer)(item[None], torch.ones(1, 120))
    expected = scorer.score_histories(given)
    assert (found - expected).abs().max() < 1e-6 * expected.abs().max()


@pytest.mark.slow
@needs_onnx
@pytest.mark.parametrize("name", MODELS)
def test_a_file_takes_histories_and_scores_like_the_model(
    lists: Lists, tmp_path: Path, name: str
) -> None:
    import onnxruntime

    scorer, path = trained(lists, name), tmp_path / "m.onnx"
    assert export_scorer(scorer, path, about={}) < 1e-5
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["history", "value"]
    history = np.array([[3, 9, 4, -1, -1]])
    (scores,) = session.run(None, {"history": history, "value": np.ones((1, 5), np.float32)})
    given = Ratings(np.array([0, 3]), np.array([3, 9, 4], np.int32), np.ones(3, np.float32))
    np.testing.assert_allclose(scores, scorer.score_histories(given).numpy(), atol=1e-5)


@pytest.mark.slow
@needs_onnx
def test_an_exported_run_has_ids_of_items_alone_and_a_card_about_new_users(
    run: Run, tmp_path: Path
) -> None:
    values = config("popularity").model_dump() | {"data": {"source": "synthetic"}}
    (tmp_path / "c.toml").write_text(dump_config(check_config(values, "test")))
    assert run("train", tmp_path / "c.toml", "--out", tmp_path / "run").code == 0
    ended = run("export", tmp_path / "run", tmp_path / "m.onnx")
    assert ended.code == 0, ended.stderr
    assert "inputs: history and value, no groups" in ended.stdout
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"c.toml", "run", "m.onnx", "m.items.parquet", "m.md"}
    card = (tmp_path / "m.md").read_text()
    assert "known to the data or new" in card
    assert "| input | `history` | int64, [users, length] |" in card
    assert "popularity, binary histories" in card


def test_models_without_weights_are_of_these_classes(lists: Lists) -> None:
    kinds = [type(build_model(config(name), lists)) for name in MODELS]
    assert kinds == [Ease, Ials, ItemKnn, Popularity]
