"""The closed form against dense arrays, and where it is exact."""

from typing import Any

import numpy as np
import pytest
import torch

import fairtopk as ft
from fairtopk.distillation.closed_form import add_solution, differences, learn_in_rounds
from fairtopk.distillation.teacher import Teaching, lesson_of
from fairtopk.lists.users import Lists, Ratings
from fairtopk.models.gram import gram_matrix
from fairtopk.models.histories import Ease, fit_ease
from fairtopk.objectives.methods import DistillSettings

RIDGE = 3.0


def some_lists(
    n_users: int = 150, n_items: int = 90, n_ratings: int = 4_000, n_groups: int = 2
) -> Lists:
    shape = ft.SyntheticShape(n_users=n_users, n_items=n_items, n_ratings=n_ratings)
    data = ft.make_synthetic(shape, bias=2.0).data
    if n_groups != 2:
        data.group[:] = np.arange(n_items) % n_groups
    return ft.split(data)


def ease(lists: Lists, *, graded: bool = False) -> Ease:
    scorer = Ease(lists.data.n_items, graded=graded)
    scorer.remember(lists.train)
    fit_ease(scorer, gram_matrix(scorer.history, scorer.n_items), 20.0 * scorer.unit**2)
    return scorer


def teaching(lists: Lists, *, strength: float = 1.0, **settings: Any) -> Teaching:
    told = {"head": 30, "rounds": 2, "ridge": RIDGE} | settings
    return Teaching(lists.data.group, DistillSettings(**told), strength, 0)


def dense(ratings: Ratings, n_items: int) -> np.ndarray:
    n_users = len(ratings.offsets) - 1
    found = np.zeros((n_users, n_items))
    found[np.repeat(np.arange(n_users), np.diff(ratings.offsets)), ratings.item] = (
        ratings.rating
    )
    return found


@pytest.mark.parametrize("rounding", ["down", "random"])
@pytest.mark.parametrize("n_groups", [2, 5])
def test_what_is_off_is_the_lesson_less_the_scores(n_groups: int, rounding: str) -> None:
    lists = some_lists(n_groups=n_groups)
    scorer, given = ease(lists), teaching(lists, rounding=rounding)
    off = dense(differences(scorer, lists.train, given), scorer.n_items)
    lesson = lesson_of(scorer, lists.train, given)
    scores = scorer.score_all(torch.arange(150)).numpy().astype(np.float64)
    rated = dense(lists.train, scorer.n_items) > 0
    for user in range(150):
        due = np.minimum(scores[user], lesson.head_score[user].min())  # behind the head
        due[lesson.head[user]] = lesson.head_score[user]
        due[rated[user]] = scores[user, rated[user]]
        np.testing.assert_allclose(off[user], due - scores[user], atol=1e-6)


@pytest.mark.parametrize("graded", [False, True])
def test_a_round_adds_the_ridge_regression_on_what_is_off(graded: bool) -> None:
    lists = some_lists()
    scorer, given = ease(lists, graded=graded), teaching(lists, rounds=1)
    x = dense(scorer.history, scorer.n_items)
    off = dense(differences(scorer, lists.train, given), scorer.n_items)
    ridge = RIDGE * x.max() ** 2
    gram = x.T @ x + ridge * np.eye(scorer.n_items)
    expected = scorer.weight.double().numpy() + np.linalg.solve(gram, x.T @ off)
    (error,) = learn_in_rounds(scorer, lists.train, given)
    np.testing.assert_allclose(scorer.weight, expected, rtol=2e-3, atol=2e-5)
    assert error == pytest.approx(np.sqrt((off**2).sum() / (150 * 30)))


def test_rows_of_the_solution_are_those_of_a_dense_product() -> None:
    rng = np.random.default_rng(0)
    n_items = 1_100  # more than two blocks

    def ratings(each: int) -> Ratings:
        item = [np.sort(rng.choice(n_items, each, replace=False)) for _ in range(40)]
        value = rng.normal(size=40 * each).astype(np.float32)
        return Ratings(np.arange(41) * each, np.concatenate(item).astype(np.int32), value)

    history, lesson = ratings(25), ratings(60)
    inverse = rng.normal(size=(n_items, n_items)).astype(np.float32)
    weight = rng.normal(size=(n_items, n_items)).astype(np.float32)
    product = dense(history, n_items).T @ dense(lesson, n_items)
    expected, found = weight + inverse.astype(np.float64) @ product, torch.from_numpy(weight)
    add_solution(found, torch.from_numpy(inverse), history, lesson)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("strength", "n_groups"), [(0.0, 2), (1.0, 1)])
@pytest.mark.parametrize("rounding", ["down", "random"])
def test_without_strength_and_with_one_group_there_is_nothing_to_learn(
    strength: float, n_groups: int, rounding: str
) -> None:
    lists = some_lists(n_groups=n_groups)
    scorer = ease(lists)
    before = scorer.weight.clone()
    given = teaching(lists, strength=strength, rounding=rounding)
    assert list(learn_in_rounds(scorer, lists.train, given)) == []
    assert torch.equal(scorer.weight, before)


def test_with_independent_histories_the_student_reaches_the_re_rankers_order() -> None:
    lists = some_lists(n_users=12, n_items=60, n_ratings=350)
    scorer = ease(lists)
    given = teaching(lists, head=60, rounds=1, ridge=1e-3)
    lesson = lesson_of(scorer, lists.train, given)
    assert lesson.changed
    list(learn_in_rounds(scorer, lists.train, given))
    scores = scorer.score_all(torch.arange(12)).numpy()
    for user, (head, due) in enumerate(zip(lesson.head, lesson.head_score, strict=True)):
        there = head >= 0
        found = scores[user, head[there]]
        np.testing.assert_allclose(found, due[there], atol=2e-3)
        apart = np.abs(np.diff(due[there])) > 4e-3  # items without a rating have equal scores
        assert (np.diff(found)[apart] < 0).all()
        assert apart.sum() > 10


def test_each_round_leaves_less_to_learn() -> None:
    lists = some_lists()
    errors = list(learn_in_rounds(ease(lists), lists.train, teaching(lists, rounds=4)))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.7 * errors[0]


def test_rounds_go_on_from_the_weights_alone_and_on_any_threads() -> None:
    lists = some_lists(n_items=700, n_ratings=9_000)
    given = teaching(lists, rounds=3, rounding="random")
    whole, parts = ease(lists), ease(lists)
    list(learn_in_rounds(whole, lists.train, given))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        next(iter(learn_in_rounds(parts, lists.train, given)))
        list(learn_in_rounds(parts, lists.train, given, done=1))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(whole.weight, parts.weight)
