"""A goal in place of a weight: its table, and searches on the embedded data, killed too."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from fairtopk.cli.app import main
from fairtopk.cli.train import verdict
from fairtopk.errors import Exit, InputError, TrainingError
from fairtopk.metrics.gaps import METRICS
from fairtopk.objectives.methods import METHODS
from fairtopk.reporting.results import collect
from fairtopk.runs import goal_run
from fairtopk.runs import goal_run as goal_tries
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import load_config, read_config
from fairtopk.runs.goal import GAPS, Goal, Scale, check_goal, dump_goal, with_weight
from fairtopk.runs.goal_run import search_weight
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import open_run
from fairtopk.runs.result import read_result, sealed
from fairtopk.runs.run import Hooks, train_run
from fairtopk.storage import load_tensors

TOML = """
[model]
width = 8
hidden = [8]
[method]
name = "kso-red"
k = 20
[training]
warmup_epochs = 1
epochs = 2
restart_last_layer = false
lists = { rated = 5, unrated = 60 }
[evaluation]
k = [10, 20]
unrated = 100
[goal]
target = { metric = "rank_exposure_gap@20", at_most = 0.5 }
keep = { metric = "ndcg@20", at_least = 0.9 }
runs = 2
"""
TARGET = "rank_exposure_gap@20"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("goal") / "asked.toml"
    path.write_text(TOML)
    return path


def load_goal(path: Path, changes: Sequence[str] = ()) -> tuple[Config, Goal]:
    """The run and the goal of a TOML file, as the command line reads it."""
    return check_goal(read_config(path, changes), str(path))


class Searched:
    """A search that is over, with the warm-ups that others may share."""

    def __init__(self, toml: Path, folder: Path) -> None:
        self.config, self.goal = load_goal(toml)
        self.warmups, self.out = folder / "warmups", folder / "out"
        self.told = search_weight(self.config, self.goal, self.out, warmups=self.warmups)


@pytest.fixture(scope="module")
def searched(toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    return Searched(toml, tmp_path_factory.mktemp("searched"))


def refused(path: Path, *changes: str) -> str:
    with pytest.raises(InputError) as error:
        load_goal(path, changes)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_file_without_a_goal_is_an_ordinary_run(toml: Path) -> None:
    assert load_config(toml, ["goal=", "method.c=5"]).method.c == 5


def test_a_goal_is_read_and_written_as_it_was(toml: Path, tmp_path: Path) -> None:
    for changes in ([], ["goal.keep="], ["method.name=dpr-rsp"], ["method.name=robust"]):
        config, goal = load_goal(toml, changes)
        (tmp_path / "again.toml").write_text(dump_goal(config, goal))
        assert load_goal(tmp_path / "again.toml") == (config, goal)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("method.c=5", "leave out method.c, or the table goal"),
        ("method.c_relative=1", "leave out method.c_relative, or the table goal"),
        ("method.name=k-song", "k-song has no weight to choose"),
        ("method.name=no-such", "method.name must be"),
        ("goal.target.metric=ndcg@20", "goal.target.metric: must be a metric and its K"),
        ("goal.target.metric=rank_exposure_gap", "got 'rank_exposure_gap'"),
        ("goal.target.metric=rank_exposure_gap_signed@20", "the metrics are exposure_gap, "),
        ("goal.keep.metric=rsp@20", "goal.keep.metric: must be a metric and its K"),
        ("goal.target.metric=rsp@50", "the goal is about rsp@50, and evaluation.k has 10, 20"),
        ("goal.keep.metric=ndcg@7", "the goal is about ndcg@7"),
        ("goal.target.at_most=1", "goal.target.at_most must be less than 1, got 1"),
        ("goal.keep.at_least=1.1", "goal.keep.at_least must be less than or equal to 1"),
        ("goal.runs=0", "goal.runs must be greater than 0, got 0"),
        ("goal.target=", "goal.target is missing"),
        ("goal.more=1", "unknown key goal.more"),
        ("goal=1", "goal must be a table, got 1"),
        ("evaluation=1", "evaluation must be a table, got 1"),
    ],
)
def test_what_is_wrong_with_a_goal_is_told_in_a_sentence(
    toml: Path, change: str, sentence: str
) -> None:
    assert sentence in refused(toml, change)


def test_every_gap_can_be_a_target_and_chooses_between_epochs_if_it_can(toml: Path) -> None:
    measured = {name for name in METRICS if not name.endswith("_signed")} - {"ndcg"}
    assert set(GAPS) == measured | {"rsp", "reo"}
    for gap in GAPS:
        config, _ = load_goal(toml, [f"goal.target.metric={gap}@10"])
        chosen_by = gap if gap in goal_choices() else "exposure_gap"
        assert (config.evaluation.select_gap, config.evaluation.select_k) == (chosen_by, 10)
    own = ["evaluation.select_gap=representation_gap", "evaluation.select_k=20"]
    config, _ = load_goal(toml, own)
    assert config.evaluation.select_gap == "representation_gap"
    assert config.evaluation.select_k == 20


def goal_choices() -> tuple[str, ...]:
    return ("exposure_gap", "rank_exposure_gap", "representation_gap")


def test_epochs_are_chosen_where_the_goal_is_measured(toml: Path) -> None:
    for protocol in ("sampled", "full"):
        config, _ = load_goal(toml, [f"evaluation.protocol={protocol}"])
        assert config.evaluation.select_on == protocol


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if row.is_fair])
def test_every_fair_method_has_a_weight_to_search(toml: Path, name: str) -> None:
    config, _ = load_goal(toml, [f"method.name={name}"])
    scale = Scale(*METHODS[name].search_scale)
    for weight in (0.0, scale.start, scale.top):
        method = with_weight(config, weight).method
        assert getattr(method, METHODS[name].weight_key) == weight
        assert (method.c, method.c_relative).count(None) == 1
    assert (scale.top == 1) == (scale.factor is None)


def test_a_search_leaves_the_run_of_its_choice(searched: Searched) -> None:
    told, out = searched.told, searched.out
    assert json.loads((out / "search.json").read_text()) == told
    assert [one["weight"] for one in told["tries"]] == [1.0, 10.0]
    chosen = told["chosen"]["weight"]
    assert chosen == 1.0  # the larger one gives up on ranking
    assert load_config(out / "config.toml") == with_weight(searched.config, chosen)
    ours, tried = (load_tensors(one / "model.safetensors").tensors
                   for one in (out, out / told["chosen"]["run"]))  # fmt: skip
    assert all(torch.equal(ours[name], tried[name]) for name in ours)
    again = measure_run(open_run(out)).result["metrics"]
    assert again == json.loads((out / "metrics.json").read_text())["metrics"]
    whole = train_run(load_config(out / "config.toml"), out, resume=True)
    assert whole["metrics"] == again


@pytest.mark.slow
def test_figures_are_of_validation_lists_and_relative_to_colour_blind(
    searched: Searched,
) -> None:
    told, out = searched.told, searched.out
    blind = measure_run(open_run(out / "tries" / "colour-blind", {}), "validation").result
    assert blind["c_relative"] == 0
    for key, name in (("target", TARGET), ("keep", "ndcg@20")):
        base = blind["metrics"][name]["mean"]
        assert told["colour_blind"][key] == base
        for one in told["tries"]:
            own = measure_run(open_run(out / one["run"], {}), "validation").result
            assert own["metrics"][name]["mean"] == one[key]
            assert one[f"{key}_relative"] == pytest.approx(one[key] / base)


def test_test_lists_are_looked_at_for_the_chosen_and_the_colour_blind_run_alone(
    searched: Searched,
) -> None:
    told, out = searched.told, searched.out
    assert not list((out / "tries").rglob("before-*"))
    tested = {path.parent.name for path in out.rglob("metrics*.json")}
    assert tested == {out.name, "colour-blind"}
    means = json.loads((out / "metrics.json").read_text())["metrics"]
    assert told["test"]["chosen"]["target"] == means[TARGET]["mean"]
    found = collect(out)
    assert {result.run.name for result in found.results} == {out.name, "tries/colour-blind"}
    assert found.left_out == found.missing == []


class KilledError(Exception):
    """Ends a search as a kill would: nothing is saved on the way out."""


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_to_the_same_numbers(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, trained, steps = tmp_path / "out", [], 0

    def go_on(*, die_at: int, resume: bool = True) -> dict[str, Any]:
        nonlocal steps
        steps = 0

        def report(trainer: Any, record: Any) -> None:
            nonlocal steps
            steps += 1
            if steps == die_at:
                raise KilledError

        def progress(words: str) -> Any:
            trained.append(words)
            return nullcontext(Hooks(report=report))

        return search_weight(searched.config, searched.goal, out, resume=resume,
                     warmups=searched.warmups, progress=progress)  # fmt: skip

    for number, die_at in enumerate(
        (1, 7, 13)
    ):  # in its first epoch, a later one, the next try
        with pytest.raises(KilledError):
            go_on(die_at=die_at, resume=number > 0)
    settle = goal_tries.settle
    with monkeypatch.context() as patch:  # once the chosen run is in place, but not told of

        def settle_and_die(*given: Any) -> None:
            settle(*given)
            raise KilledError

        patch.setattr(goal_run, "settle", settle_and_die)
        with pytest.raises(KilledError):
            go_on(die_at=0)
    before = len(trained)
    assert go_on(die_at=0) == searched.told
    assert len(trained) == before  # nothing is trained again
    ours, theirs = (load_tensors(one / "model.safetensors").tensors
                    for one in (out, searched.out))  # fmt: skip
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_search_that_is_over_is_not_repeated_and_another_goal_is_refused(
    searched: Searched, toml: Path, tmp_path: Path
) -> None:
    def never(words: str) -> Any:
        raise AssertionError(words)

    kept = search_weight(
        searched.config, searched.goal, searched.out, resume=True, progress=never
    )
    assert kept == searched.told
    with pytest.raises(InputError, match="is not empty; go on with --resume"):
        search_weight(searched.config, searched.goal, searched.out)
    config, other = load_goal(toml, ["goal.runs=3"])
    with pytest.raises(InputError, match=r"another config or goal; see its goal\.toml"):
        search_weight(config, other, searched.out, resume=True)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="holds something else than a search"):
        search_weight(config, other, tmp_path, resume=True)


def untrained(words: str) -> Any:
    """Stand for a search that trains nothing."""
    raise AssertionError(words)


Edit = Callable[[dict[str, Any]], Any]
SEARCHES: dict[str, Edit] = {
    "another verdict": lambda told: told.update(reached=not told["reached"]),
    "another goal": lambda told: told["goal"]["target"].update(at_most=0.9),
    "another choice": lambda told: told.update(chosen={"weight": 10.0, "run": "tries/x"}),
    "another value": lambda told: told["tries"][0].update(target=1.0),
    "a try less": lambda told: told["tries"].pop(),
    "another end": lambda told: told.update(ended="flat"),
    "no chance level": lambda told: told["colour_blind"].pop("by_chance"),
    "a value relative to nothing": lambda told: told["tries"][0].update(target_relative=None),
    "another run": lambda told: told["identity"].update(run="0" * 32),
    "no identity": lambda told: told.pop("identity"),
    "another seed": lambda told: told.update(seed=7),
}


@pytest.mark.parametrize("fits", [True, False], ids=["resealed", "edited"])
@pytest.mark.parametrize("how", SEARCHES)
def test_an_edited_search_is_made_again_from_its_tries(
    searched: Searched, tmp_path: Path, how: str, fits: bool
) -> None:
    out = tmp_path / "out"
    shutil.copytree(searched.out, out)
    told = json.loads((out / "search.json").read_text())
    SEARCHES[how](told)
    (out / "search.json").write_text(json.dumps(sealed(told) if fits else told))
    again = search_weight(searched.config, searched.goal, out, resume=True, progress=untrained)
    assert again == searched.told == json.loads((out / "search.json").read_text())


def test_a_try_of_another_run_is_refused(searched: Searched, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(searched.out, out)
    (out / "search.json").unlink()
    first, second = (out / one["run"] / "validation.json" for one in searched.told["tries"])
    shutil.copy(second, first)
    with pytest.raises(InputError, match=r"validation\.json is of another run"):
        search_weight(searched.config, searched.goal, out, resume=True, progress=untrained)


def test_a_damaged_try_is_told_of_and_measured_again(
    searched: Searched, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(searched.out, out)
    (out / "search.json").unlink()
    path = out / searched.told["tries"][0]["run"] / "validation.json"
    path.write_text(path.read_text().replace('"finished": true', '"finished": false'))
    with pytest.raises(
        InputError, match=r"validation\.json is damaged; remove it, and --resume"
    ):
        search_weight(searched.config, searched.goal, out, resume=True, progress=untrained)
    path.unlink()
    assert search_weight(searched.config, searched.goal, out, resume=True) == searched.told


def test_a_weight_that_training_breaks_off_with_is_too_strong(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What weights give is made up: the gap halves at 0.1, and 1 breaks off."""
    blind = read_result(searched.out / "tries" / "colour-blind" / "validation.json", None)

    def made_up(folder: Any, weight: float) -> dict[str, Any]:
        if weight >= 1:
            raise TrainingError("a weight is no longer finite")
        means = {name: blind["metrics"][name]["mean"] for name in (TARGET, "ndcg@20")}
        means[TARGET] /= 1 + weight / 0.1
        cells = {name: {"mean": mean} for name, mean in means.items()}
        return {"c": None, "c_relative": weight, "metrics": cells}

    monkeypatch.setattr(goal_run, "measured", made_up)
    settled = (made_up(None, 0.1), made_up(None, 0.0))
    monkeypatch.setattr(goal_run, "settle", lambda folder, weight: settled)
    told = search_weight(searched.config, searched.goal, tmp_path / "out")
    assert [one["weight"] for one in told["tries"]] == [1.0, 0.1]
    assert told["tries"][0]["failure"] == "a weight is no longer finite"
    assert told["tries"][0]["target"] is None
    assert (told["reached"], told["ended"], told["chosen"]["weight"]) == (True, "enough", 0.1)
    assert told["test"]["chosen"]["target_relative"] == pytest.approx(0.5)


def told_of(*tries: tuple[float, float, float], chosen: float, **more: Any) -> dict[str, Any]:
    records = [
        {"weight": weight, "target": gap, "target_relative": gap, "keep": keep,
         "keep_relative": keep, "fair": gap <= 0.5, "accurate": keep >= 0.99}
        for weight, gap, keep in tries
    ]  # fmt: skip
    goal = {"target": {"metric": "reo@50", "at_most": 0.5}, "keep": {"at_least": 0.99}}
    return {
        "goal": goal, "accuracy": "ndcg@50", "parameter": "c", "part": "validation",
        "tries": records, "chosen": {"weight": chosen}, "reached": False, "ended": "runs",
        "colour_blind": {"target": 1.0, "by_chance": 0.2, "keep": 1.0}, **more,
    }  # fmt: skip


def test_the_verdict_says_how_far_and_why() -> None:
    told = told_of((1.0, 0.8, 1.0), (10.0, 0.48, 0.992), chosen=10.0, reached=True)
    assert verdict(told) == (
        "reached at c = 10: on validation lists reo@50 is 0.48 times that of the colour-blind "
        "model (goal: at most 0.5), ndcg@50 0.992 times (goal: at least 0.99)"
    )
    told = told_of((1.0, 0.8, 1.0), (10.0, 0.7, 0.9), chosen=1.0)
    assert verdict(told).startswith(
        "not reached: at c = 1, the best found, on validation lists reo@50 is 0.8 times"
    )
    assert verdict(told).endswith("; a larger c costs too much ndcg@50")
    flat = told_of((1.0, 0.8, 1.0), (10.0, 0.8, 1.0), chosen=1.0, ended="flat")
    assert verdict(flat).endswith("; the gap no longer falls as c rises")
    flat["colour_blind"]["by_chance"] = 0.7
    assert verdict(flat).endswith(", and the chance level is 0.7 times the gap")
    assert "; falling back to the colour-blind model" in verdict(
        told_of((1.0, 1.2, 1.0), chosen=0.0)
    )


def test_the_command_shows_what_was_tried_and_how_it_ended(
    searched: Searched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = searched.out
    words = ["train", str(out / "goal.toml"), "--out", str(out), "--resume"]
    monkeypatch.setattr(sys, "argv", ["fairtopk", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().out
    assert ended.value.code == (Exit.DONE if searched.told["reached"] else Exit.MISSED)
    assert verdict(searched.told) in said
    assert "on test lists, which the search did not use: " in said
    rows = [line.split("│")[1].strip() for line in said.splitlines() if line.startswith("│")]
    assert rows[:3] == ["0", *(f"{one['weight']:g}" for one in searched.told["tries"])]


@pytest.mark.parametrize(("reached", "code"), [(True, Exit.DONE), (False, Exit.MISSED)])
def test_a_missed_goal_ends_with_a_code_of_its_own(
    searched: Searched, reached: bool, code: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {**searched.told, "reached": reached}
    monkeypatch.setattr("fairtopk.runs.goal_run.search_weight", lambda *_, **__: told)
    out = searched.out
    words = ["train", str(out / "goal.toml"), "--out", str(out), "--resume"]
    monkeypatch.setattr(sys, "argv", ["fairtopk", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code


def test_ctrl_c_says_how_to_go_on(
    toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("FAIRTOPK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(goal_run, "measured", stopped)
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["fairtopk", "train", str(toml), "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    said = capsys.readouterr().out
    assert f"continue with: fairtopk train {out}/goal.toml --out {out} --resume" in said


def test_the_pages_have_every_key_of_a_goal() -> None:
    for page in ("config.md", "goal.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        for key in (*Goal.model_fields, "metric", "at_most", "at_least"):
            assert f"{key} = " in text
