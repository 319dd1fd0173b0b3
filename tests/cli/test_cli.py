"""The command line as a user meets it: its output and its exit code."""

import json
import subprocess
import sys
import threading
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from commands import Run

import fairtopk
from fairtopk.data.registry import KNOWN
from fairtopk.runs.config_file import load_config
from fairtopk.runs.run import train_run

CSV = "userId,movieId,rating,timestamp\n1,1,5,1\n1,2,4,2\n2,2,3,3\n"
FILMS = "movieId,title,genres\n1,A (1980),Horror\n2,B (1999),War\n"


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("FAIRTOPK_HOME", str(tmp_path / "home"))
    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "films.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("ml/ratings.csv", CSV)
        file.writestr("ml/movies.csv", FILMS)
    return path


def test_the_command_runs_as_a_module_of_its_own() -> None:
    command = [sys.executable, "-m", "fairtopk", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == f"fairtopk {fairtopk.__version__}\n"


def test_help_answers(run: Run) -> None:
    for words in ([], ["--help"]):
        ended = run(*words)
        assert ended.code == 0
        assert "Usage" in ended.stdout
        assert "demo" in ended.stdout
    for command in (["demo"], ["data"], ["data", "list"], ["data", "prepare"]):
        ended = run(*command, "--help")
        assert ended.code == 0
        assert "Example" in ended.stdout or command == ["data"]


def test_the_list_names_every_data_set_with_its_licence(run: Run) -> None:
    text = run("data", "list").stdout
    for name in ("movielens-100k", "movielens-25m", "netflix", "letor", "csv", "synthetic"):
        assert name in text
    assert "no redistribution" in text


def test_a_data_set_is_prepared_and_described(run: Run, source: Path, tmp_path: Path) -> None:
    rule = ["--column", "genres", "--contains", "Horror"]
    ended = run(
        "data", "prepare", "movielens-latest", "--from", source, "--out", tmp_path / "o", *rule
    )
    assert ended.code == 0, ended.stderr
    assert "3 ratings by 2 users of 2 items" in ended.stdout
    assert "Horror 1, other 1; unknown 0" in ended.stdout
    assert (tmp_path / "o" / "card.json").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["data", "prepare"], "Missing argument 'name'"),
        (["data", "prepare", "ml", "--from", "SOURCE"], "unknown data set 'ml': the names are"),
        (["data", "prepare", "csv", "--form", "x"], "No such option: --form"),
        (["data", "prepare", "movielens-1m", "--from", "none.zip"], "none.zip does not exist"),
        (["data", "prepare", "csv", "--from", "SOURCE", "--contains", "x"], "needs --column"),
        (["data", "prepare", "csv", "--subset", "many"], "Invalid value for '--subset'"),
        (["data", "prepare", "netflix"], "netflix cannot be downloaded (withdrawn by Netflix"),
        (["data", "prepare", "movielens-1m"], "needs your agreement; pass --accept-licence"),
    ],
)
def test_a_wrong_word_gets_one_sentence_and_exit_code_2(
    run: Run, source: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    given = [str(source) if word == "SOURCE" else word for word in words]
    out = ["--out", str(tmp_path / "o")] if words[-1] != "nonsense" else []
    ended = run(*given, *out)
    assert ended.code == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("fairtopk: ")
    assert sentence in line
    assert not (tmp_path / "o").exists()


def test_a_traceback_is_shown_only_when_asked_for(run: Run, tmp_path: Path) -> None:
    words = ["data", "prepare", "movielens-1m", "--from", str(tmp_path / "none.zip")]
    assert "Traceback" not in run(*words).stderr
    for debugged in (["--debug", *words], [*words, "--debug"]):
        ended = run(*debugged)
        assert ended.code == 2
        assert "Traceback" in ended.stderr


class Publisher(BaseHTTPRequestHandler):
    """Serves one zip, and nothing else."""

    content = b""

    def do_GET(self) -> None:
        found = self.path == "/films.zip"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(self.content) if found else 0))
        self.end_headers()
        self.wfile.write(self.content if found else b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def published(source: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The small zip as movielens-latest, on a server of this machine."""
    Publisher.content = source.read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Publisher) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/films.zip"
        known = replace(KNOWN["movielens-latest"], url=url, md5=None, file="films.zip")
        monkeypatch.setitem(KNOWN, "movielens-latest", known)
        yield
        server.shutdown()
        thread.join()


def test_a_download_needs_the_licence_once(run: Run, published: None, tmp_path: Path) -> None:
    words = ["data", "prepare", "movielens-latest", "--out"]
    assert "needs your agreement" in run(*words, tmp_path / "1").stderr
    ended = run(*words, tmp_path / "2", "--accept-licence")
    assert ended.code == 0, ended.stderr
    assert "GroupLens terms" in ended.stdout
    assert "3 ratings by 2 users of 2 items" in ended.stdout
    again = run(*words, tmp_path / "3")
    assert again.code == 0, again.stderr
    assert "GroupLens terms" not in again.stdout


def test_without_a_network_it_says_what_to_download(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = replace(KNOWN["movielens-1m"], url="http://127.0.0.1:9/ml-1m.zip")
    monkeypatch.setitem(KNOWN, "movielens-1m", known)
    ended = run("data", "prepare", "movielens-1m", "--accept-licence", "--out", tmp_path / "o")
    assert ended.code == 2
    assert "download ml-1m.zip yourself from https://grouplens.org" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_file_that_cannot_be_written_is_one_sentence(
    run: Run, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "o"
    ended = run("data", "prepare", "movielens-latest", "--from", source, "--out", target)
    assert ended.code == 2
    assert len(ended.stderr.splitlines()) == 1


def test_implicit_feedback_and_tabs_can_be_prepared(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("who\twhat\n1\t1\n2\t1\n")
    columns = ["--user", "who", "--item", "what", "--implicit", "--separator", "\\t"]
    ended = run(
        "data",
        "prepare",
        "csv",
        "--from",
        tmp_path / "a.tsv",
        "--out",
        tmp_path / "o",
        *columns,
    )
    assert ended.code == 0, ended.stderr
    assert "from 1 to 1" in ended.stdout


def test_a_stop_is_one_word_and_leaves_nothing(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("polars.DataFrame.write_parquet", stop)
    ended = run(
        "data", "prepare", "movielens-latest", "--from", source, "--out", tmp_path / "o"
    )
    assert ended.code == 130
    assert ended.stderr == "fairtopk: stopped\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["films.zip"]


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    """A config that trains in a moment, on a part of a known data set."""
    rng = np.random.default_rng(0)
    users, items = (part.ravel() for part in np.mgrid[1:31, 1:41])
    table = np.stack([users, items, rng.integers(1, 6, 1200), rng.integers(1, 99, 1200)], -1)
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    rows = table[rng.random(1200) < 0.5].tolist()
    (folder / "ratings.dat").write_text("".join(f"{u}::{i}::{r}::{t}\n" for u, i, r, t in rows))
    films = "".join(
        f"{i}::F {i} (1990)::{'Horror' if i % 4 else 'War'}\n" for i in range(1, 41)
    )
    (folder / "movies.dat").write_text(films)
    path = tmp_path / "quick.toml"
    path.write_text(
        f"""
        [data]
        source = "movielens-1m"
        path = "{folder}"
        groups = {{ column = "genres", contains = "Horror" }}
        test = 2
        validation = 2
        [model]
        width = 4
        hidden = [4]
        [method]
        name = "kso-red"
        k = 5
        c_relative = 1.0
        [training]
        warmup_epochs = 1
        epochs = 2
        lists = {{ rated = 2, unrated = 9, per_group = 3 }}
        """
    )
    return path


@pytest.mark.filterwarnings("always")
def test_train_and_evaluate_show_who_is_favoured_and_keep_every_result(
    run: Run, quick: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    ended = run("train", quick, "--out", out)
    assert ended.code == 0, ended.stderr
    assert ended.stderr.startswith("fairtopk: warning: ")
    assert len(ended.stderr.splitlines()) == 1
    for shown in ("K = 5 ", "K = 200", "signed", "fine-tuning epoch 2 of 2", "kept epoch"):
        assert shown in ended.stdout
    assert run("evaluate", out, "--k", "2").code == 0
    assert run("evaluate", out, "--k", "2,3", "--protocol", "full").code == 0
    assert run("evaluate", out, "--k", "2", "--out", tmp_path / "mine.json").code == 0
    kept = {path.name for path in out.glob("metrics-*.json")}
    assert kept == {
        "metrics-full-test-k5-50-100-200.json",  # by train, which shows it in a line
        "metrics-sampled-test-k2.json",
        "metrics-full-test-k2-3.json",
    }
    assert "full catalogue, K = 5: NDCG" in ended.stdout
    beside = {path.name for path in out.glob("per_query*")}
    assert beside == {
        "per_query.safetensors",
        "per_query-full-test-k5-50-100-200.safetensors",
        "per_query-sampled-test-k2.safetensors",
        "per_query-full-test-k2-3.safetensors",
    }
    assert (tmp_path / "per_query-mine.safetensors").is_file()
    compared = fairtopk.compare(out / "metrics-sampled-test-k2.json", tmp_path / "mine.json")
    assert all(found.p == 1 for found in compared.metrics.values())
    assert json.loads((tmp_path / "mine.json").read_text())["finished"]
    (out / "metrics.json").unlink()
    assert "is not finished" in run("evaluate", out, "--k", "2").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "{tmp}", "--out", "{tmp}/new"], "{tmp} is a folder; give the file"),
        (["evaluate", "{tmp}"], "{tmp} holds no run"),
    ],
)
def test_a_path_that_is_something_else_is_named(
    run: Run, tmp_path: Path, words: list[str], said: str
) -> None:
    ended = run(*(word.format(tmp=tmp_path) for word in words))
    assert ended.code == 2
    assert ended.stderr.startswith(f"fairtopk: {said.format(tmp=tmp_path)}")


def test_evaluate_overwrites_no_file_and_names_its_options(
    run: Run, quick: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.warns(UserWarning, match="as published"):
        train_run(load_config(quick), out)
    before = (out / "metrics.json").read_text()
    assert "metrics.json exists" in run("evaluate", out, "--out", out / "metrics.json").stderr
    assert (out / "metrics.json").read_text() == before
    assert "--k takes whole numbers such as" in run("evaluate", out, "--k", "2,x").stderr
    (out / "metrics.json").write_text("{")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the data, as above
        ended = run("train", out / "config.toml", "--out", out, "--resume")
    assert (ended.code, "metrics.json is damaged" in ended.stderr) == (2, True)


# One process answers all, so that what any of them loads is seen at the end.
SCRIPT = """
import json, sys
from fairtopk.cli.app import main
codes = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["fairtopk", *words]
    try:
        main()
    except SystemExit as ended:
        codes.append(ended.code)
print(json.dumps([codes, sorted({"torch", "matplotlib", "plotly"} & set(sys.modules))]))
"""

ANSWERS = [
    (["--help"], 0),
    (["--version"], 0),
    (["train"], 2),
    (["nonsense"], 2),
    (["report", "--help"], 0),
    (["train", "none.toml", "--out", "run"], 2),
]


def test_help_and_wrong_words_are_answered_without_torch(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([words for words, _ in ANSWERS])],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        text=True,
    )
    codes, loaded = json.loads(ended.stdout.splitlines()[-1])
    assert codes == [code for _, code in ANSWERS]
    assert loaded == []
