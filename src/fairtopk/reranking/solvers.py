"""The solvers of scipy, which is not needed for anything else here."""

from importlib import import_module
from typing import Any

from fairtopk.errors import InputError


def scipy_solver(name: str, *, purpose: str) -> Any:
    """Return a function of ``scipy.optimize``, or say in one sentence that scipy is missing."""
    try:
        return getattr(import_module("scipy.optimize"), name)
    except ImportError:
        raise InputError(f"{purpose} needs scipy; install it with: pip install scipy") from None
