"""Who is fair on the whole catalogue: distilled, trained there, trained on samples, re-ranked.

Usage: python -m studies.catalogue.run --data DIR --out DIR [--seeds 5] [--groups horror ...]
       [--page docs/results/catalogue.md]

`DIR` of the data holds a MovieLens archive, of which the largest is taken. Trains what `--out`
does not hold yet, as `fairtopk sweep` does, and writes ``catalogue.csv`` beside the page, a row
for each model, seed and K, and the tables of the page, or prints them.

Colour-blind is `k-song`, its epoch chosen by NDCG on the catalogue of validation ratings. The
parameter of every other method is chosen there too, of other users and for all seeds together:
the smallest gap by rank at K = 50 of those that keep 99 % of the NDCG@50 that the same method
has without a penalty, of `fair-distill` 98.5 % of its teacher's. Figures are of test ratings.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fairtopk.evaluation import evaluate_full
from fairtopk.reproduce.plan import find_data
from fairtopk.runs.grid import Afterwards, Cell, cells_of
from fairtopk.runs.measure import some_users
from fairtopk.runs.open import open_run
from fairtopk.runs.sweep import Event, run_sweep
from fairtopk.runs.trainer import MOST_USERS
from fairtopk.storage import write_text
from studies.catalogue.page import KEPT, tables
from studies.page import fill_marks

KS = (50, 100, 200)
LISTS = {"rated": 10, "unrated": 300}
TOP = {**LISTS, "top": 150, "head": 150}
METRICS = ("ndcg", "exposure_gap", "rank_exposure_gap", "rank_exposure_gap_signed",
           "representation_gap_signed")  # fmt: skip
BLIND = {"name": "k-song", "k": 50}
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # by name: method, training lists
    "fair-distill": ({"name": "fair-distill", "k": 50, "c": [0.5, 0.75, 1.0]}, {}),
    "kso-red on the catalogue": (
        {
            "name": "kso-red",
            "preset": "catalogue",
            "k": 50,
            "c_relative": [0.0, 1.0, 3.0, 5.0, 10.0],
        },
        {"lists": TOP},
    ),
    "kso-red on samples": ({"name": "kso-red", "k": 50, "c_relative": [0.5]}, {}),
}
RERANKER = "det-const-sort"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--groups", nargs="+", default=["horror", "before 1990", "documentary"])
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    found = {one.title.split(", ")[-1]: one for one in find_data(asked.data, quick=False)[1:4]}
    cells = {
        (grouping, seed, name): cell
        for seed in range(asked.seeds)
        for grouping in asked.groups
        for name, cell in cells_of_one(found[grouping].data, seed).items()
    }
    run_sweep(list(cells.values()), asked.out, watch=_tell)
    table = pl.DataFrame(
        [
            {"grouping": grouping, "seed": seed, **row}
            for (grouping, seed, name), cell in cells.items()
            for row in rows_of(name.partition(":")[0], cell, asked.out)
        ]
    ).sort("grouping", maintain_order=True)
    shown = tables(table)
    if asked.page is None:
        print("\n\n".join(shown.values()))
        return
    table.write_csv(asked.page.with_suffix(".csv"), float_precision=8)
    asked.page.write_text(fill_marks(asked.page.read_text(encoding="utf-8"), shown), "utf-8")


def cells_of_one(data: dict[str, Any], seed: int) -> dict[str, Cell]:
    """Return the runs of one data set and seed; colour-blind first, for others start there."""
    evaluation = {"k": list(KS), "protocol": "full", "select_on": "full"}
    base = {"seed": seed, "data": data, "evaluation": evaluation}
    reranked = Afterwards(rerank=({"method": RERANKER, "k": KS[-1]},))
    (blind,) = cells_of(base, {"method": BLIND}, reranked, where="k-song")
    cells = {"colour-blind": blind}
    for name, (method, training) in METHODS.items():
        if name == "kso-red on samples":  # chosen as it is trained
            base = {**base, "evaluation": {**evaluation, "select_on": "sampled"}}
        found = cells_of(
            {**base, "training": training}, {"method": method}, Afterwards(), where=name
        )
        cells |= {f"{name}:{cell.name}": cell for cell in found}
    return cells


def rows_of(name: str, cell: Cell, out: Path) -> Iterator[dict[str, Any]]:
    """Yield what a run reached at each K, and what re-ranking made of it."""
    folder, method = out / cell.name, cell.config.method
    result = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    weight = method.c if method.c is not None else method.c_relative
    about = {"method": name, "weight": weight, **_validation(folder)}
    yield from _at_each_k(about, result)
    for path in folder.glob(f"rerank-{RERANKER}*.json"):
        told = json.loads(path.read_text(encoding="utf-8"))
        yield from _at_each_k({**about, "method": f"{RERANKER} (labels)"}, told)


def _at_each_k(about: dict[str, Any], result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for k in KS:
        values = {one: result["metrics"][f"{one}@{k}"]["mean"] for one in METRICS}
        yield {**about, "k": k, **values}


def _validation(folder: Path) -> dict[str, float]:
    """Return what a run reached on validation ratings of users whose no epoch was chosen by.

    Those that it was chosen by flatter the colour-blind model, whose best epoch is the best on
    them.
    """
    kept = folder / "validation-others.json"
    if not kept.exists():
        run = open_run(folder)
        config, lists, scorer = run.config, run.user_lists, run.scorer
        part = lists.validation
        chosen_by = some_users(part, seed=config.seed, most=MOST_USERS)
        others = np.setdiff1d(part.user, chosen_by)
        values = evaluate_full(scorer, part, [50], users=others)
        found = {one: float(values[f"{one}@50"].double().nanmean()) for one in KEPT}
        write_text(kept, json.dumps(found))
    found = json.loads(kept.read_text(encoding="utf-8"))
    return {f"valid_{one}": value for one, value in found.items()}


def _tell(event: Event) -> None:
    if event.what != "running":
        print(event.cell.name, event.failure or event.what, flush=True)


if __name__ == "__main__":
    main()
