"""`fairtopk recommend` and `fairtopk export` as a user meets them."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import Run
from torch import nn

from fairtopk.models.scoring import score
from fairtopk.runs.config_file import check_config
from fairtopk.runs.measure import measure_run
from fairtopk.runs.open import open_run
from fairtopk.runs.result import measured_ks
from fairtopk.runs.run import train_run
from fairtopk.serving import export as exported_files
from fairtopk.serving import export as exporting
from fairtopk.serving import recommend as recommended
from fairtopk.serving.model_card import model_card
from fairtopk.serving.recommend import catalogue_of, recommend
from fairtopk.storage import load_tensors

needs_onnx = pytest.mark.skipif(
    any(exporting.find_spec(name) is None for name in exporting.NEEDED),
    reason="onnx, onnxruntime and onnxscript are not installed",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on a table whose ids are text and numbers."""
    folder = tmp_path_factory.mktemp("trained")
    user, item = (part.ravel() for part in np.mgrid[:30, :25])
    generator = np.random.default_rng(0)
    keep = generator.random(len(user)) < 0.6
    table = {
        "user": [f"u{one}" for one in user],
        "item": 100 + item,
        "rating": generator.integers(1, 6, len(user)),
        "time": generator.integers(0, 99, len(user)),
        "kind": ["odd|one" if one % 3 == 0 else "even" for one in item],
    }
    pl.DataFrame(table).filter(keep).write_csv(folder / "ratings.csv")
    config = {
        "data": {
            "source": "csv",
            "path": str(folder / "ratings.csv"),
            "groups": {"column": "kind", "equals": "odd|one"},
            "options": {"user": "user", "item": "item", "time": "time"},
            "test": 2,
            "validation": 2,
        },
        "model": {"width": 4, "hidden": [4]},
        "method": {"name": "kso-red", "k": 5, "c_relative": 1.0},
        "training": {"warmup_epochs": 1, "epochs": 1, "lists": {"rated": 2, "unrated": 9}},
        "evaluation": {"k": [5, 10]},
    }
    train_run(check_config(config, "test"), folder / "run")
    return folder / "run"


def test_a_run_tells_how_well_groups_can_be_told_from_its_scores(trained: Path) -> None:
    run = open_run(trained)
    config, lists, scorer = run.config, run.user_lists, run.scorer
    expected = []
    for batch in lists.test.batches(unrated=config.evaluation.unrated, seed=0):
        for scores, group, mask in zip(
            score(scorer, batch), batch.group, batch.mask, strict=True
        ):
            named, rest = scores[mask & (group == 0)], scores[mask & (group == 1)]
            pairs = named[:, None] - rest
            expected.append(((pairs > 0).double() + (pairs == 0).double() / 2).mean().item())
    found = json.loads((trained / "metrics.json").read_text())["metrics"]["group_auc"]
    assert found["mean"] == pytest.approx(np.nanmean(expected), abs=1e-6)
    assert found["n"] == np.isfinite(expected).sum()
    kept = load_tensors(trained / "per_query.safetensors").tensors["group_auc"]
    assert kept.tolist() == pytest.approx(expected, abs=1e-6, nan_ok=True)
    full = measure_run(open_run(trained, {"protocol": "full"}))
    assert "group_auc" not in full.result["metrics"]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_all_users_get_their_items_in_a_file_of_either_kind(
    run: Run, trained: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommended, "ROWS", 20)
    monkeypatch.setattr("fairtopk.serving.recommend.BLOCK", 7)
    out = tmp_path / "new" / f"recs.{kind}"
    ended = run("recommend", trained, "--k", "3", "--out", out)
    assert ended.code == 0, ended.stderr
    assert "14 of 30 users" in ended.stdout
    assert f"90 items for 30 users; written to {out}" in ended.stdout
    found = pl.read_parquet(out) if kind == "parquet" else pl.read_csv(out)
    run = open_run(trained)
    lists, scorer = run.user_lists, run.scorer
    expected = recommend(scorer, catalogue_of(lists), k=3)
    assert found.columns == ["user", "item", "rank", "score", "fallback"]
    assert found.drop("score").cast({"rank": pl.Int32}).equals(expected.drop("score"))
    assert found["score"].to_numpy() == pytest.approx(expected["score"].to_numpy(), rel=1e-6)
    rated = lists.data.to_frame().select("user", "item")
    assert found.join(rated, on=["user", "item"]).is_empty()
    assert [file.name for file in out.parent.iterdir()] == [out.name]


def test_rated_items_come_along_if_asked_for(run: Run, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "recs.parquet"
    assert run("recommend", trained, "--k", "25", "--include-rated", "--out", out).code == 0
    assert len(pl.read_parquet(out)) == 30 * 25


def test_more_items_than_there_are_is_told(run: Run, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "recs.parquet"
    n_items = open_run(trained).user_lists.data.n_items
    for k, told in ((n_items, False), (n_items + 1, True)):
        ended = run("recommend", trained, "--k", str(k), "--include-rated", "--out", out)
        assert ended.code == 0, ended.stderr
        assert (f"--k is {k}, but there are only {n_items} items" in ended.stdout) == told
        assert len(pl.read_parquet(out)) == 30 * n_items


def write_users(path: Path, ids: list[str]) -> Path:
    frame = pl.DataFrame({"who": ids, "other": range(len(ids))})
    if path.suffix == ".csv":
        frame.write_csv(path)
    elif path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        path.write_text("\n".join(ids) + "\n\n", encoding="utf-8-sig")
    return path


@pytest.mark.parametrize("name", ["users.csv", "users.parquet", "users.txt", "users"])
def test_users_are_named_in_a_file_of_any_kind_and_unknown_ones_are_marked(
    run: Run, trained: Path, tmp_path: Path, name: str
) -> None:
    users = write_users(tmp_path / name, ["u7", "née", "u2", "u7"])
    out = tmp_path / "recs.parquet"
    words = ["--users", users, "--column", "who", "--k", "2", "--out", out]
    ended = run("recommend", trained, *words)
    assert ended.code == 0, ended.stderr
    assert (
        "6 items for 3 users, 1 of them unknown (they get the most rated items)" in ended.stdout
    )
    found = pl.read_parquet(out)
    assert found["user"].to_list() == ["u7", "u7", "née", "née", "u2", "u2"]
    assert found.filter("fallback")["user"].to_list() == ["née", "née"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{tmp}", "--out", "{tmp}/r.csv"], "{tmp} holds no run; give the folder"),
        (["{run}", "--k", "0", "--out", "{tmp}/r.csv"], "k must be at least 1"),
        (["{run}", "--k", "x", "--out", "{tmp}/r.csv"], "Invalid value for '--k'"),
        (["{run}", "--out", "{tmp}/r.xlsx"], "r.xlsx must end in .csv or .parquet"),
        (["{run}", "--out", "{tmp}/folder.csv"], "folder.csv is a folder; name a file"),
        (["{run}", "--out", "{tmp}/bad.txt/r.csv"], "cannot be written: {tmp}/bad.txt is a"),
        (["{run}"], "Missing option '--out'"),
        (["{run}", "--users", "{tmp}/none.csv"], "none.csv does not exist"),
        (["{run}", "--users", "{tmp}/none.txt"], "none.txt does not exist; check the path"),
        (["{run}", "--users", "{tmp}/folder.csv"], "folder.csv is a folder; give the file"),
        (["{run}", "--users", "{tmp}/users.json"], "users.json must end in .csv, .parquet or"),
        (
            ["{run}", "--users", "{tmp}/who.csv"],
            "who.csv has no column 'user': its columns are",
        ),
        (["{run}", "--users", "{tmp}/null.csv"], "null.csv, line 3: user is missing"),
        (["{run}", "--users", "{tmp}/bad.txt"], "bad.txt is not UTF-8"),
        (["{run}", "--users", "{tmp}/bad.parquet"], "bad.parquet is not a readable Parquet"),
        (["{run}", "--users", "{tmp}/empty.txt"], "empty.txt holds no ids"),
        (["{run}", "--data", "{tmp}/who.csv"], "who.csv has no column"),
    ],
)
def test_a_wrong_word_gets_one_sentence_and_leaves_nothing(
    run: Run, trained: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "who.csv").write_text("who,other\na,1\n")
    (tmp_path / "null.csv").write_text("user,other\na,1\n,2\n")
    (tmp_path / "bad.txt").write_bytes(b"\xff\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty.txt").write_text("\n")
    before = sorted(tmp_path.rglob("*"))
    given = [word.format(tmp=tmp_path, run=trained) for word in words]
    if len(given) == 3 and "--out" not in given:
        given += ["--out", str(tmp_path / "r.csv")]
    ended = run("recommend", *given)
    assert ended.code == 2
    (line,) = ended.stderr.splitlines()
    assert sentence.format(tmp=tmp_path) in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["recommend", "export"])
def test_a_truncated_model_and_other_data_are_refused_in_one_sentence(
    run: Run, trained: Path, tmp_path: Path, command: str
) -> None:
    copy = shutil.copytree(trained, tmp_path / "copy")
    out = ["--out", tmp_path / "r.csv"] if command == "recommend" else [tmp_path / "m.onnx"]
    other = tmp_path / "other.csv"
    lines = (trained.parent / "ratings.csv").read_text().splitlines()
    other.write_text("\n".join(lines[:-1]) + "\n")
    ended = run(command, copy, *out, "--data", other)
    assert "the data is not what" in ended.stderr
    model = copy / "model.safetensors"
    model.write_bytes(model.read_bytes()[:200])
    ended = run(command, copy, *out)
    assert (ended.code, len(ended.stderr.splitlines())) == (2, 1)
    assert "model.safetensors is damaged" in ended.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy", "other.csv"]


def test_what_is_read_is_not_written_over(run: Run, trained: Path, tmp_path: Path) -> None:
    users = write_users(tmp_path / "users.csv", ["1"])
    before = users.read_text()
    ended = run("recommend", trained, "--users", users, "--column", "who", "--out", users)
    assert ended.code == 2
    assert "is one of the files that are read; name another file" in ended.stderr
    assert users.read_text() == before


def test_a_text_that_is_no_card_is_not_written_over(
    run: Run, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("mine")
    ended = run("export", trained, tmp_path / "README.onnx")
    assert ended.code == 2
    assert "is of no earlier export; choose another name" in ended.stderr
    assert (tmp_path / "README.md").read_text() == "mine"


def test_ids_that_a_spreadsheet_would_run_are_guarded_on_request(
    run: Run, trained: Path, tmp_path: Path
) -> None:
    users, out = tmp_path / "users.txt", tmp_path / "recs.csv"
    users.write_text("=1+1\nu1\n")
    for words, first in ((["--csv-safe"], "'=1+1"), ([], "=1+1")):
        ended = run("recommend", trained, "--users", users, "--k", "2", "--out", out, *words)
        assert ended.code == 0, ended.stderr
        assert pl.read_csv(out)["user"].to_list() == [first, first, "u1", "u1"]
    ended = run("recommend", trained, "--out", tmp_path / "r.parquet", "--csv-safe")
    assert (ended.code, "--csv-safe is for .csv files" in ended.stderr) == (2, True)


def test_names_on_a_card_are_text_and_nothing_else(trained: Path) -> None:
    run = open_run(trained)
    config, lists = run.config, run.user_lists
    name = '<img src=x onerror="a()">|[a](b)`\n# c'
    data = replace(lists.data, name=name, group_names=[name, *lists.data.group_names[1:]])
    card = model_card(name, config, replace(lists, data=data), None, off=0.0)
    assert "<" not in card.replace("<br>", "")
    assert "[a](b)" not in card
    assert sum(line.startswith("# ") for line in card.splitlines()) == 1
    (row,) = [line for line in card.splitlines() if line.startswith("| &lt;img")]
    assert re.sub(r"\\.", "", row).count("|") == 3


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    exported_files.export_run(trained, folder / "small.onnx")
    return folder


@pytest.mark.slow
@needs_onnx
def test_a_model_is_exported_with_its_ids_and_its_card(exported: Path) -> None:
    names = ["small.items.parquet", "small.md", "small.onnx", "small.users.parquet"]
    assert sorted(file.name for file in exported.iterdir()) == names


@pytest.mark.slow
@needs_onnx
def test_scores_by_the_exported_ids_are_those_of_recommend(
    trained: Path, exported: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(exported / "small.onnx")
    assert [one.name for one in session.get_inputs()] == ["user", "item"]
    users, items = (
        pl.read_parquet(exported / f"small.{n}.parquet") for n in ("users", "items")
    )
    run = open_run(trained)
    lists, scorer = run.user_lists, run.scorer
    for user, item, expected in recommend(scorer, catalogue_of(lists), k=1)[
        "user", "item", "score"
    ].iter_rows():
        number = users.filter(id=user)["number"].cast(pl.Int64).to_numpy()
        column = items.filter(id=item)["number"].cast(pl.Int64).to_numpy()[None]
        (found,) = session.run(None, {"user": number, "item": column})
        assert found[0, 0] == pytest.approx(expected, rel=1e-4, abs=1e-9)


@pytest.mark.slow
@needs_onnx
def test_the_card_names_data_groups_figures_and_limits_and_no_path(
    trained: Path, exported: Path
) -> None:
    card = (exported / "small.md").read_text()
    result = json.loads((trained / "metrics.json").read_text())
    ndcg = result["metrics"]["ndcg@5"]
    low, high = ndcg["ci95"]
    ks = ", ".join(map(str, measured_ks(result)))
    for said in (
        "# small: kso-red on csv",
        "## Intended use",
        "**It takes no group input**",
        f"`{open_run(trained).lists.data.checksum}`",
        "30 users of 25 items",
        "last 2 by time",
        "By the rule: column kind, equals odd\\|one.",
        "| odd\\|one | 9 |",
        "C / n² = 1; groups of items were used in training",
        "Protocol sampled",
        f"{ndcg['mean']:.4g} ({low:.4g} to {high:.4g})",
        "exposure gap by rank, signed",
        f"AUC (0.5: not at all): {result['metrics']['group_auc']['mean']:.4g} (",
        f"- protocol full, 30 of 30 users, K = {ks}: NDCG",
        "## Limits",
    ):
        assert said in card
    assert str(trained.parent) not in card
    assert "ratings.csv" not in card


def test_a_run_that_was_stopped_has_a_card_without_figures(
    run: Run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(scorer: nn.Module, path: Path, *, about: dict[str, str]) -> float:
        path.write_text(about["data"])
        return 2.5e-7

    monkeypatch.setattr(exported_files, "require_export", lambda: None)
    monkeypatch.setattr(exported_files, "export_scorer", export)
    copy = shutil.copytree(trained, tmp_path / "copy")
    (copy / "metrics.json").write_text("{")
    ended = run("export", copy, tmp_path / "m.onnx")
    assert (
        ended.code,
        "metrics.json is not a metrics file of this version, or damaged" in ended.stderr,
    ) == (2, True)
    assert [file.name for file in tmp_path.iterdir()] == ["copy"]
    (copy / "metrics.json").unlink()
    ended = run("export", copy, tmp_path / "m.onnx")
    assert ended.code == 0, ended.stderr
    assert (
        "inputs: user and item, no groups; scores differ from the original by at most 2e-07"
        in ended.stdout
    )
    assert f"{tmp_path / 'm.md'}, {tmp_path / 'm.onnx'}" in ended.stdout
    assert "stopped before its model was measured" in (tmp_path / "m.md").read_text()


def test_export_refuses_what_it_cannot_write_or_read(
    run: Run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, sentence in (
        ([tmp_path, tmp_path / "m.onnx"], "holds no run"),
        ([trained, tmp_path / "m.pt"], "m.pt must end in .onnx"),
    ):
        ended = run("export", *words)
        assert (ended.code, sentence in ended.stderr) == (2, True)
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    ended = run("export", trained, tmp_path / "m.onnx")
    assert ended.code == 2
    assert "pip install fairtopk[export]" in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["recommend", "export"])
def test_help_has_an_example(run: Run, command: str) -> None:
    ended = run(command, "--help")
    assert ended.code == 0
    assert f"Example: fairtopk {command} runs/first" in ended.stdout
