"""Films as documents, a fifth of which is in no training list."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.data.movielens import read_movielens

HELD_OUT = 0.2  # of the films
TRAINED, TESTED = 160, 160  # users whose lists are learnt from, and measured on
LENGTH, RATED = 600, 60  # films of a list, and how many of them at most are rated
OLD = 1990
GROUPINGS = ("horror", "before 1990")


class Documents(NamedTuple):
    """Rows of lists: features ``[n, F]``, grades, lists and groups ``[n]``; 0 is the group."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    qid: NDArray[np.int64]
    group: NDArray[np.int64]


class Films(NamedTuple):
    """What is known of films, a row for each, and what users rated.

    Attributes:
        year: The year less 1990, ``[n]``.
        genre: Flags by name, ``[n]`` each.
        ratings: The columns user, film (its row) and rating, from the oldest on.
    """

    year: NDArray[np.float64]
    genre: dict[str, NDArray[np.bool_]]
    ratings: pl.DataFrame


class Part(NamedTuple):
    """What lists are made of.

    Attributes:
        users: Whose.
        film: Which films may be in them, ``[n]``.
        known: From which films the tastes of users may be known, ``[n]``.
    """

    users: NDArray[np.int64]
    film: NDArray[np.bool_]
    known: NDArray[np.bool_]


def read_films(path: str | Path) -> Films:
    """Return the rated films of a MovieLens archive whose year is known."""
    tables = read_movielens(path)
    items = tables.items
    assert items is not None
    rated = tables.ratings["item_id"].unique()
    items = items.filter(pl.col("item_id").is_in(rated.implode()), pl.col("year").is_not_null())
    items = items.sort("item_id").with_row_index("film")
    names = items["genres"].str.split("|").explode().unique().drop_nulls().sort()
    flags = {name: items["genres"].str.split("|").list.contains(name) for name in names if name}
    ratings = (
        tables.ratings.join(items.select("item_id", "film"), on="item_id")
        .sort("timestamp", maintain_order=True)
        .select(pl.col("user_id").alias("user"), pl.col("film").cast(pl.Int64), "rating")
    )
    return Films(
        items["year"].to_numpy().astype(np.float64) - OLD,
        {name: flag.to_numpy() for name, flag in flags.items()},
        ratings,
    )


def film_lists(
    films: Films, grouping: str, *, told: bool, seed: int
) -> tuple[Documents, Documents, Documents]:
    """Return lists to learn from, and lists of other users: of films seen there, and of others.

    A row has the film's genres, its year and the logarithm of how many users without a list
    rated it; each genre times how much more of it is in the older half of the user's ratings
    than in the catalogue; and how far the year is from those of that half.

    Args:
        films: All of them.
        grouping: One of `GROUPINGS`.
        told: Whether the features that a group is made by are among them.
        seed: Of who and what is in which part.
    """
    rng = np.random.default_rng(seed)
    held_out = rng.random(len(films.year)) < HELD_OUT
    users = rng.permutation(films.ratings["user"].unique().sort().to_numpy())
    trained, tested, others = np.split(users, [TRAINED, TRAINED + TESTED])
    group = films.year < 0 if grouping == "before 1990" else films.genre[grouping.capitalize()]
    features = _features(films, others, grouping, told=told)
    seen, new = (Part(tested, film, ~held_out) for film in (~held_out, held_out))
    parts = (Part(trained, ~held_out, ~held_out), seen, new)
    train, on_seen, on_new = (
        _documents(films, features, group, part, np.random.default_rng([seed, number]))
        for number, part in enumerate(parts)
    )
    return train, on_seen, on_new


class Features(NamedTuple):
    """Of films: the logarithm of their counts ``[n]``, flags of genres ``[n, G]``, years."""

    count: NDArray[np.float64]
    genre: NDArray[np.float64]
    year: NDArray[np.float64] | None

    def for_user(self, history: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the features of all films for a user who rated some, ``[n, F]``."""
        of_user, of_all = self.genre[history].mean(0), self.genre.mean(0)
        columns = [self.count[:, None], self.genre, self.genre * (of_user - of_all)]
        if self.year is not None:
            away = np.abs(self.year - self.year[history].mean())
            columns += [self.year[:, None], away[:, None]]
        return np.hstack(columns)


def _features(
    films: Films, others: NDArray[np.int64], grouping: str, *, told: bool
) -> Features:
    count = np.zeros(len(films.year))
    rated = films.ratings.filter(pl.col("user").is_in(others)).group_by("film").len()
    count[rated["film"].to_numpy()] = rated["len"].to_numpy()
    hidden = "" if told else grouping.capitalize()
    flags = [flag for name, flag in films.genre.items() if name != hidden]
    year = None if grouping == "before 1990" and not told else films.year
    return Features(np.log1p(count), np.column_stack(flags).astype(np.float64), year)


def _documents(
    films: Films,
    features: Features,
    group: NDArray[np.bool_],
    part: Part,
    rng: np.random.Generator,
) -> Documents:
    lists = [
        Documents(
            features.for_user(history)[film],
            grade,
            np.full(len(film), number),
            1 - group[film].astype(np.int64),
        )
        for number, (history, film, grade) in enumerate(_drawn(films.ratings, part, rng))
    ]
    return Documents(*map(np.concatenate, zip(*lists, strict=True)))


def _drawn(
    ratings: pl.DataFrame, part: Part, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
    """Yield of each user the films that tastes are known from, those of a list, their grades.

    Rated films of a list are of the newer half of the user's ratings.
    """
    chosen = ratings.filter(pl.col("user").is_in(part.users))
    for _, rows in chosen.group_by("user", maintain_order=True):
        film, rating = rows["film"].to_numpy(), rows["rating"].to_numpy()
        half = len(film) // 2
        history = film[:half][part.known[film[:half]]]
        newer = half + np.flatnonzero(part.film[film[half:]])
        if not len(history) or not len(newer):
            continue
        rated = rng.permutation(newer)[:RATED]
        unrated = part.film.copy()
        unrated[film] = False
        drawn = rng.permutation(np.flatnonzero(unrated))[: LENGTH - len(rated)]
        grades = np.concatenate([rating[rated].astype(np.float64), np.zeros(len(drawn))])
        order = rng.permutation(len(grades))  # equal scores are ranked by row
        yield history, np.concatenate([film[rated], drawn])[order], grades[order]
