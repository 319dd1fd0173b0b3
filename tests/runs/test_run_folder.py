"""What belongs to a run folder, who may work in it, and how work in it ends."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from filelock import FileLock

import fairtopk as ft
from fairtopk import storage
from fairtopk.cli.train import show_result
from fairtopk.errors import ENDING, Exit, Stopped
from fairtopk.lists.users import Lists
from fairtopk.reporting.results import collect
from fairtopk.runs import run
from fairtopk.runs.build import build_model, oversized
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import open_run
from fairtopk.runs.result import (
    Owner,
    identity_of,
    per_query_path,
    read_queries,
    read_result,
    sealed,
)
from fairtopk.runs.run import Hooks, begin_after, shared_stages, train_run
from fairtopk.runs.trainer import build_trainer
from fairtopk.serving.export import export_run
from fairtopk.storage import MODEL, Saved, load_tensors, save_pair, save_tensors
from fairtopk.training.loop import Trainer


def config(seed: int = 0, method: str = "kso-red") -> Config:
    values: dict[str, Any] = {
        "seed": seed,
        "data": {"source": "synthetic"},
        "model": {"name": "mf", "width": 8},
        "method": {"name": method, "k": 10} | ({"c": 1e3} if method == "kso-red" else {}),
        "training": {"warmup_epochs": 1, "epochs": 2, "lists": {"rated": 5, "unrated": 40}},
        "evaluation": {"k": [10], "unrated": 50},
    }
    return check_config(values, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(ft.load("synthetic"))


@pytest.fixture(scope="module")
def runs(lists: Lists, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one shape: K-SONG, and KSO-RED."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("k-song", "kso-red"):
        train_run(config(method=method), folder / method, lists=lists)
    return folder


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    shutil.copytree(runs, tmp_path / "runs")
    return tmp_path / "runs"


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_tensors(out / "model.safetensors").tensors


def alike(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before


def test_a_model_of_another_run_is_refused(copied: Path) -> None:
    shutil.copy(copied / "k-song" / "model.safetensors", copied / "kso-red")
    with pytest.raises(ft.InputError, match=r"model\.safetensors is of another run"):
        measure_run(open_run(copied / "kso-red"))


@pytest.mark.parametrize(
    ("old", "new"), [('name = "kso-red"', 'name = "so-red"'), ("seed = 0", "seed = 1")]
)
def test_an_edited_config_is_refused_and_its_run_left_out_of_a_report(
    copied: Path, old: str, new: str
) -> None:
    edit(copied / "kso-red" / "config.toml", lambda text: text.replace(old, new))
    with pytest.raises(ft.InputError, match=r"or the config\.toml beside it was edited"):
        measure_run(open_run(copied / "kso-red"))
    sweep = collect(copied)
    assert [result.run.name for result in sweep.results if "full" not in result.lists] != []
    assert {result.run.name for result in sweep.results} == {"k-song"}
    assert "kso-red does not hold together" in sweep.missing[0]


def test_results_of_another_run_are_left_out_and_named(copied: Path) -> None:
    (other,) = (copied / "k-song").glob("metrics-full*.json")
    shutil.copy(other, copied / "kso-red")
    shutil.copy(copied / "k-song" / "per_query.safetensors", copied / "kso-red")
    shutil.copy(copied / "k-song" / "provenance.json", copied / "kso-red")
    said = "\n".join(collect(copied).missing)
    assert f"kso-red: {other.name} is of another run" in said
    assert "kso-red has a damaged per_query.safetensors, or one of another run" in said
    assert "kso-red has no provenance.json" in said
    with pytest.raises(ft.InputError, match="is of another run than the metrics file"):
        ft.compare(copied / "k-song", copied / "kso-red")


def test_one_damaged_run_does_not_prevent_a_report_of_the_others(copied: Path) -> None:
    edit(copied / "kso-red" / "metrics.json", lambda text: text.replace('"mean"', '"moan"'))
    sweep = collect(copied)
    assert {result.run.name for result in sweep.results} == {"k-song"}
    assert "kso-red cannot be read, or is of another version" in sweep.missing[0]


def test_weights_that_were_changed_are_refused(copied: Path) -> None:
    path = copied / "kso-red" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ft.InputError, match="its checksum does not fit its content"):
        measure_run(open_run(copied / "kso-red"))


def test_tensors_of_another_shape_are_refused_before_they_are_loaded(copied: Path) -> None:
    path = copied / "kso-red" / "model.safetensors"
    saved = load_tensors(path)
    name = next(iter(saved.tensors))
    save_tensors(path, saved.tensors | {name: torch.zeros(2, 2)}, saved.about)
    with pytest.raises(ft.InputError, match=r"is torch.float32 of shape \(2, 2\), expected"):
        measure_run(open_run(copied / "kso-red"))


def test_a_finished_run_on_other_data_is_refused(copied: Path) -> None:
    other = ft.split(ft.load("synthetic", seed=1))
    with pytest.raises(ft.InputError, match="the data is not what"):
        train_run(config(), copied / "kso-red", lists=other, resume=True)


def test_a_kill_inside_the_first_checkpoint_is_started_anew(
    runs: Path, lists: Lists, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.toml").write_text(dump_config(config()))
    (out / "new-model.safetensors").write_bytes(b"half")
    (out / ".new-model.safetensors.0123.part").write_bytes(b"half")
    train_run(config(), out, lists=lists, resume=True)
    assert alike(out, runs / "kso-red")
    assert not [*out.glob("new-*"), *out.glob(".*.part")]


def test_a_folder_with_nothing_but_leftovers_is_new(lists: Lists, tmp_path: Path) -> None:
    (tmp_path / ".config.toml.0123.part").touch()
    train_run(config(), tmp_path, lists=lists)
    assert not [*tmp_path.glob(".*.part")]


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 1, 2, 3, 5])
def test_a_full_disk_loses_nothing_and_resume_goes_on(
    runs: Path, lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Only so many files of tensors can be written: from the first checkpoint on."""
    written, save = 0, safetensors.torch.save_file

    def full(*given: Any) -> None:
        nonlocal written
        if written >= room:
            raise OSError(28, "No space left on device")
        written += 1
        save(*given)

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(ft.InputError, match=r"^cannot write .*: no space left on device$"):
        train_run(config(), tmp_path / "run", lists=lists)
    monkeypatch.undo()
    assert not [*(tmp_path / "run").glob(".*.part")]
    train_run(config(), tmp_path / "run", lists=lists, resume=True)
    assert alike(tmp_path / "run", runs / "kso-red")


@pytest.fixture
def _heard() -> Iterator[None]:
    """Signals that the tests' own shell ignores, SIGHUP under nohup, are heard all the same."""
    before = {one: signal.signal(one, signal.SIG_DFL) for one in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, Exit.TERMINATED), (signal.SIGHUP, Exit.HUNG_UP)],
)
def test_a_signal_to_end_finishes_the_step_and_saves(
    runs: Path, lists: Lists, tmp_path: Path, number: int, code: Exit
) -> None:
    def stop(trainer: Trainer, record: dict[str, Any] | None) -> None:
        if trainer.progress.total == 5:
            signal.raise_signal(number)

    with pytest.raises(Stopped) as stopped:
        train_run(config(), tmp_path / "run", lists=lists, hooks=Hooks(report=stop))
    assert stopped.value.exit_code == code
    train_run(config(), tmp_path / "run", lists=lists, resume=True)
    assert alike(tmp_path / "run", runs / "kso-red")


@pytest.mark.usefixtures("_heard")
def test_a_signal_during_the_last_save_is_not_lost(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = storage.save_pair
    saves = 0

    def save_and_stop(*given: Any) -> None:
        nonlocal saves
        saves += 1
        if saves == 3:  # of a warm-up and two epochs
            signal.raise_signal(signal.SIGTERM)
        save(*given)

    monkeypatch.setattr(storage, "save_pair", save_and_stop)
    with pytest.raises(Stopped):
        train_run(config(), tmp_path / "run", lists=lists)
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_a_model_is_there_at_every_moment_of_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pair(step: int) -> tuple[Saved, Saved]:
        one = Saved({"x": torch.full((2,), float(step))}, {"step": step})
        return one, one

    save_pair(tmp_path, *pair(0))
    moves: list[float] = []
    replace = Path.replace

    def watched(path: Path, target: Path) -> Path:
        moves.append(float(load_tensors(tmp_path / MODEL).tensors["x"][0]))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", watched)
    save_pair(tmp_path, *pair(1))
    assert moves == [0.0, 1.0]


@pytest.mark.parametrize("other", ["truncated", "of another run"])
def test_a_finished_run_with_another_model_is_not_called_finished(
    runs: Path, lists: Lists, tmp_path: Path, other: str
) -> None:
    out = shutil.copytree(runs / "kso-red", tmp_path / "run")
    content = (runs / "k-song" / MODEL).read_bytes()
    (out / MODEL).write_bytes(content[:500] if other == "truncated" else content)
    with pytest.raises(ft.InputError, match=MODEL):
        train_run(config(), out, lists=lists, resume=True)


@pytest.mark.parametrize(("protocol", "k"), [("sampled", 55), ("full", 800)])
def test_a_k_past_the_lists_is_warned_of(
    copied: Path, lists: Lists, protocol: str, k: int, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"protocol": protocol, "k": [10, k]}
    run = open_run(copied / "k-song", changes, load=lambda *_: lists)
    result = measure_run(run).result
    (warning,) = result["warnings"]
    assert warning.startswith(f"at K = {k} all items are in the top")
    show_result(result)
    assert f"warning: at K = {k}" in capsys.readouterr().out


def test_what_was_measured_at_an_earlier_checkpoint_goes_once_the_run_is_finished(
    copied: Path, lists: Lists
) -> None:
    out = copied / "kso-red"
    (out / "metrics.json").unlink()
    found = measure_run(open_run(out, {"k": [5, 10]}, load=lambda *_: lists))
    found.save(out / found.name)
    stale = {out / found.name, per_query_path(out / found.name)}
    assert all(path.exists() for path in stale)
    train_run(config(), out, resume=True, lists=lists)
    assert not any(path.exists() for path in stale)
    assert (out / "metrics.json").exists()


def test_list_sizes_that_the_data_does_not_fill_are_told_of(lists: Lists) -> None:
    assert oversized(config(), lists) == []
    values = config().model_dump()
    values["training"]["lists"] |= {"rated": 1_000, "unrated": 5_000}
    rated, unrated = oversized(check_config(values, "test"), lists)
    assert rated.startswith("training.lists.rated is 1,000, and no user has more than ")
    assert unrated.startswith("training.lists.unrated is 5,000, and no user has more than ")


def test_one_process_at_a_time_works_in_a_run_folder(lists: Lists, tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(ft.InputError, match="another process is at work in"),
    ):
        train_run(config(), tmp_path, lists=lists)
    train_run(config(), tmp_path, lists=lists)


def test_a_run_that_another_process_has_just_begun_is_left_alone(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = run.build_trainer

    def slow(*given: Any) -> Any:  # in the meantime the other one begins
        (tmp_path / "config.toml").touch()
        return build(*given)

    monkeypatch.setattr(run, "build_trainer", slow)
    with pytest.raises(ft.InputError, match="another process has just begun a run"):
        train_run(config(), tmp_path, lists=lists)
    assert (tmp_path / "config.toml").read_text() == ""


def test_a_reused_stage_is_told_of_and_kept_in_the_provenance(
    lists: Lists, tmp_path: Path
) -> None:
    said: list[str] = []
    for name in ("first", "second"):
        train_run(
            config(),
            tmp_path / name,
            lists=lists,
            warmups=tmp_path / "warm",
            hooks=Hooks(notice=said.append),
        )
    assert said == ["warm-up reused from kso-red, seed 0, in first"]
    kept = [
        json.loads((tmp_path / name / "provenance.json").read_text())["reused"]
        for name in ("first", "second")
    ]
    assert kept == [[], said]
    (stage,) = (tmp_path / "warm").iterdir()
    assert stage.stat().st_mode & 0o777 == 0o600
    assert alike(tmp_path / "first", tmp_path / "second")


@pytest.mark.slow
def test_a_stage_of_other_code_is_not_reused(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    train_run(config(), tmp_path / "first", lists=lists, warmups=tmp_path / "warm")
    monkeypatch.setattr(run, "code_digest", lambda: "of other code")
    train_run(
        config(),
        tmp_path / "second",
        lists=lists,
        warmups=tmp_path / "warm",
        hooks=Hooks(notice=said.append),
    )
    assert said == []


def test_the_code_digest_is_that_of_the_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    shutil.copytree(Path(ft.__file__).parent, package)
    digests = []
    for edited in (False, True):
        if edited:
            with (package / "samplers.py").open("a") as file:
                file.write("# a change\n")
        monkeypatch.setattr(ft, "__file__", str(package / "__init__.py"))
        run.code_digest.cache_clear()
        digests.append(run.code_digest())
        monkeypatch.undo()
    run.code_digest.cache_clear()
    assert digests[0] == run.code_digest() != digests[1]


def zeroed(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


def not_finite(path: Path) -> None:
    tensors, about = load_tensors(path)
    wrong = {name: value * torch.nan for name, value in tensors.items() if "scorer" in name}
    save_tensors(path, tensors | wrong, about)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [zeroed, not_finite])
def test_a_damaged_stage_is_trained_again(
    lists: Lists, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    said: list[str] = []
    train_run(config(), tmp_path / "first", lists=lists, warmups=tmp_path / "warm")
    (stage,) = (tmp_path / "warm").iterdir()
    damage(stage)
    train_run(
        config(),
        tmp_path / "second",
        lists=lists,
        warmups=tmp_path / "warm",
        hooks=Hooks(notice=said.append),
    )
    assert said == []
    assert alike(tmp_path / "first", tmp_path / "second")


def test_a_cache_that_cannot_be_written_stops_nothing(lists: Lists, tmp_path: Path) -> None:
    (tmp_path / "warm").write_text("a file, where a folder should be")
    train_run(config(), tmp_path / "run", lists=lists, warmups=tmp_path / "warm")


Tensors = dict[str, torch.Tensor]


def moment(found: Tensors) -> str:
    """Return the name of a moment that the optimizer keeps of a table."""
    return next(name for name in found if name.endswith("exp_avg_sq"))


def put(found: Tensors, name: str, value: torch.Tensor) -> None:
    found[name] = value


def drop_optimizer(found: Tensors) -> None:
    for name in [one for one in found if one.startswith("optimizer.")]:
        del found[name]


def weight(found: Tensors) -> str:
    return next(name for name in found if name.startswith("scorer."))


STATES: dict[str, tuple[Callable[[Tensors], Any], str]] = {
    "a moment cut short": (lambda f: put(f, moment(f), f[moment(f)][:-1].clone()), "shape"),
    "a moment of float64": (lambda f: put(f, moment(f), f[moment(f)].double()), "float64"),
    "a moment below 0": (lambda f: put(f, moment(f), f[moment(f)] - 1), "a value below 0"),
    "a moment that is NaN": (lambda f: f[moment(f)].fill_(torch.nan), "is not finite"),
    "no moment": (lambda f: f.pop(moment(f)), "is missing"),
    "no optimizer": (drop_optimizer, "'optimizer.0.exp_avg' is missing"),
    "a weight that is NaN": (lambda f: f[weight(f)].fill_(torch.nan), "is not finite"),
    "a tensor too many": (lambda f: put(f, "nonsense", torch.zeros(3)), "is not expected"),
}  # fmt: skip
PROGRESS: dict[str, tuple[dict[str, Any], str]] = {
    "an empty record": ({"history": [{}]}, "a record of the history is not that of an epoch"),
    "no history": ({"history": []}, "the history is not that of the epochs so far"),
    "a choice that is not there": ({"chosen": 77}, "epoch 77 is chosen"),
    "a choice that was not validated": ({"chosen": 0}, "was not validated"),
    "no choice": ({"chosen": None}, "no epoch is chosen"),
    "an epoch too many": ({"epoch": 3}, "has no step 0 in epoch 3"),
    "a step too many": ({"step": 10**6}, "has no step 1000000"),
    "a step below 0": ({"step": -1}, "has no step -1"),
    "a sum without a count": ({"sums": {"loss": 1.0}}, "do not fit"),
    "a count of 0": ({"sums": {"loss": 1.0}, "counts": {"loss": 0}}, "do not fit"),
    "other steps in all": ({"total": 1}, "progress says 1 steps"),
    "an epoch that is true": ({"epoch": True}, ""),
}


def refused_state(copied: Path, lists: Lists) -> str:
    out = copied / "kso-red"
    (out / "metrics.json").unlink()
    with pytest.raises(ft.InputError) as error:
        train_run(config(), out, lists=lists, resume=True)
    said = str(error.value)
    assert error.value.exit_code == Exit.WRONG
    assert "\n" not in said
    assert f"{out / 'state.safetensors'} does not fit the run's config and data" in said
    return said


@pytest.mark.parametrize("how", STATES)
def test_a_state_that_the_run_cannot_have_left_is_refused(
    copied: Path, lists: Lists, how: str
) -> None:
    spoil, sentence = STATES[how]
    path = copied / "kso-red" / "state.safetensors"
    tensors, about = load_tensors(path)
    spoil(tensors)
    save_tensors(path, tensors, about)
    assert sentence in refused_state(copied, lists)


@pytest.mark.parametrize("how", PROGRESS)
def test_progress_that_the_run_cannot_have_made_is_refused(
    copied: Path, lists: Lists, how: str
) -> None:
    change, sentence = PROGRESS[how]
    path = copied / "kso-red" / "state.safetensors"
    about = load_tensors(path).about
    about["progress"] |= change
    about["step"] = about["progress"]["total"] + len(about["progress"]["history"])
    for name in ("state", "model"):
        both = load_tensors(path.with_name(f"{name}.safetensors"))
        told = about if name == "state" else both.about | {"step": about["step"]}
        save_tensors(path.with_name(f"{name}.safetensors"), both.tensors, told)
        path.with_name(f"before-{name}.safetensors").unlink(missing_ok=True)
    assert sentence in refused_state(copied, lists)


@pytest.fixture(scope="module")
def stage(lists: Lists, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warm-up that a run has left for others."""
    folder = tmp_path_factory.mktemp("stage")
    train_run(config(), folder / "run", lists=lists, warmups=folder / "warm")
    (path,) = (folder / "warm").iterdir()
    return path


ABOUTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an empty record": lambda about: about["progress"].update(history=[{}]),
    "a choice that is not there": lambda about: about["progress"].update(chosen=77),
    "a choice without its weights": lambda about: about["progress"].update(chosen=0),
    "a phase that is none": lambda about: about["progress"].update(phase=9),
    "no progress": lambda about: about.pop("progress"),
    "the name of another stage": lambda about: about.update(key="other"),
}


@pytest.mark.parametrize("how", [*STATES, *ABOUTS])
def test_a_stage_that_does_not_fit_leaves_the_trainer_as_it_was(
    stage: Path, lists: Lists, tmp_path: Path, how: str
) -> None:
    tensors, about = load_tensors(stage)
    (STATES[how][0] if how in STATES else lambda _: ABOUTS[how](about))(tensors)
    save_tensors(tmp_path / stage.name, tensors, about)
    trainer = build_trainer(config(), lists, build_model(config(), lists))
    before = {name: value.clone() for name, value in trainer.state().items()}
    assert begin_after(shared_stages(config(), lists, tmp_path), trainer) == ()
    after = trainer.state()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[n], before[n]) or "objective" in n for n in before)
    assert (trainer.progress.mark, trainer.progress.history, trainer.chosen) == (0, [], {})


def test_a_stage_that_fits_is_taken_over(stage: Path, lists: Lists) -> None:
    trainer = build_trainer(config(), lists, build_model(config(), lists))
    (said,) = begin_after(shared_stages(config(), lists, stage.parent), trainer)
    assert said == "warm-up reused from kso-red, seed 0, in run"
    assert trainer.progress.epoch == 1


Edit = Callable[[dict[str, Any]], Any]


def resealed(path: Path, change: Edit) -> None:
    """Change a metrics file, and give it a checksum that fits."""
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(sealed(told)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"method": "k-song"}, "is of method k-song, and the run of kso-red"),
        ({"seed": 1}, "is of seed 1, and the run of 0"),
        ({"part": "validation"}, "is of part validation, and the run of test"),
        ({"protocol": "full"}, "is of protocol full, and the run of sampled"),
    ],
)
def test_metrics_that_are_not_of_the_run_are_refused(
    copied: Path, lists: Lists, change: dict[str, Any], sentence: str
) -> None:
    out = copied / "kso-red"
    resealed(out / "metrics.json", lambda told: told.update(change))
    with pytest.raises(ft.InputError, match=sentence):
        train_run(config(), out, lists=lists, resume=True)
    assert {result.run.name for result in collect(copied).results} == {"k-song"}


def test_metrics_at_other_k_are_refused(copied: Path, lists: Lists) -> None:
    def at_20(told: dict[str, Any]) -> None:
        told["metrics"] = {n.replace("@10", "@20"): v for n, v in told["metrics"].items()}

    resealed(copied / "kso-red" / "metrics.json", at_20)
    with pytest.raises(ft.InputError, match=r"is of K \[20\], and the run of \[10\]"):
        train_run(config(), copied / "kso-red", lists=lists, resume=True)


def test_an_edited_number_is_refused(copied: Path, lists: Lists) -> None:
    path = copied / "kso-red" / "metrics.json"
    told = json.loads(path.read_text())
    told["metrics"]["ndcg@10"]["mean"] += 0.1
    path.write_text(json.dumps(told))
    with pytest.raises(ft.InputError, match="its checksum does not fit its content"):
        read_result(path, None)
    with pytest.raises(ft.InputError, match=r"metrics\.json is damaged; remove it"):
        train_run(config(), copied / "kso-red", lists=lists, resume=True)


def test_a_model_card_has_no_metrics_of_another_run(copied: Path, tmp_path: Path) -> None:
    shutil.copy(copied / "k-song" / "metrics.json", copied / "kso-red")
    with pytest.raises(ft.InputError, match=r"metrics\.json is of another run"):
        export_run(copied / "kso-red", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def other_without(key: str) -> Edit:
    return lambda told: told["other_protocol"]["metrics"].pop(key)


UNSHOWN: dict[str, Edit] = {
    "no bounds": lambda told: told["metrics"]["ndcg@10"].update(ci95=[None, None]),
    "one bound": lambda told: told["metrics"]["ndcg@10"].update(ci95=[0.1, None]),
    "a metric at another K alone": lambda told: told["metrics"].update(
        {"exposure_gap@20": told["metrics"]["exposure_gap@10"]}
    ),
    "NDCG at one K more": lambda told: told["metrics"].update(
        {"ndcg@20": told["metrics"]["ndcg@10"]}
    ),
    "no metrics": lambda told: told.update(metrics={}),
    "no word of labels": lambda told: told.pop("needs_labels_when_serving"),
    "a count below 0": lambda told: told["metrics"]["ndcg@10"].update(undefined=-1),
    "another protocol without the gap by rank": other_without("rank_exposure_gap@10"),
    "another protocol without NDCG": other_without("ndcg@10"),
    "another protocol that is null": lambda told: told.update(
        other_protocol={"protocol": None}
    ),
    "another protocol that is empty": lambda told: told.update(other_protocol={}),
    "another protocol without metrics": lambda told: told["other_protocol"].update(metrics={}),
}


@pytest.mark.parametrize("how", UNSHOWN)
def test_metrics_that_cannot_be_shown_are_refused(copied: Path, how: str) -> None:
    path = copied / "kso-red" / "metrics.json"
    show_result(read_result(path, Owner(config())))
    resealed(path, UNSHOWN[how])
    with pytest.raises(
        ft.InputError, match="is not a metrics file of this version, or damaged"
    ):
        read_result(path, Owner(config()))


def drop(key: str) -> Callable[[Tensors, dict[str, Any]], Any]:
    return lambda _, about: about.pop(key)


def say(**changes: Any) -> Callable[[Tensors, dict[str, Any]], Any]:
    return lambda _, about: about.update(changes)


QUERIES: dict[str, tuple[Callable[[Tensors, dict[str, Any]], Any], str]] = {
    "names that are lists": (say(metrics=[[1]]), "does not say which values"),
    "no names": (say(metrics=[]), "does not say which values"),
    "a name twice": (lambda _, about: about["metrics"].append("ndcg@10"), "does not hold"),
    "no protocol": (drop("protocol"), "does not say which values"),
    "another protocol": (say(protocol="full"), "is of protocol full, and the metrics file"),
    "another part": (say(part="validation"), "is of part validation, and the metrics file"),
    "another seed": (say(seed=7), "is of seed 7, and the metrics file"),
    "values that are true or false": (
        lambda found, _: put(found, "ndcg@10", found["ndcg@10"] > 0), "torch.bool",
    ),
    "values of double precision": (
        lambda found, _: put(found, "ndcg@10", found["ndcg@10"].double()), "torch.float64",
    ),
    "users that are no whole numbers": (
        lambda found, _: put(found, "user", found["user"].float()), "torch.float32",
    ),
    "values of fewer users": (
        lambda found, _: put(found, "ndcg@10", found["ndcg@10"][1:].clone()), "other queries",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", QUERIES)
def test_values_of_each_query_must_be_those_of_the_metrics(copied: Path, how: str) -> None:
    spoil, sentence = QUERIES[how]
    path = copied / "kso-red" / "per_query.safetensors"
    result = read_result(path.with_name("metrics.json"), Owner(config()))
    tensors, about = read_queries(path, result)
    spoil(tensors, about)
    save_tensors(path, tensors, about)
    with pytest.raises(ft.InputError) as error:
        read_queries(path, result)
    assert str(error.value).startswith(str(path))
    assert sentence in str(error.value)


def test_an_identity_is_compared_where_the_data_is_at_hand(runs: Path) -> None:
    other = identity_of(config(), ft.split(ft.load("synthetic", seed=1)))
    with pytest.raises(ft.InputError, match="the data is not what"):
        read_result(runs / "kso-red" / "metrics.json", Owner(config(), other))
