"""A training or a sweep that is killed at any state of its work goes on to the same bits.

States are drawn from seeds: before the n-th step, or before the n-th time that a file is
opened, renamed or removed. So kills fall into checkpoints, between their files, into stages of
the cache, between the values of queries and the metrics, and in sweeps on either side.
"""

import json
import random
import signal
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from drill.shared import Share
from drill.stock import METHODS, write_configs, write_tables
from kills import CHANGE, STEP, State, count, run

pytestmark = pytest.mark.slow

FOUR = ("kso-red", "fair-distill", "dpr-rsp", "robust")
SWEEP = "sweep"


class Whole(NamedTuple):
    """A run that nobody disturbed, and how often it changed a file."""

    folder: Path
    changes: int


def words(kind: str) -> list[str]:
    if kind == SWEEP:
        return ["sweep", "sweep.toml", "--out", "out", "--processes", "1"]
    return ["train", f"{kind}.toml", "--out", "out"]


def states(kind: str, chain: int, changes: int) -> list[State]:
    """Return the states at which a run is killed, one after the other."""
    chance = random.Random(zlib.crc32(kind.encode()) + chain)
    if kind == SWEEP:
        return [
            [
                State(CHANGE, chance.randint(1, 20), in_worker=True),
                State(CHANGE, chance.randint(1, 4)),
                State(STEP, chance.randint(1, 5), in_worker=True),
            ],
            [State(CHANGE, changes - chance.randint(0, 4))],
            [
                State(CHANGE, chance.randint(20, 40), in_worker=True),
                State(CHANGE, chance.randint(1, 20), in_worker=True),
            ],
        ][chain]
    return [
        [
            State(STEP, chance.randint(1, 6)),
            State(CHANGE, chance.randint(1, 14)),
            State(CHANGE, chance.randint(1, 14)),
        ],
        [
            State(CHANGE, chance.randint(1, 14)),  # perhaps inside the first checkpoint
            State(CHANGE, chance.randint(1, changes // 3)),
        ],
        [State(CHANGE, changes - chance.randint(0, 8))],  # results are being written
    ][chain]


CASES = [(kind, chain) for kind in (SWEEP, *FOUR) for chain in range(3)]


@pytest.fixture
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep stages in the current folder of a child, whose last digits hang on no core."""
    monkeypatch.setenv("FAIRTOPK_HOME", "home")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def whole(kind: str, share: Share) -> Whole:
    """Return the undisturbed run of a kind, made once."""

    def make(folder: Path) -> None:
        write_tables(folder)
        write_configs(folder)
        changes = count(words(kind), CHANGE, cwd=folder)
        (folder / "changes").write_text(str(changes))

    folder = share(f"whole-{kind}", make)
    return Whole(folder, int((folder / "changes").read_text()))


def bits(out: Path) -> dict[str, Any]:
    """Return all weights and numbers that a run or sweep leaves."""
    found: dict[str, Any] = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if path.name == "model.safetensors" or path.name.startswith("per_query"):
            found[name] = path.read_bytes()
        elif path.suffix == ".json" and path.name.startswith(("metrics", "rerank")):
            found[name] = json.loads(path.read_text())["metrics"]
    return found


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(("kind", "chain"), CASES)
def test_a_run_that_is_killed_at_drawn_states_ends_with_the_same_bits(
    kind: str, chain: int, share: Share, tmp_path: Path
) -> None:
    undisturbed = whole(kind, share)
    write_tables(tmp_path)
    write_configs(tmp_path)
    command = words(kind)
    for state in states(kind, chain, undisturbed.changes):
        again = ["--resume"] if (tmp_path / "out").exists() else []
        ended = run([*command, *again], at=state, cwd=tmp_path)
        assert ended.code == -signal.SIGKILL, (state, ended)
    again = ["--resume"] if (tmp_path / "out").exists() else []
    ended = run([*command, *again], cwd=tmp_path)
    assert ended.code == 0, ended
    wanted, found = bits(undisturbed.folder / "out"), bits(tmp_path / "out")
    assert found.keys() == wanted.keys()
    assert {name for name in wanted if found[name] != wanted[name]} == set()
    left = [*tmp_path.rglob("*.part"), *tmp_path.rglob("new-*")]
    assert not left


def test_there_are_30_kills_of_four_kinds_of_training_and_of_a_sweep() -> None:
    kills = [state for kind, chain in CASES for state in states(kind, chain, 40)]
    assert len(kills) == 30
    assert set(FOUR) <= set(METHODS)
