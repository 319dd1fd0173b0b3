"""Tables of `catalogue.py`: what each method costs and cuts on the whole catalogue."""

import polars as pl

BLIND, KS = "colour-blind", (50, 100, 200)
KEPT = ("ndcg", "rank_exposure_gap")  # by which a parameter is chosen on validation
LEAST, LEAST_OF = 0.99, {"fair-distill": 0.985}  # of colour-blind's NDCG on validation


def tables(found: pl.DataFrame) -> dict[str, str]:
    """Return the tables by name: what was chosen, and every parameter."""
    return {
        "chosen": _table(found.join(choice(found), on=KEYS, nulls_equal=True)),
        "every": _table(found),
    }


KEYS = ["grouping", "method", "weight"]


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
    lines = [_line(head), f"|{' --- |' * len(head)}"]
    for (grouping,), part in found.group_by(["grouping"], maintain_order=True):
        name = str(grouping)
        blind = part.filter(method=BLIND)
        for (method, weight), rows in part.group_by(["method", "weight"], maintain_order=True):
            pairs = rows.join(blind, on=["seed", "k"], suffix="_blind").sort("k", "seed")
            lines.append(
                _line(
                    [
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
                )
            )
            name = ""
    return "\n".join(lines)


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


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
