"""What a run leaves behind to be shared: its metrics and where they came from.

Data is named by name and checksum, never by path.
"""

import math
import platform
import sys
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from fairtopk import __version__
from fairtopk.estimators.methods import METHODS
from fairtopk.experiments.config import Config
from fairtopk.lists import Lists
from fairtopk.metrics.intervals import Mean, means_with_intervals

CONFIG, METRICS = "config.toml", "metrics.json"


def summary(
    config: Config, lists: Lists, values: dict[str, Tensor], *, part: str
) -> dict[str, Any]:
    """Return what a metrics file says of per-query values."""
    method = config.method
    fair = METHODS[method.name].fairness != "none"  # without a penalty C has no effect
    return {
        "method": method.name,
        "preset": method.preset,
        "c": method.c if fair else None,
        "c_relative": method.c_relative if fair else None,
        "k": list(method.ks),
        "seed": config.seed,
        "data": lists.data.name,
        "protocol": config.evaluation.protocol,
        "part": part,
        "split": lists.rule,
        "metrics": {
            name: _cell(mean) for name, mean in means_with_intervals(values, seed=0).items()
        },
    }


def provenance(config: Config, lists: Lists) -> dict[str, Any]:
    """Return what it takes to tell whether two results can be compared."""
    return {
        "fairtopk": __version__,
        "python": platform.python_version(),
        "platform": sys.platform,
        "packages": {name: version(name) for name in ("torch", "numpy", "numba", "polars")},
        "threads": torch.get_num_threads(),
        "seed": config.seed,
        "data": {
            "name": lists.data.name,
            "sha256": lists.data.checksum,
            "notes": list(lists.data.notes),
            "split": lists.rule,
            "short_users": lists.short_users,
        },
        "protocol": config.evaluation.model_dump(mode="json"),
        "exposure_gap": "Eq. 9; exposure_gap_released is what the authors' code computes",
    }


def _cell(found: Mean) -> dict[str, Any]:
    """Return a mean as a metrics file holds it."""
    low, high = found.ci95
    return jsonable(found._asdict()) | {"ci95": [_finite(low), _finite(high)]}


def jsonable(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record that JSON can hold: NaN becomes null."""
    return {name: _finite(value) for name, value in record.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
