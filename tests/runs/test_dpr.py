"""DPR-RSP and DPR-REO as whole runs: fairer, resumed, and the same by lazy optimizers."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from stops import train_in_parts
from torch import Tensor

import fairtopk as ft
from fairtopk.lists.users import Lists
from fairtopk.models.scoring import score
from fairtopk.runs import build
from fairtopk.runs import build as phases
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.open import open_run
from fairtopk.runs.run import train_run
from fairtopk.storage import load_tensors

K = 20


def config(method: str, c: float, *, model: str = "mf", **training: Any) -> Config:
    """A run of seconds."""
    values = {
        "model": {"name": model, "width": 8, "hidden": [8], "dropout": 0.0},
        "method": {"name": method, "k": K, "c": c, "dpr": {"batches": 3, "samples": 500}},
        "training": {
            "warmup_epochs": 4, "warmup_rate": 2e-2, "epochs": 8, "rate": 1e-2,
            "batch_size": 64, "lists": {"rated": 10, "unrated": 60}, "validate_every": 8,
            **training,
        },
        "evaluation": {"k": [K]},
    }  # fmt: skip
    return check_config(values, "test")


def short(method: str, c: float, **training: Any) -> Config:
    return config(
        method, c, warmup_epochs=1, epochs=2, batch_size=100, validate_every=1, **training
    )


@pytest.fixture(scope="module")
def biased() -> Lists:
    shape = ft.SyntheticShape(n_users=500, n_items=400, n_ratings=30_000)
    return ft.split(ft.make_synthetic(shape, bias=2.0).data)


def weights(out: Path) -> dict[str, Tensor]:
    return load_tensors(out / "model.safetensors").tensors


def unfairness(out: Path, settings: Config, lists: Lists) -> dict[str, float]:
    """RSP and REO on the test lists."""
    (block,) = lists.test.batches(unrated=300, seed=0)
    scores = score(open_run(out, load=lambda *_: lists).scorer, block)
    found = {
        "dpr-rsp": ft.metrics.rsp(scores, block.group, k=K, mask=block.mask),
        "dpr-reo": ft.metrics.reo(scores, block.relevance, block.group, k=K, mask=block.mask),
    }
    return {name: one.value for name, one in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "model"), [("dpr-rsp", "mf"), ("dpr-reo", "neumf")])
def test_each_lowers_the_unfairness_that_it_is_built_for(
    biased: Lists, tmp_path: Path, method: str, model: str
) -> None:
    """Measured: RSP from 0.51 to 0.15, REO from 0.32 to 0.06, at 0.97 and 0.95 of the NDCG."""
    found, ndcg = {}, {}
    for c in (0.0, 1.0):
        settings, out = config(method, c, model=model), tmp_path / f"{c}"
        result = train_run(settings, out, lists=biased, warmups=tmp_path / "warm")
        assert (result["c"], result["c_relative"]) == (c, None)
        found[c] = unfairness(out, settings, biased)[method]
        ndcg[c] = result["metrics"][f"ndcg@{K}"]["mean"]
    assert found[1.0] < 0.6 * found[0.0]
    assert ndcg[1.0] > 0.85 * ndcg[0.0]
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    told = [record["told_apart"] for record in log if record["phase"] == "fine-tuning"]
    assert max(told) > 0.06 > 0.03 > told[-1]


def test_the_last_epoch_is_kept_while_there_is_an_adversary(
    biased: Lists, tmp_path: Path
) -> None:
    """Though NDCG is highest in the first, before the adversary is heard."""
    settings = short("dpr-rsp", 100.0)
    assert train_run(settings, tmp_path / "run", lists=biased)["chosen_epoch"] == 2
    log = [json.loads(one) for one in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert log[1][f"valid_ndcg@{K}"] > log[2][f"valid_ndcg@{K}"]


@pytest.mark.slow
def test_on_movielens_each_lowers_the_unfairness_that_it_is_built_for(
    real_data: Path, tmp_path: Path
) -> None:
    groups = {"column": "genres", "contains": "Action"}
    lists = ft.split(ft.load("movielens-100k", real_data / "ml-100k.zip", groups=groups))
    found = {}
    for method, c in (("dpr-rsp", 0.0), ("dpr-rsp", 1.0), ("dpr-reo", 1.0)):
        settings, out = config(method, c), tmp_path / f"{method}-{c}"
        train_run(settings, out, lists=lists, warmups=tmp_path / "warm")
        found[method, c] = unfairness(out, settings, lists)
    for method in ("dpr-rsp", "dpr-reo"):
        assert found[method, 1.0][method] < 0.6 * found["dpr-rsp", 0.0][method]


def test_at_alpha_0_both_are_bpr_to_the_bit(biased: Lists, tmp_path: Path) -> None:
    for method in ("dpr-rsp", "dpr-reo"):
        train_run(short(method, 0.0), tmp_path / method, lists=biased)
    first, second = (weights(tmp_path / method) for method in ("dpr-rsp", "dpr-reo"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    result = json.loads((tmp_path / "dpr-rsp" / "metrics.json").read_text())
    assert result["metrics"][f"ndcg@{K}"]["mean"] > 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "model", "rows"),
    [("dpr-rsp", "mf", 0), ("dpr-reo", "mf", 20_000), ("dpr-reo", "neumf", 0)],
)
def test_a_run_stopped_at_any_step_goes_on_to_the_same_bits(
    biased: Lists,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    model: str,
    rows: int,
) -> None:
    monkeypatch.setattr(build, "LAZY_ROWS", rows)
    settings = short(method, 1.0, model=model)
    train_run(settings, tmp_path / "whole", lists=biased)
    # in the warm-up, within epochs and at the end of one
    train_in_parts(settings, tmp_path / "parts", [3, 7, 9, 12], lists=biased)
    for name in ("model", "state"):
        ours, theirs = (
            load_tensors(tmp_path / out / f"{name}.safetensors").tensors
            for out in ("parts", "whole")
        )
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert "objective.adversary._extra_state" in ours


@pytest.mark.slow
@pytest.mark.parametrize("unrated", [1, 60])
def test_a_lazy_optimizer_changes_no_result(
    biased: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrated: int
) -> None:
    """Where lists hold few items their gradient is sparse, and that of the moments is not.

    There is no adversary, for a game makes much of the last bits.
    """
    lists = {"rated": 2, "unrated": unrated}
    found = []
    for name, rows in (("dense", 20_000), ("lazy", 0)):
        monkeypatch.setattr(build, "LAZY_ROWS", rows)
        train_run(short("dpr-rsp", 0.0, lists=lists), tmp_path / name, lists=biased)
        found.append(weights(tmp_path / name))
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mf", "neumf"])
@pytest.mark.parametrize("method", ["dpr-rsp", "dpr-reo"])
def test_odd_data_and_a_huge_weight_train_to_finite_numbers(
    tmp_path: Path, method: str, model: str
) -> None:
    """Of three groups one has two items and one no rating; a user in three has one rating."""
    ratings = [
        {"user": user, "item": (7 * user + step) % 40, "rating": 5.0, "time": step}
        for user in range(30)
        for step in range(1 if user % 3 == 0 else 11 + user % 5)
    ]
    kinds = ["rare"] * 2 + [None] * 10 + ["common"] * 28 + ["unseen"] * 5
    items = pl.DataFrame({"item": range(45), "kind": kinds})
    groups = ft.groups_from(items, item="item", column="kind")
    frame = pl.DataFrame(ratings)
    data = ft.Interactions.from_frame(
        frame, user="user", item="item", rating="rating", time="time", groups=groups
    )
    settings = config(
        method, 1e6, model=model, epochs=2, batch_size=8, lists={"rated": 4, "unrated": 3}
    )
    train_run(settings, tmp_path / "run", lists=ft.split(data))
    assert all(value.isfinite().all() for value in weights(tmp_path / "run").values())


def test_one_group_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "u,i,t\n" + "".join(f"{u},{i},{i}\n" for u in range(5) for i in range(12))
    )
    data = {"source": "csv", "path": str(tmp_path / "a.csv"),
            "options": {"user": "u", "item": "i", "rating": None, "time": "t"}}  # fmt: skip
    values = {"data": data, "method": {"name": "dpr-reo", "c": 1.0}}
    with pytest.raises(ft.InputError, match="dpr-reo needs items in at least two groups"):
        train_run(check_config(values, "test"), tmp_path / "run")


def test_its_weight_is_c_and_has_a_default() -> None:
    for name, c in (("dpr-rsp", 0.3), ("dpr-reo", 1.0)):
        assert check_config({"method": {"name": name}}, "test").method.c == c
    with pytest.raises(ft.InputError, match="dpr-rsp needs its alpha as c"):
        check_config({"method": {"name": "dpr-rsp", "c_relative": 2.0}}, "test")
    with pytest.raises(ft.InputError, match=r"alpha of dpr-reo is called c; this one is psi's"):
        check_config({"method": {"name": "dpr-reo", "alpha": 1_000}}, "test")


def test_lists_speak_for_groups_themselves_and_no_layer_is_drawn_anew(biased: Lists) -> None:
    """Groups drawn apart have no pairs, and scores are not there to be flattened."""
    settings = config("dpr-rsp", 1.0, model="neumf")
    assert settings.training.lists.per_group > 0
    scorer = build.build_model(settings, biased)
    phase = phases.build_phases(settings, scorer, biased)[-1]
    batch = next(iter(phase.sampler.epoch(0, batch_size=4)))
    assert batch.mask.shape == (4, 70)
    before = scorer.output.weight.clone()
    phase.before()
    assert torch.equal(scorer.output.weight, before)
