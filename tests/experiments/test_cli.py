"""The command line as a user meets it: its output and its exit code."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import fairtopk
from fairtopk.experiments.cli import main

CSV = "userId,movieId,rating,timestamp\n1,1,5,1\n1,2,4,2\n2,2,3,3\n"
FILMS = "movieId,title,genres\n1,A (1980),Horror\n2,B (1999),War\n"


class Ended(NamedTuple):
    code: int | str | None
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """A function that runs the command line with some words, in this process."""
    monkeypatch.setenv("FAIRTOPK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fairtopk", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(ended.value.code, *capsys.readouterr())

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


def test_the_demo_shows_the_bias_and_needs_nothing(run: Run) -> None:
    ended = run("demo")
    assert ended.code == 0, ended.stderr
    assert "1,000 users" in ended.stdout
    assert "A ranking by popularity hands the bias on" in ended.stdout


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
    assert (ended.code, ended.stdout) == (2, "") or "movielens-1m" in words
    (line,) = ended.stderr.splitlines()
    assert line.startswith("fairtopk: ")
    assert sentence in line
    assert not (tmp_path / "o").exists()


def test_a_traceback_is_shown_only_when_asked_for(run: Run, tmp_path: Path) -> None:
    words = ["data", "prepare", "movielens-1m", "--from", str(tmp_path / "none.zip")]
    assert "Traceback" not in run(*words).stderr
    ended = run("--debug", *words)
    assert ended.code == 2
    assert "Traceback" in ended.stderr
