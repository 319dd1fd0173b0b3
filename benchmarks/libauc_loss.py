"""Our losses beside LibAUC's `NDCGLoss` on the same scores: forward and backward pass.

Usage: python benchmarks/libauc_loss.py [--repeats 50]; `make oracles` installs LibAUC for it

256 lists of 10 rated and 300 unrated items, each loss with its averages per pair. Repeats are
interleaved; figures are medians in milliseconds, and the ratio LibAUC's over ours.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from libauc.losses import NDCGLoss
from torch import Tensor, nn

import fairtopk as ft

LISTS, RATED, LENGTH, K = 256, 10, 310, 50
N_QUERIES, N_ITEMS = 2_000, 26_744


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    repeats = parser.parse_args().repeats
    for name, ours, theirs in (
        ("SONG", ft.losses.Song(n_queries=N_QUERIES), oracle(topk=-1)),
        ("K-SONG", ft.losses.KSong(k=K, n_queries=N_QUERIES), oracle(topk=K)),
    ):
        # The first repeats compile, and fill tables.
        pairs = [both(ours, theirs, seed) for seed in range(repeats + 3)][3:]
        mine, other = 1e3 * np.median(pairs, axis=0)
        print(f"{name}: ours {mine:.2f} ms, LibAUC {other:.2f} ms, ratio {other / mine:.2f}")


def both(ours: nn.Module, theirs: NDCGLoss, seed: int) -> tuple[float, float]:
    """Return the seconds that our loss and LibAUC's take on one batch."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randperm(N_QUERIES, generator=generator)[:LISTS]
    item = torch.rand(LISTS, N_ITEMS, generator=generator).topk(LENGTH).indices
    # A query's rated items are the same at every visit, as they are in training.
    item[:, :RATED] = (query[:, None] * 7919 + torch.arange(RATED)) % N_ITEMS
    relevance = torch.zeros(LISTS, LENGTH)
    relevance[:, :RATED] = torch.randint(1, 6, (LISTS, RATED), generator=generator)
    scores = torch.randn(LISTS, LENGTH, generator=generator)
    inputs = {
        "rating": relevance,
        "user_id": query,
        "user_item_id": query[:, None] * RATED + torch.arange(RATED),
        "num_pos_items": torch.full((LISTS,), RATED),
        "ideal_dcg": torch.full((LISTS,), 30.0),
    }
    return (
        timed(lambda h: ours(h, relevance, query=query, item=item), scores),
        timed(lambda h: theirs(h, inputs), scores),
    )


def oracle(topk: int) -> NDCGLoss:
    return NDCGLoss(
        N=N_QUERIES * RATED, num_user=N_QUERIES, num_item=N_ITEMS, num_pos=RATED, topk=topk
    )


def timed(loss: Callable[[Tensor], Tensor], scores: Tensor) -> float:
    leaf = scores.clone().requires_grad_()
    start = time.perf_counter()
    loss(leaf).backward()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
