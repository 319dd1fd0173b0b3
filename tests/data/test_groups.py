import numpy as np
import polars as pl
import pytest

import fairtopk as ft
from fairtopk.data.groups import GroupRule, split_labels


def labels(films: pl.DataFrame, **rule: object) -> list[str | None]:
    return ft.groups_from(films, item="item", **rule).label.to_list()  # type: ignore[arg-type]


def test_contains_looks_for_a_whole_value_of_a_list(films: pl.DataFrame) -> None:
    assert labels(films, column="genres", contains="Horror") == [
        "Horror", "other", "other", None, "Horror",
    ]  # fmt: skip
    with pytest.raises(ft.InputError, match="every item with a known value into one group"):
        labels(films, column="genres", contains="Horr")


def test_equals_compares_whole_values_of_any_type(films: pl.DataFrame) -> None:
    assert labels(films, column="genres", equals="War")[:3] == ["other", "War", "other"]
    assert labels(films, column="year", equals=1990)[:3] == ["other", "1990", None]
    floats = films.with_columns(pl.col("year").cast(pl.Float64))
    assert labels(floats, column="year", equals=1990)[:3] == ["other", "1990", None]


def test_a_bound_names_the_side_it_describes(films: pl.DataFrame) -> None:
    below = ft.groups_from(films, item="item", column="year", below=1990)
    assert below.named == "year < 1990"
    assert below.label.to_list()[:3] == ["year < 1990", "year >= 1990", None]
    at_least = ft.groups_from(films, item="item", column="year", at_least=1990)
    assert at_least.named == "year >= 1990"
    assert at_least.label.to_list() == below.label.to_list()


def test_a_plain_column_gives_any_number_of_groups_the_smallest_first(
    ratings: pl.DataFrame,
) -> None:
    regions = pl.DataFrame(
        {"item": [10, 20, 30, 40], "region": ["north", "south", "north", "east"]}
    )
    groups = ft.groups_from(regions, item="item", column="region")
    data = ft.Interactions.from_frame(ratings, user="user", item="item", groups=groups)
    assert groups.named is None
    assert data.group_counts == {"east": 1, "south": 1, "north": 2}
    assert data.group.tolist() == [2, 1, 2, 0]


def test_booleans_and_numbers_are_labels_too(ratings: pl.DataFrame) -> None:
    flags = pl.DataFrame({"item": [10, 20, 30, 40], "new": [True, False, False, None]})
    groups = ft.groups_from(flags, item="item", column="new")
    data = ft.Interactions.from_frame(ratings, user="user", item="item", groups=groups)
    assert data.group_counts == {"true": 1, "false": 2}


def test_ids_of_another_type_are_matched_by_value(ratings: pl.DataFrame) -> None:
    texts = pl.DataFrame({"item": ["10", "20", "x"], "kind": ["a", "b", "b"]})
    groups = ft.groups_from(texts, item="item", column="kind")
    data = ft.Interactions.from_frame(ratings, user="user", item="item", groups=groups)
    assert data.group_counts == {"a": 1, "b": 1}
    assert data.n_unknown == 2


@pytest.mark.parametrize("ids", [["10", "010", "20"], [10.0, 10.5, 20.0]])
def test_ids_that_would_become_one_stay_apart(ratings: pl.DataFrame, ids: list[object]) -> None:
    table = pl.DataFrame({"item": ids, "kind": ["a", "b", "b"]}, strict=False)
    groups = ft.groups_from(table, item="item", column="kind")
    data = ft.Interactions.from_frame(ratings, user="user", item="item", groups=groups)
    assert data.group.tolist() == [0, 1, -1, -1]


def test_spaces_around_a_value_of_a_list_do_not_hide_it() -> None:
    films = pl.DataFrame({"item": [1, 2], "genres": ["War, Horror", "War"]})
    rule = {"column": "genres", "contains": "Horror", "separator": ","}
    assert labels(films, **rule) == ["Horror", "other"]


def test_nan_and_empty_text_are_unknown() -> None:
    table = pl.DataFrame(
        {"item": [1, 2, 3], "x": [1.0, 2.0, float("nan")], "y": ["f", "m", ""]}
    )
    assert labels(table, column="x", equals=1) == ["1", "other", None]
    assert labels(table, column="y") == ["f", "m", None]


def test_a_group_may_be_called_other() -> None:
    table = pl.DataFrame({"item": [1, 2], "sex": ["other", "f"]})
    assert labels(table, column="sex", equals="other") == ["other", "the rest"]


def test_rows_that_agree_on_an_item_are_fine_and_others_refused() -> None:
    twice = pl.DataFrame({"item": [1, 1, 2], "kind": ["a", "a", "b"]})
    assert ft.groups_from(twice, item="item", column="kind").counts() == {"a": 1, "b": 1}
    torn = pl.DataFrame({"item": [1, 1, 2], "kind": ["a", "b", "b"]})
    with pytest.raises(ft.InputError, match="gives item 1 two groups, 'a' and 'b'; keep one"):
        ft.groups_from(torn, item="item", column="kind")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"column": "genres", "contains": "Musical"}, "puts every item with a known value"),
        (
            {"column": "year", "below": 2100},
            "puts every item with a known value into one group",
        ),
        ({"column": "studio"}, "has no column 'studio': its columns are item, genres, year"),
        ({"column": "genres", "below": 3}, "a bound needs a column of numbers, but 'genres'"),
        ({"column": "year", "contains": "x"}, "contains needs a column of text, but 'year'"),
        (
            {"column": "year", "below": 1, "equals": 2},
            "takes one condition, got equals and below",
        ),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(
    films: pl.DataFrame, rule: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ft.InputError, match=sentence):
        labels(films, **rule)


def test_groups_that_fit_no_rated_item_are_refused(ratings: pl.DataFrame) -> None:
    elsewhere = pl.DataFrame({"item": [1, 2], "kind": ["a", "b"]})
    groups = ft.groups_from(elsewhere, item="item", column="kind")
    with pytest.raises(ft.InputError, match=r"no item of the data is in .* like 10, .* like 1"):
        ft.Interactions.from_frame(ratings, user="user", item="item", groups=groups)


def test_a_group_that_nobody_rated_leaves_one_and_is_refused(ratings: pl.DataFrame) -> None:
    lonely = pl.DataFrame({"item": [10, 99], "kind": ["a", "b"]})
    groups = ft.groups_from(lonely, item="item", column="kind")
    with pytest.raises(ft.InputError, match=r"in one group \('a'\); two groups are needed"):
        ft.Interactions.from_frame(ratings, user="user", item="item", groups=groups)


def test_a_rule_in_a_config_refuses_a_misspelt_key() -> None:
    with pytest.raises(ft.InputError, match="groups has no key 'contain': its keys are column"):
        GroupRule.from_mapping({"column": "genres", "contain": "Horror"})
    with pytest.raises(ft.InputError, match="groups needs a column"):
        GroupRule.from_mapping({"contains": "Horror"})


def test_without_a_separator_each_label_is_a_group() -> None:
    found = split_labels(["b|a", "a", "c"], None)
    assert found[0] == ("b|a", "a", "c")
    assert (found[1] == np.eye(3)).all()


@pytest.mark.parametrize(
    ("labels", "separator", "names", "member"),
    [
        (["War|Horror", "Horror", "War"], "|", ("War", "Horror"), [[1, 1], [0, 1], [1, 0]]),
        (["a, b", "c"], ",", ("a", "b", "c"), [[1, 1, 0], [0, 0, 1]]),
        (["a||a", "|", "b"], "|", ("a", "b"), [[1, 0], [0, 0], [0, 1]]),
    ],
)
def test_a_label_names_the_groups_between_separators(
    labels: list[str], separator: str, names: tuple[str, ...], member: list[list[int]]
) -> None:
    """Blanks around a name are no part of it, and nothing is no name."""
    found = split_labels(labels, separator)
    assert found[0] == names
    assert found[1].tolist() == member
