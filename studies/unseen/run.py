"""What a distilled order is worth on items that were never seen: seen and held-out lists.

Usage: python -m studies.unseen.run --data DIR [--seeds 3] [--page docs/results/catalogue.md]

`DIR` holds a MovieLens archive, of which the largest is taken, and in ``ltr`` the files that
`studies.documents.sets` reads. A scorer of features is distilled (``fair-distill``, c = 1) and
compared with its own teacher (c = 0, the same seed), once on documents like those it learnt
from and once on others. Of MovieLens those are lists of the same users, of films that are in
training lists and of the fifth that is in none; of the other sets, training and test lists. The
features by which the group is made are among the others ("told") or are not; of the other sets
the group itself is that feature.

Prints a table as Markdown, or puts it between the marks ``unseen`` of a page, and writes its
rows beside the page.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import fairtopk as ft
from fairtopk.reproduce.plan import find_data
from studies.documents.sets import SETS, TEST, TRAINING
from studies.page import fill_marks, table
from studies.unseen.films import GROUPINGS, Documents, film_lists, read_films

PUBLISHED = ("law, race", "engineering, gender", "papers, h-index", "compas, race")
K = {"films": 50, "others": 10}
STEPS, TAUGHT, BATCH = 200, 200, 16  # of the teacher, of the student, and lists in each
RATES = {"linear": 5e-2, "mlp": 5e-3}
GROUP, SIGNED = "group", "rank_exposure_gap_signed"
METRICS = ("ndcg", "rank_exposure_gap", SIGNED)
PARTS = ("seen", "held out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = pl.DataFrame(list(measured(asked.data, asked.seeds)))
    if asked.page is None:
        print(shown(rows))
        return
    rows.write_csv(asked.page.with_name("unseen.csv"), float_precision=8)
    page = asked.page.read_text(encoding="utf-8")
    asked.page.write_text(fill_marks(page, {"unseen": shown(rows)}), "utf-8")


def measured(folder: Path, seeds: int) -> Iterator[dict[str, Any]]:
    """Yield what teacher and student reach on each part."""
    films = read_films(find_data(folder, quick=False)[1].data["path"])
    for data in (*GROUPINGS, *PUBLISHED):
        for told in (True, False):
            for seed in range(seeds):
                if data in GROUPINGS:
                    train, *parts = film_lists(films, data, told=told, seed=seed)
                    k = K["films"]
                else:
                    train, new = published(data, folder / "ltr", told=told, seed=seed)
                    parts, k = [train, new], K["others"]
                for model in RATES:
                    for c in (0.0, 1.0):
                        ranker = fitted(train, model, c, k=k, seed=seed)
                        about = {"data": data, "told": told, "model": model, "seed": seed}
                        for part, lists in zip(PARTS, parts, strict=True):
                            values = reached(ranker, lists, k)
                            yield {**about, "c": c, "part": part, **values}


def published(name: str, folder: Path, *, told: bool, seed: int) -> tuple[Documents, Documents]:
    """Return training and test lists of a published set."""
    rows = SETS[name](folder, seed)
    x = np.column_stack([rows.x, rows.group == 0]) if told else rows.x
    whole = Documents(x, rows.y, rows.qid, rows.group)
    train, new = (
        Documents(*(one[rows.part == part] for one in whole)) for part in (TRAINING, TEST)
    )
    return train, new


def fitted(train: Documents, model: str, c: float, *, k: int, seed: int) -> ft.FairRanker:
    """Return a student, or at c = 0 its teacher."""
    n_steps = math.ceil(len(np.unique(train.qid)) / BATCH)
    ranker = ft.FairRanker(
        "fair-distill",
        model,
        k=k,
        c=c,
        epochs=math.ceil(STEPS / n_steps),
        rate=RATES[model],
        batch_size=BATCH,
        seed=seed,
        options={"distill": {"epochs": math.ceil(TAUGHT / n_steps)}},
    )
    return ranker.fit(train.x, train.y, qid=train.qid, groups=labels(train))


def reached(ranker: ft.FairRanker, lists: Documents, k: int) -> dict[str, float]:
    """Return the metrics of a ranker on lists; the signed one is about `GROUP`."""
    found = ranker.evaluate(lists.x, lists.y, qid=lists.qid, groups=labels(lists), k=k)
    means = dict(zip(found["metric"], found["mean"], strict=True))
    values = {name: means[f"{name}@{k}"] for name in METRICS}
    if ranker.group_names_[0] != GROUP:  # the smaller one is first
        values[SIGNED] *= -1
    return values


def labels(lists: Documents) -> list[str | None]:
    """Return the names of groups, None where it is unknown."""
    names = (GROUP, "others", None)
    return [names[one] for one in lists.group]


def shown(rows: pl.DataFrame) -> str:
    """Return means and standard deviations over seeds of what distilling lost and cut."""
    keys = ["data", "told", "model"]
    pairs = rows.filter(c=1.0).join(
        rows.filter(c=0.0), on=[*keys, "seed", "part"], suffix="_teacher", maintain_order="left"
    )
    head = ["data", "group told", "model", *(f"NDCG lost, {one}, %" for one in PARTS),
            *(f"gap by rank cut, {one}, %" for one in PARTS),
            *(f"signed gap, {one}, 1e-3" for one in PARTS)]  # fmt: skip
    lines = []
    for (data, told, model), part in pairs.group_by(keys, maintain_order=True):
        each = [part.filter(part=one) for one in PARTS]
        cells = [str(data), "yes" if told else "no", str(model)]
        cells += [_fallen(one, "ndcg", 1) for one in each]
        cells += [_fallen(one, "rank_exposure_gap", 0) for one in each]
        cells += [_signed(one) for one in each]
        lines.append(cells)
    return table(head, lines)


def _fallen(rows: pl.DataFrame, name: str, digits: int) -> str:
    fallen = 100 * (1 - rows[name] / rows[f"{name}_teacher"])
    mean, spread = np.mean(fallen.to_numpy()), np.std(fallen.to_numpy(), ddof=1)
    return f"{mean:.{digits}f} ± {spread:.{digits}f}"


def _signed(rows: pl.DataFrame) -> str:
    before, after = (
        1e3 * np.mean(rows[one].to_numpy()) for one in (f"{SIGNED}_teacher", SIGNED)
    )
    return f"{before:+.1f} → {after:+.1f}"


if __name__ == "__main__":
    main()
