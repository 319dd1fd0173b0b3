"""`fairtopk demo`: what it shows, what it writes, and what it replaces."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairtopk.cli import demo
from fairtopk.errors import InputError

pytestmark = pytest.mark.slow

METHODS = ("k-song", "kso-red", "fair-distill")


class Shown(NamedTuple):
    """A demo that has ended: its folder, what it printed, and its results."""

    out: Path
    lines: list[str]
    results: dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The demo as a user starts it, in a folder where an earlier one was stopped half-way."""
    here = tmp_path_factory.mktemp("somewhere")
    out = here / "runs" / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "train_run", stopped_after(1))
        with pytest.raises(KeyboardInterrupt):
            demo.run_demo(out)
    (out / "report.html").write_text("of an earlier demo")
    (out / "notes.txt").write_text("mine")
    ended = subprocess.run(
        [sys.executable, "-m", "fairtopk", "demo"],
        cwd=here,
        env=os.environ | {"COLUMNS": "80", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    listed = json.loads((out / "results.json").read_text())
    results = {(one["protocol"], one["method"]): one["metrics"] for one in listed}
    assert len(results) == len(listed)
    return Shown(out, ended.stdout.splitlines(), results)


def stopped_after(runs: int) -> Callable[..., None]:
    """A training that leaves a folder behind, and is stopped in a later one."""
    done: list[Path] = []

    def train(config: object, out: Path, **_: object) -> None:
        out.mkdir()
        (out / "config.toml").write_text("half of it")
        if len(done) == runs:
            raise KeyboardInterrupt
        done.append(out)

    return train


def test_the_demo_ends_with_where_its_page_is(shown: Shown) -> None:
    page = os.path.join("runs", "demo", "report.html")
    assert shown.lines[-1] == f"written to {page}; open it in a browser"
    assert "<html" in (shown.out / "report.html").read_text()


def test_three_methods_are_measured_on_the_catalogue_and_on_sampled_lists(shown: Shown) -> None:
    every = {(protocol, method) for protocol in ("full", "sampled") for method in METHODS}
    assert set(shown.results) == every


def test_the_terminal_has_them_side_by_side_within_80_columns(shown: Shown) -> None:
    assert max(map(len, shown.lines)) <= 80 or all(
        line.startswith(("training ", "alarm, ")) for line in shown.lines if len(line) > 80
    )
    for title in ("Full catalogue, test ratings", "Sampled lists of 305, test ratings"):
        place = next(n for n, line in enumerate(shown.lines) if line.startswith(title))
        assert shown.lines[place + 2].split("┃")[2:5] == [
            " colour-blind ", "        KSO-RED ", "   fair-distill "
        ]  # fmt: skip
        assert "exposure gap by rank" in "".join(shown.lines[place : place + 8])


def test_the_page_has_them_on_both_kinds_of_lists(shown: Shown) -> None:
    page = (shown.out / "report.html").read_text()
    for lists in ("full catalogue", "sampled lists"):
        tables = [part for part in page.split("<table>") if f"{lists}. Gap: " in part[:300]]
        assert tables
        for table in tables:
            rows = table.partition("</table>")[0]
            assert all(method in rows for method in METHODS)


@pytest.mark.parametrize("protocol", ["full", "sampled"])
@pytest.mark.parametrize("method", METHODS[1:])
def test_the_demo_shows_fairness_gained_for_little_ndcg(
    shown: Shown, protocol: str, method: str
) -> None:
    blind, fair = shown.results[protocol, "k-song"], shown.results[protocol, method]
    for gap in ("exposure_gap@20", "rank_exposure_gap@20"):
        assert fair[gap]["mean"] < 0.8 * blind[gap]["mean"]
    assert fair["ndcg@20"]["mean"] > 0.95 * blind["ndcg@20"]["mean"]
    before, after = (of["rsp@20"]["by_group"] for of in (blind, fair))
    assert after["a"] > 4 * before["a"]


def test_what_is_distilled_is_the_fairest_on_the_catalogue(shown: Shown) -> None:
    name = "rank_exposure_gap@20"
    gaps = [shown.results["full", method][name]["mean"] for method in METHODS]
    assert gaps[2] < 0.6 * gaps[1] < 0.6 * gaps[0]


def test_a_second_demo_replaces_the_first_and_leaves_other_files(shown: Shown) -> None:
    assert "of an earlier demo" not in (shown.out / "report.html").read_text()
    assert (shown.out / "notes.txt").read_text() == "mine"
    seen = {path.name for path in shown.out.iterdir() if not path.name.startswith(".")}
    assert seen == {*METHODS, "results.json", "report.html", "notes.txt"}


def test_a_folder_that_no_demo_made_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "kso-red").mkdir()
    (tmp_path / "kso-red" / "config.toml").write_text("of a sweep")
    with pytest.raises(InputError, match="not from an earlier demo"):
        demo.run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kso-red"]
    with pytest.raises(InputError, match="is not a folder; choose another --out"):
        demo.run_demo(tmp_path / "kso-red" / "config.toml")
    assert (tmp_path / "kso-red" / "config.toml").read_text() == "of a sweep"


def test_a_link_in_a_demos_folder_is_removed_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "train_run", stopped_after(0))
    out, elsewhere = tmp_path / "demo", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo(out)
    (out / "kso-red").symlink_to(elsewhere)
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo(out)
    assert not (out / "kso-red").exists()
    assert (elsewhere / "mine").read_text() == "mine"
