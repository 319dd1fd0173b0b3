"""Which model and which method for the full catalogue: NDCG against the gap by rank.

Usage: python -m studies.frontier --data DIR --out DIR [--seeds 5] [--neural 3]
       [--data-sets "MovieLens 1M" ...] [--models ease ...] [--page docs/results/frontier.md]

`DIR` of the data holds the MovieLens archives and the part of the Netflix Prize. Fits what
`--out` does not hold yet, as `fairtopk sweep` does. Writes ``frontier.csv`` beside the page, a
row for each model, method, setting, seed and K, the tables of the page and the picture
docs/images/frontier.png; without a page it prints the tables.

The rule, written before any run: settings are chosen for each data set, grouping and method on
the catalogue of validation ratings, of users by whom no ridge and no epoch was chosen, by means
over seeds. "Fair" is the setting with the largest mean cut of the gap by rank at K = 50, 100
and 200 among those that keep 98.5 % of the NDCG of the same model without fairness at each of
these K; "mild" the same with 99.7 %. Test ratings are only reported. On other data than
MovieLens 1M the setting chosen there is used, untouched.
"""

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import polars.selectors as cs

from fairtopk.evaluation import evaluate_full
from fairtopk.lists.users import Lists
from fairtopk.models.histories import HistoryScorer
from fairtopk.reproduce.plan import GROUPINGS
from fairtopk.runs.build import build_any_lists
from fairtopk.runs.config import DataConfig
from fairtopk.runs.config_file import check_config
from fairtopk.runs.grid import Afterwards, Cell, cells_of
from fairtopk.runs.measure import some_users
from fairtopk.runs.open import open_run
from fairtopk.runs.run import train_run
from fairtopk.runs.sweep import Event, run_sweep
from fairtopk.runs.trainer import MOST_USERS
from fairtopk.storage import write_text
from studies.page import fill_marks, table

KS = (10, 50, 100, 200)
JUDGED = (50, 100, 200)  # the K that a setting is chosen by
METRICS = ("ndcg", "rank_exposure_gap", "rank_exposure_gap_signed")
KEEPS = {"fair": 0.985, "mild": 0.997}  # of the NDCG of the same model without fairness
STRENGTHS = [0.25, 0.5, 0.75, 1.0]
BLIND = "colour-blind"
RERANKER = "det-const-sort"
KEYS = ["data", "grouping", "model", "method", "setting"]
FIRST = "MovieLens 1M"  # where settings are chosen
EASE = {"name": "ease"}
BASES: dict[str, dict[str, Any]] = {
    "popularity": {"name": "popularity"},
    "item-knn": {"name": "item-knn"},
    "ials": {"name": "ials"},
    "ease": EASE,
    "ease, graded": {**EASE, "input": "graded"},
    "neumf": {"name": "neumf"},
}
NEURAL = ("neumf",)
CLOSED = ("popularity", "item-knn")  # without a seed; that of ease draws who chooses the ridge
HELD_OUT, SOME = 0.2, 7  # share of users held out, and what keys their draw
SCALES = (1, 1e3, 1e3)  # that metrics are shown with
OUT_OF_ALL = 3  # part of a rating that no part of a split has
MARKERS = {BLIND: "o", "fair-distill": "s", RERANKER: "^", "kso-red": "D"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--neural", type=int, default=3, help="seeds of models that are trained"
    )
    parser.add_argument("--data-sets", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--models", nargs="+", choices=list(BASES), default=list(BASES))
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    cells: dict[tuple[str, str, str, str, str], Cell] = {}
    for name in options.data_sets:
        for grouping in DATA[name][1]:
            data = data_of(name, grouping, options.data)
            for key, cell in cells_on(data, options.seeds, options.neural).items():
                if key[0] in options.models:
                    cells[(name, grouping, *key)] = cell
    failures = run_sweep(list(cells.values()), options.out, watch=_tell)
    rows = [
        {"data": name, "grouping": grouping, "model": model, **row}
        for (name, grouping, model, method, _), cell in cells.items()
        if cell.name not in failures
        for row in rows_of(method, cell, options.out)
    ]
    found = pl.DataFrame(rows, infer_schema_length=None)
    shown = tables(found) | {"held-out": held_out_users(options.data, options.out, found)}
    if options.page is None:
        print("\n\n".join(shown.values()))
        return
    found.write_csv(options.page.with_suffix(".csv"), float_precision=8)
    docs = options.page.parents[1]
    for page in (options.page, docs / "frontier.md"):
        page.write_text(fill_marks(page.read_text(encoding="utf-8"), shown), "utf-8")
    draw(found, docs / "images" / "frontier.png")


NETFLIX = {
    "source": "parquet",
    "options": {"user": "user_id", "item": "item_id", "rating": "rating"},
    "split": "random",
}
# Of each data set: how its config names it, and the groupings that it has.
DATA: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    FIRST: ({"source": "movielens-1m", "path": "ml-1m*.zip"}, tuple(GROUPINGS)),
    "MovieLens 100K": ({"source": "movielens-100k", "path": "ml-100k.zip"}, tuple(GROUPINGS)),
    "MovieLens latest-small": (
        {"source": "movielens-latest", "path": "ml-latest-small.zip"},
        tuple(GROUPINGS),
    ),
    "Netflix, a part": (
        {**NETFLIX, "path": "netflix-subset.ratings.parquet", "min_ratings": 20},
        tuple(GROUPINGS),
    ),
    "Netflix, 99 films": (
        {**NETFLIX, "path": "netflix-dense99.ratings.parquet"},
        ("before 1990",),
    ),
}
ITEMS = {"Netflix, a part": "netflix.items.parquet",
         "Netflix, 99 films": "netflix-dense99.items.parquet"}  # fmt: skip


def data_of(name: str, grouping: str, folder: Path) -> dict[str, Any]:
    """Return the `data` table of a config."""
    given = dict(DATA[name][0])
    (path,) = sorted(folder.glob(given["path"]))
    given |= {"path": str(path), "groups": GROUPINGS[grouping]}
    if name in ITEMS:
        given["options"] = {**given["options"], "items": str(folder / ITEMS[name])}
    return given


def cells_on(data: dict[str, Any], seeds: int, neural: int) -> dict[tuple[str, str, str], Cell]:
    """Return the runs on one data set and grouping, by model, method, and folder."""
    evaluation = {"k": list(KS), "protocol": "full", "select_on": "full"}
    found: dict[tuple[str, str, str], Cell] = {}

    def add(model: str, method: dict[str, Any], name: str, *, rerank: bool = False) -> None:
        count = neural if model in NEURAL else seeds
        if name == BLIND and BASES[model]["name"] in CLOSED:
            count = 1
        roundings = [{"method": RERANKER, "k": KS[-1], "rounding": ["down", "random"]}]
        base = {"data": data, "evaluation": evaluation}
        grid = {"seed": list(range(count)), "method": method, "model": BASES[model]}
        after = Afterwards(rerank=roundings if rerank else ())
        for cell in cells_of(base, grid, after, where=f"{model}, {name}"):
            found[(model, name, cell.name)] = cell

    for model in BASES:
        add(model, {"name": "blind", "k": 50}, BLIND, rerank=model in ("ease", "neumf"))
    fair = {"name": "fair-distill", "k": 50, "c": 1.0}
    for model in ("ease", "ease, graded"):
        add(model, {**fair, "c": STRENGTHS}, "fair-distill")
    add("neumf", {**fair, "distill": {"mu": [0.0, 1.0]}}, "fair-distill")
    add("neumf", {**fair, "distill": {"teacher": "ease"}}, "fair-distill, taught by ease")
    return found


def rows_of(method: str, cell: Cell, out: Path) -> Iterator[dict[str, Any]]:
    """Yield what a run reached at each K, and what re-ranking made of it."""
    folder, config = out / cell.name, cell.config
    result = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    told = _validation(folder)
    setting = ""
    if config.method.row.is_fair:
        distill = config.method.distill
        setting = f"c = {config.method.c:g}" + (f", mu = {distill.mu:g}" if distill.mu else "")
    about = {"method": method, "setting": setting, "seed": config.seed, "labels": False,
             "seconds": result["seconds"]["training"]}  # fmt: skip
    yield from _at_each_k(about, result, told)
    for path in sorted(folder.glob("rerank-*.json")):
        reranked = json.loads(path.read_text(encoding="utf-8"))
        setting = "random floors" if "random" in path.name else "floors rounded down"
        about |= {"method": RERANKER, "setting": setting, "labels": True}
        yield from _at_each_k(about, reranked, {})


def _at_each_k(
    about: dict[str, Any], result: dict[str, Any], told: dict[str, float]
) -> Iterator[dict[str, Any]]:
    for k in KS:
        values = {one: result["metrics"][f"{one}@{k}"]["mean"] for one in METRICS}
        values |= {f"valid_{one}": told.get(f"{one}@{k}") for one in METRICS}
        yield {**about, "k": k, **values}


def _validation(folder: Path) -> dict[str, float]:
    """Return what a run reached on validation ratings of users by whom nothing was chosen."""
    kept = folder / "validation-others.json"
    if not kept.exists():
        run = open_run(folder)
        part = run.user_lists.validation
        chosen_by = some_users(part, seed=run.config.seed, most=MOST_USERS)
        others = part.user if chosen_by is None else np.setdiff1d(part.user, chosen_by)
        values = evaluate_full(run.scorer, part, list(KS), users=others)
        names = [f"{one}@{k}" for one in METRICS for k in KS]
        found = {name: float(values[name].double().nanmean()) for name in names}
        write_text(kept, json.dumps(found))
    read: dict[str, float] = json.loads(kept.read_text(encoding="utf-8"))
    return read


def compared(found: pl.DataFrame) -> pl.DataFrame:
    """Return rows with what they lost and cut against the same model without fairness, in %.

    A closed form has one colour-blind model for all seeds.
    """
    blind = (
        found.filter(method=BLIND)
        .group_by("data", "grouping", "model", "seed", "k")
        .agg(pl.col(*METRICS, *(f"valid_{one}" for one in METRICS)).first())
    )
    only = blind.group_by("data", "grouping", "model").agg(n=pl.col("seed").n_unique())
    single = only.filter(n=1).drop("n")
    one = blind.join(single, on=["data", "grouping", "model"]).drop("seed")
    keys = ["data", "grouping", "model", "k"]
    by_seed = found.join(blind, on=[*keys, "seed"], how="left", suffix="_own")
    by_all = found.join(one, on=keys, how="left", suffix="_own")
    own = [f"{name}_own" for name in (*METRICS, *(f"valid_{one}" for one in METRICS))]
    paired = by_seed.with_columns(
        pl.coalesce(pl.col(name), by_all[name]).alias(name) for name in own
    )
    return paired.with_columns(
        lost=100 * (1 - pl.col("ndcg") / pl.col("ndcg_own")),
        cut=100 * (1 - pl.col("rank_exposure_gap") / pl.col("rank_exposure_gap_own")),
        valid_kept=pl.col("valid_ndcg") / pl.col("valid_ndcg_own"),
        valid_cut=1 - pl.col("valid_rank_exposure_gap") / pl.col("valid_rank_exposure_gap_own"),
    )


def choice(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the setting that the rule chooses for each grouping, model, method and name."""
    means = (
        rows.filter(pl.col("data") == FIRST, pl.col("k").is_in(JUDGED), ~pl.col("labels"))
        .filter(pl.col("method") != BLIND)
        .group_by(*KEYS[1:], "k", maintain_order=True)
        .agg(pl.col("valid_kept", "valid_cut").mean())
        .group_by(KEYS[1:], maintain_order=True)
        .agg(pl.col("valid_kept").min(), pl.col("valid_cut").mean())
    )
    chosen = [
        means.filter(pl.col("valid_kept") >= least)
        .sort("valid_cut", descending=True)
        .unique(["grouping", "model", "method"], keep="first", maintain_order=True)
        .with_columns(chosen=pl.lit(name))
        for name, least in KEEPS.items()
    ]
    return pl.concat(chosen).select("grouping", "model", "method", "setting", "chosen")


def tables(found: pl.DataFrame) -> dict[str, str]:
    """Return the tables of the page by name."""
    rows = compared(found)
    keys = ["grouping", "model", "method", "setting"]
    first = rows.filter(data=FIRST)
    blind = first.filter(method=BLIND, grouping="horror").with_columns(chosen=pl.lit(""))
    labelled = first.filter("labels").with_columns(chosen=pl.lit("labels when serving"))
    chosen = rows.join(choice(rows), on=keys)
    best = pl.concat([chosen.filter(data=FIRST), labelled.select(chosen.columns)])
    is_ease = (pl.col("model") == "ease") & pl.col("method").is_in(["fair-distill", RERANKER])
    short = best.filter(is_ease)
    others = chosen.filter(pl.col("data") != FIRST, pl.col("chosen") == "fair")
    return {
        "bases": _table(blind, ["model"]),
        "chosen": _table(best, ["grouping", "model", "method", "setting", "chosen"]),
        "others": _table(others, ["data", "grouping", "model", "method", "setting"]),
        "short": _table(short, ["grouping", "method", "setting", "chosen"]),
        "every": _table(first.filter(pl.col("method") != BLIND), keys),
    }


def _table(rows: pl.DataFrame, keys: list[str]) -> str:
    head = [*keys, "seeds", "NDCG@10 / 50 / 100 / 200", "NDCG lost, %", "gap by rank cut, %",
            "signed gap, 1e-3", "seconds"]  # fmt: skip
    lines = []
    for key, part in rows.group_by(keys, maintain_order=True):
        means = part.group_by("k").agg(cs.numeric().exclude("k").mean()).sort("k")
        lines.append(
            [
                *map(str, key),
                str(part["seed"].n_unique()),
                _cells(means["ndcg"], ".4f"),
                _cells(means["lost"], ".1f"),
                _cells(means["cut"], ".0f"),
                _cells(1e3 * means["rank_exposure_gap_signed"], "+.2f"),
                f"{part['seconds'].mean():.0f}",
            ]
        )
    return table(head, lines)


def _cells(values: pl.Series, form: str) -> str:
    return " / ".join("-" if value is None else f"{value:{form}}" for value in values)


def held_out_users(data: Path, out: Path, found: pl.DataFrame) -> str:
    """Return a table of users whose ratings no model was fitted to, ranked by their history.

    A fifth of the users is left out of the fit. Their training ratings are given when serving.
    """
    lines = []
    for grouping in GROUPINGS:
        table_of_data = data_of(FIRST, grouping, data)
        values = {
            "data": table_of_data,
            "model": EASE,
            "evaluation": {"k": list(KS), "protocol": "full", "select_on": "full"},
        }
        lists = None
        for name in ("colour-blind", *KEEPS):
            method: dict[str, Any] = {"name": "blind", "k": 50}
            if name in KEEPS:
                rule = choice(compared(found)).filter(
                    grouping=grouping, model="ease", method="fair-distill", chosen=name
                )
                if not len(rule):
                    continue
                strength = float(rule["setting"][0].partition("=")[2])
                method = {"name": "fair-distill", "k": 50, "c": strength}
            config = check_config(values | {"method": method}, "held-out users")
            if lists is None:
                whole = build_any_lists(config.data, config.seed)
                assert isinstance(whole, Lists)
                held, lists = without_some_users(whole)
            folder = out / "held-out" / f"{grouping}-{name}".replace(" ", "-")
            train_run(config, folder, lists=lists, resume=True)
            scorer = open_run(folder, load=partial(_given, lists)).scorer
            assert isinstance(scorer, HistoryScorer)
            scorer.remember(whole.train)  # the histories that a user brings when served
            found_values = evaluate_full(scorer, whole.test, list(KS), users=held)
            means = {one: value.double().nanmean() for one, value in found_values.items()}
            cells = [
                _cells(pl.Series([scale * float(means[f"{one}@{k}"]) for k in KS]), form)
                for one, form, scale in zip(
                    METRICS, (".4f", ".2f", "+.2f"), SCALES, strict=True
                )
            ]
            lines.append([grouping, name, str(len(held)), *cells])
    head = ["grouping", "ease", "users", "NDCG@10 / 50 / 100 / 200", "gap by rank, 1e-3",
            "signed gap, 1e-3"]  # fmt: skip
    return table(head, lines)


def _given(lists: Lists, config: DataConfig, seed: int) -> Lists:
    """Return `lists`, whatever a config says."""
    return lists


def without_some_users(lists: Lists) -> tuple[np.ndarray, Lists]:
    """Return some test users, and the lists without any rating of theirs."""
    users = lists.test.user
    chance = np.random.default_rng(SOME)
    held = np.sort(chance.choice(users, int(HELD_OUT * len(users)), replace=False))
    of_user = np.repeat(np.arange(lists.data.n_users), np.diff(lists.data.offsets))
    part = np.where(np.isin(of_user, held), OUT_OF_ALL, lists.part).astype(lists.part.dtype)
    rule = f"{lists.rule}, without {len(held)} users"
    return held, Lists(lists.data, part, rule, lists.short_users)


def draw(found: pl.DataFrame, path: Path) -> None:
    """Draw NDCG@50 against the gap by rank at 50, a panel for each grouping."""
    rows = found.filter(data=FIRST, k=50)
    figure, panels = plt.subplots(1, len(GROUPINGS), figsize=(13, 4.4), sharey=True)
    colours = dict(zip(BASES, plt.get_cmap("tab10").colors, strict=False))  # type: ignore[attr-defined]
    for grouping, panel in zip(GROUPINGS, panels, strict=True):
        part = rows.filter(grouping=grouping)
        for (model, method, labels), points in part.group_by(
            ["model", "method", "labels"], maintain_order=True
        ):
            means = points.group_by("setting", maintain_order=True).agg(cs.numeric().mean())
            means = means.sort(METRICS[1])
            panel.plot(
                1e3 * means[METRICS[1]],
                means["ndcg"],
                marker=MARKERS.get(str(method).partition(",")[0], "s"),
                color=colours[str(model)],
                markerfacecolor="white" if labels else colours[str(model)],
                linewidth=1 if len(means) > 1 and not labels else 0,
                label=f"{model}, {method}{' (labels when serving)' if labels else ''}",
            )
        panel.set_title(grouping)
        panel.set_xlabel("gap by rank at 50, 1e-3 (left is fairer)")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("NDCG@50 (up is better)")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=4, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _tell(event: Event) -> None:
    if event.what != "running":
        print(event.cell.name, event.failure or event.what, flush=True)


if __name__ == "__main__":
    main()
