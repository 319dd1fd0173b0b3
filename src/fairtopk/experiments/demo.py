"""`fairtopk demo`: the embedded data, its known bias, and what a plain ranker makes of it."""

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from fairtopk.batches import ListSampler, ListSizes
from fairtopk.data.synthetic import SIZES, Synthetic, make_synthetic
from fairtopk.experiments.console import table
from fairtopk.lists import Candidates, Lists, split

TOP = (10, 50)


def show_demo(console: Console, *, seed: int = 0) -> None:
    """Print what the embedded data holds, how it is biased, and how lists are made of it."""
    made = make_synthetic(SIZES["demo"], seed=seed)
    lists = split(made.data)
    console.print(f"The embedded data: {made.data!r}", markup=False, highlight=False)
    _show_bias(console, made)
    _show_popularity(console, lists, seed)
    _show_lists(console, lists, seed)


def _show_bias(console: Console, made: Synthetic) -> None:
    data = made.data
    group = data.group[data.item]
    liked = made.truth.utility(data.user_of_slot(), data.item)
    shown = table(
        "What users feel favours no group; what is recorded does",
        "group", "items", "ratings", "of which 4 or 5", "mean liking (truth)", "mean grade",
    )  # fmt: skip
    for number, name in enumerate(data.group_names):
        of_group, high = group == number, data.rating >= 4
        shown.add_row(
            name,
            f"{(data.group == number).mean():.1%}",
            f"{of_group.mean():.1%}",
            f"{(of_group & high).sum() / high.sum():.1%}",
            f"{liked[of_group].mean():+.3f}",
            f"{data.rating[of_group].mean():.3f}",
        )
    console.print(shown)


def _show_popularity(console: Console, lists: Lists, seed: int) -> None:
    """Rank each user's test list by popularity in training, and count groups at its top."""
    found = lists.test.sampled(seed=seed)
    popularity = np.bincount(lists.train.item, minlength=lists.data.n_items)
    order = np.argsort(-np.where(found.mask, popularity[found.item], -1), axis=1, kind="stable")
    group = np.take_along_axis(lists.data.group[found.item], order, axis=1)
    columns = ["group", "share of the list", *(f"of the top {k}" for k in TOP)]
    shown = table("A ranking by popularity hands the bias on", *columns)
    for number, name in enumerate(lists.data.group_names):
        shares = [_share(found, lists.data.group, number)]
        shares += [float((group[:, :k] == number).mean()) for k in TOP]
        shown.add_row(name, *(f"{share:.1%}" for share in shares))
    console.print(shown)


def _share(found: Candidates, group: NDArray[np.int32], number: int) -> float:
    return float((group[found.item] == number)[found.mask].mean())


def _show_lists(console: Console, lists: Lists, seed: int) -> None:
    sizes = ListSizes()
    batch = ListSampler(lists, sizes, seed=seed).draw(np.arange(256), epoch=0)
    test = lists.test.sampled(seed=seed)
    shown = table("Ranking lists", "part", "lists", "rated", "unrated")
    relevant = batch.relevance > 0
    shown.add_row(
        "training, one batch",
        f"{len(batch.query):,}",
        f"{relevant.sum(1).float().mean():.1f}",
        f"{(batch.mask & ~relevant).sum(1).float().mean():.1f}",
    )
    shown.add_row(
        f"test ({lists.rule})",
        f"{len(test.user):,}",
        f"{(test.relevance > 0).sum(1).mean():.1f}",
        f"{(test.mask & (test.relevance == 0)).sum(1).mean():.1f}",
    )
    console.print(shown)
