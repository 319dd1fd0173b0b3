"""The tables of docs/results/catalogue.md, and the picture docs/images/catalogue.png.

Usage: python -m studies.catalogue.page [--rows docs/results/catalogue.csv]
       [--out docs/images/catalogue.png] [--grouping horror]

Draws the picture from the rows that `run` wrote: what Eq. 9 says of each method, at the
parameter chosen on validation, and where the group stands. Both halves are of the full
catalogue at K = 50: bars are means over seeds, strokes are seeds.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.axes import Axes

from studies.page import table

BLIND, KS = "colour-blind", (50, 100, 200)
KEPT = ("ndcg", "rank_exposure_gap")  # by which a parameter is chosen on validation
LEAST, LEAST_OF = 0.99, {"fair-distill": 0.985}  # of colour-blind's NDCG on validation
KEYS = ["grouping", "method", "weight"]
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


def tables(found: pl.DataFrame) -> dict[str, str]:
    """Return the tables by name: what was chosen, and every parameter."""
    return {
        "chosen": _table(found.join(choice(found), on=KEYS, nulls_equal=True)),
        "every": _table(found),
    }


def choice(found: pl.DataFrame) -> pl.DataFrame:
    """Return the parameter of each grouping and method, chosen on validation over seeds.

    It has the smallest gap of those that keep the NDCG; where none does, the best NDCG. What is
    kept is that of the same method with a weight of 0, trained for as long: the colour-blind
    epoch was chosen on the same ratings, and is better there than anywhere else.
    """
    means = (
        found.filter(k=KS[0])
        .group_by(KEYS, maintain_order=True)
        .agg(pl.col("valid_ndcg", "valid_rank_exposure_gap").mean())
    )
    blind = means.filter(method=BLIND).select("grouping", blind="valid_ndcg")
    twin = means.filter(weight=0).select("grouping", "method", twin="valid_ndcg")
    least = pl.col("method").replace_strict(LEAST_OF, default=LEAST)
    kept = pl.col("valid_ndcg") >= least * pl.coalesce("twin", "blind")
    order = (
        pl.when(kept)
        .then(pl.col("valid_rank_exposure_gap"))
        .otherwise(10 - pl.col("valid_ndcg"))
    )
    return (
        means.filter(pl.col("weight").is_null() | (pl.col("weight") > 0))
        .join(blind, on="grouping")
        .join(twin, on=["grouping", "method"], how="left")
        .sort(order)
        .unique(["grouping", "method"], keep="first", maintain_order=True)
        .select(KEYS)
    )


def _table(found: pl.DataFrame) -> str:
    """Return losses of NDCG and cuts of gaps against colour-blind, seed by seed."""
    head = ["grouping", "method", "parameter", "seeds", "NDCG@K", "NDCG lost, %",
            "gap by rank cut, %", "signed gap by rank, 1e-3", "Eq. 9 cut, %"]  # fmt: skip
    lines = []
    for (grouping,), part in found.group_by(["grouping"], maintain_order=True):
        name = str(grouping)
        blind = part.filter(method=BLIND)
        for (method, weight), rows in part.group_by(["method", "weight"], maintain_order=True):
            pairs = rows.join(blind, on=["seed", "k"], suffix="_blind").sort("k", "seed")
            cells = [
                name,
                str(method),
                "" if weight is None else f"{weight:g}",
                str(rows["seed"].n_unique()),
                _each_k(pairs, pl.col("ndcg"), "{:.4f}"),
                _each_k(pairs, _fallen("ndcg"), "{:.1f}", spread=True),
                _each_k(pairs, _fallen("rank_exposure_gap"), "{:.0f}", spread=True),
                _each_k(pairs, 1e3 * pl.col("rank_exposure_gap_signed"), "{:+.2f}"),
                _each_k(pairs, _fallen("exposure_gap"), "{:.0f}"),
            ]
            lines.append(cells)
            name = ""
    return table(head, lines)


def _fallen(name: str) -> pl.Expr:
    """Return by how many per cent a metric is below colour-blind's of the same seed."""
    return 100 * (1 - pl.col(name) / pl.col(f"{name}_blind"))


def _each_k(pairs: pl.DataFrame, value: pl.Expr, form: str, *, spread: bool = False) -> str:
    """Return the mean over seeds at each K, and its standard deviation."""
    words = []
    for k in KS:
        values = pairs.filter(k=k).select(one=value)["one"]
        word = form.format(values.mean())
        if spread and len(values) > 1 and values.std():
            word += f" ± {form.format(values.std())}"
        words.append(word)
    return " / ".join(words)


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
