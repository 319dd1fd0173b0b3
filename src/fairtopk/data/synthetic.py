"""Generated ratings and documents with a known bias against one group.

The utility of item i for user u is ``taste_u · factors_i + quality_i`` (`Truth`). It favours no
group: an item's group says nothing about its factors, quality or popularity. Recorded data are
biased against the first group by the amount chosen: its items are seen less, and graded
lower than they are liked. So fairness can be tested against the truth.

A compiled loop fills the ratings user by user: what they come to rate, what they feel, and
when. Every user has a random stream of their own, so users can be filled in any order and in
any number of threads, with the same result.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.checks import checked_choice, checked_kind, checked_number, checked_whole
from fairtopk.data.interactions import Interactions
from fairtopk.errors import InputError, KindError
from fairtopk.kernels import random
from fairtopk.kernels.compiled import compiled, inlined
from fairtopk.terminal import shown

N_FACTORS = 8
TASTE_VARIANCE = 0.7  # of a utility's variance of 1; the rest is quality
# Ratings per item in MovieLens are spread like |normal|^p: 1M fits p = 2, 20M about p = 4.
POPULARITY_POWER = 3.0
GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0
LEAST_PER_USER = 20
LARGEST_BIAS = 10.0
MOST_GENERATED = 10**9  # users, items or ratings
ACTIVITY_SPREAD = 1.2  # of the logarithm of a user's ratings beyond the least
GRADE_SHARES = (0.06, 0.11, 0.26, 0.35, 0.22)  # of grades 1 to 5, as in MovieLens 1M
# At bias 1 the first group fares about as horror does in MovieLens 1M, where 8.8 % of the films
# have 7.6 % of the ratings and 5.9 % of those of at least 4.
SEEN_LESS = 0.25  # off the log-popularity, per unit of bias
GRADED_LOWER = 0.35  # off the utility that is graded, per unit of bias
N_BLOCKS = 16  # of users; what is drawn does not depend on it

# First keys of the streams, far from the epochs that are keys elsewhere.
ROWS = 2**32
TASTES, FACTORS, QUALITY, POPULARITY, GROUPS = range(2**33, 2**33 + 5)
ACTIVITY, FIRST_RATERS = range(2**34, 2**34 + 2)

# Someone who comes across an item rates it with chance sigmoid(LIKING * utility - RELUCTANCE).
LIKING = 2.0
RELUCTANCE = 1.0
NOISE = 0.5  # spread of what is recorded around what is felt

# Seconds. Users start in the ten years from the start of 2000 and rate in sittings.
EARLIEST = 946_684_800
YEARS = 315_576_000
MEAN_GAP = 30.0
MEAN_PAUSE = 864_000.0
PAUSE_CHANCE = 0.02

# Of documents.
MINOR_SHARE = 0.3
LARGEST = 4.0  # grade
MOST_DOCUMENTS = 10**8


@dataclass(frozen=True, eq=False)
class Truth:
    """What users feel and how well known items are, before any bias.

    Attributes:
        user_factors: Tastes, ``[n_users, d]``.
        item_factors: What tastes are for, ``[n_items, d]``.
        quality: What everyone likes, ``[n_items]``; weighted by popularity, its mean is 0 in
            every group.
        log_popularity: Logarithm of how often people come across an item, ``[n_items]``.
        group: Group number of each item, ``[n_items]``.
    """

    user_factors: NDArray[np.float32]
    item_factors: NDArray[np.float32]
    quality: NDArray[np.float32]
    log_popularity: NDArray[np.float64]
    group: NDArray[np.int32]

    def utility(
        self, users: NDArray[np.integer], items: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        """Return how much users like items, about 0 with spread 1; the arrays broadcast."""
        tastes, factors = self.user_factors[users], self.item_factors[items]
        utility: NDArray[np.float32] = np.einsum("...d,...d->...", tastes, factors)
        utility += self.quality[items]
        return utility


def draw_truth(
    n_users: int, n_items: int, group_shares: tuple[float, ...], *, seed: int
) -> Truth:
    """Return users and items drawn at random, the items in groups of these shares."""
    tastes = random.normals(seed, TASTES, np.empty(n_users * N_FACTORS))
    factors = random.normals(seed, FACTORS, np.empty(n_items * N_FACTORS))
    factors *= (TASTE_VARIANCE / N_FACTORS) ** 0.5
    quality = random.normals(seed, QUALITY, np.empty(n_items)) * (1.0 - TASTE_VARIANCE) ** 0.5
    popularity = np.abs(random.normals(seed, POPULARITY, np.empty(n_items))) ** POPULARITY_POWER
    # Every group is spread evenly over the order of popularity: multiples of the golden ratio
    # modulo 1 fill the unit interval evenly from the first on, so every run of items in that
    # order has nearly its share of each group.
    places = (
        random.normals(seed, GROUPS, np.empty(1)) + GOLDEN_RATIO * np.arange(n_items)
    ) % 1.0
    ends = np.round(np.cumsum(group_shares) * n_items)
    group = np.empty(n_items, np.int32)
    group[np.argsort(-popularity)[np.argsort(places)]] = np.searchsorted(
        ends[:-1], np.arange(n_items), "right"
    )
    # A few items are most of what is seen: left to chance, some group would have better ones.
    luck = np.bincount(group, popularity * quality) / np.bincount(group, popularity)
    return Truth(
        user_factors=tastes.reshape(-1, N_FACTORS).astype(np.float32),
        item_factors=factors.reshape(-1, N_FACTORS).astype(np.float32),
        quality=(quality - luck[group]).astype(np.float32),
        log_popularity=np.log(popularity),
        group=group,
    )


@dataclass(frozen=True)
class SyntheticShape:
    """How much to generate.

    Attributes:
        n_users: Number of users; each rates at least 20 items and at most half of all.
        n_items: Number of items; each is rated at least once.
        n_ratings: Number of ratings.
        group_shares: Share of the items in each group; the bias is against the first.
    """

    n_users: int
    n_items: int
    n_ratings: int
    group_shares: tuple[float, ...] = (0.15, 0.85)

    def __post_init__(self) -> None:
        for name in ("n_users", "n_items", "n_ratings"):
            checked_whole(name, getattr(self, name), least=1, most=MOST_GENERATED)
        if isinstance(self.group_shares, str) or not isinstance(self.group_shares, Sequence):
            raise KindError(
                f"group_shares must be a list of shares, got {shown(self.group_shares)}"
            )
        for share in self.group_shares:
            checked_number("each of group_shares", share)
        # Two users, each with at most half of the items, could leave one item unrated.
        if self.n_users < 3 or self.n_items < 2 * LEAST_PER_USER:
            raise InputError(
                f"n_users must be at least 3 and n_items at least {2 * LEAST_PER_USER}, "
                f"got {self.n_users} and {self.n_items}"
            )
        least = max(LEAST_PER_USER * self.n_users, self.n_items)
        most = self.n_users * (self.n_items // 2)
        if not least <= self.n_ratings <= most:
            raise InputError(
                f"n_ratings must lie between {least:,} and {most:,} for {self.n_users:,} users "
                f"and {self.n_items:,} items (a user rates from {LEAST_PER_USER} items to half "
                f"of them, and each item is rated), got {self.n_ratings:,}"
            )
        if not 2 <= len(self.group_shares) <= len(ascii_lowercase):
            raise InputError(
                f"group_shares must have from 2 to {len(ascii_lowercase)} shares, "
                f"got {len(self.group_shares)}"
            )
        if not math.isclose(sum(self.group_shares), 1.0, abs_tol=1e-6):
            raise InputError(f"group_shares must add up to 1, got {self.group_shares}")
        if min(self.group_shares) * self.n_items < 2:
            raise InputError(
                f"group_shares must give each group at least 2 of the {self.n_items:,} items, "
                f"got {self.group_shares}"
            )


SIZES = {
    "demo": SyntheticShape(1_000, 800, 60_000),
    "movielens-20m": SyntheticShape(138_493, 26_744, 20_000_000),
}


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Generated ratings, and the truth that they came from."""

    data: Interactions
    truth: Truth


def load_synthetic(*, size: str = "demo", bias: float = 1.0, seed: int = 0) -> Interactions:
    """Return generated ratings of a size of `SIZES`; see `make_synthetic`."""
    checked_choice("size", size, SIZES)
    return make_synthetic(SIZES[size], bias=bias, seed=seed).data


def make_synthetic(shape: SyntheticShape, *, bias: float = 1.0, seed: int = 0) -> Synthetic:
    """Return ratings biased against the group "a", and the truth that they came from.

    The result depends on nothing but the arguments. Truth, groups and the number of ratings of
    each user do not depend on `bias`.

    Args:
        shape: How much to generate; `SIZES` has some.
        bias: From 0, none, to 10; 1 is about what horror films meet in MovieLens.
        seed: From 0 to 2^63 - 1.

    Example:
        >>> make_synthetic(SyntheticShape(50, 100, 2_000), bias=0.5, seed=1).data
        <Interactions synthetic-50x100-bias-0.5-seed-1: 50 users, 100 items, 2,000 ratings;
        a 15, b 85, (unknown) 0>
    """
    checked_kind("shape", shape, SyntheticShape, source="ft.SyntheticShape")
    bias = checked_number("bias", bias)
    if not 0 <= bias <= LARGEST_BIAS:
        raise InputError(f"bias must lie between 0 and {LARGEST_BIAS:g}, got {bias:g}")
    seed = checked_whole("seed", seed, least=0)
    truth = draw_truth(shape.n_users, shape.n_items, shape.group_shares, seed=seed)

    # The items as users come across them and grade them.
    against = bias * (truth.group == 0)
    log_weight = truth.log_popularity - SEEN_LESS * against
    keep, alias = random.alias_table(np.exp(log_weight))
    handicap = (GRADED_LOWER * against).astype(np.float32)
    catalogue = Catalogue(truth.item_factors, truth.quality, log_weight, keep, alias, handicap)
    # Each item is rated once at least, in random order at even distances; the users choose the
    # others.
    item = np.full(shape.n_ratings, -1, np.int32)
    places = np.arange(shape.n_items) * shape.n_ratings // shape.n_items
    item[places] = np.argsort(random.normals(seed, FIRST_RATERS, np.empty(shape.n_items)))
    offsets, recorded = _offsets(shape, seed), np.empty(shape.n_ratings, np.float32)
    slots = Slots(offsets, item, recorded, time=np.empty(shape.n_ratings, np.int64))
    fill = partial(fill_users, seed, truth.user_factors, catalogue, slots)
    cuts = np.searchsorted(offsets, np.linspace(0, shape.n_ratings, N_BLOCKS + 1)).tolist()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, pairwise(cuts)))
    # Where no bias is, the shares of grades 1 to 5 are `GRADE_SHARES`.
    rating = np.ones(shape.n_ratings, np.float32)
    fair = recorded[truth.group[item] != 0]
    for lowest in np.quantile(fair, np.cumsum(GRADE_SHARES)[:-1]):
        rating += recorded > lowest

    names = tuple(ascii_lowercase[: len(shape.group_shares)])
    counts = np.bincount(truth.group).tolist()
    data = Interactions(
        offsets=offsets,
        item=item,
        rating=rating,
        time=slots.time,
        group=truth.group,
        group_names=names,
        user_ids=pl.Series(np.arange(shape.n_users, dtype=np.int32)),
        item_ids=pl.Series(np.arange(shape.n_items, dtype=np.int32)),
        catalogue_counts=dict(zip(names, counts, strict=True)),
        name=f"synthetic-{shape.n_users}x{shape.n_items}-bias-{bias:g}-seed-{seed}",
        notes=(f"generated, with bias {bias:g} against group 'a' and seed {seed}",),
    )
    return Synthetic(data, truth)


def _offsets(shape: SyntheticShape, seed: int) -> NDArray[np.int64]:
    """Return where each user's ratings start, ``[n_users + 1]``.

    Beyond the least, ratings are in proportion to the users' activity, up to half of the items.
    """
    activity = np.exp(ACTIVITY_SPREAD * random.normals(seed, ACTIVITY, np.empty(shape.n_users)))
    total = shape.n_ratings - LEAST_PER_USER * shape.n_users
    most = shape.n_items // 2 - LEAST_PER_USER
    # What passes `most` falls to the others, so the factor of proportion has to be searched.
    low, high = 0.0, total / float(activity.min())
    for _ in range(64):
        middle = (low + high) / 2.0
        if np.minimum(middle * activity, most).sum() <= total:
            low = middle
        else:
            high = middle
    counts = np.minimum(low * activity, most).astype(np.int64)
    while (left := total - int(counts.sum())) > 0:
        counts[np.flatnonzero(counts < most)[:left]] += 1
    offsets = np.zeros(shape.n_users + 1, np.int64)
    np.cumsum(LEAST_PER_USER + counts, out=offsets[1:])
    return offsets


class Documents(NamedTuple):
    """Documents as arrays, a row each, the way `FairRanker.fit` takes them.

    Attributes:
        x: Features, ``[n, 4]``.
        y: Grades from 0 to 4, ``[n]``.
        qid: The list of each document, ``[n]``.
        groups: ``minor`` or ``major``, ``[n]``.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    qid: NDArray[np.int64]
    groups: NDArray[np.str_]


def make_documents(
    n_lists: int = 40, length: int = 30, *, bias: float = 2.0, seed: int = 0
) -> Documents:
    """Return lists whose grades are quality, but `bias` grades less for the minor group.

    Two features make the quality, the third tells the groups apart, so that a ranker learns the
    bias from it, and the fourth says nothing. Three of ten documents are of the minor group.

    Args:
        n_lists: Number of lists.
        length: Documents of each.
        bias: What the grades of the minor group are short of its quality.
        seed: Seed of everything random.
    """
    checked_whole("n_lists", n_lists, least=1, most=MOST_DOCUMENTS)
    checked_whole("length", length, least=1, most=MOST_DOCUMENTS // n_lists)
    checked_number("bias", bias)
    checked_whole("seed", seed, least=0)
    rng = np.random.default_rng(seed)
    n = n_lists * length
    minor = rng.random(n) < MINOR_SHARE
    x = rng.normal(size=(n, 4))
    x[:, 2] = minor + 0.1 * rng.normal(size=n)
    quality = x[:, 0] + 0.5 * x[:, 1] + 0.3 * rng.normal(size=n)
    y = np.round(quality + LARGEST / 2 - bias * minor).clip(0, LARGEST)
    qid = np.repeat(np.arange(n_lists), length)
    return Documents(x, y, qid, np.where(minor, "minor", "major"))


class Catalogue(NamedTuple):
    """What drawing ratings needs to know of each item."""

    factors: NDArray[np.float32]  # latent, [n_items, d]
    quality: NDArray[np.float32]  # added to everyone's utility, [n_items]
    log_weight: NDArray[np.float64]  # logarithm of how often people see it, [n_items]
    keep: NDArray[np.float64]  # from `alias_table` of the weights, [n_items]
    alias: NDArray[np.int32]  # likewise
    handicap: NDArray[np.float32]  # off the utility before it is recorded, [n_items]


class Slots(NamedTuple):
    """The ratings to be filled, grouped by user."""

    offsets: NDArray[np.int64]  # start of each user's slots, [n_users + 1]
    item: NDArray[np.int32]  # filled where negative; items given stay with their user
    recorded: NDArray[np.float32]  # filled with utility less handicap plus noise
    time: NDArray[np.int64]  # filled with times that never fall within a user


class Search(NamedTuple):
    """The choice of a user's items, which passes from compiled code to numpy and back."""

    limit: int  # draws after which one look at every item is the quicker way
    resumed: bool  # whether the first user's items were chosen by such a look
    state: NDArray[np.uint64]  # of that user's stream, [1]
    taken: NDArray[np.bool_]  # False for every item between users, [n_items]
    log_wait: NDArray[np.float64]  # logarithms of that user's waits for the items, [n_items]


def fill_users(
    seed: int,
    tastes: NDArray[np.float32],
    catalogue: Catalogue,
    slots: Slots,
    block: tuple[int, int],
    *,
    limit: int | None = None,
) -> None:
    """Fill the slots of the users from ``block[0]`` up to, not including, ``block[1]``.

    A user's items are distinct. Each is drawn in proportion to weight times chance to be rated,
    among those not yet taken: by rejection, and after `limit` draws by one look at every item,
    which has the same distribution. Of exponential waits with rates w, the shortest are a draw
    without replacement in proportion to w (Efraimidis and Spirakis).
    `tastes` are ``[n_users, d]``; left out, `limit` is two draws for each item.
    """
    n_items, (user, stop) = len(catalogue.quality), block
    state, taken = np.zeros(1, np.uint64), np.zeros(n_items, np.bool_)
    limit = 2 * n_items if limit is None else limit
    search = Search(limit, False, state, taken, log_wait=np.empty(n_items))
    while user < stop:
        user = _fill_users(seed, tastes, catalogue, slots, (user, stop), search)
        search = search._replace(resumed=user < stop)
        if search.resumed:
            mine = slots.item[slots.offsets[user] : slots.offsets[user + 1]]
            missing = mine < 0
            mine[missing] = np.argsort(search.log_wait)[: missing.sum()]


@compiled
def _fill_users(
    seed: int,
    tastes: NDArray[np.float32],
    catalogue: Catalogue,
    slots: Slots,
    block: tuple[int, int],
    search: Search,
) -> int:
    """Fill the slots of the users of `block`, and return the first that is not filled.

    That user needs a look at every item: `search` has the logarithms of their waits, which hold
    for any rates, and the state of the stream with which the user is resumed once the items are
    chosen.
    """
    first, last = block
    offsets, item, recorded, time = slots
    taken, log_wait = search.taken, search.log_wait
    for user in range(first, last):
        start, stop = offsets[user], offsets[user + 1]
        taste, missing, left = tastes[user], 0, search.limit
        state = random.stream(seed, np.int64(ROWS), user)
        if search.resumed and user == first:
            state = search.state[0]
        for slot in range(start, stop):
            if item[slot] >= 0:
                taken[item[slot]] = True
            else:
                missing += 1
        slot = start
        while missing > 0 and left > 0:
            if item[slot] >= 0:
                slot += 1
                continue
            left -= 1
            state = random.advance(state)
            place = random.uniform(state) * len(taken)
            seen = int(place)
            if place - seen >= catalogue.keep[seen]:
                seen = catalogue.alias[seen]
            if taken[seen]:
                continue
            state = random.advance(state)
            if random.uniform(state) < _chance(_utility(taste, catalogue, seen)):
                item[slot] = seen
                taken[seen] = True
                missing -= 1
        if missing > 0:
            for seen in range(len(taken)):
                state = random.advance(state)
                log_wait[seen] = np.inf
                if not taken[seen]:
                    chance = _chance(_utility(taste, catalogue, seen))
                    log_rate = catalogue.log_weight[seen] + math.log(chance)
                    log_wait[seen] = math.log(-math.log(1.0 - random.uniform(state))) - log_rate
            search.state[0] = state
            return user
        for slot in range(start, stop):
            taken[item[slot]] = False
        # What is likeliest is chosen first, but not rated first.
        for slot in range(stop - 1, start, -1):
            state = random.advance(state)
            other = start + random.below(state, slot - start + 1)
            item[slot], item[other] = item[other], item[slot]
        for slot in range(start, stop):
            state = random.advance(state)
            rated = np.int64(item[slot])  # as above, or numba types `_utility` twice
            felt = _utility(taste, catalogue, rated) + NOISE * random.normal(state)
            state = random.advance(state)
            recorded[slot] = felt - catalogue.handicap[rated]
        state = random.advance(state)
        now = EARLIEST + random.below(state, np.int64(YEARS))
        for slot in range(start, stop):
            time[slot] = now
            state = random.advance(state)
            mean = MEAN_PAUSE if random.uniform(state) < PAUSE_CHANCE else MEAN_GAP
            state = random.advance(state)
            now += int(-math.log(1.0 - random.uniform(state)) * mean)
    return last


@inlined
def _utility(taste: NDArray[np.float32], catalogue: Catalogue, item: int | np.int64) -> float:
    total = np.float64(catalogue.quality[item])
    for factor in range(len(taste)):
        total += taste[factor] * catalogue.factors[item, factor]
    return total


@inlined
def _chance(utility: float) -> float:
    return 1.0 / (1.0 + math.exp(RELUCTANCE - LIKING * utility))
