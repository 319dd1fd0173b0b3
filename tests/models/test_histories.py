"""Models that score a user's history: their formulas, written out."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fairtopk.errors import InputError
from fairtopk.lists.batch import list_batch
from fairtopk.lists.users import Ratings
from fairtopk.models import histories
from fairtopk.models.gram import gram_matrix
from fairtopk.models.histories import (
    Ease,
    HistoryScorer,
    Ials,
    ItemKnn,
    Popularity,
    als_steps,
    fit_ease,
    fit_item_knn,
    fit_popularity,
    some_of,
)

N_USERS, N_ITEMS = 70, 30


def ratings_table(seed: int = 0) -> np.ndarray:
    """Ratings of 1 to 5, 0 where there is none, with popular and rare items."""
    rng = np.random.default_rng(seed)
    rated = rng.random((N_USERS, N_ITEMS)) < np.linspace(0.6, 0.05, N_ITEMS)
    return rated * rng.integers(1, 6, (N_USERS, N_ITEMS))


def ratings_of(table: np.ndarray, *, reverse: bool = False) -> Ratings:
    """The table as ratings, items of a user rising or falling."""
    rows = [np.flatnonzero(row)[:: -1 if reverse else 1] for row in table]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    item = np.concatenate(rows).astype(np.int32)
    rating = np.concatenate([table[user, row] for user, row in enumerate(rows)])
    return Ratings(offsets, item, rating.astype(np.float32))


def values_of(table: np.ndarray, *, graded: bool) -> np.ndarray:
    return np.exp2(table) - 1.0 if graded else (table > 0).astype(np.float64)


def fitted(name: str, *, graded: bool = False, table: np.ndarray | None = None) -> Any:
    table = ratings_table() if table is None else table
    scorer: HistoryScorer
    match name:
        case "ease":
            scorer = Ease(N_ITEMS, graded=graded)
            scorer.remember(ratings_of(table))
            fit_ease(scorer, gram_matrix(scorer.history, N_ITEMS), 10.0)
        case "ials":
            scorer = Ials(N_ITEMS, width=6, ridge=0.5, confidence=3.0, graded=graded)
            scorer.remember(ratings_of(table))
            for _ in als_steps(scorer, iterations=3, done=0, seed=1):
                pass
        case "item-knn":
            scorer = ItemKnn(N_ITEMS, neighbours=5, graded=graded)
            scorer.remember(ratings_of(table))
            fit_item_knn(scorer, "cosine")
        case _:
            scorer = Popularity(N_ITEMS)
            scorer.remember(ratings_of(table))
            fit_popularity(scorer)
    return scorer


MODELS = ("ease", "ials", "item-knn", "popularity")


@pytest.mark.parametrize("graded", [False, True])
def test_ease_is_its_closed_form_in_float64(graded: bool) -> None:
    x = values_of(ratings_table(), graded=graded)
    inverse = np.linalg.inv(x.T @ x + 10.0 * np.eye(N_ITEMS))
    weight = -inverse / np.diag(inverse)
    np.fill_diagonal(weight, 0)
    scorer = fitted("ease", graded=graded)
    np.testing.assert_allclose(scorer.weight.numpy(), weight, atol=2e-6)
    scores = scorer.score_all(torch.arange(N_USERS)).numpy()
    np.testing.assert_allclose(scores, x @ weight, atol=2e-5 * np.abs(x @ weight).max())


def test_each_column_of_ease_is_a_ridge_regression_on_all_other_items() -> None:
    x, scorer = values_of(ratings_table(), graded=False), fitted("ease")
    for item in (0, 7, N_ITEMS - 1):
        others = np.delete(x, item, axis=1)
        normal = others.T @ others + 10.0 * np.eye(N_ITEMS - 1)
        slope = np.linalg.solve(normal, others.T @ x[:, item])
        expected = np.insert(slope, item, 0.0)
        np.testing.assert_allclose(scorer.weight[:, item].numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("graded", [False, True])
def test_ials_solves_a_users_vector_as_implicit_does(graded: bool) -> None:
    table = ratings_table()
    x, scorer = values_of(table, graded=graded), fitted("ials", graded=graded)
    factors = scorer.factors.double().numpy()
    scores = scorer.score_all(torch.arange(N_USERS)).numpy()
    for user in range(0, N_USERS, 9):
        confidence = 1 + 3.0 * x[user] / x.max()
        own = factors[x[user] > 0]
        c = np.diag(confidence[x[user] > 0])
        left = factors.T @ factors + own.T @ (c - np.eye(len(own))) @ own + 0.5 * np.eye(6)
        vector = np.linalg.solve(left, own.T @ c @ np.ones(len(own)))
        np.testing.assert_allclose(scores[user], factors @ vector, atol=1e-6)

    from implicit.cpu.als import AlternatingLeastSquares

    with warnings.catch_warnings(action="ignore"):
        theirs = AlternatingLeastSquares(factors=6, regularization=0.5, num_threads=1)
    theirs.item_factors = scorer.factors.numpy()
    given = csr_matrix(np.where(x > 0, 1 + 3.0 * x / x.max(), 0).astype(np.float32))
    vectors = theirs.recalculate_user(np.arange(N_USERS), given)
    np.testing.assert_allclose(scores, vectors @ theirs.item_factors.T, atol=1e-4)


def test_the_vectors_of_ials_are_those_of_one_run_of_implicit() -> None:
    from implicit.cpu.als import AlternatingLeastSquares

    with warnings.catch_warnings(action="ignore"):
        theirs = AlternatingLeastSquares(
            factors=6, regularization=0.5, iterations=3, use_cg=False, num_threads=1,
            random_state=1,
        )  # fmt: skip
        x = values_of(ratings_table(), graded=False)
        theirs.fit(csr_matrix((4.0 * x).astype(np.float32)), show_progress=False)
    np.testing.assert_allclose(fitted("ials").factors.numpy(), theirs.item_factors, rtol=1e-5)


def test_ials_goes_on_after_an_iteration_to_the_same_bits() -> None:
    whole, stopped = fitted("ials"), fitted("ials")
    stopped.factors.zero_()
    steps = als_steps(stopped, iterations=3, done=0, seed=1)
    next(steps)
    kept = stopped.factors.clone()
    steps.close()
    resumed = Ials(N_ITEMS, width=6, ridge=0.5, confidence=3.0)
    resumed.remember(ratings_of(ratings_table()))
    resumed.factors.copy_(kept)
    for _ in als_steps(resumed, iterations=3, done=1, seed=1):
        pass
    assert torch.equal(resumed.factors, whole.factors)


def test_item_knn_adds_up_cosines_of_the_nearest_neighbours() -> None:
    x, scorer = values_of(ratings_table(), graded=False), fitted("item-knn")
    length = np.linalg.norm(x, axis=0)
    cosine = x.T @ x / np.outer(length, length)
    np.fill_diagonal(cosine, 0)
    kept = np.zeros_like(cosine)
    for item in range(N_ITEMS):
        nearest = np.argsort(-cosine[item], kind="stable")[:5]
        kept[item, nearest] = cosine[item, nearest]
        assert cosine[item, nearest[-1]] > np.sort(cosine[item])[-6] + 1e-9  # no ties here
    found = scorer.score_all(torch.arange(N_USERS)).numpy()
    np.testing.assert_allclose(found, x @ kept, atol=1e-5)


def test_other_similarities_find_other_neighbours() -> None:
    scorer = fitted("item-knn")
    cosine = scorer.score_all(torch.arange(N_USERS))
    for similarity in ("tfidf", "bm25"):
        fit_item_knn(scorer, similarity)
        assert not torch.allclose(scorer.score_all(torch.arange(N_USERS)), cosine)


def test_an_item_with_fewer_neighbours_adds_nothing_for_the_rest() -> None:
    table = np.zeros((3, N_ITEMS))
    table[0, [1, 4]] = 5  # known together; nobody rated another item with one of them
    table[1, 2] = 3
    scores = fitted("item-knn", table=table).score_all(torch.arange(3)).numpy()
    expected = np.zeros((3, N_ITEMS))
    expected[0, [1, 4]] = 1.0
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_popularity_counts_training_ratings() -> None:
    table, scorer = ratings_table(), fitted("popularity")
    scores = scorer.score_all(torch.tensor([3, 3, 60]))
    assert scores.tolist() == [(table > 0).sum(0).tolist()] * 3


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_new_user_with_the_history_of_a_known_one_has_the_same_bits(
    name: str, graded: bool
) -> None:
    scorer = fitted(name, graded=graded)
    known = scorer.score_all(torch.arange(N_USERS))
    alone = ratings_of(ratings_table()[41:42], reverse=True)
    assert torch.equal(scorer.score_histories(alone)[0], known[41])
    if name != "popularity":
        assert known.std(0).max() > 0


@pytest.mark.parametrize("name", MODELS)
def test_a_list_is_scored_as_the_catalogue_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "BLOCK", 4)
    scorer, rng = fitted(name), np.random.default_rng(3)
    query = torch.from_numpy(rng.integers(0, N_USERS, 11))
    item = torch.from_numpy(rng.integers(0, N_ITEMS, (11, 6)).astype(np.int32))
    there = torch.ones(11, 6, dtype=torch.bool)
    batch = list_batch(query, torch.zeros(11, 6), item * 0 - 1, there, item=item)
    assert torch.equal(scorer(batch), scorer.score_all(query).gather(1, item.long()))


@pytest.mark.parametrize("name", MODELS)
def test_scores_have_the_same_bits_for_any_number_of_threads(name: str) -> None:
    scorer, before = fitted(name), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(scorer.score_all(torch.arange(N_USERS)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_a_history_without_items_has_scores_of_zero() -> None:
    empty = Ratings(np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
    for name in ("ease", "ials", "item-knn"):
        assert fitted(name).score_histories(empty).tolist() == [[0.0] * N_ITEMS]


def test_histories_are_not_part_of_the_state_and_shared_by_copies() -> None:
    from fairtopk.distillation.teacher import frozen_copy

    scorer = fitted("ease")
    assert list(scorer.state_dict()) == ["weight"]
    copied = frozen_copy(scorer)
    assert isinstance(copied, Ease)
    assert copied.history_item.data_ptr() == scorer.history_item.data_ptr()
    assert copied.weight.data_ptr() != scorer.weight.data_ptr()


def test_some_users_keep_their_ratings_in_the_order_asked_for() -> None:
    table = ratings_table()
    found = some_of(ratings_of(table), np.array([9, 2, 9]))
    assert found.offsets.tolist() == [0, *np.cumsum((table[[9, 2, 9]] > 0).sum(1))]
    assert found.item[: found.offsets[1]].tolist() == np.flatnonzero(table[9]).tolist()


def test_neighbours_that_are_no_items_are_refused() -> None:
    scorer = fitted("item-knn")
    weights = {name: value.clone() for name, value in scorer.state_dict().items()}
    weights["neighbour"][3, 2] = N_ITEMS
    with pytest.raises(InputError, match="numbers of items that do not exist"):
        scorer.load_state_dict(weights)


def test_a_missing_package_is_refused_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(histories, "import_module", missing)
    with pytest.raises(InputError, match=r"pip install fairtopk\[models\]"):
        fitted("ials")
    fitted("popularity")  # needs no package
