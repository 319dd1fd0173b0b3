"""From ratings to ranking lists: what is trained on, what is held out, who is ranked with whom.

"Unrated" has two meanings, on purpose:

- in training lists, an item that is not among the user's *training* ratings. Leaving out the
  validation and test items as well would tell the model what the user is going to rate.
- in evaluation lists, an item that the user rated in *no* part, since a held-out item that
  counts as irrelevant would make a good ranking look bad.

Each list has its own random stream, keyed by (seed, round, user): what a user's list holds does
not depend on the batch it is drawn in, nor on the number of threads. Rounds of training are
epochs, from 0; those of evaluation are parts, from -2 down (-1 is a random split's), so that no
two streams are one. Otherwise a model would be trained on the very items it is measured with.
"""

import re
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.checks import checked_kind, checked_path, checked_target, checked_whole
from fairtopk.data.columns import Origin
from fairtopk.data.interactions import Interactions
from fairtopk.data.tables import opened_parquet, read_parquet
from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.csr import TEST, TRAIN, VALIDATION, hold_out_last, hold_out_random
from fairtopk.kernels.random import advance, below, stream, uniform
from fairtopk.kernels.ranking import UserItems
from fairtopk.kernels.threads import run_all
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
    """The ratings of one part, and the lists that measure how well a model ranks them.

    Attributes:
        data: All ratings.
        held_out: Which of them are of this part, ``[n_ratings]``.
        code: Number of the part.
    """

    data: Interactions
    held_out: NDArray[np.bool_]
    code: np.int8

    @cached_property
    def ratings(self) -> Ratings:
        """The ratings of this part, of every user."""
        return kept_ratings(self.data, self.held_out)

    @cached_property
    def others(self) -> Ratings:
        """The ratings of all other parts, of every user."""
        return kept_ratings(self.data, ~self.held_out)

    @cached_property
    def user(self) -> NDArray[np.int64]:
        """Users with a rating in this part, ``[Q]``."""
        return np.flatnonzero(np.diff(self.ratings.offsets))

    def sampled(
        self, user: NDArray[np.int64] | None = None, *, unrated: int = 300, seed: int = 0
    ) -> Candidates:
        """Return each user's held-out items among `unrated` items the user never rated.

        The lists are a function of (data, split, unrated, seed): all methods rank the same.
        A user with fewer unrated items has a shorter list. `user` are some of the part's users;
        None is all.
        """
        checked_whole("unrated", unrated, least=1)
        checked_whole("seed", seed, least=0)
        data, user = self.data, self.user if user is None else user
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
            lists = self.sampled(users, unrated=unrated, seed=seed)
            return candidate_batch(lists, self.data.group)

        return run_all([partial(batch, start) for start in range(0, len(self.user), BLOCK)])

    def lengths(self, *, unrated: int | None) -> NDArray[np.int64]:
        """Return the length of each of these lists, ``[Q]``; None: of the whole catalogue."""
        most = self.data.n_items
        if unrated is not None:
            most = min(checked_whole("unrated", unrated, least=1), most)
        others = np.minimum(self.data.n_items - np.diff(self.data.offsets)[self.user], most)
        lengths: NDArray[np.int64] = np.diff(self.ratings.offsets)[self.user] + others
        return lengths


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

    training_threads = nullcontext  # a context in which torch trains with all its threads

    @property
    def n_pairs(self) -> int:
        """How many pairs of a user and an item a method may keep a value for."""
        return self.data.n_ratings

    @property
    def warmup_checksum(self) -> str:
        """The checksum of what a warm-up reads: all but the groups."""
        return self.data.ratings_checksum

    @cached_property
    def train(self) -> Ratings:
        """The training ratings of every user."""
        return kept_ratings(self.data, self.part == TRAIN)

    @property
    def validation(self) -> HeldOut:
        """The ratings to choose settings by."""
        return HeldOut(self.data, self.part == VALIDATION, VALIDATION)

    @property
    def test(self) -> HeldOut:
        """The ratings to report on."""
        return HeldOut(self.data, self.part == TEST, TEST)


def split(
    data: Interactions, *, test: int = 5, validation: int = 5, min_ratings: int | None = None
) -> Lists:
    """Return the split that holds out each user's last ratings by time.

    Args:
        data: The ratings, with times. If times are equal, the later row is the later rating.
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
    least, short, users = _enough_ratings(data, test, validation, min_ratings)
    part, latest = np.full(data.n_ratings, TRAIN), np.empty(test + validation, np.int64)
    hold_out_last(data.offsets, data.time, test, least, latest, part)
    rule = f"last {test} by time, {validation} before for validation, {users}"
    return Lists(data, part, rule, short)


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
    least, short, users = _enough_ratings(data, test, validation, min_ratings)
    part = hold_out_random(data.offsets, test, validation, least, seed)
    rule = f"random {test} for test and {validation} for validation, seed {seed}, {users}"
    return Lists(data, part, rule, short)


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
    with opened_parquet(path, Origin(path.name)) as file:
        about = pl.read_parquet_metadata(file)
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


def kept_ratings(ratings: Interactions | Ratings, kept: NDArray[np.bool_]) -> Ratings:
    """Return some of the ratings, of every user; `kept` says which, ``[n_ratings]``."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return Ratings(before[ratings.offsets], ratings.item[kept], ratings.rating[kept])


def _enough_ratings(
    data: Interactions, test: int, validation: int, least: int | None
) -> tuple[int, int, str]:
    """Return how many ratings a user must have, how many users have fewer, and the rule."""
    checked_whole("test", test, least=1)
    checked_whole("validation", validation, least=0)
    given = 0 if least is None else checked_whole("min_ratings", least, least=0)
    least, counts = max(given, test + validation + 1), np.diff(data.offsets)
    if counts.max() < least:
        raise InputError(
            f"no user of {data.name} has {least} ratings, the most is {counts.max()}; "
            f"hold out fewer than {test} + {validation}, or lower min_ratings"
        )
    return least, int((counts < least).sum()), f"of users with at least {least} ratings"


class Drawn(NamedTuple):
    """Lists of L slots, of which some, or only some of the first R, hold a rated item."""

    item: NDArray[np.int32]  # item numbers, 0 on padding, [Q, L]
    slot: NDArray[np.int64]  # of rated items among all ratings, -1 elsewhere, [Q, L] or [Q, R]
    mask: NDArray[np.bool_]  # False on padding, [Q, L]


def training_lists(
    rated: UserItems,
    head: NDArray[np.int32],
    n_items: int,
    sizes: tuple[int, int, int],
    key: tuple[int, int],
) -> Drawn:
    """Return lists of rated items, of other ones, and of each user's head.

    Each of the three parts of a list is drawn without replacement; the second from the items
    that are neither rated nor in the head.

    Args:
        rated: The users, and the items of their training ratings.
        head: Items that the users have not rated, -1 past the last, ``[Q, M]``.
        n_items: Size of the catalogue.
        sizes: How many items of each part a list should hold. Where a user has fewer, the rest
            of that part of the list is padding.
        key: Seed and round (epoch) of the random streams.
    """
    n_lists, slots = len(rated.user), (len(rated.user), sum(sizes))
    ratings, mask = np.full((n_lists, sizes[0]), -1, np.int64), np.zeros(slots, np.bool_)
    drawn = Drawn(np.zeros(slots, np.int32), ratings, mask)
    room = (np.zeros(n_items, np.bool_), np.empty(n_items, np.int32))
    _fill_training(rated, head, key, drawn, np.empty(sizes[2], np.int64), room)
    return drawn


@compiled
def _fill_training(
    rated: UserItems,
    head: NDArray[np.int32],
    key: tuple[int, int],
    drawn: Drawn,
    places: NDArray[np.int64],
    room: tuple[NDArray[np.bool_], NDArray[np.int32]],
) -> None:
    """Fill lists of padding; there is room for places in the head, and for known items."""
    (item, rating, mask), (taken, known) = drawn, room
    # Slots before the others, and before the head.
    n_rated, n_first = rating.shape[1], item.shape[1] - len(places)
    for row in range(len(rated.user)):
        user = rated.user[row]
        start, stop = rated.offsets[user], rated.offsets[user + 1]
        state = draw_slots(start, stop, stream(key[0], key[1], user), rating[row])
        for place in range(min(n_rated, stop - start)):
            item[row, place] = rated.item[rating[row, place]]
            mask[row, place] = True
        n_known, n_head = 0, 0
        for slot in range(start, stop):
            known[n_known] = rated.item[slot]
            n_known += 1
        while n_head < head.shape[1] and head[row, n_head] >= 0:
            known[n_known] = head[row, n_head]
            n_known += 1
            n_head += 1
        others = item[row, n_rated:n_first]
        count, state = draw_others(known[:n_known], taken, state, others)
        for place in range(n_rated, n_rated + count):
            mask[row, place] = True
        state = draw_slots(np.int64(0), n_head, state, places)
        for place in range(min(len(places), n_head)):
            item[row, n_first + place] = head[row, places[place]]
            mask[row, n_first + place] = True


def evaluation_lists(
    rated: UserItems,
    held_out: NDArray[np.bool_],
    n_items: int,
    sizes: tuple[int, int],
    key: tuple[int, int],
) -> Drawn:
    """Return each user's held-out items among items the user never rated, shuffled.

    The order is shuffled so that a tie of scores, broken by position, favours no one; padding
    comes last.

    Args:
        rated: The users, and the items of all their ratings.
        held_out: Which ratings are to be ranked.
        n_items: Size of the catalogue.
        sizes: The most held-out items of a user, and how many others a list should hold.
        key: Seed of the random streams, and number of the part, from 1.
    """
    slots = (len(rated.user), sum(sizes))
    ratings, mask = np.full(slots, -1, np.int64), np.zeros(slots, np.bool_)
    drawn = Drawn(np.zeros(slots, np.int32), ratings, mask)
    _fill_evaluation(rated, held_out, sizes[1], key, np.zeros(n_items, np.bool_), drawn)
    return drawn


@compiled
def _fill_evaluation(
    rated: UserItems,
    held_out: NDArray[np.bool_],
    n_others: int,
    key: tuple[int, int],
    taken: NDArray[np.bool_],
    drawn: Drawn,
) -> None:
    """Fill lists of padding; `taken` is room for `draw_others`."""
    for row in range(len(rated.user)):
        user = rated.user[row]
        start, stop = rated.offsets[user], rated.offsets[user + 1]
        items, slots = drawn.item[row], drawn.slot[row]
        count = 0
        for slot in range(start, stop):
            if held_out[slot]:
                items[count] = rated.item[slot]
                slots[count] = slot
                count += 1
        state, others = stream(key[0], -1 - key[1], user), items[count : count + n_others]
        found, state = draw_others(rated.item[start:stop], taken, state, others)
        count += found
        for place in range(count - 1, 0, -1):
            state = advance(state)
            other = below(state, place + 1)
            items[place], items[other] = items[other], items[place]
            slots[place], slots[other] = slots[other], slots[place]
        for place in range(count):
            drawn.mask[row, place] = True


def group_lists(
    users: NDArray[np.integer],
    groups: tuple[NDArray[np.int64], NDArray[np.int32]],
    size: int,
    key: tuple[int, int],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return `size` items of each group for each user, drawn without replacement.

    Args:
        users: For whom, ``[Q]``.
        groups: CSR offsets of the groups, and the items of each.
        size: How many of each group; a smaller group has padding.
        key: Seed and round (epoch) of the random streams.

    Returns:
        Items ``[Q, G * size]`` (0 on padding) and their groups (-1 on padding).
    """
    shape = (len(users), (len(groups[0]) - 1) * size)
    lists, label = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
    _fill_groups(users, groups, key, np.empty(size, np.int64), lists, label)
    return lists, label


@compiled
def _fill_groups(
    users: NDArray[np.integer],
    groups: tuple[NDArray[np.int64], NDArray[np.int32]],
    key: tuple[int, int],
    slots: NDArray[np.int64],
    lists: NDArray[np.int32],
    label: NDArray[np.int32],
) -> None:
    """Fill lists of padding; `slots` is room for those of one group."""
    (offsets, item), size = groups, len(slots)
    for row in range(len(users)):
        # The complement of the user keeps this stream apart from that of the user's list.
        state = stream(key[0], key[1], -1 - users[row])
        for group in range(len(offsets) - 1):
            start, stop = offsets[group], offsets[group + 1]
            state = draw_slots(start, stop, state, slots)
            for place in range(min(size, stop - start)):
                lists[row, group * size + place] = item[slots[place]]
                label[row, group * size + place] = group


@compiled
def draw_slots(
    start: int | np.int64, stop: int, state: np.uint64, out: NDArray[np.int64]
) -> np.uint64:
    """Fill `out` with distinct slots of ``[start, stop)``, all of them if they are too few.

    Floyd's algorithm: every set of slots is equally likely; the rest of `out` is left alone.
    """
    wanted = min(len(out), stop - start)
    for place in range(wanted):
        newest = stop - wanted + place
        state = advance(state)
        drawn = start + below(state, newest - start + 1)
        for earlier in range(place):
            if out[earlier] == drawn:
                drawn = newest
                break
        out[place] = drawn
    return state


@compiled
def draw_others(
    owned: NDArray[np.int32], taken: NDArray[np.bool_], state: np.uint64, out: NDArray[np.int32]
) -> tuple[int, np.uint64]:
    """Fill `out` with distinct items outside `owned`; return how many, and the new state.

    Args:
        owned: Items to leave out, no item twice.
        taken: Scratch, one flag per item of the catalogue, all False before and after.
        state: The random stream.
        out: Where to write; left alone past the returned count.
    """
    n_items = len(taken)
    free = n_items - len(owned)
    wanted = min(len(out), free)
    for one in owned:
        taken[one] = True
    if 2 * wanted <= free and 2 * free >= n_items:  # at least every fourth draw is accepted
        for place in range(wanted):
            state = advance(state)
            drawn = below(state, n_items)
            while taken[drawn]:
                state = advance(state)
                drawn = below(state, n_items)
            taken[drawn] = True
            out[place] = drawn
    else:  # selection sampling over the catalogue
        place, to_come = 0, free
        for one in range(n_items):
            if taken[one]:
                continue
            state = advance(state)
            if uniform(state) * to_come < wanted - place:
                out[place] = one
                place += 1
            to_come -= 1
    for one in owned:
        taken[one] = False
    for place in range(wanted):
        taken[out[place]] = False
    return wanted, state
