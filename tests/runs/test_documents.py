"""Runs of documents with features: trained, resumed, measured again, reported, refused."""

import json
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import fairtopk as ft
from fairtopk.lists.queries import QueryLists
from fairtopk.models.scoring import score
from fairtopk.reporting.page import report
from fairtopk.reporting.results import collect
from fairtopk.runs.build import build_any_lists, build_model
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config, load_config
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import open_run
from fairtopk.runs.run import Hooks, train_run
from fairtopk.runs.trainer import AnyTrainer
from fairtopk.serving.export import export_run
from fairtopk.storage import load_tensors

DPR = {"batches": 1, "samples": 100}
GAME = {"rounds": 2, "iterations": 5}
METHODS: dict[str, dict[str, Any]] = {
    "k-song": {},
    "sl-at-k": {},
    "kso-red": {"c_relative": 2.0},
    "dpr-rsp": {"dpr": DPR},
    "robust": {"robust": GAME},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lists of 14 to 23 documents as LETOR text, whose third feature tells the groups apart."""
    path = tmp_path_factory.mktemp("data") / "docs.txt"
    documents = ft.make_documents(50, 23)
    kept = np.arange(len(documents.y)) % 23 < 14 + documents.qid % 10
    lines = [
        f"{y:g} qid:{q} {' '.join(f'{place}:{value:.4f}' for place, value in enumerate(x, 1))}"
        for x, y, q, inside in zip(documents.x, documents.y, documents.qid, kept, strict=True)
        if inside
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def config(file: Path, method: str = "kso-red", model: str = "linear", **more: Any) -> Config:
    values: dict[str, Any] = {
        "data": {
            "source": "letor",
            "path": str(file),
            "groups": {"column": "f3", "at_least": 0.5},
        },
        "model": {"name": model, "hidden": [8]},
        "method": {"name": method, "k": 5, **METHODS[method]},
        "training": {"warmup_epochs": 2, "epochs": 3, "batch_size": 10, "rate": 0.05},
        "evaluation": {"k": [3, 5]},
    }
    for table, changes in more.items():
        values[table] = values[table] | changes
    return check_config(values, "test")


def metrics(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "metrics.json").read_text())["metrics"]
    return found


def same(first: Path, second: Path) -> bool:
    ours, theirs = (load_tensors(out / "model.safetensors").tensors for out in (first, second))
    equal = all(torch.equal(ours[name], theirs[name]) for name in ours)
    return equal and metrics(first) == metrics(second)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("k-song", "attention"),
        ("sl-at-k", "linear"),
        ("kso-red", "linear"),
        ("kso-red", "mlp"),
        ("dpr-rsp", "mlp"),
        ("robust", "linear"),
        ("robust", "attention"),
    ],
)
def test_a_run_stopped_anywhere_goes_on_to_the_same_bits_and_is_measured_again(
    file: Path, tmp_path: Path, method: str, model: str
) -> None:
    settings, whole, parts = config(file, method, model), tmp_path / "a", tmp_path / "b"
    result = train_run(settings, whole)
    assert result["protocol"] == "whole"
    stops = [2, 7]

    def stop(trainer: AnyTrainer, record: dict[str, Any] | None) -> None:
        if stops and trainer.progress.total >= stops[0]:
            stops.pop(0)
            signal.raise_signal(signal.SIGINT)  # Ctrl-C

    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt):
            train_run(settings, parts, hooks=Hooks(report=stop), resume=resume)
    train_run(settings, parts, resume=True)
    assert same(whole, parts)
    again = measure_run(open_run(whole))
    assert again.result["metrics"] == result["metrics"]
    assert load_config(whole / "config.toml") == settings
    names = {"config.toml", "metrics.json", "log.jsonl", "provenance.json"}
    names |= {"model.safetensors", "state.safetensors", "per_query.safetensors"}
    assert names <= {path.name for path in whole.iterdir()}


@pytest.mark.slow
def test_a_penalty_lowers_the_gap_and_needs_no_groups_to_score(
    file: Path, tmp_path: Path
) -> None:
    longer = {"warmup_epochs": 5, "epochs": 25}
    found = {}
    for method in ("k-song", "kso-red"):
        out = tmp_path / method
        train_run(config(file, method, training=longer), out, warmups=tmp_path / "warm")
        found[method] = metrics(out)
    # One warm-up of both, and K-SONG, which others may start from.
    assert len(list((tmp_path / "warm").iterdir())) == 2
    gaps = {name: abs(one["rank_exposure_gap_signed@5"]["mean"]) for name, one in found.items()}
    assert gaps["kso-red"] < 0.7 * gaps["k-song"]
    assert found["k-song"]["ndcg@5"]["mean"] > 0.9
    trained = open_run(tmp_path / "kso-red")
    assert isinstance(trained.lists, QueryLists)
    batch = trained.lists.test.batches()[0]
    blind = batch._replace(group=torch.full_like(batch.group, -1))
    assert torch.equal(score(trained.scorer, batch), score(trained.scorer, blind))


def test_queries_are_held_out_as_the_seed_says_and_the_scale_is_that_of_training(
    file: Path,
) -> None:
    settings = config(file, data={"test": 0.3, "validation": 0.1})
    lists = build_any_lists(settings.data, seed=0)
    assert isinstance(lists, QueryLists)
    sizes = [len(part.user) for part in (lists.train, lists.validation, lists.test)]
    assert sizes == [30, 5, 15]
    other = build_any_lists(settings.data, seed=1)
    assert not np.array_equal(other.part, lists.part)
    assert (build_any_lists(settings.data, seed=0).part == lists.part).all()
    scorer = build_model(settings, lists)
    rows = np.isin(lists.data.query_of_row(), lists.train.user)
    mean = torch.from_numpy(lists.data.values[rows].mean(0))
    torch.testing.assert_close(scorer.scorer.scale.mean, mean)  # type: ignore[union-attr]


@pytest.mark.slow
def test_documents_and_users_are_reported_side_by_side(file: Path, tmp_path: Path) -> None:
    for method in ("k-song", "kso-red", "robust"):
        train_run(config(file, method), tmp_path / "runs" / method)
    ids = check_config(
        {
            "method": {"name": "listnet", "k": 5},
            "model": {"name": "mf", "width": 4},
            "training": {"warmup_epochs": 0, "epochs": 1},
            "evaluation": {"k": 5},
        },
        "test",
    )
    data = ft.make_synthetic(ft.SyntheticShape(40, 60, 900)).data
    train_run(ids, tmp_path / "runs" / "ids", lists=ft.split(data, test=2, validation=2))
    found = [(one.run.name, one.lists) for one in collect(tmp_path / "runs").results]
    assert [lists["protocol"] for name, lists in found if name == "ids"] == ["sampled", "full"]
    documents = {name: lists for name, lists in found if name != "ids"}
    assert len(found) == 2 + len(documents)  # which have one protocol
    assert documents["k-song"] == documents["kso-red"]
    page = report(tmp_path / "runs").read_text(encoding="utf-8")
    assert "letor, test, whole lists" in page
    assert "letor, test, whole lists: left out" not in page
    compared = ft.compare(tmp_path / "runs/k-song", tmp_path / "runs/kso-red")
    assert "ndcg@5" in compared.metrics


def test_what_takes_users_and_items_refuses_a_run_of_documents(
    file: Path, tmp_path: Path
) -> None:
    train_run(config(file), tmp_path / "run")
    with pytest.raises(ft.InputError, match="was trained on documents with features, and this"):
        _ = open_run(tmp_path / "run").user_lists
    with pytest.raises(ft.InputError, match=r"ranked in whole lists; leave out .*, got 'full'"):
        measure_run(open_run(tmp_path / "run", {"protocol": "full"}))
    file_b = tmp_path / "other.txt"
    file_b.write_text(file.read_text().replace("0.1", "0.2"))
    with pytest.raises(ft.InputError, match="the data is not what"):
        measure_run(open_run(tmp_path / "run", data=file_b))
    moved = tmp_path / "moved.txt"
    moved.write_text(file.read_text())
    assert measure_run(open_run(tmp_path / "run", data=moved)).result["metrics"] == metrics(
        tmp_path / "run"
    )


@pytest.mark.slow
@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs the extra export")
@pytest.mark.parametrize("model", ["linear", "attention"])
def test_an_exported_model_scores_documents_like_the_run_and_has_a_card(
    file: Path, tmp_path: Path, model: str
) -> None:
    train_run(config(file, model=model), tmp_path / "run")
    exported = export_run(tmp_path / "run", tmp_path / "m.onnx")
    assert exported.off < 1e-5
    names = ["m.features.parquet", "m.md", "m.onnx"]
    assert [path.name for path in exported.files] == names
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    assert [one.name for one in session.get_inputs()] == ["features"]
    trained = open_run(tmp_path / "run")
    assert isinstance(trained.lists, QueryLists)
    batch = trained.lists.test.batches()[0]
    expected = score(trained.scorer, batch)
    for row, inside in enumerate(batch.mask):
        values = trained.lists.data.values[batch.item[row][inside].numpy()]
        (found,) = session.run(None, {"features": values})
        np.testing.assert_allclose(found, expected[row][inside], atol=1e-5)
    card = (tmp_path / "m.md").read_text()
    assert "**It takes no group input**" in card
    assert "Protocol whole: all documents of each test query." in card
    assert "To order the documents of a list by the score" in card
    assert "Features must mean what they meant in the training data" in card
    assert "fairtopk recommend" not in card
    assert str(file.parent) not in card
    assert pl.read_parquet(tmp_path / "m.features.parquet")["id"].to_list() == [
        "f1", "f2", "f3", "f4",
    ]  # fmt: skip


def test_robust_is_not_exported(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    train_run(config(file, "robust"), tmp_path / "run")
    with pytest.raises(ft.InputError, match="robust needs groups when it ranks: it cannot be"):
        export_run(tmp_path / "run", tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_columns_of_a_table_may_be_features(tmp_path: Path) -> None:
    x, y, qid, groups = ft.make_documents(20, 8)
    rows = [
        f"{q},{grade:g},{a:.3f},{b:.3f},{label}"
        for (a, b, *_), grade, q, label in zip(x, y, qid, groups, strict=True)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["q,y,a,b,kind", *rows]) + "\n")
    data = {
        "source": "csv",
        "path": str(tmp_path / "a.csv"),
        "groups": {"column": "kind", "equals": "minor"},
        "options": {"query": "q", "relevance": "y", "features": ["a", "b"]},
    }
    settings = check_config({"data": data, "method": {"name": "listnet", "k": 3},
                             "training": {"epochs": 2}}, "test")  # fmt: skip
    assert settings.model.name == "linear"
    train_run(settings, tmp_path / "run")
    assert metrics(tmp_path / "run")["ndcg@3"]["n"] == 4


def test_what_is_left_out_is_what_suits_documents_and_the_model() -> None:
    for model, rate in ((None, 0.01), ("linear", 0.01), ("mlp", 0.001)):
        values = {"data": {"source": "letor"}, "method": {"name": "listnet"}}
        found = check_config(values | ({"model": {"name": model}} if model else {}), "here")
        assert (found.training.rate, found.training.warmup_rate) == (rate, rate)
        assert (found.training.batch_size, found.method.k) == (32, 10)
        assert (found.data.test, found.data.split) == (0.2, "random")
        assert (found.evaluation.protocol, found.evaluation.k) == ("whole", (5, 10, 20))
        text = dump_config(found)
        assert 'protocol = "whole"' in text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": {"name": "mf"}}, "scores users and items, and letor holds documents"),
        ({"data": {"test": 5}}, "data.test and data.validation are shares of the queries"),
        ({"data": {"split": "time"}}, "queries are held out at random; leave out data.split"),
        ({"data": {"min_ratings": 3}}, "queries are held out at random"),
        ({"evaluation": {"protocol": "full"}}, "documents are ranked in whole lists"),
        ({"data": {"source": "synthetic"}}, "model.name = 'linear' scores documents"),
    ],
)
def test_what_does_not_go_with_the_data_is_refused(
    change: dict[str, dict[str, Any]], sentence: str
) -> None:
    values: dict[str, Any] = {
        "data": {"source": "letor"}, "model": {"name": "linear"}, "method": {"name": "listnet"},
    }  # fmt: skip
    for table, keys in change.items():
        values[table] = values.get(table, {}) | keys
    with pytest.raises(ft.InputError, match=sentence):
        check_config(values, "here")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"test": 0.5}}, "data.test is a number of ratings of each user, at least 1"),
        ({"evaluation": {"protocol": "whole"}}, "sampled or full, got 'whole'"),
        ({"model": {"name": "mlp"}}, "and synthetic holds users and items"),
    ],
)
def test_nor_is_what_goes_with_documents_alone(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ft.InputError, match=sentence):
        check_config({"method": {"name": "listnet"}} | change, "here")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "-1 qid:1 1:1\n0 qid:2 1:1\n0 qid:3 1:2\n0 qid:4 1:2\n0 qid:5 1:2\n",
            "line 1: relevance must lie between 0",
        ),
        (
            "101 qid:1 1:1\n0 qid:2 1:1\n0 qid:3 1:2\n0 qid:4 1:2\n0 qid:5 1:2\n",
            "between 0 and 100, got 101",
        ),
        ("1 qid:1 1:1\n0 qid:2 1:2\n", "letor has 2 queries, too few for shares of 0.2 and"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "a.txt").write_text(text)
    data = {"source": "letor", "path": str(tmp_path / "a.txt")}
    settings = check_config({"data": data, "method": {"name": "listnet"}}, "test")
    with pytest.raises(ft.InputError, match=sentence):
        train_run(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_fair_method_needs_groups(file: Path, tmp_path: Path) -> None:
    settings = config(file, data={"groups": None})
    with pytest.raises(ft.InputError, match="kso-red needs items in at least two groups"):
        train_run(settings, tmp_path / "run")


def test_the_example_runs_on_any_letor_file(file: Path, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "letor.toml"
    changes = [f"data.path={file}", "data.groups={ column = 'f3', at_least = 0.5 }"]
    settings = load_config(example, [*changes, "training.epochs=1", "training.warmup_epochs=1"])
    train_run(settings, tmp_path / "run")
    lists = build_any_lists(settings.data, seed=settings.seed)
    assert open_run(tmp_path / "run", load=lambda *_: lists).scorer.training is False
