"""Draws docs/images/catalogue.png: what Eq. 9 says of models, and where the group stands.

Usage: python benchmarks/catalogue_picture.py [--rows docs/results/catalogue.csv]
       [--out docs/images/catalogue.png] [--grouping horror]

Rows are those of `catalogue.py`; of each method the parameter that was chosen on validation.
Both halves are of the whole catalogue at K = 50: bars are means over seeds, strokes are seeds.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl
from catalogue_page import BLIND, KEYS, KS, choice
from matplotlib.axes import Axes

INK, PLAIN, WRONG = "#3b5b92", "#7f8899", "#b5482f"
NAMES = {  # from top to bottom
    BLIND: "colour-blind (k-song)",
    "kso-red on samples": "kso-red, trained on samples",
    "kso-red on the catalogue": "kso-red, trained on the catalogue",
    "fair-distill": "fair-distill",
    "det-const-sort (labels)": "det-const-sort (labels when serving)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=Path, default=Path("docs/results/catalogue.csv"))
    parser.add_argument("--out", type=Path, default=Path("docs/images/catalogue.png"))
    parser.add_argument("--grouping", default="horror")
    asked = parser.parse_args()
    draw(shown(pl.read_csv(asked.rows), asked.grouping), asked.grouping, asked.out)


def shown(found: pl.DataFrame, grouping: str) -> pl.DataFrame:
    """Return a row for each method and seed: what is left of Eq. 9, %, and the signed gap."""
    chosen = found.join(choice(found), on=KEYS, nulls_equal=True)
    chosen = chosen.filter(grouping=grouping, k=KS[0])
    blind = chosen.filter(method=BLIND).select("seed", blind="exposure_gap")
    return chosen.join(blind, on="seed").select(
        "method",
        "seed",
        left=100 * pl.col("exposure_gap") / pl.col("blind"),
        signed=1e3 * pl.col("rank_exposure_gap_signed"),
    )


def draw(rows: pl.DataFrame, grouping: str, path: Path) -> None:
    """Write the picture of what `shown` returns to a file."""
    plt.rcParams.update({"font.size": 10})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 2.9), sharey=True)
    _bars(left, rows, "left")
    _bars(right, rows, "signed")
    left.set_title("what Eq. 9 says", fontsize=11)
    left.set_xlabel("gap at K = 50, % of colour-blind's")
    right.set_title(f"where {grouping} stands", fontsize=11)
    right.set_xlabel("signed gap by rank at K = 50, 1e-3; 0 is equal")
    right.axvline(0, color="black", linewidth=0.8)
    left.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _bars(axes: Axes, rows: pl.DataFrame, column: str) -> None:
    """Draw a bar for each method; one that is worse than colour-blind has another colour."""
    means = dict(rows.group_by("method").agg(pl.col(column).mean()).iter_rows())
    names = [name for name in NAMES if name in means]
    colours = [_colour(means[name], means[BLIND], blind=name == BLIND) for name in names]
    bars = axes.barh([NAMES[name] for name in names], [means[name] for name in names],
                     color=colours, height=0.6)  # fmt: skip
    form = "%.0f" if column == "left" else "%+.2f"
    axes.bar_label(bars, fmt=form, label_type="center", color="white")
    for place, name in enumerate(names):
        seeds = rows.filter(method=name)[column]
        axes.plot(seeds, [place] * len(seeds), "|", color="black", markersize=8, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _colour(mean: float, base: float, *, blind: bool) -> str:
    if blind:
        return PLAIN
    return WRONG if abs(mean) > abs(base) else INK


if __name__ == "__main__":
    main()
