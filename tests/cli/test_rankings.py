"""`fairtopk audit` as a user meets it: its output and its exit code."""

import io
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import Ended, Run
from rich.console import Console

from fairtopk.cli import console
from fairtopk.cli import rankings as ranking_commands


@pytest.fixture
def ranked(tmp_path: Path) -> Path:
    """Thirty lists of ten people, in which men come first more often."""
    rng = np.random.default_rng(0)
    lines = ["job,person,score,hired,sex"]
    for job in range(30):
        for person in range(10):
            man = person % 2
            score = rng.normal() + man
            lines.append(f"{job},{person},{score:.4f},{person % 3 == 0:d},{'fm'[man]}")
    path = tmp_path / "ranked.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def run(run: Run, ranked: Path) -> Run:
    """A function that audits the ranked people with some more words."""
    words = ["--query", "job", "--item", "person", "--groups", "sex", "--k", "3,5"]

    def audit(*more: str | Path, file: Path = ranked) -> Ended:
        return run("audit", file, *words, *more)

    return audit


def test_names_in_a_table_and_a_path_are_no_markup(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("job,person,score,sex\n1,1,2,[/f]\n1,2,1,\x1b[31mm\n")
    out = tmp_path / "out[/x]"
    ended = run("--score", "score", "--out", out, file=file)
    assert ended.code == 0, ended.stderr
    for words in ("[/f]", "\\x1b[31mm", f"written to {out / 'audit.json'}"):
        assert words in ended.stdout
    assert "\x1b" not in ended.stdout + ended.stderr


def test_it_prints_tables_and_writes_json(run: Run, tmp_path: Path) -> None:
    ended = run("--score", "score", "--relevance", "hired", "--out", tmp_path / "out")
    assert ended.code == 0, ended.stderr
    for words in ("30 lists", "ndcg@3", "exposure ratio", "f minus m", "largest exposure gap"):
        assert words in ended.stdout
    record = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert record["data"]["name"] == "ranked.csv"
    value = record["columns"][0]["metrics"]["impact_ratio@3"]["value"]
    assert f"{value:.3f}" in ended.stdout


def test_a_rule_that_holds_ends_with_1_and_one_that_does_not_with_0(run: Run) -> None:
    failed = run("--score", "score", "--fail-if", "impact_ratio@3 < 0.9")
    assert failed.code == 1
    assert re.search(
        r"FAILED sex: impact_ratio@3 = 0\.\d+ \(fails if impact_ratio@3 < 0\.9\)", failed.stdout
    )
    passed = run("--score", "score", "--fail-if", "sex:impact_ratio@3 < 0.001")
    assert passed.code == 0
    assert "PASSED sex: impact_ratio@3 = " in passed.stdout


def test_several_rules_are_checked(run: Run) -> None:
    ended = run(
        "--score", "score", "--fail-if", "impact_ratio@3 < 0", "--fail-if", "impact_ratio@5 > 0"
    )
    assert ended.code == 1
    assert ended.stdout.count("impact_ratio@") >= 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--score", "score", "--fail-if", "ratio@3 < 1"), "there is impact_ratio"),
        (("--score", "score", "--fail-if", "nonsense"), "a rule is a metric"),
        (("--score", "points"), "has no column 'points'"),
        ((), "scores or a column of ranks, got neither"),
        (("--score", "score", "--k", "ten"), "--k takes whole numbers"),
        (("--score", "score", "--k", "0"), "--k must be at least 1, got '0'"),
        (("--score", "score", "--item", "job"), "query and item both name the column 'job'"),
        (("ranked.csv", "--score", "score"), "ranked.csv is given twice; give each file once"),
        (("--score", "sex"), "sex must be a number"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_2(
    run: Run,
    words: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(*words)
    assert ended.code == 2
    assert sentence in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_pair_twice_is_told_by_its_line(run: Run, ranked: Path) -> None:
    lines = ranked.read_text().splitlines()
    ranked.write_text("\n".join([*lines, lines[1]]) + "\n")
    ended = run("--score", "score")
    assert ended.code == 2
    assert "ranked.csv, line 302: query 0 ranks item 0 again" in ended.stderr


def test_ranks_alone_say_why_softmax_metrics_are_missing(run: Run) -> None:
    ended = run("--rank", "person")
    assert ended.code == 0
    assert "exposure_gap_released and score_spread are left out" in ended.stdout
    assert "softmax exposure" not in ended.stdout


def test_a_baseline_adds_a_table_of_changes(run: Run, ranked: Path, tmp_path: Path) -> None:
    other = tmp_path / "before.csv"
    other.write_text(ranked.read_text())
    ended = run("--score", "score", "--baseline", other)
    assert ended.code == 0
    assert "change from before.csv on the 30 queries of both" in ended.stdout


def test_a_rule_on_what_is_undefined_ends_with_2(run: Run, tmp_path: Path) -> None:
    apart = tmp_path / "apart.csv"
    apart.write_text("job,person,score,sex\n1,1,1,f\n2,2,1,m\n")
    ended = run("--score", "score", "--fail-if", "rank_exposure_gap@3 > 0.5", file=apart)
    assert ended.code == 2
    assert "cannot be checked" in ended.stderr


def test_markup_in_labels_is_shown_as_text(run: Run, ranked: Path) -> None:
    ranked.write_text(ranked.read_text().replace(",f\n", ",[red]f[/]\n"))
    assert "[red]f[/]" in run("--score", "score").stdout


def test_columns_may_be_spaced_and_scores_are_no_ranks(run: Run) -> None:
    assert run("--score", "score", "--groups", "sex, hired").code == 0
    ended = run("--rank", "score")
    assert (ended.code, "ranks rise from 1" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("ranked.csv", "is a file; give a folder"),
        ("ranked.csv/deep/out", "ranked.csv is a file"),
        ("/proc/no/folder", "cannot be written: /proc: "),
        ("taken", "audit.html is a folder; name a file"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_told_before_a_file_is_read(
    run: Run, tmp_path: Path, place: str, sentence: str
) -> None:
    if place.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("needs a folder in which nobody can write")
    (tmp_path / "taken" / "audit.html").mkdir(parents=True)
    absent = tmp_path / "absent.csv"
    ended = run("--score", "score", "--out", tmp_path / place, file=absent)
    assert ended.code == 2
    assert sentence in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_an_earlier_audit_is_overwritten_and_nothing_else_is_left(
    run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "made" / "here"
    for seed in ("1", "2"):
        assert run("--score", "score", "--seed", seed, "--out", out).code == 0
        assert json.loads((out / "audit.json").read_text())["seed"] == int(seed)
    assert sorted(path.name for path in out.iterdir()) == ["audit.html", "audit.json"]


def test_local_items_may_change_their_label(run: Run, ranked: Path) -> None:
    lines = ranked.read_text().splitlines()
    ranked.write_text("\n".join([*lines[:-1], lines[-1][:-1] + "f"]) + "\n")
    ended = run("--score", "score")
    assert (ended.code, "pass --local-items" in ended.stderr) == (2, True)
    ended = run("--score", "score", "--local-items")
    assert (ended.code, "300 different items" in ended.stdout) == (0, True)


def test_a_separator_is_asked_for_and_taken(run: Run, ranked: Path) -> None:
    ranked.write_text(ranked.read_text().replace(",", "\t"))
    ended = run("--score", "score")
    assert ended.code == 2
    assert 'pass --separator "\\t"' in ended.stderr
    assert run("--score", "score", "--separator", "\\t").code == 0


def test_a_terminal_shows_a_bar_for_each_part_of_the_work(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=200)
    monkeypatch.setattr(console, "console", terminal)
    assert run("--score", "score").code == 0
    # A bar is drawn some times a second, and surely when the work ends.
    assert "resampling lists" in shown.getvalue()


def test_elsewhere_long_work_shows_a_line_at_times(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "measuring" not in run("--score", "score").stdout
    monkeypatch.setattr(ranking_commands, "SECONDS_BETWEEN_LINES", 0)
    printed = run("--score", "score").stdout
    assert printed.startswith("reading ranked.csv\nmeasuring ranked.csv: ")
    assert "measuring ranked.csv: 100 %\n" in printed


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels_of_items_that_contradict_the_ranked_table_are_refused(
    run: Run, ranked: Path, tmp_path: Path, kind: str
) -> None:
    file = ranked
    if kind == "parquet":
        file = tmp_path / "ranked.parquet"
        pl.read_csv(ranked).write_parquet(file)
    items = tmp_path / "people.csv"
    labels = [f"{person},{'fm'[person % 2]}" for person in range(10)]
    items.write_text("\n".join(["person,sex", *labels]) + "\n")
    assert run("--score", "score", "--items", items, file=file).code == 0
    items.write_text("\n".join(["person,sex", *labels[:7], "7,f", *labels[8:]]) + "\n")
    ended = run("--score", "score", "--items", items, file=file)
    assert ended.code == 2
    assert "item 7 has sex 'm', but 'f' in people.csv; correct one of them" in ended.stderr
