"""Every malformed input gets its exit code and one sentence, and leaves nothing behind.

A row is refused with exit code 2 and one line on standard error, warnings aside, or is rightly
accepted, with no line but warnings. The time is that of the processor, so that a busy machine
changes nothing.
"""

from pathlib import Path

import pytest
from drill import rows_configs, rows_runs, rows_tables, rows_words
from drill.rows import Row
from drill.running import CONTROL, MOST_SECONDS, Ended, run_in

pytestmark = pytest.mark.slow

ROWS = [*rows_words.ROWS, *rows_tables.ROWS, *rows_configs.ROWS, *rows_runs.ROWS]
REFUSED = (2, 3)


def faults(row: Row, ended: Ended) -> list[str]:
    """Return what is not as a row says it must be; nothing if all is."""
    found = []
    refused, text = ended.code in REFUSED, ended.stdout + ended.stderr
    if ended.code not in row.codes:
        found.append(f"exit code {ended.code}, not one of {row.codes}")
    if len(ended.lines) != refused:
        found.append(f"{len(ended.lines)} lines on standard error")
    if "Traceback" in text or "internal error" in text or "panicked" in text:
        found.append("an internal error")
    if CONTROL.search(text):
        found.append("control characters")
    if row.says not in (ended.stderr if refused else text):
        found.append(f"does not say {row.says!r}")
    new = [path for path in ended.new if not path.endswith("/")]
    if refused and not row.leaves and (new or ended.changed):
        found.append(f"left behind {new[:3]}, changed {ended.changed[:3]}")
    if ended.seconds > MOST_SECONDS:
        found.append(f"took {ended.seconds:.0f} s")
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_is_wrong_is_refused_in_one_sentence(row: Row, folder: Path) -> None:
    row.do(folder)
    ended = run_in(folder, row.words)
    assert not faults(row, ended), ended


def test_there_are_rows_for_every_command() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names) >= 400
    commands = {row.words[0] for row in ROWS if row.words}
    assert {
        "audit", "rerank", "train", "evaluate", "sweep", "report", "recommend", "export",
        "data", "reproduce", "demo",
    } <= commands  # fmt: skip
