"""Which data of the paper's experiments is at hand: the largest of each kind in a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fairtopk.errors import InputError

MOVIELENS = {  # by size; the paper's is the first
    "movielens-20m": ("ml-20m", "20M"),
    "movielens-1m": ("ml-1m", "1M"),
    "movielens-100k": ("ml-100k", "100K"),
}
NETFLIX = ("nf_prize_dataset*", "netflix-prize*", "download/training_set*", "training_set*")
NETFLIX_PART = ("netflix-subset.ratings.parquet", "netflix.items.parquet")
GROUPINGS: dict[str, dict[str, Any]] = {
    "horror": {"column": "genres", "contains": "Horror"},
    "documentary": {"column": "genres", "contains": "Documentary"},
    "before 1990": {"column": "year", "below": 1990},
}
BEFORE_1990 = "before 1990"


class Found(NamedTuple):
    """A data set with a grouping.

    Attributes:
        title: What figures call it.
        data: The ``data`` table of its config.
        paper: What the paper calls it; None where the paper has none like it.
        small: Whether it is trained as small data is.
    """

    title: str
    data: dict[str, Any]
    paper: str | None = None
    small: bool = False


def embedded(seed: int = 0) -> Found:
    """Return the embedded data, whose bias is known."""
    options = {"bias": 2.0, "seed": seed}
    return Found("embedded", {"source": "synthetic", "options": options}, small=True)


def find_data(folder: Path | None, *, quick: bool) -> list[Found]:
    """Return every data set of the paper that a folder has, and the embedded one.

    Args:
        folder: Where published archives or their folders are; None: nowhere.
        quick: Take MovieLens 100K only.
    """
    if folder is None:
        return [embedded()]
    if not folder.is_dir():
        raise InputError(f"--data {folder} is not a folder; give the one that holds the data")
    found = [*_movielens(folder, quick=quick), *([] if quick else _netflix(folder))]
    return [embedded(), *found]


def _movielens(folder: Path, *, quick: bool) -> Iterator[Found]:
    for source, (start, size) in MOVIELENS.items():
        if quick and source != "movielens-100k":
            continue
        path = _first(folder, f"{start}*.zip") or _first(folder, f"{start}*/")
        if path is not None:
            for title, rule in GROUPINGS.items():
                data = {"source": source, "path": str(path), "groups": rule}
                paper = {"horror": "MovieLens-20M-H", "documentary": "MovieLens-20M-D"}
                yield Found(
                    f"MovieLens {size}, {title}",
                    data,
                    paper=paper.get(title) if size == "20M" else None,
                    small=size == "100K",
                )
            return


def _netflix(folder: Path) -> Iterator[Found]:
    rule = GROUPINGS[BEFORE_1990]
    for pattern in NETFLIX:
        path = _first(folder, pattern)
        if path is not None:
            data = {"source": "netflix", "path": str(path), "groups": rule}
            yield Found(f"Netflix, {BEFORE_1990}", data, paper="Netflix-20M")
            return
    ratings, items = (folder / name for name in NETFLIX_PART)
    if ratings.is_file() and items.is_file():
        columns = {"user": "user_id", "item": "item_id", "rating": "rating"}
        # Without dates, and of users with few ratings: those with 20 are tested, at random.
        part: dict[str, Any] = {
            "source": "parquet",
            "path": str(ratings),
            "groups": rule,
            "options": {**columns, "items": str(items)},
            "split": "random",
            "min_ratings": 20,
        }
        yield Found(f"Netflix (a part), {BEFORE_1990}", part)


def _first(folder: Path, pattern: str) -> Path | None:
    return min(folder.glob(pattern), default=None)
