"""A child process that gets a signal at an exact state of its work, on any machine.

No test sends a signal after a while: the child sends it to itself, at a state that is counted.

    from kills import CHANGE, STEP, State, run

    ended = run(["train", "c.toml", "--out", "out"], at=State(STEP, 3), cwd=tmp_path)
    assert ended.code == -signal.SIGKILL  # killed before the third step of training
    run(["train", "c.toml", "--out", "out", "--resume"], at=State(CHANGE, 5), cwd=tmp_path)
    run(["train", "c.toml", "--out", "out", "--resume"], cwd=tmp_path)  # to its end

A state is the moment before the n-th call of a function, named by its module and the name that
its callers look up there (`STEP`), or before the n-th time that a file below the current folder
is opened for writing, renamed or removed, or a folder made (`CHANGE`). ``run(..., number=
signal.SIGINT)`` sends another signal. With ``State(..., in_worker=True)`` it is the state of a
process that a sweep has started: SIGKILL ends that process and the sweep, any other signal goes
to the sweep alone. `count` says how many such states a program has, to choose one among.

What is run is a command of fairtopk, or ``["-c", "code of a program"]``. `run` returns when the
child and every process that it started are gone. Signals that the tests' own shell ignores, as
for jobs in the background, reach the child all the same.
"""

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CHANGE = "a change to a file"
STEP = "fairtopk.training.loop:train_step"
SAVE = "fairtopk.storage:save_pair"

HANGS = 900.0  # seconds after which a child is taken to hang, however slow the machine
SETTINGS = "KILLS_TEST_STATE"  # environment of the child
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir")  # as sys.audit calls them


class State(NamedTuple):
    """The moment before something is done for the `count`-th time.

    Attributes:
        what: `CHANGE`, or ``module:function``.
        count: From 1.
        in_worker: Whether in a process that the program starts, which counts for itself.
    """

    what: str
    count: int
    in_worker: bool = False


class Ended(NamedTuple):
    """How a program ended; `code` is that of `subprocess`: -9 for one that was killed."""

    code: int
    stdout: str
    stderr: str


def run(
    words: Sequence[str | Path],
    *,
    at: State | None = None,
    number: int = signal.SIGKILL,
    cwd: Path,
) -> Ended:
    """Run a program that sends itself signal `number` at a state; None: it runs to its end."""
    given = {**at._asdict(), "number": int(number)} if at is not None else {}
    return _child(words, given, cwd)


def count(words: Sequence[str | Path], what: str, *, cwd: Path) -> int:
    """Run a program to its end; return how many states of a kind its first process passed."""
    into = cwd / "kills-count"
    ended = _child(words, {"what": what, "into": str(into)}, cwd)
    assert ended.code == 0, ended.stderr
    found = int(into.read_text())
    into.unlink()
    return found


def _child(words: Sequence[str | Path], given: dict[str, Any], cwd: Path) -> Ended:
    # The pipes end when the last process that holds them has ended, not when the first has.
    ended = subprocess.run(
        [sys.executable, __file__, *map(str, words)],
        cwd=cwd,
        env={**os.environ, SETTINGS: json.dumps(given)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def _set_up(is_worker: bool) -> None:
    """Count the states of this process, and act at the one that was asked for."""
    given = json.loads(os.environ[SETTINGS])
    passed = 0

    def note() -> None:
        nonlocal passed
        passed += 1
        if passed == given.get("count") and is_worker == given["in_worker"]:
            _strike(given["number"], is_worker)

    if "what" in given:
        (_watch_files if given["what"] == CHANGE else _watch_calls)(given["what"], note)
    if "into" in given and not is_worker:
        atexit.register(lambda: Path(given["into"]).write_text(str(passed)))


def _strike(number: int, is_worker: bool) -> None:
    if is_worker:
        os.kill(os.getppid(), number)
    if not is_worker or number == signal.SIGKILL:
        os.kill(os.getpid(), number)


def _watch_calls(what: str, note: Callable[[], None]) -> None:
    name, _, function = what.partition(":")
    module = importlib.import_module(name)
    called = getattr(module, function)

    def noted(*given: Any, **named: Any) -> Any:
        note()
        return called(*given, **named)

    setattr(module, function, noted)


def _watch_files(_: str, note: Callable[[], None]) -> None:
    folder = os.getcwd() + os.sep

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and (given[2] or 0) & WRITING):
            path = given[0]
            if not isinstance(path, int) and _absolute(path).startswith(folder):
                note()

    sys.addaudithook(hook)


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _set_up(is_worker=False)
    if sys.argv[1] == "-c":
        program = sys.argv[2]
        sys.argv = ["-c", *sys.argv[3:]]
        exec(compile(program, "program", "exec"), {"__name__": "program"})
    else:
        from fairtopk.cli.app import main

        main()


if __name__ == "__main__":
    _main()
elif __name__ == "__mp_main__":  # how a spawned process imports the program of its parent
    _set_up(is_worker=True)
