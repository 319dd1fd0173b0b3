"""The scripts in examples/ run, and end fairer with the penalty than without."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, float]]:
    """The numbers of each line that an example prints, by the words before them."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    found = [re.findall(r"([a-z_][a-z_ ]*?) ([+-]?\d+\.\d+)", line) for line in lines]
    return [{words.strip(): float(number) for words, number in line} for line in found]


def test_two_towers_in_a_plain_loop(capsys: pytest.CaptureFixture[str]) -> None:
    without, fair = printed("two_tower", capsys)
    assert without["c_relative"] == 0 < fair["c_relative"]
    assert without["gap"] < -0.02  # against the group that the data is biased against
    assert abs(fair["gap"]) < 0.6 * abs(without["gap"])
    assert fair["ndcg"] > 0.9 * without["ndcg"]


def test_boosted_trees_by_lightgbm(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm")
    without, fair = printed("boosted_trees", capsys)
    assert without["c_relative"] == 0 < fair["c_relative"]
    assert without["gap"] < -0.03
    assert abs(fair["gap"]) < 0.75 * abs(without["gap"])
    assert fair["ndcg"] > 0.97 * without["ndcg"]
    # What is recorded is biased; by what is merited the fairer ranking is no worse.
    assert fair["by merit"] > without["by merit"] - 0.005
