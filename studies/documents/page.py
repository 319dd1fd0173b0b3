"""The tables of docs/results/documents.md, from the rows that `run` wrote."""

import math

import polars as pl

from studies.documents.sets import SETS
from studies.page import table

BLIND = "k-song"
METHODS = ("kso-red", "so-red", "ng-de", "deltr")
LOST = 0.02  # of the blind NDCG on validation, that a weight may cost
GAPS = {
    "exposure_gap": "Eq. 9",
    "rank_exposure_gap": "by rank",
    "representation_gap": "in share",
}
RANKER = ["data", "model", "method", "c_relative"]


def tables(found: pl.DataFrame) -> dict[str, str]:
    """Return each table as Markdown, by the name of its mark in the page."""
    known = pl.col("data").cast(pl.Enum(list(SETS)))
    found = relative(found.sort(known, "model", "c_relative", "seed", maintain_order=True))
    short = found.filter(pl.col("steps") == pl.col("steps").min())
    blind = short.filter(pl.col("seen") == 0)
    grouped = blind.filter(pl.col("data") != "mq2008")
    ks = grouped["k"].unique().sort().to_list()
    chosen = {k: choice(grouped.filter(pl.col("k") == k)) for k in ks}
    return {
        "overall": _overall(chosen),
        **{f"k={k}": _by_set(chosen[k]) for k in ks},
        "weights": _weights(grouped.filter(pl.col("k") == ks[0])),
        "deltr": _curve(short.filter(seen=1, k=ks[0])),
        "mq2008": _quality(blind.filter(data="mq2008")),
        "steps": _steps(found),
    }


def relative(found: pl.DataFrame) -> pl.DataFrame:
    """Return gaps over what a document of a list of mean length gets on average."""
    discounts = {k: sum(1 / math.log2(1 + rank) for rank in range(1, k + 1)) for k in (10, 50)}
    handed_out = {
        "exposure_gap": pl.lit(1.0),
        "rank_exposure_gap": pl.col("k").replace_strict(discounts),
        "representation_gap": pl.col("k"),
    }
    return found.with_columns(
        pl.col(f"^{gap}(_floor|_signed)?$") * pl.col("length") / total
        for gap, total in handed_out.items()
    )


def choice(found: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of one weight for each set, model and method, chosen on validation.

    It is the one with the smallest gap by rank of those that keep the NDCG; where none does,
    the smallest weight.
    """
    means = found.group_by(RANKER, maintain_order=True).agg(
        pl.col("valid_ndcg", "valid_rank_exposure_gap").mean()
    )
    best = means.filter(method=BLIND).select("data", "model", blind="valid_ndcg")
    kept = pl.col("valid_ndcg") >= (1 - LOST) * pl.col("blind")
    order = (
        means.join(best, on=["data", "model"], maintain_order="left")
        .with_columns(kept=kept, gap=pl.when(kept).then("valid_rank_exposure_gap"))
        .sort("kept", "gap", "c_relative", descending=[True, False, False], maintain_order=True)
        .unique(["data", "model", "method"], keep="first")
    )
    return found.join(order.select(RANKER), on=RANKER, nulls_equal=True, maintain_order="left")


def _by_set(chosen: pl.DataFrame) -> str:
    """Return means and deviations of every set, model and method; chance is the floor."""
    head = ["data", "model", "method", "C/n²", "NDCG", *GAPS.values(), "by rank, signed"]
    lines = []
    for (data, model), part in chosen.group_by(["data", "model"], maintain_order=True):
        name, kind = str(data), str(model)
        for method in (BLIND, *METHODS):
            rows = part.filter(method=method)
            if rows.is_empty():
                continue
            gaps = [_spread(rows[one]) for one in GAPS]
            signed = f"{rows['rank_exposure_gap_signed'].mean():+.2f}"
            ndcg = _spread(rows["ndcg"])
            lines.append([name, kind, method, _weight(rows), ndcg, *gaps, signed])
            name = kind = ""
            if method == BLIND:
                floors = [_mean(rows[f"{one}_floor"]) for one in GAPS]
                lines.append(["", "", "chance", "", "", *floors, ""])
    return table(head, lines)


def _overall(chosen: dict[int, pl.DataFrame]) -> str:
    """Return medians over sets of what each method costs and cuts, in per cent."""
    cuts = [f"{name} cut" for name in GAPS.values()]
    head = ["K", "model", "method", "NDCG lost", *cuts, "sets cut by rank beyond 2 s.e."]
    lines = []
    for k, found in chosen.items():
        for model in ("linear", "mlp"):
            for method in METHODS:
                part = found.filter(model=model)
                pairs = _pairs(part, method)
                if pairs.is_empty():
                    continue
                of_set = pairs.group_by("data").agg(
                    _lost("ndcg"), *(_lost(one) for one in GAPS), beyond=_beyond()
                )
                values = [f"{of_set[one].median():.0f}" for one in ("ndcg", *GAPS)]
                beyond = f"{of_set['beyond'].sum()} of {len(of_set)}"
                lines.append([str(k), model, method, *values, beyond])
    return table(head, lines)


def _pairs(found: pl.DataFrame, method: str) -> pl.DataFrame:
    """Return the rows of a method beside those of the blind ranker, seed by seed."""
    blind = found.filter(method=BLIND)
    return found.filter(method=method).join(blind, on=["data", "seed"], suffix="_blind")


def _lost(name: str) -> pl.Expr:
    blind = pl.col(f"{name}_blind").mean()
    return (100 * (blind - pl.col(name).mean()) / blind).alias(name)


def _beyond() -> pl.Expr:
    """Return whether the gap by rank fell by more than twice the standard error of its fall."""
    fall = pl.col("rank_exposure_gap_blind") - pl.col("rank_exposure_gap")
    return fall.mean() > 2 * fall.std() / pl.len().sqrt()


def _weights(found: pl.DataFrame) -> str:
    """Return medians over sets at each weight, none of which was chosen."""
    cuts = [f"{name} cut" for name in GAPS.values()]
    head = ["model", "method", "C/n²", "NDCG lost", *cuts]
    lines = []
    for model in ("linear", "mlp"):
        part = found.filter(model=model)
        for method in METHODS:
            pairs = _pairs(part, method)
            for (c,), rows in pairs.group_by(["c_relative"], maintain_order=True):
                of_set = rows.group_by("data").agg(_lost("ndcg"), *(_lost(one) for one in GAPS))
                values = [f"{of_set[one].median():.0f}" for one in ("ndcg", *GAPS)]
                lines.append([model, method, f"{c:g}", *values])
    return table(head, lines)


def _curve(found: pl.DataFrame) -> str:
    """Return what becomes of protected students as the weight of DELTR rises."""
    head = ["data", "C/n²", "exposure, protected / others", "share of the top 10", "P@10"]
    head = [*head, "NDCG@10"]
    lines = []
    for (data,), part in found.group_by(["data"], maintain_order=True):
        name = str(data)
        for (c,), rows in part.sort("c_relative").group_by(["c_relative"], maintain_order=True):
            shown = [_spread(rows[one]) for one in ("exposure_ratio", "share")]
            quality = [_spread(rows[one]) for one in ("precision", "ndcg")]
            lines.append([name, f"{c:g}", *shown, *quality])
            name = ""
    return table(head, lines)


def _quality(found: pl.DataFrame) -> str:
    head = ["model", "NDCG@10"]
    lines = []
    for (model,), rows in found.group_by(["model"], maintain_order=True):
        lines.append([str(model), _spread(rows["ndcg"])])
    return table(head, lines)


def _steps(found: pl.DataFrame) -> str:
    """Return the same rankers after short and long training, on validation."""
    keys = ["data", "model", "method", "c_relative", "k", "seen", "seed"]
    few, many = found["steps"].min(), found["steps"].max()
    both = found.filter(steps=few).join(
        found.filter(steps=many), on=keys, nulls_equal=True, suffix="_long"
    )
    names = [f"NDCG, {few}", f"NDCG, {many:,}", f"by rank, {few}", f"by rank, {many:,}"]
    head = ["data", "model", "method", *names]
    lines = []
    for row in both.iter_rows(named=True):
        values = [
            f"{row[f'valid_{one}{form}']:.3f}"
            for one in ("ndcg", "rank_exposure_gap")
            for form in ("", "_long")
        ]
        lines.append([row["data"], row["model"], row["method"], *values])
    return table(head, lines)


def _weight(rows: pl.DataFrame) -> str:
    c = rows["c_relative"][0]
    return "" if c is None else f"{c:g}"


def _mean(values: pl.Series) -> str:
    return f"{values.mean():.3f}"


def _spread(values: pl.Series) -> str:
    return _mean(values) + ("" if len(values) < 2 else f" ± {values.std():.3f}")
