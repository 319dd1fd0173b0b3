import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from numba.core import event

from fairtopk.kernels.compiled import compiled, summing


def plus_one(number: int) -> int:
    return number + 1


@pytest.mark.parametrize("decorator", [compiled, summing])
def test_loops_compile_where_no_cache_can_be_written(
    monkeypatch: pytest.MonkeyPatch, decorator: Callable[..., Any]
) -> None:
    def nowhere(**options: Any) -> Any:
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr("fairtopk.kernels.compiled.numba", SimpleNamespace(njit=nowhere))
    assert decorator(plus_one)(1) == 2


@pytest.mark.slow
def test_the_run_that_compiles_gives_the_bits_of_those_that_find_it_done(
    tmp_path: Path,
) -> None:
    """Of a sum in a loop that another calls, whose order the compiler chooses."""
    program = (
        "import numpy as np; from fairtopk.kernels.ranking import top_of;"
        "scores = np.random.default_rng(0).normal(size=(200, 105)).astype(np.float32);"
        "print(top_of(scores, 10).log_sum.tobytes().hex())"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    )
    assert any(tmp_path.rglob("*.nbi"))
    assert first == second


@pytest.mark.parametrize("collecting", [True, False])
def test_compiling_leaves_the_collection_of_garbage_as_it_was(collecting: bool) -> None:
    seen = []

    class Watch(event.Listener):  # type: ignore[misc]
        def on_start(self, event: event.Event) -> None:
            seen.append(gc.isenabled())

        def on_end(self, event: event.Event) -> None: ...

    was = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        with event.install_listener("numba:compile", Watch()):
            assert numba.njit(plus_one)(1) == 2
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if was else gc.disable)()
    assert seen == [False]
