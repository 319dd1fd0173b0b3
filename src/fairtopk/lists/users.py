"""From ratings to ranking lists: what is trained on, what is held out, who is ranked with whom.

"Unrated" has two meanings, on purpose:

- in training lists, an item that is not among the user's *training* ratings. Leaving out the
  validation and test items as well would tell the model what the user is going to rate.
- in evaluation lists, an item that the user rated in *no* part, since a held-out item that
  counts as irrelevant would make a good ranking look bad.
"""

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.checks import checked_kind, checked_path, checked_target, checked_whole
from fairtopk.data.interactions import Interactions
from fairtopk.data.tables import read_parquet, read_parquet_metadata
from fairtopk.errors import InputError
from fairtopk.kernels.csr import TEST, TRAIN, VALIDATION, hold_out_last, hold_out_random
from fairtopk.kernels.ranking import UserItems
from fairtopk.kernels.threads import run_all
from fairtopk.lists._kernels import evaluation_lists
from fairtopk.lists.batch import Batch, Candidates, candidate_batch
from fairtopk.storage import replacing

DATA_SOURCE = "ft.load or ft.Interactions.from_frame"  # where data to split comes from
PARTS = ("train", "validation", "test")
BLOCK = 4_096  # lists in a batch for evaluation


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings grouped by user (CSR): those of user u are ``offsets[u] : offsets[u + 1]``."""

    offsets: NDArray[np.int64]
    item: NDArray[np.int32]
    rating: NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The ratings of one part, and the lists that measure how well a model ranks them."""

    data: Interactions
    part: NDArray[np.int8]
    code: np.int8

    @cached_property
    def held_out(self) -> NDArray[np.bool_]:
        """Which ratings are of this part, ``[n_ratings]``."""
        held_out: NDArray[np.bool_] = self.part == self.code
        return held_out

    @cached_property
    def ratings(self) -> Ratings:
        """The ratings of this part, of every user."""
        return _some_ratings(self.data, self.held_out)

    @cached_property
    def others(self) -> Ratings:
        """The ratings of all other parts, of every user."""
        return _some_ratings(self.data, ~self.held_out)

    @cached_property
    def user(self) -> NDArray[np.int64]:
        """Users with a rating in this part, ``[Q]``."""
        return np.flatnonzero(np.diff(self.ratings.offsets))

    def sampled(self, *, unrated: int = 300, seed: int = 0) -> Candidates:
        """Return each user's held-out items among `unrated` items the user never rated.

        The lists are a function of (data, split, unrated, seed): all methods rank the same.
        A user with fewer unrated items has a shorter list.
        """
        return self.sampled_of(self.user, unrated=unrated, seed=seed)

    def sampled_of(self, user: NDArray[np.int64], *, unrated: int, seed: int) -> Candidates:
        """Return the lists that some users of this part have in `sampled`."""
        checked_whole("unrated", unrated, least=1)
        checked_whole("seed", seed, least=0)
        data = self.data
        longest = int(np.diff(self.ratings.offsets).max())
        sizes, key = (longest, min(unrated, data.n_items)), (seed, int(self.code))
        rated = UserItems(user, data.offsets, data.item)
        item, slot, mask = evaluation_lists(rated, self.held_out, data.n_items, sizes, key)
        relevance = np.where(slot >= 0, data.rating[slot], 0).astype(np.float32)
        return Candidates(user, item, relevance, mask)

    def batches(self, *, unrated: int, seed: int) -> list[Batch]:
        """Return the lists of `sampled` some at a time, in the order of the users."""

        def batch(start: int) -> Batch:
            users = self.user[start : start + BLOCK]
            lists = self.sampled_of(users, unrated=unrated, seed=seed)
            return candidate_batch(lists, self.data.group)

        return run_all([partial(batch, start) for start in range(0, len(self.user), BLOCK)])

    def longest(self, *, unrated: int) -> int:
        """Return the length of the longest of these lists."""
        rated = np.diff(self.data.offsets)[self.user]
        others = np.minimum(unrated, self.data.n_items - rated)
        own = np.diff(self.ratings.offsets)[self.user]
        return int((own + others).max(initial=0))


@dataclass(frozen=True, eq=False)
class Lists:
    """A split of the ratings into training, validation and test.

    Attributes:
        data: What was split.
        part: What each slot is used for, ``[n_ratings]``: train, validation or test.
        rule: How it was split, in words.
        short_users: Users with too few ratings to hold any out; all of theirs are for training.
    """

    data: Interactions
    part: NDArray[np.int8]
    rule: str
    short_users: int

    @property
    def n_pairs(self) -> int:
        """How many pairs of a user and an item a method may keep a value for."""
        return self.data.n_ratings

    @property
    def warmup_checksum(self) -> str:
        """The checksum of what a warm-up reads: all but the groups."""
        return self.data.ratings_checksum

    def training_threads(self) -> AbstractContextManager[None]:
        """Return a context in which torch trains with all its threads."""
        return nullcontext()

    @cached_property
    def train(self) -> Ratings:
        """The training ratings of every user."""
        return _some_ratings(self.data, self.part == TRAIN)

    @property
    def validation(self) -> HeldOut:
        """The ratings to choose settings by."""
        return HeldOut(self.data, self.part, VALIDATION)

    @property
    def test(self) -> HeldOut:
        """The ratings to report on."""
        return HeldOut(self.data, self.part, TEST)


def split(
    data: Interactions, *, test: int = 5, validation: int = 5, min_ratings: int | None = None
) -> Lists:
    """Return the split that holds out each user's last ratings by time.

    Args:
        data: The ratings, with times. Of equal times the later row is the later rating.
        test: Ratings per user to test on.
        validation: Ratings per user, before those, to choose settings by.
        min_ratings: Users with fewer ratings stay wholly in training and are counted. Left
            out, it is one more than what is held out.
    """
    checked_kind("data", data, Interactions, source=DATA_SOURCE)
    if data.time is None:
        raise InputError(
            f"{data.name} has no times, and this split takes the last ratings by time; "
            f"name the time column, or split at random"
        )
    least = _least_ratings(data, test, validation, min_ratings)
    part = hold_out_last(data.offsets, data.time, test, validation, least)
    rule = f"last {test} by time, {validation} before for validation"
    return _lists(data, part, rule, least)


def split_random(
    data: Interactions,
    *,
    test: int = 5,
    validation: int = 5,
    min_ratings: int | None = None,
    seed: int = 0,
) -> Lists:
    """Return the split that holds out each user's ratings at random; see `split`."""
    checked_kind("data", data, Interactions, source=DATA_SOURCE)
    checked_whole("seed", seed, least=0)
    least = _least_ratings(data, test, validation, min_ratings)
    part = hold_out_random(data.offsets, test, validation, least, seed)
    rule = f"random {test} for test and {validation} for validation, seed {seed}"
    return _lists(data, part, rule, least)


def save_split(lists: Lists, path: str | Path) -> None:
    """Write which rating is in which part as Parquet: original ids and the part's name."""
    checked_kind("lists", lists, Lists, source="ft.split or ft.split_random")
    target = checked_target("path", path)
    frame = lists.data.to_frame().select("user", "item")
    names = pl.Series(PARTS).gather(lists.part)
    data = lists.data.ratings_checksum
    about = {"rule": lists.rule, "ratings": data, "short": str(lists.short_users)}
    with replacing(target) as temporary:
        frame.with_columns(part=names).write_parquet(temporary, metadata=about)


def load_split(path: str | Path, data: Interactions) -> Lists:
    """Return a saved split of the same data, refusing one that was made for other data."""
    path = checked_path("path", path)
    checked_kind("data", data, Interactions, source=DATA_SOURCE)
    about = read_parquet_metadata(path)
    if "ratings" not in about:
        raise InputError(f"{path} is not a saved split; give what save_split wrote")
    if about["ratings"] != data.ratings_checksum:
        raise InputError(f"{path} was made for other data than {data.name}; split that anew")
    names = read_parquet(path, ["part"], whole=False)["part"]
    fits = names.dtype == pl.String and len(names) == data.n_ratings
    noted = re.fullmatch("[0-9]{1,10}", about.get("short", "")) and "rule" in about
    if not (fits and noted and names.is_in(PARTS).all()):
        raise InputError(f"{path} is a damaged split; make it again")
    part = names.replace_strict(PARTS, range(3), return_dtype=pl.Int8).to_numpy()
    return Lists(data, part, about["rule"], int(about["short"]))


def _some_ratings(data: Interactions, kept: NDArray[np.bool_]) -> Ratings:
    before = np.concatenate([[0], np.cumsum(kept)])
    return Ratings(before[data.offsets], data.item[kept], data.rating[kept])


def _least_ratings(data: Interactions, test: int, validation: int, least: int | None) -> int:
    checked_whole("test", test, least=1)
    checked_whole("validation", validation, least=0)
    asked = 0 if least is None else checked_whole("min_ratings", least, least=0)
    least = max(asked, test + validation + 1)
    most = int(np.diff(data.offsets).max())
    if most < least:
        raise InputError(
            f"no user of {data.name} has {least} ratings, the most is {most}; "
            f"hold out fewer than {test} + {validation}, or lower min_ratings"
        )
    return least


def _lists(data: Interactions, part: NDArray[np.int8], rule: str, least: int) -> Lists:
    rule = f"{rule}, of users with at least {least} ratings"
    return Lists(data, part, rule, int((np.diff(data.offsets) < least).sum()))
