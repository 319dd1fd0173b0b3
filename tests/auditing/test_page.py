"""The worked example of docs/audit.md: its command prints what the page shows."""

import math
import re
import shlex
import sys
from pathlib import Path

import pytest

from fairtopk.cli import rankings as ranking_commands
from fairtopk.cli.app import main

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.S)
    assert found is not None
    return found[1]


def test_the_example_prints_what_the_page_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    # A slow machine would tell how far it is.
    monkeypatch.setattr(ranking_commands, "SECONDS_BETWEEN_LINES", math.inf)
    exec(block("python"), {})
    monkeypatch.setattr(sys, "argv", shlex.split(block("console").removeprefix("$ ")))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == block("text").splitlines()
