"""Valid files of every kind, made once for all workers, and a copy of them for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from drill.shared import Share, sharing
from drill.stock import fill


@pytest.fixture(scope="session")
def share(tmp_path_factory: pytest.TempPathFactory) -> Share:
    """Makes a folder once for all workers, which is not to be changed."""
    return sharing(tmp_path_factory)


@pytest.fixture(scope="session")
def stock(share: Share) -> Path:
    """A folder with a valid file of every kind."""
    return share("stock", fill)


@pytest.fixture
def folder(stock: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the stock to spoil; thousands of them would fill a disk if they stayed."""
    yield shutil.copytree(stock, tmp_path / "folder")
    shutil.rmtree(tmp_path / "folder", ignore_errors=True)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, for calls that write where they are told."""
    monkeypatch.chdir(tmp_path)
