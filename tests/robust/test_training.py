"""Whole runs of the robust method on the embedded data: fairer, resumed, killed, odd data."""

import json
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from kills import SAVE, State, run
from stops import train_in_parts

import fairtopk as ft
from fairtopk.data.synthetic import SIZES, SyntheticShape, make_synthetic
from fairtopk.lists.users import Lists
from fairtopk.reporting.results import collect
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import open_run
from fairtopk.runs.run import train_run
from fairtopk.storage import load_tensors

SMALL = {"rounds": 2, "iterations": 4, "users": 100}
FEW = SyntheticShape(120, 150, 4_000)


def config(
    c: float = 1.0, *, model: str = "neumf", warmup_epochs: int = 2, **robust: Any
) -> Config:
    values = {
        "data": {"source": "synthetic", "options": {"bias": 2.0}},
        "model": {"name": model, "width": 8, "hidden": [8]},
        "method": {"name": "robust", "k": 20, "c": c, "robust": {**SMALL, **robust}},
        "training": {
            "warmup_epochs": warmup_epochs, "warmup_rate": 1e-2, "epochs": 2, "batch_size": 100,
            "lists": {"rated": 10, "unrated": 50},
        },
        "evaluation": {"k": [20, 45], "unrated": 40},
    }  # fmt: skip
    return check_config(values, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(make_synthetic(FEW, bias=2.0).data)


def metrics(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "metrics.json").read_text())
    return found


def same(first: Path, second: Path) -> bool:
    ours, theirs = (load_tensors(out / "model.safetensors").tensors for out in (first, second))
    equal = all(torch.equal(ours[name], theirs[name]) for name in ours)
    return equal and metrics(first)["metrics"] == metrics(second)["metrics"]


def rounds_of(out: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [record for record in records if record["phase"] == "rounds"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "multiplier", "shape"),
    [("neumf", "data", SIZES["demo"]), ("mf", "list", SyntheticShape(300, 300, 15_000))],
)
def test_on_biased_data_it_is_fairer_than_with_its_fairness_switched_off(
    tmp_path: Path, model: str, multiplier: str, shape: SyntheticShape
) -> None:
    """In what it equalises: exposure by rank over whole lists, of 45 items."""
    embedded, found = ft.split(make_synthetic(shape, bias=2.0).data), {}
    for c in (0.0, 1.0):
        settings = config(c, model=model, multiplier=multiplier, iterations=10, users=500)
        out = tmp_path / f"{c}"
        result = train_run(settings, out, lists=embedded, warmups=tmp_path / "warm")
        found[c] = {name: cell["mean"] for name, cell in result["metrics"].items()}
    gap = "rank_exposure_gap_signed@45"
    assert found[0.0][gap] < -0.03
    assert abs(found[1.0][gap]) < 0.4 * abs(found[0.0][gap])
    assert found[1.0]["ndcg@20"] > 0.9 * found[0.0]["ndcg@20"]


@pytest.mark.slow
def test_a_larger_c_leaves_a_smaller_gap_and_the_last_round_leaves_what_is_asked(
    lists: Lists, tmp_path: Path
) -> None:
    gaps = []
    for c in (0.0, 0.5, 1.0):
        settings = config(c, rounds=3, iterations=20)
        result = train_run(settings, tmp_path / f"{c}", lists=lists, warmups=tmp_path / "warm")
        assert (result["c"], result["needs_labels_when_serving"]) == (c, True)
        gaps.append(result["metrics"]["rank_exposure_gap_signed@20"]["mean"])
        records = rounds_of(tmp_path / f"{c}")
        assert [record["epoch"] for record in records] == [1, 2, 3]
        assert result["chosen_epoch"] == 3
        assert all(record["unmet"] == 0 for record in records)
        assert (records[-1]["multiplier_serving"] > 0) == (c > 0)
    assert gaps == sorted(gaps)
    assert abs(records[-1]["gap"]) < 1e-3
    assert records[-1]["slope"] < 1e-3


def test_its_scorer_is_that_of_k_song_and_it_is_reported_beside_it(
    lists: Lists, tmp_path: Path
) -> None:
    values = config().model_dump()
    values["method"] = {"name": "k-song", "k": 20}
    blind = check_config(values, "test")
    train_run(blind, tmp_path / "blind", lists=lists, warmups=tmp_path / "warm")
    train_run(config(), tmp_path / "fair", lists=lists, warmups=tmp_path / "warm")
    # One warm-up of both, and K-SONG, which others may start from.
    assert len(list((tmp_path / "warm").iterdir())) == 2
    weights, ours = (
        load_tensors(tmp_path / name / "model.safetensors").tensors
        for name in ("blind", "fair")
    )
    assert all(torch.equal(ours[f"base.{name}"], value) for name, value in weights.items())
    found = collect(tmp_path).results
    assert [(one.run.method, one.run.weight) for one in found] == [
        ("k-song", None),  # by both protocols, of which robust has one
        ("k-song", None),
        ("robust (needs group labels when serving)", ("share of the gap", 1.0)),
    ]


@pytest.mark.slow
def test_a_run_is_measured_again_and_not_on_the_catalogue(tmp_path: Path) -> None:
    result = train_run(config(c=0.0, model="mf"), tmp_path / "run")
    assert measure_run(open_run(tmp_path / "run")).result["metrics"] == result["metrics"]
    with pytest.raises(ft.InputError, match="robust ranks a list as a whole"):
        measure_run(open_run(tmp_path / "run", {"protocol": "full"}))


@pytest.mark.slow
@pytest.mark.parametrize("multiplier", ["data", "list"])
def test_a_run_stopped_anywhere_goes_on_to_the_same_bits(
    lists: Lists, tmp_path: Path, multiplier: str
) -> None:
    settings = config(multiplier=multiplier, model="mf")
    train_run(settings, tmp_path / "whole", lists=lists)
    # in warm-up, fine-tuning, at its end, after a round
    train_in_parts(settings, tmp_path / "parts", [1, 3, 6, 8, 12], lists=lists)
    assert same(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.slow
def test_a_killed_process_goes_on_to_the_same_bits(lists: Lists, tmp_path: Path) -> None:
    settings, out = config(rounds=5), tmp_path / "parts"
    train_run(settings, tmp_path / "whole", lists=lists)
    (tmp_path / "c.toml").write_text(dump_config(settings))
    program = (
        "import sys; from pathlib import Path; import torch; torch.set_num_threads(1);"
        "import fairtopk as ft; from fairtopk.data.synthetic import *;"
        "from fairtopk.runs.config_file import load_config;"
        "from fairtopk.runs.run import train_run; folder = Path(sys.argv[1]);"
        f"lists = ft.split(make_synthetic({FEW}, bias=2.0).data);"
        "train_run(load_config(folder / 'c.toml'), folder / 'parts', lists=lists)"
    )
    # One save for each epoch of the warm-up, of K-SONG and of the rounds.
    ended = run(["-c", program, str(tmp_path)], at=State(SAVE, 7), cwd=tmp_path)
    assert ended.code == -signal.SIGKILL, ended.stderr
    assert 0 < len(rounds_of(out)) < 5
    train_run(settings, out, lists=lists, resume=True)
    assert same(tmp_path / "whole", out)


@pytest.fixture(scope="module")
def odd() -> Lists:
    """Two of 40 items are the minority; a third of the users have one rating; one grade."""
    ratings = [
        {"user": user, "item": (7 * user + step) % 40, "rating": 5.0, "time": step}
        for user in range(30)
        for step in range(1 if user % 3 == 0 else 11 + user % 5)
    ]
    items = pl.DataFrame({"item": range(40), "kind": ["rare"] * 2 + ["common"] * 38})
    groups = ft.groups_from(items, item="item", column="kind", equals="rare")
    data = ft.Interactions.from_frame(
        pl.DataFrame(ratings),
        user="user",
        item="item",
        rating="rating",
        time="time",
        groups=groups,
    )
    return ft.split(data)


@pytest.mark.slow
@pytest.mark.parametrize("multiplier", ["data", "list"])
@pytest.mark.parametrize("ranking", ["assignment", "sampled"])
def test_odd_data_gives_finite_numbers(
    odd: Lists, tmp_path: Path, multiplier: str, ranking: str
) -> None:
    """Lists of 2 to 7 items, most of them without the minority, and K beyond them."""
    settings = config(
        warmup_epochs=1, multiplier=multiplier, ranking=ranking, rated=4, unrated=3, users=20
    )
    result = train_run(settings, tmp_path / "run", lists=odd)
    assert result["metrics"]["ndcg@20"]["mean"] > 0
    for record in rounds_of(tmp_path / "run"):
        numbers = [value for value in record.values() if isinstance(value, float)]
        assert all(abs(value) < 1e6 for value in numbers)
    weights = load_tensors(tmp_path / "run" / "model.safetensors").tensors
    assert all(value.isfinite().all() for value in weights.values())


@pytest.mark.slow
def test_treatment_follows_relevance_and_is_refused_where_it_cannot_be_had(
    lists: Lists, tmp_path: Path
) -> None:
    """In the biased data the minority's recorded relevance is too low to be followed."""
    with pytest.raises(ft.InputError, match=r"no ranking gives the groups .*; lower method\.c"):
        train_run(config(notion="treatment"), tmp_path / "whole", lists=lists)
    signed = {}
    for notion in ("parity", "treatment"):
        result = train_run(config(c=0.3, notion=notion), tmp_path / notion, lists=lists)
        signed[notion] = result["metrics"]["rank_exposure_gap_signed@45"]["mean"]
    merit = load_tensors(tmp_path / "treatment" / "model.safetensors").tensors["merit"]
    assert merit[0] < 0.7 * merit[1]
    assert signed["treatment"] < signed["parity"] < 0


def test_data_without_groups_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "u,i,t\n" + "".join(f"{u},{i},{i}\n" for u in range(5) for i in range(12))
    )
    data = {"source": "csv", "path": str(tmp_path / "a.csv"),
            "options": {"user": "u", "item": "i", "rating": None, "time": "t"}}  # fmt: skip
    settings = check_config({"data": data, "method": {"name": "robust"}}, "test")
    with pytest.raises(ft.InputError, match="robust needs items in at least two groups"):
        train_run(settings, tmp_path / "run")
