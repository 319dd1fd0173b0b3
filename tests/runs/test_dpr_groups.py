"""DPR on items that are in several groups, as a config asks for it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fairtopk as ft
from fairtopk.objectives.dpr import Dpr
from fairtopk.runs import build
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import open_run
from fairtopk.runs.run import train_run

K = 20


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Biased ratings; a quarter of the items of either kind is horror too."""
    folder = tmp_path_factory.mktemp("data")
    shape = ft.SyntheticShape(n_users=500, n_items=400, n_ratings=30_000)
    made = ft.make_synthetic(shape, bias=2.0).data
    made.to_frame().write_csv(folder / "ratings.csv")
    kinds = [made.group_names[number] for number in made.group]
    also = np.random.default_rng(0).random(made.n_items) < 0.25
    labels = [
        f"{kind}|horror" if more else kind for kind, more in zip(kinds, also, strict=True)
    ]
    items = pl.DataFrame({"item": made.item_ids, "kinds": labels})
    items.write_csv(folder / "items.csv")
    options = {"user": "user", "item": "item", "rating": "rating", "time": "time",
               "items": str(folder / "items.csv")}  # fmt: skip
    return {"source": "csv", "path": str(folder / "ratings.csv"), "options": options,
            "groups": {"column": "kinds"}}  # fmt: skip


def config(data: dict[str, Any], c: float, **dpr: Any) -> Config:
    values = {
        "data": data,
        "model": {"name": "mf", "width": 8},
        "method": {
            "name": "dpr-rsp", "k": K, "c": c, "dpr": {"batches": 3, "samples": 500, **dpr},
        },
        "training": {
            "warmup_epochs": 4, "warmup_rate": 2e-2, "epochs": 8, "rate": 1e-2,
            "batch_size": 64, "lists": {"rated": 10, "unrated": 60}, "validate_every": 8,
        },
        "evaluation": {"k": [K]},
    }  # fmt: skip
    return check_config(values, "test")


@pytest.mark.slow
def test_items_in_several_groups_lower_the_unfairness_between_these(
    data: dict[str, Any], tmp_path: Path
) -> None:
    """Four labels name three groups; what is measured of groups is told by their names."""
    found = {}
    for c in (0.0, 1.0):
        settings = config(data, c, separator="|")
        result = train_run(settings, tmp_path / f"{c}", warmups=tmp_path / "warm")
        found[c] = result["metrics"]
    assert len(found[0.0][f"rsp@{K}"]["by_group"]) == 4
    chances = found[0.0][f"rsp_split@{K}"]["by_group"]
    assert sorted(chances) == ["a", "b", "horror"]
    assert chances["a"] < 0.5 * chances["b"]
    assert found[1.0][f"rsp_split@{K}"]["mean"] < 0.6 * found[0.0][f"rsp_split@{K}"]["mean"]
    assert found[1.0][f"ndcg@{K}"]["mean"] > 0.85 * found[0.0][f"ndcg@{K}"]["mean"]
    kept = json.loads((tmp_path / "1.0" / "metrics.json").read_text())
    assert kept["c_is"] == "weight of the loss of the adversary"
    full = measure_run(open_run(tmp_path / "1.0", {"protocol": "full"})).result["metrics"]
    assert sorted(full[f"rsp_split@{K}"]["by_group"]) == ["a", "b", "horror"]
    assert full[f"rsp_split@{K}"]["mean"] < found[0.0][f"rsp_split@{K}"]["mean"]


def test_the_adversary_guesses_each_group_and_without_a_separator_each_label(
    data: dict[str, Any],
) -> None:
    for dpr, n_groups in (({"separator": "|"}, 3), ({}, 4)):
        settings = config(data, 1.0, **dpr)
        lists = build.build_any_lists(settings.data, seed=0)
        sampler = build.build_sampler(settings, settings.method, lists)
        objective = build.build_objective(settings.method, sampler)
        assert isinstance(objective, Dpr)
        assert objective.member.shape == (4, n_groups)
        assert (objective.member.sum(1) == 2).sum() == (2 if dpr else 0)


def test_an_empty_separator_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ft.InputError, match=r"method\.dpr\.separator"):
        config(data, 1.0, separator="")
