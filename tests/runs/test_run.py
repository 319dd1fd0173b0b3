"""Whole runs on the embedded data: resumed, killed, repeated, fairer."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from kills import CHANGE, SAVE, STEP, State, run
from stops import train_in_parts

import fairtopk as ft
from fairtopk.lists.users import Lists
from fairtopk.runs import build
from fairtopk.runs import build as phases
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import open_run
from fairtopk.runs.run import Hooks, is_begun, train_run
from fairtopk.storage import load_tensors
from fairtopk.training.loop import Trainer

BASE: dict[str, Any] = {
    "data": {"source": "synthetic"},
    "model": {"width": 8, "hidden": [8]},
    "method": {"name": "kso-red", "k": 20, "c_relative": 1.0, "preset": "paper"},
    "training": {"warmup_epochs": 1, "epochs": 3, "lists": {"rated": 5, "unrated": 60}},
    "evaluation": {"k": [10, 20], "unrated": 100},
}


def config(**changes: dict[str, Any]) -> Config:
    values = {name: {**BASE.get(name, {}), **changes.get(name, {})} for name in BASE}
    return check_config(values, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(ft.load("synthetic"))


@pytest.fixture
def _lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the small tables of the embedded data be updated like large ones."""
    monkeypatch.setattr(build, "LAZY_ROWS", 0)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_tensors(out / "model.safetensors").tensors


def same(first: Path, second: Path) -> bool:
    ours, theirs = weights(first), weights(second)
    metrics = [
        json.loads((out / "metrics.json").read_text())["metrics"] for out in (first, second)
    ]
    return metrics[0] == metrics[1] and all(torch.equal(ours[n], theirs[n]) for n in ours)


def is_of_all_users(name: str) -> bool:
    return "_floor@" in name or name.startswith(("rsp@", "reo@"))


def test_a_run_folder_holds_what_was_run_and_what_came_out(
    lists: Lists, tmp_path: Path
) -> None:
    result = train_run(config(), tmp_path / "run", lists=lists)
    names = sorted(file.name for file in (tmp_path / "run").iterdir())
    assert {"config.toml", "log.jsonl", "metrics.json", "model.safetensors", "provenance.json",
            "per_query.safetensors", "state.safetensors"} <= set(names)  # fmt: skip
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == result
    assert set(result["metrics"]["ndcg@10"]) == {"mean", "ci95", "n", "undefined"}
    assert result["metrics"]["ndcg@10"]["n"] == 1_000
    log = [
        json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    ]
    assert [(one["phase"], one["epoch"]) for one in log] == [
        ("warm-up", 1), ("fine-tuning", 1), ("fine-tuning", 2), ("fine-tuning", 3),
    ]  # fmt: skip
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert provenance["data"]["sha256"] == lists.data.checksum
    assert str(tmp_path) not in (tmp_path / "run" / "provenance.json").read_text()


def test_a_run_keeps_the_values_of_each_user(lists: Lists, tmp_path: Path) -> None:
    result = train_run(config(training={"epochs": 0}), tmp_path / "run", lists=lists)
    kept = load_tensors(tmp_path / "run" / "per_query.safetensors")
    users = kept.tensors.pop("user")
    assert users.tolist() == lists.test.user.tolist()
    per_user = [name for name in result["metrics"] if not is_of_all_users(name)]
    assert list(kept.tensors) == sorted(per_user)
    for name, values in kept.tensors.items():
        assert (values.dtype, values.shape) == (torch.float32, users.shape)
        assert values.double().nanmean().item() == pytest.approx(
            result["metrics"][name]["mean"]
        )
    assert kept.about == {
        "data": lists.data.name, "checksum": lists.data.checksum, "split": lists.rule,
        "part": "test", "protocol": "sampled", "unrated": 100, "seed": 0,
        "metrics": per_user, "identity": result["identity"],
    }  # fmt: skip
    full = measure_run(open_run(tmp_path / "run", {"protocol": "full", "k": [5]}), "validation")
    per_user = {name for name in full.result["metrics"] if not is_of_all_users(name)}
    assert set(full.queries.tensors) == {*per_user, "user"}
    assert full.queries.about["part"] == "validation"
    assert full.queries.about["unrated"] is full.queries.about["seed"] is None


def test_one_seed_gives_the_same_bits_and_another_seed_others(
    lists: Lists, tmp_path: Path
) -> None:
    for name in ("first", "again"):
        train_run(config(), tmp_path / name, lists=lists)
    assert same(tmp_path / "first", tmp_path / "again")
    other = check_config({**BASE, "seed": 1}, "test")
    train_run(other, tmp_path / "other", lists=lists)
    assert not same(tmp_path / "first", tmp_path / "other")


@pytest.mark.parametrize(
    "preset",
    ["default", *(pytest.param(one, marks=pytest.mark.slow) for one in ("paper", "released"))],
)
def test_a_run_stopped_at_any_step_goes_on_to_the_same_bits(
    lists: Lists, tmp_path: Path, preset: str
) -> None:
    stop_and_go(config(method={**BASE["method"], "preset": preset}), lists, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("_lazy")
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_a_run_with_a_lazy_optimizer_goes_on_to_the_same_bits(
    lists: Lists, tmp_path: Path, optimizer: str
) -> None:
    training = {"optimizer": optimizer, "batch_size": 100, "epochs": 1}
    stop_and_go(config(training={**BASE["training"], **training}), lists, tmp_path)


def stop_and_go(settings: Config, lists: Lists, tmp_path: Path) -> None:
    train_run(settings, tmp_path / "whole", lists=lists)
    train_in_parts(settings, tmp_path / "parts", [2, 4, 7, 11], lists=lists)
    assert same(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.slow
@pytest.mark.usefixtures("_lazy")
def test_a_killed_process_goes_on_to_the_same_bits(lists: Lists, tmp_path: Path) -> None:
    """Kill -9 between two steps, between two files of a checkpoint, and before one."""
    values = {"save_minutes": 1e-6, "epochs": 4}  # saves after every step
    settings = config(training={**BASE["training"], **values})
    train_run(settings, tmp_path / "whole", lists=lists)
    (tmp_path / "c.toml").write_text(dump_config(settings))
    program = (
        "import sys; from pathlib import Path; import torch; torch.set_num_threads(1);"
        "from fairtopk.runs import build; build.LAZY_ROWS = 0;"
        "from fairtopk.runs.config_file import load_config;"
        "from fairtopk.runs.run import train_run;"
        "train_run(load_config(Path('c.toml')), Path('parts'), resume=len(sys.argv) > 1)"
    )
    resume: list[str] = []
    for state in (State(STEP, 4), State(CHANGE, 20), State(SAVE, 3)):
        ended = run(["-c", program, *resume], at=state, cwd=tmp_path)
        assert ended.code == -signal.SIGKILL, ended.stderr
        resume = ["resume"]
    train_run(settings, tmp_path / "parts", lists=lists, resume=True)
    assert same(tmp_path / "whole", tmp_path / "parts")


def test_a_finished_run_is_not_repeated_and_another_config_is_refused(
    lists: Lists, tmp_path: Path
) -> None:
    result = train_run(config(), tmp_path / "run", lists=lists)
    assert train_run(config(), tmp_path / "run", lists=lists, resume=True) == result
    with pytest.raises(ft.InputError, match="exists and is not empty; go on with --resume"):
        train_run(config(), tmp_path / "run", lists=lists)
    other = config(method={**BASE["method"], "k": 10})
    with pytest.raises(ft.InputError, match=r"another config: method\.k was 20 and is now 10;"):
        train_run(other, tmp_path / "run", lists=lists, resume=True)
    begun = train_run(config(), tmp_path / "none", lists=lists, resume=True)
    assert begun["metrics"] == result["metrics"]


@pytest.mark.slow
def test_a_damaged_metrics_file_can_be_measured_again(lists: Lists, tmp_path: Path) -> None:
    result = train_run(config(), tmp_path / "run", lists=lists)
    metrics = tmp_path / "run" / "metrics.json"
    metrics.write_text("{")
    with pytest.raises(ft.InputError, match="is damaged; remove it, and --resume measures"):
        train_run(config(), tmp_path / "run", lists=lists, resume=True)
    metrics.unlink()
    again = train_run(config(), tmp_path / "run", lists=lists, resume=True)
    assert again["metrics"] == result["metrics"]


@pytest.mark.slow
@pytest.mark.usefixtures("_lazy")
def test_a_shared_warm_up_changes_nothing(lists: Lists, tmp_path: Path) -> None:
    train_run(config(), tmp_path / "alone", lists=lists)
    for name in ("first", "second"):
        train_run(config(), tmp_path / name, lists=lists, warmups=tmp_path / "warm")
    assert len(list((tmp_path / "warm").iterdir())) == 1
    assert same(tmp_path / "alone", tmp_path / "first")
    assert same(tmp_path / "alone", tmp_path / "second")


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_checkpoint(
    lists: Lists, tmp_path: Path
) -> None:
    def poison(trainer: Trainer, record: dict[str, Any] | None) -> None:
        if trainer.progress.total == 6:
            with torch.no_grad():
                next(trainer.scorer.parameters()).fill_(float("nan"))

    with pytest.raises(
        ft.InputError, match="no longer finite in fine-tuning, epoch 1, step 3; lower"
    ):
        train_run(config(), tmp_path / "run", lists=lists, hooks=Hooks(report=poison))
    train_run(config(), tmp_path / "run", lists=lists, resume=True)
    train_run(config(), tmp_path / "whole", lists=lists)
    assert same(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_diverges_before_its_first_checkpoint_leaves_a_folder_to_use_again(
    lists: Lists, tmp_path: Path
) -> None:
    def poison(trainer: Trainer, record: dict[str, Any] | None) -> None:
        with torch.no_grad():
            next(trainer.scorer.parameters()).fill_(float("nan"))

    with pytest.raises(ft.InputError, match="no longer finite"):
        train_run(config(), tmp_path / "run", lists=lists, hooks=Hooks(report=poison))
    assert not is_begun(tmp_path / "run")


@pytest.mark.slow
def test_a_run_is_measured_again_with_other_lists(lists: Lists, tmp_path: Path) -> None:
    result = train_run(config(), tmp_path / "run", lists=lists)
    again = measure_run(open_run(tmp_path / "run")).result
    assert again["metrics"] == result["metrics"]
    assert again["score_spread"] == result["score_spread"]
    gap, floor = (again["metrics"][f"representation_gap{one}@10"] for one in ("", "_floor"))
    assert 0 < floor["mean"] < 2 * gap["mean"]
    assert floor["n"] == gap["n"]
    changes = {"protocol": "full", "k": [5]}
    full = measure_run(open_run(tmp_path / "run", changes), "validation").result
    assert (full["protocol"], full["part"]) == ("full", "validation")
    assert full["metrics"]["ndcg@5"]["mean"] < result["metrics"]["ndcg@10"]["mean"]
    assert full["score_spread"]["mean"] > 0
    for found, k in ((again, 10), (full, 5)):
        metrics = found["metrics"]
        for gap in ("exposure_gap", "rank_exposure_gap", "representation_gap"):
            low, high = metrics[f"{gap}_floor@{k}"]["ci95"]
            assert 0 < low <= metrics[f"{gap}_floor@{k}"]["mean"] <= high
        for name in ("rsp", "reo"):
            cell = metrics[f"{name}@{k}"]
            a, b = cell["by_group"].values()
            assert list(cell["by_group"]) == list(lists.data.group_names)
            assert cell["mean"] == pytest.approx(abs(a - b) / (a + b))
            assert cell["ci95"][0] < cell["ci95"][1]
    with pytest.raises(ft.InputError, match=r"evaluation\.protocol"):
        measure_run(open_run(tmp_path / "run", {"protocol": "nonsense"}))
    with pytest.raises(ft.InputError, match="holds no run"):
        measure_run(open_run(tmp_path))
    (tmp_path / "run" / "config.toml").write_text("[method")
    with pytest.raises(ft.InputError, match=r"config\.toml is not a TOML file"):
        measure_run(open_run(tmp_path / "run"))


@pytest.fixture(scope="module")
def biased() -> Lists:
    return ft.split(ft.load("synthetic", bias=2.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "weight"),
    [
        ({"name": "deltr"}, 10.0),
        ({"name": "ng-de"}, 1.0),
        ({"name": "so-red"}, 1.0),
        ({"name": "kso-red"}, 1.0),
        ({"name": "kso-red", "exposure": "rank"}, 0.1),
    ],
)
def test_on_biased_data_a_penalty_ends_fairer_than_none(
    biased: Lists, tmp_path: Path, method: dict[str, Any], weight: float
) -> None:
    """Fairer by score and by rank, and still a ranking."""
    found = {}
    for c in (0.0, weight):
        settings = config(
            model={"width": 16, "hidden": [16]},
            method={**method, "k": 20, "c_relative": c, "preset": "default"},
            training={
                "warmup_epochs": 5, "epochs": 8, "batch_size": 64, "rate": 3e-3,
                "warmup_rate": 3e-3, "lists": {"rated": 10, "unrated": 100},
                "restart_last_layer": False,
            },
        )  # fmt: skip
        result = train_run(settings, tmp_path / f"{c}", lists=biased, warmups=tmp_path / "warm")
        found[c] = {name: cell["mean"] for name, cell in result["metrics"].items()}
    for gap in ("exposure_gap_signed@20", "rank_exposure_gap_signed@20"):
        assert abs(found[weight][gap]) < 0.7 * abs(found[0.0][gap])
    assert found[weight]["ndcg@20"] > 0.9 * found[0.0]["ndcg@20"]


@pytest.mark.slow
def test_colour_blind_methods_and_both_models_train(lists: Lists, tmp_path: Path) -> None:
    for method in ("song", "k-song", "listnet"):
        for model in ("neumf", "mf"):
            settings = config(
                method={"name": method, "k": 20},
                model={"name": model, "width": 8},
                training={**BASE["training"], "rate": 3e-3, "warmup_rate": 3e-3},
            )
            result = train_run(settings, tmp_path / f"{method}-{model}", lists=lists)
            assert result["metrics"]["ndcg@20"]["mean"] > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_a_lazy_optimizer_changes_no_result(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    training = {**BASE["training"], "optimizer": optimizer, "rate_epochs": (1,)}
    settings = config(training=training, model={"width": 8, "dropout": 0.0})
    found = []
    for name, rows in (("dense", 20_000), ("lazy", 0)):
        monkeypatch.setattr(build, "LAZY_ROWS", rows)
        train_run(settings, tmp_path / name, lists=lists)
        found.append(weights(tmp_path / name))
        kept = load_tensors(tmp_path / name / "state.safetensors").tensors
        assert any(key.endswith(".last") for key in kept) == (name == "lazy")
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=1e-5)


def test_momentum_is_the_update_of_algorithm_1(lists: Lists, tmp_path: Path) -> None:
    """z <- (1 - gamma_5) z + gamma_5 G, where the first z is G itself; w <- w - eta_1 z."""
    training = {"optimizer": "momentum", "gamma_5": 0.3, "weight_decay": 0.0}
    settings = config(training={**BASE["training"], **training})
    scorer = build.build_model(settings, lists)
    optimizer = phases.build_phases(settings, scorer, lists)[-1].optimizer
    optimizer.param_groups[0]["lr"] = 0.1
    weight = scorer.output.weight
    expected, z = weight.detach().clone(), None
    for step in range(3):
        grad = torch.full_like(weight, 1.0 + step)
        z = grad if z is None else 0.7 * z + 0.3 * grad
        expected -= 0.1 * z
        weight.grad = grad
        optimizer.step()
        torch.testing.assert_close(weight.detach(), expected)


def test_a_fair_method_without_a_weight_is_refused() -> None:
    with pytest.raises(ft.InputError, match="kso-red needs the weight of its penalty: c, or"):
        check_config({"method": {"name": "kso-red"}}, "test")


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_starts_anew(
    lists: Lists, tmp_path: Path
) -> None:
    whole = train_run(config(), tmp_path / "whole", lists=lists)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(dump_config(config()))
    again = train_run(config(), tmp_path / "run", resume=True, lists=lists)
    assert again["metrics"] == whole["metrics"]


def test_a_checkpoint_of_another_run_is_refused(lists: Lists, tmp_path: Path) -> None:
    train_run(config(), tmp_path / "run", lists=lists)
    (tmp_path / "run" / "metrics.json").unlink()
    other = config().model_copy(update={"seed": 5})
    (tmp_path / "run" / "config.toml").write_text(dump_config(other))
    with pytest.raises(ft.InputError, match=r"is of another run, or the config\.toml"):
        train_run(other, tmp_path / "run", resume=True, lists=lists)


@pytest.mark.slow
def test_a_damaged_warm_up_is_trained_again(lists: Lists, tmp_path: Path) -> None:
    first = train_run(config(), tmp_path / "one", lists=lists, warmups=tmp_path / "warm")
    (kept,) = (tmp_path / "warm").iterdir()
    size = kept.stat().st_size
    kept.write_bytes(b"half of it")
    second = train_run(config(), tmp_path / "two", lists=lists, warmups=tmp_path / "warm")
    assert second["metrics"] == first["metrics"]
    assert kept.stat().st_size == size


def test_a_fair_method_without_groups_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "u,i,t\n" + "".join(f"{u},{i},{i}\n" for u in range(5) for i in range(12))
    )
    data = {"source": "csv", "path": str(tmp_path / "a.csv"),
            "options": {"user": "u", "item": "i", "rating": None, "time": "t"}}  # fmt: skip
    values = {**BASE, "data": data}
    with pytest.raises(ft.InputError, match="kso-red needs items in at least two groups"):
        train_run(check_config(values, "test"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
