"""Folders that are made once for all workers of a test run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

Share = Callable[[str, Callable[[Path], None]], Path]


def sharing(factory: pytest.TempPathFactory) -> Share:
    """Return a function that makes a folder of some name, unless another worker has."""
    base = factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base

    def share(name: str, make: Callable[[Path], None]) -> Path:
        folder, half = shared / f"drill-{name}", shared / f"drill-{name}-half"
        with FileLock(shared / f"drill-{name}.lock"):
            if not folder.exists():
                shutil.rmtree(half, ignore_errors=True)
                half.mkdir()
                make(half)
                half.rename(folder)
        return folder

    return share
