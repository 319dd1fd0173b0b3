"""Draws bias.svg: the embedded data's first group, from the catalogue to the top of a ranking.

Usage: python docs/images/bias.py (needs the docs extra)
"""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import fairtopk as ft
from fairtopk.cli.demo import BIAS
from fairtopk.data.synthetic import SIZES

INK, FAINT = "#3b5b92", "#c9d3e6"
N_SEEDS = 10


def mean_shares() -> dict[str, float]:
    """Return the mean over seeds of group a's share, in percent, at each stage."""
    found = [shares(seed) for seed in range(N_SEEDS)]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def shares(seed: int) -> dict[str, float]:
    """Return group a's share, in percent, of what is counted at each stage."""
    data = ft.make_synthetic(SIZES["demo"], bias=BIAS, seed=seed).data
    lists = ft.split(data)
    test = lists.test.sampled(seed=0)
    popularity = np.bincount(lists.train.item, minlength=data.n_items)
    order = np.argsort(-popularity[test.item], axis=1, kind="stable")
    top = np.take_along_axis(data.group[test.item], order, axis=1)[:, :10]
    rated = data.group[data.item]
    return {
        "of the items": 100 * float((data.group == 0).mean()),
        "of the ratings": 100 * float((rated == 0).mean()),
        "of the ratings of 4 or 5": 100 * float((rated[data.rating >= 4] == 0).mean()),
        "of the top 10 by popularity": 100 * float((top == 0).mean()),
    }


def main() -> None:
    """Write the picture beside this file."""
    matplotlib.rcParams.update({"svg.hashsalt": "fairtopk", "font.size": 11})
    found = mean_shares()
    figure, axes = plt.subplots(figsize=(7.2, 2.2))
    names = list(found)[::-1]
    axes.barh(names, [found["of the items"]] * len(names), color=FAINT)
    bars = axes.barh(names, [found[name] for name in names], color=INK)
    axes.bar_label(bars, fmt="%.1f %%", label_type="center", color="white")
    axes.set_xlabel("group a's share (%)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = Path(__file__).with_suffix(".svg")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
