"""The ratings and the catalogue of a source, as read and before grouping.

Loaders of published layouts all use the same column names: ratings with ``user_id, item_id,
rating[, timestamp]``; items with ``item_id`` and whatever the source knows of an item (``title,
year, genres``), null where it does not.
"""

from dataclasses import dataclass

import polars as pl

from fairtopk.data.interactions import RATING_RANGE, Columns
from fairtopk.data.origin import Origin

PUBLISHED = Columns("user_id", "item_id", "rating", "timestamp")


@dataclass(frozen=True)
class Tables:
    """What a source holds, and where each part came from.

    A source without a catalogue has its ratings in the place of `items`.
    """

    ratings: pl.DataFrame
    items: pl.DataFrame
    ratings_origin: Origin
    items_origin: Origin
    columns: Columns = PUBLISHED
    rating_range: tuple[float, float] = RATING_RANGE
