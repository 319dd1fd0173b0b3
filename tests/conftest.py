"""What several tests share: the folder of real data, and a small table of ratings."""

import os
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
