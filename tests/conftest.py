"""What tests share: how many run at once, in which order, and some small data."""

import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numba
import polars as pl
import pytest
import torch
from commands import Ended, Run
from filelock import FileLock
from hypothesis import HealthCheck, settings
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

import fairtopk as ft

# What is printed does not hang on the terminal that the tests are started from.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
    os.environ.pop(name, None)

# Tests are small: a second thread costs more than it brings.
torch.set_num_threads(1)

# The first example of a test may wait for a kernel to be compiled. Examples are the same in
# every run, so that a checkout that passes goes on passing; there are few of them for kernels
# that run without the compiler.
settings.register_profile(
    "kernels",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    max_examples=3 if numba.config.DISABLE_JIT else 20,
)
settings.load_profile("kernels")


def home_can_be_written_to() -> bool:
    try:
        with tempfile.TemporaryFile(dir=Path.home()):
            return True
    except OSError:
        return False


if not home_can_be_written_to():  # else matplotlib complains, and looks for fonts each time
    cache = Path(__file__).parents[1] / ".pytest_cache" / "matplotlib"
    os.environ.setdefault("MPLCONFIGDIR", str(cache))

MOST_WORKERS = 8  # each imports torch and holds its own data


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="files in random order, and the tests of each; the same for the same seed",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return one worker for each core that may be used, which is not each that there is."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or not hasattr(os, "sched_getaffinity"):
        return None
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the drill's thousands of rows unread where no slow test is wanted."""
    drill = collection_path.name == "drill" and collection_path.parent == Path(__file__).parent
    return True if drill and config.getoption("markexpr") == "not slow" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle tests within files, which share what they train, and the files."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        chance = random.Random(seed)
        files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
        chance.shuffle(files)
        for tests in files:
            chance.shuffle(tests)
        items[:] = [item for tests in files for item in tests]


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is read from the user's own folder of data, or left there; no proxy is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "*")
        patch.setenv("FAIRTOPK_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _interrupts() -> Iterator[None]:
    """Ctrl-C is heard where the tests' own shell ignores it, as for jobs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of several workers one compiles a loop; those that need it meanwhile wait for it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    locks = tmp_path_factory.getbasetemp().parent / "compiling"
    locks.mkdir(exist_ok=True)
    compile_loop = Dispatcher.compile

    def compile_alone(self: Any, signature: Any) -> Any:
        if not isinstance(self._cache, FunctionCache):
            return compile_loop(self, signature)
        lock = locks / f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        with global_compiler_lock, FileLock(lock, is_singleton=True):
            return compile_loop(self, signature)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "compile", compile_alone)
        yield


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command line with some words, in this process."""
    from fairtopk.cli.app import main

    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fairtopk", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("FAIRTOPK_DATA")
    if not folder:
        pytest.skip("FAIRTOPK_DATA is not set")
    return Path(folder)


@pytest.fixture
def ratings() -> pl.DataFrame:
    """Three users, four items; user "b" comes first and in two places."""
    return pl.DataFrame(
        {
            "user": ["b", "a", "b", "c", "a", "c", "c"],
            "item": [10, 10, 20, 30, 30, 40, 10],
            "rating": [5.0, 3.0, 4.0, 1.0, 2.0, 5.0, 4.0],
            "time": [3, 1, 2, 7, 7, 7, 5],
        }
    )


@pytest.fixture
def films() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "item": [10, 20, 30, 40, 50],
            "genres": ["Horror|War", "War", "Drama", None, "Horror"],
            "year": [1980, 1990, None, 2001, 1970],
        }
    )


@pytest.fixture
def data(ratings: pl.DataFrame, films: pl.DataFrame) -> ft.Interactions:
    return ft.Interactions.from_frame(
        ratings,
        user="user",
        item="item",
        rating="rating",
        time="time",
        groups=ft.groups_from(films, item="item", column="genres", contains="Horror"),
    )
