"""One object that is fitted, ranks, is measured, saved and loaded."""

import inspect
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import fairtopk as ft
from fairtopk.data.synthetic import Documents, make_documents
from fairtopk.rankers.fair_ranker import FairRanker
from fairtopk.storage import load_tensors, save_tensors

SHORT = {"k": 5, "epochs": 3}


@pytest.fixture(scope="module")
def documents() -> Documents:
    return make_documents()


@pytest.fixture(scope="module")
def lists() -> ft.Lists:
    return ft.split(ft.make_synthetic(ft.SyntheticShape(60, 60, 1_500)).data, test=3)


def fitted(documents: Documents, **params: object) -> FairRanker:
    x, y, qid, group = documents
    return FairRanker(**(SHORT | params)).fit(x, y, qid=qid, groups=group)  # type: ignore[arg-type]


def measured(ranker: FairRanker, documents: Documents) -> dict[str, float]:
    x, y, qid, group = documents
    found = ranker.evaluate(x, y, qid=qid, groups=group)
    return dict(zip(found["metric"], found["mean"], strict=True))


@pytest.mark.parametrize(
    "method",
    [
        "kso-red",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("so-red", "ng-de", "deltr")),
    ],
)
def test_with_a_penalty_documents_with_features_are_ranked_more_fairly(method: str) -> None:
    train, test = make_documents(seed=0), make_documents(seed=1)
    settings = {"method": method, "k": 10, "epochs": 40, "batch_size": 10, "rate": 0.03}
    blind = measured(fitted(train, **settings, c_relative=0), test)
    fair = measured(fitted(train, **settings, c_relative=0.5), test)
    for gap in ("exposure_gap_signed@10", "rank_exposure_gap_signed@10"):
        assert abs(fair[gap]) < 0.7 * abs(blind[gap])
    assert fair["ndcg@10"] > 0.9 * blind["ndcg@10"]


@pytest.mark.parametrize("model", ["linear", "mlp", "attention"])
def test_a_model_learns_to_rank(model: str) -> None:
    train, test = make_documents(seed=0), make_documents(seed=1)
    rate = 0.03 if model == "linear" else 0.01
    ranker = fitted(train, method="k-song", model=model, epochs=30, batch_size=10, rate=rate)
    assert measured(ranker, test)["ndcg@5"] > 0.85


@pytest.mark.parametrize("model", ["linear", "mlp", "attention"])
def test_one_seed_gives_the_same_bits_and_another_does_not(
    documents: Documents, model: str
) -> None:
    first, again, other = (
        fitted(documents, model=model, seed=seed).predict(documents.x, qid=documents.qid)
        for seed in (0, 0, 1)
    )
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_shuffled_labels_change_the_scores_of_a_fair_method_only(documents: Documents) -> None:
    x, y, qid, group = documents
    shuffled = np.random.default_rng(0).permutation(group)
    for method, changes in (("kso-red", True), ("k-song", False)):
        ranker = FairRanker(method, **SHORT)  # type: ignore[arg-type]
        one = ranker.fit(x, y, qid=qid, groups=group).predict(x)
        other = ranker.fit(x, y, qid=qid, groups=shuffled).predict(x)
        assert (one.tobytes() != other.tobytes()) == changes


@pytest.mark.parametrize("model", ["linear", "mlp", "attention"])
def test_a_saved_ranker_of_features_is_loaded_with_the_same_bits(
    documents: Documents, model: str, tmp_path: Path
) -> None:
    ranker = fitted(documents, model=model, hidden=(8, 4))
    ranker.save(tmp_path / "ranker.safetensors")
    loaded = FairRanker.load(tmp_path / "ranker.safetensors")
    scores = [one.predict(documents.x, qid=documents.qid) for one in (ranker, loaded)]
    assert scores[0].tobytes() == scores[1].tobytes()
    assert loaded.group_names_ == ("minor", "major")
    assert loaded.notes_ == ranker.notes_
    assert loaded.get_params() == ranker.get_params() | {"hidden": [8, 4]}


def test_a_ranker_whose_k_is_an_array_is_saved_with_a_list(
    documents: Documents, tmp_path: Path
) -> None:
    fitted(documents, k=np.array([2, 5])).save(tmp_path / "ranker.safetensors")
    assert FairRanker.load(tmp_path / "ranker.safetensors").k == [2, 5]


def test_rows_may_stand_in_any_order(documents: Documents) -> None:
    x, y, qid, group = documents
    order = np.random.default_rng(0).permutation(len(y))
    ranker = fitted(documents, model="attention")
    straight = ranker.predict(x, qid=qid)
    np.testing.assert_allclose(
        ranker.predict(x[order], qid=qid[order]), straight[order], atol=1e-5
    )
    apart = ranker.evaluate(x[order], y[order], qid=qid[order], groups=group[order])
    together = ranker.evaluate(x, y, qid=qid, groups=group)
    np.testing.assert_allclose(apart["mean"], together["mean"], atol=1e-4)


def test_a_document_is_scored_by_itself_unless_the_model_sees_the_list(
    documents: Documents,
) -> None:
    x, qid = documents.x[:60], documents.qid[:60]
    for model, alone in (("mlp", True), ("attention", False)):
        ranker = fitted(documents, model=model)
        few = ranker.predict(x[:10], qid=qid[:10])
        assert np.allclose(few, ranker.predict(x, qid=qid)[:10], atol=1e-6) == alone


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.Table])
def test_a_frame_in_gives_the_same_kind_of_frame_out(documents: Documents, kind: type) -> None:
    x, y, qid, group = documents
    columns = {name: x[:, place] for place, name in enumerate("abcd")}
    frame = pa.table(columns) if kind is pa.Table else kind(columns)
    ranker = FairRanker(**SHORT).fit(frame, y, qid=qid, groups=group)  # type: ignore[arg-type]
    assert ranker.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    ranked = ranker.rank(frame, qid, k=2)
    assert isinstance(ranked, kind)
    plain = fitted(documents)
    assert pl.DataFrame(ranked).equals(plain.rank(x, qid, k=2))
    assert pl.DataFrame(ranked).schema == plain.rank(x, qid, k=2).schema
    found = ranker.evaluate(frame, y, qid=qid, groups=group)
    assert isinstance(found, kind)
    assert pl.DataFrame(found).equals(plain.evaluate(x, y, qid=qid, groups=group))
    assert ranker.score(frame, y, qid=qid) == plain.score(x, y, qid=qid)


def test_columns_of_a_frame_are_found_by_name(documents: Documents) -> None:
    frame = pl.DataFrame({name: documents.x[:, place] for place, name in enumerate("abcd")})
    ranker = FairRanker(**SHORT).fit(
        frame, documents.y, qid=documents.qid, groups=documents.groups
    )  # type: ignore[arg-type]
    turned = frame.select("d", "b", "a", "c", more=pl.lit("text"))
    assert ranker.predict(turned).tobytes() == ranker.predict(frame).tobytes()


def test_a_ranking_has_each_list_from_the_best_on() -> None:
    documents = make_documents(3, 4)
    ranker = fitted(documents)
    ranked = ranker.rank(documents.x, documents.qid)
    scores = ranker.predict(documents.x)
    for one in range(3):
        mine = ranked.filter(pl.col("qid") == one)
        expected = sorted(range(4 * one, 4 * one + 4), key=lambda row: -scores[row])
        assert mine["row"].to_list() == expected
        assert mine["rank"].to_list() == [1, 2, 3, 4]
    equal = ranker.rank(np.zeros((3, 4)), k=2)
    assert equal["row"].to_list() == [0, 1]


def test_lists_of_one_document_or_without_relevance_are_allowed_and_counted() -> None:
    documents = make_documents(10, 6)
    x = np.vstack([documents.x, documents.x[:3]])
    y = np.concatenate([documents.y, [2.0, 0.0, 0.0]])
    qid = np.concatenate([documents.qid, [100, 101, 101]])
    group = np.concatenate([documents.groups, ["minor", "major", "minor"]])
    ranker = FairRanker(**SHORT).fit(x, y, qid=qid, groups=group)  # type: ignore[arg-type]
    assert "1 list has one document only" in ranker.notes_
    assert "1 list has no document of y above 0" in ranker.notes_
    found = ranker.evaluate(x, y, qid=qid, groups=group).filter(pl.col("metric") == "ndcg@5")
    assert found["undefined"].item() == 1


def test_lists_that_are_all_top_or_have_no_gap_are_counted() -> None:
    x, y, qid, _ = make_documents(10, 6)
    group = np.where(qid < 7, "a", "b").astype(object)
    group[::6] = None
    group[[1, 2]] = ["a", "b"]
    notes = FairRanker(k=[2, 6], epochs=3).fit(x, y, qid=qid, groups=group).notes_
    assert "10 lists have at most k = 6 documents: all are in the top" in notes
    assert "9 lists have fewer than two groups: no gap, no penalty" in notes


def test_without_lists_all_rows_are_one(documents: Documents) -> None:
    x, y, _, group = documents
    alone = FairRanker(**SHORT).fit(x, y, groups=group).predict(x)  # type: ignore[arg-type]
    one = FairRanker(**SHORT).fit(x, y, qid=np.full(len(y), 7), groups=group).predict(x)  # type: ignore[arg-type]
    assert alone.tobytes() == one.tobytes()


def test_users_and_items_are_ranked_measured_saved_and_loaded(
    lists: ft.Lists, tmp_path: Path
) -> None:
    options = {"training": {"warmup_epochs": 1, "lists": {"rated": 4, "unrated": 12}}}
    ranker = FairRanker(k=5, epochs=2, hidden=(8,), options=options).fit(lists)
    ranker.save(tmp_path / "ranker.safetensors")
    loaded = FairRanker.load(tmp_path / "ranker.safetensors")
    for protocol in ("sampled", "full"):
        one, other = (
            each.evaluate(lists.test, k=[5, 10], protocol=protocol, unrated=20)  # type: ignore[arg-type]
            for each in (ranker, loaded)
        )
        assert one.equals(other)
        assert 0 < one.filter(pl.col("metric") == "ndcg@5")["mean"].item() < 1
    known = lists.data.user_ids[:2].to_list()
    first, again = (each.recommend([*known, -1], k=4) for each in (ranker, loaded))
    assert first.equals(again)
    assert first["user"].to_list() == [known[0]] * 4 + [known[1]] * 4 + [-1] * 4
    assert first["fallback"].to_list() == [False] * 8 + [True] * 4
    for users in (pl.Series, pd.Series, pa.array):
        frame = users(known)
        assert len(ranker.recommend(frame, k=4)) == 8
    for kind in (pl.DataFrame, pd.DataFrame, pa.table):
        table = kind({"user": known, "age": [3, 4]})
        found = ranker.recommend(table, k=4)
        assert type(found) is type(table)
        assert pl.DataFrame(found).equals(first[:8])
    assert isinstance(ranker.recommend(pd.Series(known)), pd.DataFrame)
    with pytest.warns(UserWarning, match="k is 61, and there are 60 items"):
        assert len(ranker.recommend([-1], k=61)) == 60
    with pytest.raises(ft.InputError, match="users has no column 'user'; it has name"):
        ranker.recommend(pd.DataFrame({"name": known}))
    with pytest.raises(ft.InputError, match=r"give lists\.test"):
        ranker.evaluate(lists)
    with pytest.raises(ft.InputError, match="predict needs a ranker of features"):
        ranker.predict(np.eye(3))
    with pytest.raises(ft.InputError, match="leave out y"):
        ranker.fit(lists, [1, 2])
    with pytest.raises(ft.InputError, match=r"options: training must be a table, .* got 3"):
        FairRanker(options={"training": 3}).fit(lists)


def test_robust_measures_users_and_items_but_does_not_recommend(lists: ft.Lists) -> None:
    options = {"robust": {"rounds": 1, "iterations": 2}, "training": {"warmup_epochs": 1}}
    ranker = FairRanker("robust", k=5, epochs=1, hidden=(8,), options=options).fit(lists)
    assert ranker.evaluate(lists.test, unrated=10)["mean"][0] > 0
    with pytest.raises(ft.InputError, match="which recommend never takes"):
        ranker.recommend([1])


def test_a_fair_method_needs_no_weight_to_be_given() -> None:
    ranker = fitted(make_documents(10, 8), c=None)
    assert ranker.get_params()["c_relative"] is None
    assert measured(ranker, make_documents(10, 8))["ndcg@5"] > 0


def test_neither_the_ranker_nor_its_model_takes_groups_to_serve(documents: Documents) -> None:
    ranker = fitted(documents)
    for method in (ranker.predict, ranker.rank, ranker.recommend, ranker.scorer_.forward):
        names = inspect.signature(method).parameters
        assert not any("group" in name for name in names)


class TestBadInput:
    """One sentence each, and a fitted ranker keeps what it had."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"x": [[np.nan, 0]] * 4}, "X must be finite, got NaN in row 0, feature 0"),
            ({"x": [[np.inf, 0]] * 4}, "X must be finite, got inf"),
            ({"x": [[0, 1e39]] * 4}, "X must fit float32, got 1e\\+39 in row 0, feature 1"),
            ({"x": [1, 2, 3, 4]}, "X must have rows and columns"),
            ({"x": [["a", "b"]] * 4}, "X must be a table of numbers"),
            ({"y": [0, 1, 2]}, "y must have a value for each of the 4 rows of X, got 3"),
            ({"y": [0, -1, 2, 1]}, "y must not be below 0, got -1"),
            ({"y": [0, 101, 2, 1]}, "y must be at most 100, since NDCG's gain is 2.y - 1, got"),
            ({"y": [0, np.nan, 2, 1]}, "y is missing"),
            ({"qid": [0, 0]}, "qid must have a value for each of the 4 rows"),
            ({"groups": ["a"] * 3}, "groups must have a value for each of the 4 rows"),
            ({"groups": ["a"] * 4}, "at least two groups apart, got only 'a'"),
            ({"groups": [None] * 4}, "at least two groups apart, got none"),
            ({"groups": None}, "needs documents in at least two groups"),
        ],
    )
    def test_of_fit(self, change: dict[str, object], message: str) -> None:
        given = {"x": np.eye(4), "y": [0, 1, 2, 1], "qid": [0, 0, 1, 1], "groups": list("abab")}
        given |= change  # type: ignore[arg-type]
        with pytest.raises(ft.InputError, match=message):
            FairRanker(**SHORT).fit(  # type: ignore[arg-type]
                given["x"], given["y"], qid=given["qid"], groups=given["groups"]
            )

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"method": "best"}, "features are ranked by the methods"),
            ({"model": "tree"}, "features are ranked by linear, mlp, attention"),
            ({"model": "neumf"}, "need users and items"),
            ({"k": 0}, "k"),
            ({"epochs": 0}, "epochs must be"),
            ({"rate": 0.0}, "rate must be above 0"),
            ({"dropout": 1.0}, "dropout must be from 0 to below 1"),
            ({"hidden": ()}, "hidden must be a list of widths"),
            ({"hidden": 64}, "hidden must be a list of widths"),
            ({"dropout": "much"}, "dropout must be a finite number, got 'much'"),
            ({"rate": "fast"}, "rate must be a finite number, got 'fast'"),
            ({"c": 1.0, "c_relative": 1.0}, "c"),
            ({"options": {"gamma_9": 1}}, "gamma_9"),
            ({"options": 3}, "options must be names with values"),
            ({"options": {"k": 3}}, "options has 'k'; give it as the parameter k"),
            ({"options": {"training": {}}}, "options of a ranker of features are those of"),
        ],
    )
    def test_of_parameters(self, params: dict[str, object], message: str) -> None:
        with pytest.raises(ft.InputError, match=message):
            fitted(make_documents(4, 4), **params)

    def test_of_serving(self, documents: Documents) -> None:
        ranker = fitted(documents)
        with pytest.raises(
            ft.InputError, match="X has 3 features, but FairRanker is expecting 4"
        ):
            ranker.predict(documents.x[:, :3])
        with pytest.raises(ft.InputError, match="X has no column 'feature 0'"):
            ranker.predict(pl.DataFrame({"a": [1.0]}))
        with pytest.raises(ft.InputError, match="k must be at least 1, got 0"):
            ranker.rank(documents.x, k=0)
        with pytest.raises(ft.InputError, match="recommend needs a ranker of users and items"):
            ranker.recommend([1])
        with pytest.raises(ft.InputError, match="give predict the qid"):
            fitted(documents, model="attention").predict(documents.x)
        with pytest.raises(ft.InputError, match="not fitted yet"):
            FairRanker().predict(documents.x)

    def test_of_files(self, documents: Documents, tmp_path: Path) -> None:
        path = tmp_path / "ranker.safetensors"
        fitted(documents).save(path)
        whole = path.read_bytes()
        path.write_bytes(whole[:-8])
        with pytest.raises(ft.InputError, match="is damaged"):
            FairRanker.load(path)
        path.write_bytes(whole)
        tensors, about = load_tensors(path)
        save_tensors(path, tensors, about | {"ranker": "something else"})
        with pytest.raises(ft.InputError, match="holds no ranker"):
            FairRanker.load(path)
        path.write_bytes(whole.replace(b"batch_size", b"batch_sise"))
        with pytest.raises(ft.InputError, match="is damaged"):
            FairRanker.load(path)
        with pytest.raises(ft.InputError, match="is no file"):
            FairRanker.load(tmp_path / "none")
        with pytest.raises(ft.InputError, match="is a folder"):
            fitted(documents).save(tmp_path)

    def test_of_a_failed_fit_leaves_the_ranker_as_it_was(self, documents: Documents) -> None:
        ranker = fitted(documents)
        before = ranker.predict(documents.x)
        with pytest.raises(ft.InputError):
            ranker.fit(documents.x, documents.y[:5])
        assert ranker.predict(documents.x).tobytes() == before.tobytes()


def test_training_leaves_the_random_numbers_of_torch_where_they_were(
    documents: Documents,
) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    fitted(documents, model="mlp")
    assert torch.equal(torch.rand(3), expected)
