"""Speed and memory of scoring and evaluation at MovieLens-20M shape, each figure from one run.

Usage: python benchmarks/scoring.py [--json]

The plain way is torch as one would write it down: NeuMF that repeats the user's vectors along
the items, sorts in full, and metrics by torch's own operations. Times are medians of
interleaved repeats; ratios compare measurements of the same run.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.data.synthetic import SIZES
from fairtopk.evaluation import evaluate, evaluate_full
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import HeldOut, Ratings
from fairtopk.models.neumf import NeuMF
from fairtopk.models.scoring import BLOCK, top_items

REPEATS = 5
WIDTH, HIDDEN = 64, 64
KS = (50, 100, 200)
USERS, PLAIN_USERS = 8_192, 32  # with the whole catalogue
PLAIN_LISTS = 2_048  # of 5 + 300 items
FEW, MANY = 2_048, 16_384  # users whose evaluation is compared in memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    as_json = parser.parse_args().json
    lists = ft.split(ft.make_synthetic(SIZES["movielens-20m"]).data)
    data, generator = lists.data, torch.Generator().manual_seed(0)
    scorer = NeuMF(
        data.n_users, data.n_items, width=WIDTH, hidden=(HIDDEN,), generator=generator
    )
    for parameter in scorer.parameters():
        nn.init.normal_(parameter, std=0.1, generator=generator)
    figures = {
        **measure_memory(scorer, lists),  # first, as it is the first to ask for any
        **measure_catalogue(scorer, lists),
        **measure_lists(scorer, lists),
    }
    if as_json:
        print(json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2))
        return
    for line in (
        f"whole catalogue, top {KS[-1]}: {figures['top_rate']:,.0f} users/s, "
        f"{figures['top_ratio']:,.0f}x the plain way's {figures['plain_top_rate']:,.0f} "
        f"(at least 100); scores alone {figures['score_rate']:,.0f}, all metrics "
        f"{figures['full_rate']:,.0f} users/s",
        f"memory: {figures['few_mb']:,.0f} MB more at the peak for {FEW:,} users, "
        f"{figures['many_mb']:,.0f} MB for {MANY:,}",
        f"5 + 300 lists, scores and metrics of {data.n_users:,} users: "
        f"{figures['lists_s']:.2f} s (about 3), {figures['lists_ratio']:.0f}x the plain way's "
        f"{figures['plain_lists_s']:.0f} s (at least 10); drawn in {figures['draw_s']:.2f} s",
    ):
        print(line)


def measure_catalogue(scorer: NeuMF, lists: ft.Lists) -> dict[str, float]:
    train, n_items = lists.train, lists.data.n_items
    users = np.random.default_rng(0).permutation(lists.data.n_users)[:USERS]
    plain, few = PlainNeuMF(scorer), users[:PLAIN_USERS].tolist()
    part = some_users(lists.test, USERS)
    actions: dict[str, tuple[int, Callable[[], Any]]] = {
        "plain_top": (len(few), lambda: [plain_top(plain, train, user) for user in few]),
        "score": (USERS, lambda: score_blocks(scorer, users)),
        "top": (
            USERS,
            lambda: top_items(scorer, users, k=KS[-1], n_items=n_items, excluded=train),
        ),
        "full": (USERS, lambda: evaluate_full(scorer, part, KS)),
    }
    seconds = interleaved({name: action for name, (_, action) in actions.items()})
    rates = {f"{name}_rate": count / seconds[name] for name, (count, _) in actions.items()}
    return rates | {"top_ratio": rates["top_rate"] / rates["plain_top_rate"]}


def measure_memory(scorer: NeuMF, lists: ft.Lists) -> dict[str, float]:
    """Return by how much memory rises at most, first for few users, then for many (Linux)."""
    few, many = (some_users(lists.test, count) for count in (FEW, MANY))
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that from now on
    before, found = memory_mb("VmRSS"), {}
    for name, part in {"few_mb": few, "many_mb": many}.items():
        evaluate_full(scorer, part, KS)
        found[name] = memory_mb("VmHWM") - before
    return found


def measure_lists(scorer: NeuMF, lists: ft.Lists) -> dict[str, float]:
    start = time.perf_counter()
    blocks = lists.test.batches(unrated=300, seed=0)
    draw_s, n_lists = time.perf_counter() - start, len(lists.test.user)
    plain = PlainNeuMF(scorer)
    few = Batch(*(tensor[:PLAIN_LISTS] for tensor in blocks[0]))
    seconds = interleaved(
        {
            "lists": lambda: evaluate(scorer, iter(blocks), KS),
            "plain": lambda: plain_evaluation(plain, few),
        }
    )
    plain_s = seconds["plain"] * n_lists / PLAIN_LISTS
    ratio = plain_s / seconds["lists"]
    found = {"lists_s": seconds["lists"], "plain_lists_s": plain_s, "lists_ratio": ratio}
    return found | {"draw_s": draw_s}


class PlainNeuMF(nn.Module):
    """The same model as it is usually written: one long vector per pair through the layers."""

    def __init__(self, same_as: NeuMF) -> None:
        super().__init__()
        self.product_user, self.product_item = same_as.product_user, same_as.product_item
        self.network_user, self.network_item = same_as.network_user, same_as.network_item
        self.hidden = nn.Linear(2 * WIDTH, HIDDEN)
        self.output = same_as.output
        halves = [same_as.user_layer.weight, same_as.item_layer.weight]
        with torch.no_grad():
            self.hidden.weight.copy_(torch.cat(halves, dim=1))
            self.hidden.bias.copy_(same_as.user_layer.bias)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the scores of lists of items, ``[Q, L]``, for as many users."""
        users = users[:, None].expand(items.shape)
        product = self.product_user(users) * self.product_item(items)
        pair = torch.cat([self.network_user(users), self.network_item(items)], dim=-1)
        both = torch.cat([product, self.hidden(pair).relu()], dim=-1)
        scores: Tensor = self.output(both)
        return scores[..., 0]


@torch.no_grad()
def plain_top(plain: PlainNeuMF, train: Ratings, user: int) -> Tensor:
    """Return the best items of a user by a full sort."""
    scores = plain(torch.tensor([user]), torch.arange(len(plain.product_item.weight))[None])
    rated = train.item[train.offsets[user] : train.offsets[user + 1]]
    scores[0, torch.from_numpy(rated).long()] = -torch.inf
    return scores.sort(dim=-1, descending=True).indices[:, : KS[-1]]


@torch.no_grad()
def plain_evaluation(plain: PlainNeuMF, batch: Batch) -> dict[str, Tensor]:
    """Return NDCG and every gap of two groups at every K."""
    parts = zip(batch.query.split(256), batch.item.split(256), strict=True)
    scores = torch.cat([plain(users, items) for users, items in parts])
    scores = scores.masked_fill(~batch.mask, -torch.inf)
    slot = scores.argsort(dim=-1, descending=True, stable=True)
    gains = (2**batch.relevance - 1).gather(-1, slot)
    best = gains.sort(dim=-1, descending=True).values
    group, by_rank = batch.group.gather(-1, slot), scores.gather(-1, slot)
    exposure = by_rank.softmax(-1)
    discount = 1 / torch.log2(2 + torch.arange(scores.shape[-1]))
    found = {}
    for k in KS:
        found[f"ndcg@{k}"] = (gains * discount)[:, :k].sum(-1) / (best * discount)[:, :k].sum(
            -1
        )
        of_groups: dict[str, list[Tensor]] = {}
        for number in (0, 1):
            member = group == number
            size, top = member.sum(-1), member[:, :k]
            inside = (exposure[:, :k] * top).sum(-1)
            mean = inside / exposure[:, :k].sum(-1) / top.sum(-1).clamp(min=1)
            of_groups.setdefault("exposure_gap", []).append(inside / size)
            of_groups.setdefault("exposure_gap_released", []).append(mean)
            ranks = (discount[:k] * top).sum(-1) / size
            of_groups.setdefault("rank_exposure_gap", []).append(ranks)
            of_groups.setdefault("representation_gap", []).append(top.sum(-1) / size)
        for name, (named, rest) in of_groups.items():
            found[f"{name}_signed@{k}"] = named - rest
            found[f"{name}@{k}"] = (named - rest).abs()
    return found


def score_blocks(scorer: NeuMF, users: NDArray[np.int64]) -> None:
    for block in torch.from_numpy(users).split(BLOCK):
        scorer.score_all(block)


def some_users(part: HeldOut, count: int) -> HeldOut:
    """Return the part without the held-out ratings of all users but the first `count`."""
    kept = part.held_out.copy()
    kept[part.data.offsets[count] :] = False
    fewer = HeldOut(part.data, kept, part.code)
    _ = fewer.ratings, fewer.others  # ready beforehand
    return fewer


def interleaved(actions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median seconds of each action; the first round does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(REPEATS + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(found[1:]) for name, found in seconds.items()}


def memory_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
