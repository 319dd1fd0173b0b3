"""What tests share: how many run at once, in which order, and some small data."""

import os
import random
from itertools import groupby
from pathlib import Path

import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, settings

import fairtopk as ft

# Tests are small: a second thread costs more than it brings.
torch.set_num_threads(1)

# The first example of a test may wait for a kernel to be compiled. Examples are the same in
# every run, so that a checkout that passes goes on passing.
settings.register_profile(
    "kernels", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("kernels")

MOST_WORKERS = 8  # each imports torch and holds its own data


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="files in random order, and the tests of each; the same for the same seed",
    )


def pytest_xdist_auto_num_workers() -> int | None:
    """Return one worker for each core that may be used, which is not each that there is."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or not hasattr(os, "sched_getaffinity"):
        return None
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


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
