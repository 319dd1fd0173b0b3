"""Recommendations for known and unknown users, against a plain sort."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.data.columns import Origin
from fairtopk.errors import InputError
from fairtopk.lists.users import Lists
from fairtopk.serving.recommend import (
    Catalogue,
    RecommendRequest,
    Users,
    catalogue_of,
    recommend,
    recommend_blocks,
)

N_USERS, N_ITEMS = 12, 9


class Table(nn.Module):
    """Scores that are written down."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def score_all(self, users: Tensor) -> Tensor:
        return self.scores[users]


@pytest.fixture
def lists() -> Lists:
    """Users "u0", "u1", ... who rated most of the items 100, 101, ..."""
    user, item = (part.ravel() for part in np.mgrid[:N_USERS, :N_ITEMS])
    keep = np.random.default_rng(0).random(len(user)) < 0.7
    frame = pl.DataFrame(
        {
            "user": [f"u{one}" for one in user[keep]],
            "item": 100 + item[keep],
            "time": np.arange(keep.sum()),
        }
    )
    data = ft.Interactions.from_frame(frame, user="user", item="item", time="time")
    return ft.split(data, test=1, validation=1)


@pytest.fixture
def scorer() -> Table:
    generator = torch.Generator().manual_seed(0)
    return Table(torch.randint(0, 5, (N_USERS, N_ITEMS), generator=generator).float())


def plain(lists: Lists, scorer: Table, k: int, rated: bool) -> list[tuple[str, int, int]]:
    """User, item and rank of the best items, by plain sorting."""
    data, rows = lists.data, []
    for number, user in enumerate(data.user_ids):
        own = set(data.item[slice(*data.offsets[number : number + 2])].tolist())
        left = [item for item in range(data.n_items) if rated or item not in own]
        best = sorted(left, key=lambda item: (-scorer.scores[number, item].item(), item))
        for rank, item in enumerate(best[:k], start=1):
            rows.append((user, data.item_ids[item], rank))
    return rows


@pytest.mark.parametrize("k", [1, 3, N_ITEMS + 5])
@pytest.mark.parametrize("include_rated", [False, True])
def test_users_get_the_best_items_that_are_left_to_them(
    lists: Lists, scorer: Table, k: int, include_rated: bool
) -> None:
    found = recommend(scorer, catalogue_of(lists), k=k, include_rated=include_rated)
    assert found.columns == ["user", "item", "rank", "score", "fallback"]
    rows = list(found.select("user", "item", "rank").iter_rows())
    assert rows == plain(lists, scorer, k, include_rated)
    assert not found["fallback"].any()
    data = lists.data
    for user, item, score in found.select("user", "item", "score").iter_rows():
        number, column = data.user_ids.index_of(user), data.item_ids.index_of(item)
        assert scorer.scores[number, column].item() == score


def test_unknown_users_get_what_most_people_trained_on_and_are_marked(
    lists: Lists, scorer: Table
) -> None:
    found = recommend(scorer, catalogue_of(lists), ["nobody", "u3"], k=4)
    counts = np.bincount(lists.train.item, minlength=N_ITEMS)
    best = sorted(range(N_ITEMS), key=lambda item: (-counts[item], item))[:4]
    unknown = found.filter(pl.col("user") == "nobody")
    assert unknown["item"].to_list() == [lists.data.item_ids[item] for item in best]
    assert unknown["score"].to_list() == [counts[item] for item in best]
    assert unknown["fallback"].all()
    assert unknown["rank"].to_list() == [1, 2, 3, 4]
    known = found.filter(pl.col("user") == "u3")
    assert not known["fallback"].any()
    alone = recommend(scorer, catalogue_of(lists), ["u3"], k=4)
    assert known.equals(alone)


def test_what_is_popular_is_counted_without_what_was_held_out(lists: Lists) -> None:
    counted = catalogue_of(lists).popularity
    assert counted.sum() == len(lists.train.item) < lists.data.n_ratings


def test_users_come_once_and_in_their_given_order(lists: Lists, scorer: Table) -> None:
    found = recommend(scorer, catalogue_of(lists), ["u5", "new", "u1", "u5"], k=1)
    assert found["user"].to_list() == ["u5", "new", "u1"]


def test_a_user_who_rated_everything_has_no_rows(scorer: Table) -> None:
    frame = pl.DataFrame({"user": [1, 1, 1, 2, 2], "item": [1, 2, 3, 1, 2], "time": range(5)})
    data = ft.Interactions.from_frame(frame, user="user", item="item", time="time")
    catalogue = catalogue_of(ft.split(data, test=1, validation=0))
    small = Table(scorer.scores[:2, :3])
    assert recommend(small, catalogue, k=5)["user"].to_list() == [2]
    everyone = recommend(small, catalogue, [1], k=5)
    assert len(everyone) == 0
    assert everyone.schema == recommend(small, catalogue, k=5).schema


def test_blocks_change_nothing_and_tell_how_far_they_are(
    lists: Lists, scorer: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [*lists.data.user_ids, "nobody"]
    whole = recommend(scorer, catalogue_of(lists), users, k=3)
    monkeypatch.setattr("fairtopk.serving.recommend.BLOCK", 5)
    told: list[tuple[int, int]] = []
    request = RecommendRequest(Users(users, Origin("users")), k=3)
    blocks = recommend_blocks(
        scorer, catalogue_of(lists), request, progress=lambda *one: told.append(one)
    )
    parts = list(blocks)
    assert told == [(5, 13), (10, 13), (13, 13)]
    assert [part.schema for part in parts] == [whole.schema] * 3
    assert pl.concat(parts).equals(whole)


IDS: list[Callable[[list[int]], Any]] = [
    list,
    np.array,
    pl.Series,
    pd.Series,
    lambda ids: [str(one) for one in ids],
    lambda ids: [float(one) for one in ids],
    lambda ids: pl.Series(ids, dtype=pl.UInt8),
    lambda ids: pl.Series([str(one) for one in ids], dtype=pl.Categorical),
]


def numbered(scorer: Table) -> tuple[Table, Catalogue]:
    """The same with users 1, 2, 3."""
    frame = pl.DataFrame({"user": [1, 2, 3] * 2, "item": [1, 1, 1, 2, 3, 2], "time": range(6)})
    data = ft.Interactions.from_frame(frame, user="user", item="item", time="time")
    return Table(scorer.scores[:3, :3]), catalogue_of(ft.split(data, test=1, validation=0))


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_any_kind_are_known_and_come_back_in_the_kind_of_the_data(
    scorer: Table, kind: Callable[[list[int]], Any]
) -> None:
    small, catalogue = numbered(scorer)
    found = recommend(small, catalogue, kind([3, 1, 77]), k=1)
    assert found["user"].to_list() == [3, 1, 77]
    assert found["user"].dtype == catalogue.user_ids.dtype
    assert found["fallback"].to_list() == [False, False, True]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["1", "x"], ["1", "x"]),
        (["1", "02"], ["1", "02"]),
        ([1.0, 2.5], ["1.0", "2.5"]),
        ([1, 2**63], [1, 2**63]),
    ],
)
def test_ids_that_do_not_fit_the_kind_of_the_data_keep_what_they_are(
    scorer: Table, given: list[Any], shown: list[Any]
) -> None:
    found = recommend(*numbered(scorer), given, k=1)
    assert found["user"].to_list() == shown
    assert found["fallback"][1]


@pytest.mark.parametrize(
    ("users", "sentence"),
    [
        ([], "users holds no ids"),
        ([1, None], "row 1 of users: user is missing"),
        ([[1]], "users: user must hold ids, text or numbers"),
        ([1, "a"], "users must hold ids, text or numbers"),
        (7, "users must hold ids, text or numbers"),
    ],
)
def test_users_that_are_none_are_refused_in_one_sentence(
    scorer: Table, users: Any, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        recommend(*numbered(scorer), users)


def test_k_below_one_and_scores_that_are_not_finite_are_refused(scorer: Table) -> None:
    small, catalogue = numbered(scorer)
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        recommend(small, catalogue, k=0)
    small.scores[1, 1] = torch.nan
    with pytest.raises(InputError, match="scores must be finite"):
        recommend(small, catalogue)
