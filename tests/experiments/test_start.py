"""What the command line loads before it has anything to do: torch alone takes a second."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from fairtopk.experiments.cli import main
sys.argv = ["fairtopk", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    print("code", ended.code, "loaded", {"torch", "matplotlib", "plotly"} & set(sys.modules))
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["train"], 2),
        (["nonsense"], 2),
        (["report", "--help"], 0),
        (["train", "none.toml", "--out", "run"], 2),
    ],
)
def test_help_and_wrong_words_are_answered_without_torch(
    words: list[str], code: int, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        text=True,
    )
    assert ended.stdout.splitlines()[-1] == f"code {code} loaded set()"
