"""Rankers of features on published data with protected groups: quality, gaps, and what C buys.

Usage: python -m studies.documents.run --data DIR --out DIR [--seeds 5] [--workers 2]
       [--page docs/results/documents.md]

`DIR` of the data holds the Parquet files that `sets` reads. No model is given the
group, but where it is "seen": there it is a feature, as in DELTR's own experiments. A ranker
is trained for each K, save DELTR, which knows none; figures are of test lists.

Writes ``documents.csv``, a row for each ranker, which grows ranker by ranker: what is there
already is not trained again. Its tables are printed as Markdown, or put between the marks of a
page.
"""

import argparse
import csv
import math
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

import fairtopk as ft
from fairtopk.metrics import chance_floors, group_exposures, score_spread, summarise
from studies.documents.page import tables
from studies.documents.sets import SETS, TEST, TRAINING, VALIDATION, Rows
from studies.page import fill_marks

KS = (10, 50)
FAIR = ("kso-red", "so-red", "ng-de", "deltr")
METHODS: tuple[tuple[str, float | None], ...] = (  # with the weight of the penalty, C / n^2
    ("k-song", None),
    *((method, c) for c in (0.5, 5.0) for method in FAIR),
)  # fmt: skip
CURVE = (0.0, 0.1, 1.0, 10.0, 100.0)  # for DELTR with the group seen
STUDENTS = tuple(name for name in SETS if name.startswith(("law", "engineering")))
GROUPED = tuple(name for name in SETS if name != "mq2008")
SHORT = tuple(SETS)[5:]  # sets whose lists are mostly no longer than 50
STEPS, RATES = 200, {"linear": 5e-2, "mlp": 5e-3}
LONG = 1_500  # steps at the default rates, to compare with
CHECKED = ("law, race", "engineering, gender", "credit, sex")  # where both are tried
BATCH = 16  # lists per step
SHUFFLES = 200  # of labels, for a chance floor
BEST = 0.9  # quantile of the grades of a list from which on precision counts


class Ranker(NamedTuple):
    """What is trained."""

    data: str
    model: str
    method: str
    c_relative: float | None
    k: int
    seen: int  # 1 where the group is a feature
    steps: int
    seed: int


class Lists(NamedTuple):
    """Scores, grades and groups of lists, and which slots are no padding, ``[Q, L]`` each."""

    scores: Tensor
    relevance: Tensor
    group: Tensor
    mask: Tensor


METRICS = ("ndcg", "exposure_gap", "rank_exposure_gap", "representation_gap",
           "rank_exposure_gap_signed")  # fmt: skip
CHOSEN_BY = ("ndcg", "rank_exposure_gap")  # on validation
FLOORS = ("exposure_gap", "rank_exposure_gap", "representation_gap")
COLUMNS = (
    *Ranker._fields, "lists", "length", *METRICS, *(f"{name}_floor" for name in FLOORS),
    "precision", "share", "exposure_ratio", "spread", *(f"valid_{name}" for name in CHOSEN_BY),
)  # fmt: skip
TYPES = {name: pl.Float64 for name in COLUMNS} | {
    "data": pl.String, "model": pl.String, "method": pl.String, "k": pl.Int64,
    "seen": pl.Int64, "steps": pl.Int64, "seed": pl.Int64, "lists": pl.Int64,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "documents.csv"
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    done = set(pl.read_csv(path, schema=TYPES).select(Ranker._fields).rows())
    left = [one for one in rankers(asked.seeds) if tuple(one) not in done]
    if left:
        os.environ["POLARS_MAX_THREADS"] = "1"
        with (
            ProcessPoolExecutor(asked.workers, get_context("spawn"), _on_one_thread) as pool,
            path.open("a", newline="") as file,
        ):
            rows = csv.writer(file, lineterminator="\n")
            for job in as_completed([pool.submit(measured, one, asked.data) for one in left]):
                rows.writerows(job.result())
                file.flush()
    shown = tables(pl.read_csv(path, schema=TYPES))
    if asked.page is None:
        print("\n\n".join(shown.values()))
    else:
        asked.page.write_text(fill_marks(asked.page.read_text(), shown))


def rankers(seeds: int) -> Iterator[Ranker]:
    """Yield every ranker, those of a seed together."""
    for seed in range(seeds):
        for c in CURVE:
            for name in STUDENTS:
                yield Ranker(name, "linear", "deltr", c, KS[0], 1, STEPS, seed)
        for method, c in METHODS:
            for name in SETS if c is None else GROUPED:
                for k in KS[:1] if name in SHORT or method == "deltr" else KS:
                    for model in RATES:
                        yield Ranker(name, model, method, c, k, 0, STEPS, seed)
    for name in CHECKED:
        for model in RATES:
            yield Ranker(name, model, "k-song", None, KS[0], 0, LONG, 0)
            yield Ranker(name, model, "kso-red", 0.5, KS[0], 0, LONG, 0)


def measured(ranker: Ranker, folder: Path) -> list[list[object]]:
    """Train a ranker; return its row, or those of each K where it knows none."""
    rows = SETS[ranker.data](folder, ranker.seed)
    if ranker.seen:
        rows = rows._replace(x=np.column_stack([rows.x, rows.group == 0]))
    model = _fitted(ranker, _of_part(rows, TRAINING))
    test, valid = (_lists(model, _of_part(rows, part)) for part in (TEST, VALIDATION))
    ks = KS if ranker.method == "deltr" and ranker.data not in SHORT else (ranker.k,)
    return [_row(ranker._replace(k=k), test, valid) for k in ks]


def _fitted(ranker: Ranker, rows: Rows) -> ft.FairRanker:
    n_lists = len(np.unique(rows.qid))
    model = ft.FairRanker(
        ranker.method,
        ranker.model,
        k=ranker.k,
        c_relative=ranker.c_relative,
        epochs=math.ceil(ranker.steps / math.ceil(n_lists / BATCH)),
        rate=None if ranker.steps == LONG else RATES[ranker.model],
        batch_size=BATCH,
        seed=ranker.seed,
    )
    known = (rows.group >= 0).any()
    labels = [None if one < 0 else int(one) for one in rows.group] if known else None
    return model.fit(rows.x, rows.y, qid=rows.qid, groups=labels)


def _row(ranker: Ranker, test: Lists, valid: Lists) -> list[object]:
    k = ranker.k
    found = {name: _mean(values) for name, values in _summary(test, k).items()}
    floors = chance_floors(
        test.scores, test.group, ks=[k], mask=test.mask, shuffles=SHUFFLES, seed=ranker.seed
    )
    found |= {name: floor.value for name, floor in floors.items()}
    top = test.scores.masked_fill(~test.mask, -torch.inf).topk(k).indices
    protected = (test.group == 0).gather(-1, top)
    least = torch.where(test.mask, test.relevance, torch.nan).nanquantile(
        BEST, dim=-1, keepdim=True
    )
    good = ((test.relevance >= least) & test.mask).gather(-1, top)
    exposures = group_exposures(test.scores, test.group, k=test.mask.shape[1], mask=test.mask)
    ratio = exposures[:, 0] / exposures[:, 1]
    spread = score_spread(test.scores, mask=test.mask)
    beside = [_mean(one.float()) for one in (good, protected, ratio, spread)]
    chosen_by = [_mean(_summary(valid, k)[f"{name}@{k}"]) for name in CHOSEN_BY]
    values = [found[f"{name}@{k}"] for name in (*METRICS, *(f"{one}_floor" for one in FLOORS))]
    numbers = [f"{one:.5g}" for one in (*values, *beside, *chosen_by)]
    length = f"{test.mask.sum() / len(test.mask):.5g}"
    return [*ranker, len(test.mask), length, *numbers]


def _summary(lists: Lists, k: int) -> dict[str, Tensor]:
    return summarise(lists.scores, lists.relevance, lists.group, ks=[k], mask=lists.mask)


def _mean(values: Tensor) -> float:
    return float(values.nanmean())


def _of_part(rows: Rows, part: int) -> Rows:
    return Rows(*(column[rows.part == part] for column in rows))


def _lists(model: ft.FairRanker, rows: Rows) -> Lists:
    """Return rows with their scores as lists, padded to the longest."""
    order = np.argsort(rows.qid, kind="stable")
    sizes = np.unique(rows.qid, return_counts=True)[1]
    mask = np.arange(sizes.max()) < sizes[:, None]

    def padded(values: NDArray[np.generic], empty: float) -> Tensor:
        table = np.full(mask.shape, empty, values.dtype)
        table[mask] = values[order]
        return torch.from_numpy(table)

    scores = model.predict(rows.x, qid=rows.qid)
    return Lists(
        padded(scores, 0),
        padded(rows.y.astype(np.float32), 0),
        padded(rows.group, -1),
        torch.from_numpy(mask),
    )


def _on_one_thread() -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
