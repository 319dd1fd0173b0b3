"""NDCG and every gap of 100,000 lists, beside torchmetrics' NDCG alone.

Usage: python benchmarks/metrics.py [--json] (`make oracles` installs torchmetrics)

Lists of 305 with 5 relevant items and two groups, K = 50, 100, 200. Torchmetrics loops over
queries, so it is timed on fewer lists and scaled; repeats are interleaved, figures are medians.
"""

import argparse
import json
import statistics

import torch
from timing import peak_mb, seconds
from torchmetrics.retrieval import RetrievalNormalizedDCG

from fairtopk.metrics import summarise

LISTS, THEIR_LISTS, LENGTH, RELEVANT = 100_000, 1_000, 305, 5
KS = (50, 100, 200)
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(LISTS, LENGTH, generator=generator)
    relevance = torch.zeros(LISTS, LENGTH, dtype=torch.int64)
    relevance[:, :RELEVANT] = torch.randint(1, 6, (LISTS, RELEVANT), generator=generator)
    groups = (torch.rand(LISTS, LENGTH, generator=generator) > 0.1).int()
    before = peak_mb()
    summarise(scores[:10], relevance[:10], groups[:10], ks=KS)  # compiles
    ours, theirs = [], []
    for _ in range(REPEATS):
        ours.append(seconds(lambda: summarise(scores, relevance, groups, ks=KS)))
        theirs.append(seconds(lambda: their_ndcg(scores, relevance)))
    mine, other = statistics.median(ours), statistics.median(theirs)
    figures = {
        "fairtopk_s": mine,
        "torchmetrics_s": other * LISTS / THEIR_LISTS,
        "ratio": other * LISTS / THEIR_LISTS / mine,
        "input_mb": before,
        "peak_mb": peak_mb(),
    }
    if asked.json:
        print(json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2))
        return
    for name, value in figures.items():
        print(f"{name}: {value:,.2f}")


def their_ndcg(scores: torch.Tensor, relevance: torch.Tensor) -> None:
    """Let torchmetrics compute NDCG at one K for the first lists."""
    few = slice(THEIR_LISTS)
    query = torch.arange(THEIR_LISTS).repeat_interleave(LENGTH)
    metric = RetrievalNormalizedDCG(top_k=KS[0])
    metric.update(scores[few].flatten(), relevance[few].flatten(), indexes=query)
    metric.compute()


if __name__ == "__main__":
    main()
