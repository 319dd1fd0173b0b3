"""Rankers of features on published data, read as studies/documents reads them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairtopk as ft
from studies.documents.sets import SETS, TEST, TRAINING

pytestmark = pytest.mark.slow  # trainings
STEPS, RATE, BATCH = 200, 5e-2, 32
# Rows, lists, protected, of unknown group, features; the readme of the data says the same.
FACTS = {
    "law, gender": (6_101, 3, 2_731, 0, 2),
    "law, race": (5_478, 3, 370, 0, 2),
    "engineering, gender": (2_403, 5, 488, 0, 4),
    "engineering, school": (2_403, 5, 838, 0, 4),
    "experts, gender": (12_190, 60, 1_261, 0, 5),
    "papers, h-index": (4_735, 200, 1_339, 31, 25),
    "credit, sex": (1_000, 20, 310, 0, 23),
    "credit, age": (1_000, 20, 149, 0, 23),
    "compas, race": (7_200, 144, None, 0, 8),
    "compas, sex": (7_200, 144, None, 0, 8),
    "mq2008": (15_211, 784, 0, 15_211, 46),
}


def part(rows: Any, number: int) -> Any:
    return type(rows)(*(column[rows.part == number] for column in rows))


def fitted(rows: Any, method: str, c: float | None = None) -> ft.FairRanker:
    groups = None if (rows.group < 0).all() else rows.group
    batches = math.ceil(len(np.unique(rows.qid)) / BATCH)
    epochs = math.ceil(STEPS / batches)
    ranker = ft.FairRanker(method, "linear", 10, None, c, epochs, RATE, BATCH)
    return ranker.fit(rows.x, rows.y, qid=rows.qid, groups=groups)


def metrics(ranker: ft.FairRanker, rows: Any) -> dict[str, float]:
    groups = None if (rows.group < 0).all() else rows.group
    found = ranker.evaluate(rows.x, rows.y, qid=rows.qid, groups=groups, k=10)
    return dict(found.select("metric", "mean").rows())


def protected_exposure(ranker: ft.FairRanker, rows: Any) -> float:
    """The mean softmax exposure of the protected, over that of the others, in one list."""
    exposure = torch.from_numpy(ranker.predict(rows.x)).softmax(0).numpy()
    return float(exposure[rows.group == 0].mean() / exposure[rows.group == 1].mean())


def test_every_set_is_among_the_facts() -> None:
    assert list(SETS) == list(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_a_set_has_the_rows_lists_and_groups_it_is_said_to_have(
    real_data: Path, name: str
) -> None:
    n_rows, n_lists, protected, unknown, n_features = FACTS[name]
    rows = SETS[name](real_data / "ltr", 0)
    assert rows.x.shape == (n_rows, n_features)
    assert np.isfinite(rows.x).all()
    assert len(np.unique(rows.qid)) == n_lists
    assert (rows.group == -1).sum() == unknown
    if protected is not None:  # the people left over when lists are dealt are any
        assert (rows.group == 0).sum() == protected
    parts_of_lists = np.unique(np.column_stack([rows.qid, rows.part]), axis=0)
    assert len(parts_of_lists) == n_lists
    assert set(rows.part) == {0, 1, 2}
    assert rows.y.min() == 0


@pytest.mark.parametrize("name", ["law, gender", "engineering, gender"])
def test_as_the_weight_of_deltr_rises_so_does_protected_exposure_and_ndcg_does_not(
    real_data: Path, name: str
) -> None:
    rows = SETS[name](real_data / "ltr", 0)
    rows = rows._replace(x=np.column_stack([rows.x, rows.group == 0]))
    rankers = [fitted(part(rows, TRAINING), "deltr", c) for c in (0.0, 1.0, 10.0)]
    test = part(rows, TEST)
    exposure = [protected_exposure(ranker, test) for ranker in rankers]
    assert exposure == sorted(exposure)
    assert exposure[0] < 0.95
    assert exposure[2] - exposure[0] > 0.05
    ndcg = [metrics(ranker, test)["ndcg@10"] for ranker in rankers]
    assert ndcg[2] < ndcg[0] - 0.02
    assert ndcg[1] < ndcg[0] + 0.01


def test_kso_red_ends_with_smaller_gaps_than_k_song(real_data: Path) -> None:
    rows = SETS["engineering, gender"](real_data / "ltr", 0)
    methods = (("k-song", None), ("kso-red", 5.0))
    rankers = [fitted(part(rows, TRAINING), *one) for one in methods]
    blind, fair = (metrics(ranker, part(rows, TEST)) for ranker in rankers)
    assert fair["exposure_gap@10"] < 0.5 * blind["exposure_gap@10"]
    assert fair["rank_exposure_gap@10"] < 0.9 * blind["rank_exposure_gap@10"]
    assert fair["ndcg@10"] > 0.95 * blind["ndcg@10"]


@pytest.mark.filterwarnings("ignore:at K = 10 all items are in the top")
def test_k_song_ranks_mq2008_far_better_than_chance(real_data: Path) -> None:
    rows = SETS["mq2008"](real_data / "ltr", 0)
    ranker = fitted(part(rows, TRAINING), "k-song")
    test = part(rows, TEST)
    noise = np.random.default_rng(0).normal(size=test.x.shape)
    trained, chance = (metrics(ranker, test._replace(x=x))["ndcg@10"] for x in (test.x, noise))
    assert trained > chance + 0.15
