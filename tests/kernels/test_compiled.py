from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numba
import pytest

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
