"""Re-rankers beside a trained run: the same lists, the same K, in the same report."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Run

import fairtopk as ft
from fairtopk.errors import InputError
from fairtopk.reporting.curves import views_of
from fairtopk.reporting.page import sweep_page
from fairtopk.reporting.results import collect, with_reranked
from fairtopk.reranking.request import RerankRequest
from fairtopk.reranking.rerank import RERANKERS
from fairtopk.runs.config_file import check_config
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import OpenRun, open_run
from fairtopk.runs.result import metrics_name
from fairtopk.runs.run import train_run
from fairtopk.storage import load_tensors

K = 10


def config(method: dict[str, Any]) -> Any:
    return check_config(
        {
            "data": {"source": "synthetic", "options": {"bias": 4.0}},
            "model": {"name": "mf", "width": 4},
            "method": {"k": K, **method},
            "training": {
                "warmup_epochs": 1, "warmup_rate": 0.01, "epochs": 0,
                "restart_last_layer": False,
            },
            "evaluation": {"k": [K, 20], "unrated": 50},
        },
        "test",
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A colour-blind run and one with a penalty."""
    folder = tmp_path_factory.mktemp("runs")
    train_run(config({"name": "k-song"}), folder / "blind")
    train_run(config({"name": "kso-red", "c": 1.0}), folder / "fair")
    return folder


@pytest.fixture(scope="module")
def blind(runs: Path) -> OpenRun:
    return open_run(runs / "blind")


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "rerank")


@pytest.mark.parametrize("method", RERANKERS)
def test_every_method_reduces_the_gap_of_the_same_lists(method: str, blind: OpenRun) -> None:
    options = {"group-bonus": {"bonus": 0.04}, "fa-ir": {"alpha": 0.5}}.get(method, {})
    found = measure_run(blind, rerank=RerankRequest(method, None, options))
    before, after = measure_run(blind).values, found.values
    assert before.keys() == after.keys()
    gap = f"rank_exposure_gap_signed@{K}"
    assert float(before[gap].nanmean()) < -0.01
    assert abs(float(after[gap].nanmean())) < 0.8 * abs(float(before[gap].nanmean()))
    result = found.result
    assert result["method"] == f"k-song + {method}"
    assert result["needs_labels_when_serving"] is True
    assert result["reranked"]["k"] == K
    assert result["metrics"].keys() == json.loads(
        (blind.out / "metrics.json").read_text()
    )["metrics"].keys()  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["sampled", "full"])
@pytest.mark.parametrize("part", ["test", "validation"])
def test_a_re_ranker_that_changes_nothing_has_the_numbers_of_the_run(
    protocol: str, part: str, runs: Path
) -> None:
    run = open_run(runs / "blind")
    own = measure_run(run, part, protocol)
    found = measure_run(run, part, protocol, RerankRequest("group-bonus", None, {"bonus": 0.0}))
    for name, values in own.values.items():
        if name == "group_auc":  # of equal scores it counts half, and none are equal any more
            continue
        torch.testing.assert_close(
            found.values[name].double(),
            values.double(),
            equal_nan=True,
            rtol=1e-4,
            atol=1e-6,
        )
    floors = found.context.floors
    assert floors.keys() == own.context.floors.keys()
    for name, floor in floors.items():
        assert tuple(floor) == pytest.approx(tuple(own.context.floors[name]), rel=1e-6)


@pytest.mark.slow
def test_blocks_of_users_change_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = RerankRequest("exposure-lp", 3, {})
    opened = open_run(runs / "blind", {"protocol": "full"})
    expected = measure_run(opened, rerank=asked).values
    monkeypatch.setattr("fairtopk.runs.measure.BLOCK_CELLS", 300 * 800)
    found = measure_run(opened, rerank=asked).values
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, equal_nan=True)


def test_groups_are_named_as_in_the_data(blind: OpenRun) -> None:
    named = measure_run(
        blind, rerank=RerankRequest("det-greedy", K, {"targets": {"a": 0.3}}, "mark")
    )
    assert named.result["reranked"]["settings"] == {
        "targets": {"0": 0.3}, "rounding": "down", "seed": 0,
    }  # fmt: skip
    shares = named.values[f"representation_gap_signed@{K}"]
    assert float(shares.nanmean()) > 0
    with pytest.raises(InputError, match="no group is called 'c': the groups are a, b"):
        measure_run(blind, rerank=RerankRequest("fa-ir", K, {"group": "c"}))


def test_lists_that_cannot_have_it_are_refused_or_marked(blind: OpenRun) -> None:
    sentence = r"^det-cons: user \S+ has \d+ items of 'a' where its top 50 needs 45; lower its "
    asked = RerankRequest("det-cons", 50, {"targets": {"a": 0.9}})
    with pytest.raises(InputError, match=sentence):
        measure_run(blind, rerank=asked)
    marked = measure_run(blind, rerank=asked._replace(infeasible="mark"))
    assert marked.result["reranked"]["unmet"] == 1_000


def test_merit_of_a_model_that_scores_below_0_is_refused(blind: OpenRun) -> None:
    with pytest.raises(InputError, match="scores of the model are below 0; use --notion"):
        measure_run(blind, rerank=RerankRequest("exposure-lp", K, {"notion": "impact"}))


@pytest.mark.slow
def test_no_two_requests_have_one_file(blind: OpenRun) -> None:
    requests = [
        RerankRequest("group-bonus", K, {"bonus": 0.5}),
        RerankRequest("group-bonus", K, {"bonus": -0.5}),
        RerankRequest("group-bonus", K, {"bonus": 0.5, "group": "b"}),
        RerankRequest("group-bonus", 20, {"bonus": 0.5}),
        RerankRequest("det-cons", K, {"targets": {"a": 0.2}}),
        RerankRequest("det-cons", K, {"targets": {"b": 0.2}}),
        RerankRequest("det-cons", K, {}),
    ]
    names = {metrics_name(measure_run(blind, rerank=one).result) for one in requests}
    assert len(names) == len(requests)


def test_files_of_many_shares_have_names_that_can_be_written() -> None:
    def name(last: float) -> str:
        shares = {str(group): 1 / 30 for group in range(29)} | {"29": last}
        record = {"method": "det-cons", "k": K, "settings": {"targets": shares}}
        return metrics_name({"reranked": record, "protocol": "sampled", "part": "test"})

    assert len(name(0.01)) < 200
    assert name(0.01) != name(0.02)


def test_shares_without_names_of_groups_are_refused() -> None:
    with pytest.raises(InputError, match=r"^det-cons: targets must be shares by name of a gr"):
        RerankRequest("det-cons", K, {"targets": [0.3, 0.7]}).checked()


def test_the_command_writes_results_that_a_report_shows_beside_the_runs(
    run: Callable[..., tuple[Any, str, str]], runs: Path
) -> None:
    code, stdout, stderr = run(runs / "blind", "--method", "det-const-sort")
    assert code == 0, stderr
    assert "det-const-sort needs group labels when serving" in stdout
    assert "k-song + det-const-sort on synthetic" in stdout
    code, stdout, stderr = run(runs / "blind", "--method", "group-bonus", "--bonus", "0.25,0.5")
    assert code == 0, stderr
    assert stdout.count("written to") == 2
    assert run(runs / "fair", "--method", "fa-ir", "--protocol", "full")[0] == 0

    trained = collect(runs)
    assert [result.run.method for result in trained.results] == [  # by both protocols
        "k-song", "k-song", "kso-red", "kso-red",
    ]  # fmt: skip
    sweep = with_reranked(runs, trained)
    assert sweep.missing == trained.missing
    mark = "(needs group labels when serving)"
    sampled, full = views_of(sweep.results)
    assert sampled.base is not None
    assert sampled.base.name == "k-song"
    assert {curve: [p.label for p in points] for curve, points in sampled.curves.items()} == {
        "k-song": [""],
        f"k-song + det-const-sort {mark}": ["k = 10"],
        f"k-song + group-bonus {mark}": ["bonus = 0.25", "bonus = 0.5"],
        "kso-red": ["C = 1"],
    }
    assert list(full.curves) == ["k-song", "kso-red", f"kso-red + fa-ir {mark}"]
    page = sweep_page(sweep, [sampled, full], {})
    assert f"k-song + det-const-sort {mark}" in page
    assert "▼" in page  # tested against the colour-blind run, user by user

    (kept,) = (runs / "blind").glob("rerank-det-const-sort*.json")
    changed = ft.compare(runs / "blind", kept)
    assert changed.metrics[f"rank_exposure_gap@{K}"].difference < 0
    (values,) = (runs / "blind").glob("per_query-rerank-det-const-sort*")
    assert load_tensors(values).about["data"] == "synthetic-1000x800-bias-4-seed-0"


def test_the_page_tells_how_many_lists_have_not_what_was_asked_for(
    blind: OpenRun, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(blind.out, runs / "blind", ignore=shutil.ignore_patterns("*rerank-*"))
    asked = RerankRequest("det-cons", 50, {"targets": {"a": 0.9}}, "mark")
    found = measure_run(blind, rerank=asked)
    found.save(runs / "blind" / found.name)
    sweep = with_reranked(runs, collect(runs))
    (line,) = sweep.missing
    assert line.startswith("blind: 1,000 of 1,000 lists of rerank-det-cons-targets")
    assert line in sweep_page(sweep, views_of(sweep.results), {})


@pytest.mark.parametrize("content", ["{", '{"reranked": null}'])
def test_a_damaged_result_is_told_and_left_out(runs: Path, content: str) -> None:
    damaged = runs / "fair" / "rerank-x.json"
    damaged.write_text(content)
    sweep = with_reranked(runs, collect(runs))
    damaged.unlink()
    assert "fair: rerank-x.json cannot be read: it is left out." in sweep.missing


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--query", "x"], "--query is for a table; leave it out for a run"),
        (["--local-items"], "--local-items is for a table; leave it out for a run"),
        (["--part", "train"], "part must be test or validation, got 'train'"),
        (["--protocol", "half"], "evaluation.protocol"),
        (["--data", "x.csv"], "is not from a file; leave out its new place"),
        (["--out", "x.csv"], "x.csv must end in .json"),
    ],
)
def test_a_wrong_word_gets_one_sentence(
    words: list[str], sentence: str, run: Callable[..., tuple[Any, str, str]], runs: Path
) -> None:
    code, _, stderr = run(runs / "blind", "--method", "det-cons", *words)
    assert code == 2
    (line,) = stderr.splitlines()
    assert sentence in line


def test_a_folder_without_a_run_is_told(
    run: Callable[..., tuple[Any, str, str]], tmp_path: Path
) -> None:
    code, _, stderr = run(tmp_path, "--method", "det-cons")
    assert code == 2
    assert "holds no run; give the folder that train wrote" in stderr
