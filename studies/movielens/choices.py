"""Which choices decide: KSO-RED on MovieLens, horror, with one setting changed at a time.

And K-SONG, which it starts from, with other K.

Usage: python -m studies.movielens.choices --data DIR --out DIR
           [--page docs/results/findings.md] [--recorded]

`DIR` of the data holds a published archive; of several, the largest is taken. Trains in the
folder of `--out` what is not trained there yet, and puts a table between the marks of the page,
and every number into ``choices.csv`` beside it. ``choices-runs.jsonl.xz`` there has a record of
every run, see `records`; with `--recorded` these are not trained again.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from fairtopk.cli.sweep import say_failures, say_room, sweep_progress
from fairtopk.reproduce.views import change_of
from fairtopk.runs.grid import Afterwards, Cell, cells_of
from fairtopk.runs.result import METRICS, Owner, read_result
from fairtopk.runs.sweep import run_sweep
from studies.movielens.records import bring_back, keep, noting
from studies.movielens.rows import signed, table_or_note
from studies.movielens.run import commit, movielens_plan
from studies.page import fill_marks

RECORDS = "choices-runs.jsonl.xz"
KS = (50, 100, 200)
SEEDS = [0, 1, 2]
WEIGHTS = [1e4, 5e4]  # of penalties on softmax exposure
BLIND = "K-SONG"
DEFAULTS = "KSO-RED by its defaults"
CHANGED = ("ndcg", "exposure_gap", "rank_exposure_gap")
SIGNED = "rank_exposure_gap_signed"

# Tables of a config, in which lists are alternatives.
CHOICES: dict[str, dict[str, Any]] = {
    BLIND: {"method": {"name": "k-song"}},
    "K-SONG for K = 100": {"method": {"name": "k-song", "k": 100}},
    "K-SONG for K = 200": {"method": {"name": "k-song", "k": 200}},
    "SONG: the whole list": {"method": {"name": "song"}},
    DEFAULTS: {},
    "blunt psi: sigmoid(2x)": {"method": {"beta": 2.0, "beta_of": "score"}},
    "psi four times as sharp": {"method": {"beta": 40.0}},
    "threshold tracked": {"method": {"threshold": "tracked"}},
    "gradient through psi": {"method": {"gradient": "psi"}},
    "gradient through psi and threshold": {"method": {"gradient": "full"}},
    "trained for K = 100": {"method": {"k": 100}},
    "trained for K = 200": {"method": {"k": 200}},
    "trained for K = 50, 100, 200": {"method": {"k": [[50, 100, 200]]}},
    "groups as in the list": {"training": {"lists": [{"per_group": 0}]}},
    "last layer as warmed up": {"training": {"restart_last_layer": False}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, default=Path("docs/results/findings.md"))
    parser.add_argument("--recorded", action="store_true")
    asked = parser.parse_args()
    cells = {choice: cells_for(choice, asked.data) for choice in CHOICES}
    every = [cell for of in cells.values() for cell in of]
    records = asked.page.with_name(RECORDS)
    if asked.recorded:
        bring_back(every, asked.out, records)
    say_room(every, asked.out, None)
    try:
        with sweep_progress(every, "the same command") as progress:
            failures = run_sweep(every, asked.out, watch=noting(commit(), asked.out, progress))
    finally:  # of what is done when it is stopped
        keep(every, asked.out, records)
    say_failures(failures, "rerun the command")
    rows = pl.DataFrame(read_rows(cells, asked.out), infer_schema_length=None)
    rows.write_csv(asked.page.with_name("choices.csv"))
    asked.page.write_text(fill_marks(asked.page.read_text(), {"choices": shown(rows)}))


def cells_for(choice: str, data: Path) -> list[Cell]:
    """Return the runs of a choice: every weight and seed."""
    horror = next(one for one in movielens_plan(data).found if "horror" in one.title)
    changes = CHOICES[choice]
    method = {"name": "kso-red", "k": 50, "c": WEIGHTS} | changes.get("method", {})
    grid = {"seed": SEEDS, **changes, "method": method}
    base = {"data": horror.data, "evaluation": {"k": KS}}
    return cells_of(base, grid, Afterwards(keep_models=False), where="choices")


def read_rows(cells: dict[str, list[Cell]], out: Path) -> Iterable[dict[str, Any]]:
    """Yield a row for each choice, weight and K: changes from K-SONG of the same seed."""
    points: dict[tuple[str, float | None], dict[int, dict[str, Any]]] = {}
    for choice, of in cells.items():
        for cell in of:
            if (path := out / cell.name / METRICS).exists():
                metrics = read_result(path, Owner(cell.config))["metrics"]
                points.setdefault((choice, cell.config.method.c), {})[cell.config.seed] = (
                    metrics
                )
    for (choice, weight), seeds in points.items():
        for k in KS:
            row: dict[str, Any] = {"choice": choice, "c": weight, "k": k, "seeds": len(seeds)}
            for metric in CHANGED:
                of_seeds, blind = (
                    {seed: metrics[f"{metric}@{k}"]["mean"] for seed, metrics in of.items()}
                    for of in (seeds, points[BLIND, None])
                )
                change = change_of(of_seeds, blind)
                row |= {metric: sum(of_seeds.values()) / len(of_seeds)}
                row |= {
                    f"{metric}_change": change.mean,
                    f"{metric}_reach": change.half,
                }
            signed_of = [metrics[f"{SIGNED}@{k}"]["mean"] for metrics in seeds.values()]
            yield row | {SIGNED: sum(signed_of) / len(signed_of)}


def shown(rows: pl.DataFrame) -> str:
    """Return the table of the page: a line for each choice and weight, its K side by side."""
    lines = []
    for (choice, weight), part in rows.group_by(["choice", "c"], maintain_order=True):
        told = "none" if weight is None else f"{weight:g}"
        cells = [
            " / ".join(f"{100 * change:+.1f}" for change in part[f"{metric}_change"])
            for metric in CHANGED
        ]
        towards = " / ".join(signed(value) for value in part[SIGNED])
        lines.append([str(choice), told, str(part["seeds"][0]), *cells, towards])
    head = ["setting", "C", "seeds", "NDCG, %", "Eq. 9, %", "by rank, %", "by rank, signed"]
    return table_or_note(head, lines)


if __name__ == "__main__":
    main()
