"""Recommendations: the best items of the whole catalogue for each of some users.

Users whom the model does not know get what most people rated, and are marked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import nn

from fairtopk.arguments import checked_whole
from fairtopk.data.columns import FRAME_ERRORS, first_line, number_ids
from fairtopk.data.origin import Origin
from fairtopk.errors import InputError
from fairtopk.lists import Lists, Ratings
from fairtopk.scoring import BLOCK, top_items

Progress = Callable[[int, int], None]  # users done, users in all

SCHEMA = {"rank": pl.Int32, "score": pl.Float32, "fallback": pl.Boolean}


@dataclass(frozen=True, eq=False)
class Catalogue:
    """What a trained model can recommend, and to whom.

    Attributes:
        user_ids: Original id of each user, ``[n_users]``.
        item_ids: Original id of each item, ``[n_items]``.
        rated: What each user rated already, whether to train on or to measure with.
        popularity: Training ratings of each item, ``[n_items]``.
    """

    user_ids: pl.Series
    item_ids: pl.Series
    rated: Ratings
    popularity: NDArray[np.int64]


def catalogue_of(lists: Lists) -> Catalogue:
    """Return what a model trained on `lists` can recommend."""
    data = lists.data
    rated = Ratings(data.offsets, data.item, data.rating)
    popularity = np.bincount(lists.train.item, minlength=data.n_items)
    return Catalogue(data.user_ids, data.item_ids, rated, popularity)


def recommend(
    scorer: nn.Module,
    catalogue: Catalogue,
    users: Any = None,
    *,
    k: int = 10,
    include_rated: bool = False,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Return the `k` items that score highest for each user: user, item, rank, score, fallback.

    Users come in their given order, each once, and have fewer rows where fewer items are left.
    One who is not in the catalogue has the items with the most training ratings, a score that
    is their number, and True for `fallback`.

    Args:
        scorer: Scores a `Batch`, or has ``score_all(users)``; it is given no groups.
        catalogue: What `catalogue_of` the training data returned.
        users: Original ids, as a list, array or series; left out, all users of the catalogue.
        k: How many items.
        include_rated: Whether items that a user rated already may be among them.
        progress: Called with how many users are done, and how many there are.

    Raises:
        InputError: `k` is below 1, an id is missing, or a score is not finite.
    """
    blocks = recommend_blocks(
        scorer, catalogue, users, k=k, include_rated=include_rated, progress=progress
    )
    return pl.concat(blocks)


def recommend_blocks(
    scorer: nn.Module,
    catalogue: Catalogue,
    users: Any = None,
    *,
    k: int = 10,
    include_rated: bool = False,
    progress: Progress | None = None,
    origin: Origin | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows of `recommend` for blocks of users, however many users there are.

    `origin` is where the users came from, so that an error can point there.
    """
    checked_whole("k", k, least=1)
    ids = known = catalogue.user_ids
    if users is not None:
        ids, known = _in_one_type(_distinct(users, origin or Origin("users")), known)
    numbers = _numbers(ids, known)
    # Of equally popular items the one that was rated first.
    popular = np.argsort(-catalogue.popularity, kind="stable").astype(np.int32)
    k = min(k, len(popular))
    for start in range(0, len(ids), BLOCK):
        block = slice(start, start + BLOCK)
        number = numbers[block]
        item = np.tile(popular[:k], (len(number), 1))
        scores = catalogue.popularity[item].astype(np.float32)
        there = number >= 0
        if there.any():
            excluded = None if include_rated else catalogue.rated
            n_items = len(popular)
            top = top_items(scorer, number[there], k=k, n_items=n_items, excluded=excluded)
            item[there], scores[there] = top
        yield _frame(ids[block], catalogue.item_ids, item, scores, ~there)
        if progress is not None:
            progress(min(start + BLOCK, len(ids)), len(ids))


def _frame(
    users: pl.Series,
    item_ids: pl.Series,
    item: NDArray[np.int32],
    scores: NDArray[np.float32],
    fallback: NDArray[np.bool_],
) -> pl.DataFrame:
    """Return the rows of a block; -1 among the items, ``[Q, k]``, is for none."""
    row, place = np.nonzero(item >= 0)
    columns = {
        "user": users.gather(row),
        "item": item_ids.gather(item[row, place]),
        "rank": place + 1,
        "score": scores[row, place],
        "fallback": fallback[row],
    }
    return pl.DataFrame(columns, schema_overrides=SCHEMA)


def _distinct(users: Any, origin: Origin) -> pl.Series:
    """Return each id once, in order of first appearance."""
    try:
        ids = pl.Series("user", [users] if isinstance(users, str) else users)
    except (*FRAME_ERRORS, RuntimeError) as error:
        raise InputError(
            f"{origin.name} must hold ids, text or numbers ({first_line(error)})"
        ) from error
    if len(ids) == 0:
        raise InputError(f"{origin.name} holds no ids")
    return number_ids(ids, origin)[1]


def _in_one_type(ids: pl.Series, known: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return both in the type of the second if no id changes by that, else as text."""
    if ids.dtype == known.dtype:
        return ids, known
    converted = ids.cast(known.dtype, strict=False)
    numbers = ids.dtype.is_numeric() and known.dtype.is_numeric()
    exact = ids if numbers else ids.cast(pl.String)
    if converted.cast(exact.dtype, strict=False).eq_missing(exact).all():
        return converted, known
    if ids.dtype.is_integer() and known.dtype.is_integer():  # some lie outside that type
        return ids, known.cast(ids.dtype, strict=False)
    return ids.cast(pl.String), known.cast(pl.String)


def _numbers(ids: pl.Series, known: pl.Series) -> NDArray[np.int64]:
    """Return the number of each id among those that are known, -1 for others."""
    table = pl.DataFrame({"id": known}).with_row_index("number")
    found = ids.to_frame("id").join(table, on="id", how="left", maintain_order="left")
    numbers: NDArray[np.int64] = found["number"].cast(pl.Int64).fill_null(-1).to_numpy()
    return numbers
