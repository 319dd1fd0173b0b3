from pathlib import Path

import numpy as np
import polars as pl
import pytest
from catalogues import full_lists
from hypothesis import given
from hypothesis import strategies as st

import fairtopk as ft
from fairtopk.lists.users import HeldOut


def rated(data: ft.Interactions, user: int, part: np.ndarray | None = None) -> set[int]:
    slots = slice(data.offsets[user], data.offsets[user + 1])
    items = data.item[slots]
    return set((items if part is None else items[part[slots]]).tolist())


@st.composite
def ratings_of(draw: st.DrawFn) -> ft.Interactions:
    pairs = draw(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 12)),
            min_size=8,
            max_size=60,
            unique=True,
        )
    )
    times = draw(st.lists(st.integers(0, 5), min_size=len(pairs), max_size=len(pairs)))
    frame = pl.DataFrame(
        {"user": [u for u, _ in pairs], "item": [i for _, i in pairs], "time": times}
    )
    return ft.Interactions.from_frame(frame, user="user", item="item", time="time")


splits = st.tuples(ratings_of(), st.integers(1, 2), st.integers(0, 2), st.booleans())


def made(case: tuple[ft.Interactions, int, int, bool]) -> ft.Lists | None:
    """The split of a case, or None where no user has enough ratings."""
    data, test, validation, at_random = case
    if np.diff(data.offsets).max() <= test + validation:
        return None
    make = ft.split_random if at_random else ft.split
    return make(data, test=test, validation=validation)


@given(splits)
def test_the_parts_partition_the_ratings(case: tuple[ft.Interactions, int, int, bool]) -> None:
    data, test, validation, _ = case
    lists = made(case)
    if lists is None:
        return
    sizes = np.diff(data.offsets)
    short = sizes <= test + validation
    assert lists.short_users == short.sum()
    held = np.where(short, 0, test + validation)
    assert np.diff(lists.train.offsets).tolist() == (sizes - held).tolist()
    for user in range(data.n_users):
        train = lists.train
        kept = train.item[train.offsets[user] : train.offsets[user + 1]].tolist()
        parts = [
            set(kept),
            rated(data, user, lists.part == lists.validation.code),
            rated(data, user, lists.part == lists.test.code),
        ]
        assert len(parts[1]) == (0 if short[user] else validation)
        assert len(parts[2]) == (0 if short[user] else test)
        assert sum(map(len, parts)) == sizes[user]
        assert set.union(*parts) == rated(data, user)


@given(splits, st.integers(1, 20))
def test_no_evaluation_list_holds_a_rated_item_as_unrated(
    case: tuple[ft.Interactions, int, int, bool], unrated: int
) -> None:
    lists = made(case)
    if lists is None:
        return
    data = lists.data
    for part in (lists.validation, lists.test):
        found = part.sampled(unrated=unrated, seed=3)
        for row, user in enumerate(found.user):
            mine = rated(data, int(user))
            held = rated(data, int(user), lists.part == part.code)
            items = found.item[row][found.mask[row]]
            relevant = found.relevance[row][found.mask[row]] > 0
            assert len(set(items.tolist())) == len(items)
            assert set(items[relevant].tolist()) == held
            assert not set(items[~relevant].tolist()) & mine
            assert len(items) == len(held) + min(unrated, data.n_items - len(mine))


@given(splits)
def test_no_training_list_holds_a_training_item_as_unrated(
    case: tuple[ft.Interactions, int, int, bool],
) -> None:
    lists = made(case)
    if lists is None:
        return
    sampler = ft.ListSampler(lists, ft.ListSizes(rated=3, unrated=20), seed=1)
    for batch in sampler.epoch(0, batch_size=2):
        for row, user in enumerate(batch.query.tolist()):
            train = rated(lists.data, user, lists.part == 0)
            items = batch.item[row, 3:][batch.mask[row, 3:]].tolist()
            # All other items are there, those held out for evaluation among them.
            assert set(items) == set(range(lists.data.n_items)) - train


def test_the_last_by_time_are_for_testing(data: ft.Interactions) -> None:
    lists = ft.split(data, test=1, validation=1)
    # User c rates 30 and 40 at time 7, in that order, and 10 at time 5.
    assert lists.part.tolist() == [0, 0, 0, 0, 1, 2, 0]
    assert lists.short_users == 2
    assert lists.test.user.tolist() == [2]
    assert lists.train.rating.tolist() == [5, 4, 3, 2, 4]


def test_users_below_the_minimum_stay_in_training(data: ft.Interactions) -> None:
    assert ft.split(data, test=1, validation=0).short_users == 0
    assert ft.split(data, test=1, validation=0, min_ratings=3).short_users == 2


def test_the_whole_catalogue_leaves_out_only_what_other_parts_hold(
    data: ft.Interactions,
) -> None:
    lists = ft.split(data, test=1, validation=1)

    def only(part: HeldOut) -> tuple[list[bool], list[float]]:
        (found,) = full_lists(part, block=8)
        assert found.item.tolist() == [[0, 1, 2, 3]]
        return found.mask[0].tolist(), found.relevance[0].tolist()

    # Of items 10, 20, 30, 40 user c trains on 10, validates on 30 (a 1), tests on 40 (a 5).
    assert only(lists.validation) == ([False, True, True, False], [0, 0, 1, 0])
    assert only(lists.test) == ([False, True, False, True], [0, 0, 0, 5])


def test_a_part_has_its_own_ratings_and_those_of_the_others(data: ft.Interactions) -> None:
    part = ft.split(data, test=1, validation=1).test
    # Of users b, a and c only c has a rating held out: item 40, a 5.
    assert (part.ratings.offsets.tolist(), part.ratings.item.tolist()) == ([0, 0, 0, 1], [3])
    assert part.ratings.rating.tolist() == [5]
    assert part.others.offsets.tolist() == [0, 2, 4, 6]
    assert part.others.item.tolist() == [0, 1, 0, 2, 2, 0]


def test_some_users_have_the_lists_they_have_among_all() -> None:
    data = ft.make_synthetic(ft.SyntheticShape(50, 400, 1_500), seed=0).data
    part = ft.split(data).test
    some = np.array([31, 4, 4])
    found, whole = part.sampled(some, unrated=20, seed=1), part.sampled(unrated=20, seed=1)
    assert (found.item == whole.item[some]).all()
    assert (found.relevance == whole.relevance[some]).all()


def test_the_same_seed_gives_the_same_lists_and_another_seed_others() -> None:
    data = ft.make_synthetic(ft.SyntheticShape(50, 400, 1_500), seed=0).data
    lists = ft.split(data)
    first, again, other = (lists.test.sampled(unrated=20, seed=seed) for seed in (1, 1, 2))
    assert (first.item == again.item).all()
    assert (first.item != other.item).any()
    assert (lists.validation.sampled(unrated=20, seed=1).item != first.item).any()


def test_a_split_is_saved_and_loaded_for_the_same_ratings_only(
    data: ft.Interactions, ratings: pl.DataFrame, tmp_path: Path
) -> None:
    lists = ft.split(data, test=1, validation=1)
    path = tmp_path / "new" / "split.parquet"
    ft.save_split(lists, path)
    again = ft.load_split(path, data)
    assert again.part.tolist() == lists.part.tolist()
    assert (again.rule, again.short_users) == (lists.rule, lists.short_users)
    assert pl.read_parquet(path).columns == ["user", "item", "part"]
    columns = {"user": "user", "item": "item", "rating": "rating", "time": "time"}
    regrouped = ft.Interactions.from_frame(ratings, **columns)
    assert ft.load_split(path, regrouped).part.tolist() == lists.part.tolist()
    other = ft.Interactions.from_frame(ratings, user="user", item="item")
    with pytest.raises(ft.InputError, match="was made for other data than table; split"):
        ft.load_split(path, other)
    path.write_bytes(b"nonsense")
    with pytest.raises(ft.InputError, match="is not a readable Parquet file"):
        ft.load_split(path, data)
    assert [file.name for file in path.parent.iterdir()] == ["split.parquet"]


def test_a_split_that_cannot_be_made_is_refused(
    data: ft.Interactions, ratings: pl.DataFrame
) -> None:
    timeless = ft.Interactions.from_frame(ratings, user="user", item="item")
    with pytest.raises(ft.InputError, match=r"has no times, .* or split at random"):
        ft.split(timeless, test=1, validation=1)
    assert ft.split_random(timeless, test=1, validation=1).short_users == 2
    with pytest.raises(
        ft.InputError, match="no user of table has 11 ratings, the most is 3; hold"
    ):
        ft.split(data)
    with pytest.raises(ft.InputError, match="test must be at least 1, got 0"):
        ft.split(data, test=0)
    with pytest.raises(ft.InputError, match=r"validation must be a whole number, got 2\.5"):
        ft.split(data, test=1, validation=2.5)  # type: ignore[arg-type]
    with pytest.raises(ft.InputError, match="seed must be at least 0, got -1"):
        ft.split_random(data, test=1, validation=1, seed=-1)
    with pytest.raises(ft.InputError, match="unrated must be at least 1, got 0"):
        ft.split(data, test=1, validation=1).test.sampled(unrated=0)


def test_lists_longer_than_the_catalogue_are_as_long_as_it(data: ft.Interactions) -> None:
    found = ft.split(data, test=1, validation=1).test.sampled(unrated=10**6)
    assert found.item.shape == (1, 5)
    assert found.mask.sum() == 2
