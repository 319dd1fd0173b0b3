"""What the command line loads before it has anything to do: torch alone takes a second."""

import json
import subprocess
import sys
from pathlib import Path

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
