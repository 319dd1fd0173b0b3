"""What a run leaves behind to be shared: its metrics and where they came from.

Data is named by name and checksum, never by path.
"""

import json
import math
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator
from torch import Tensor

from fairtopk import __version__
from fairtopk.checkpoints import Saved, load_tensors, save_tensors
from fairtopk.data.files import read_text, write_text
from fairtopk.errors import InputError
from fairtopk.estimators.membership import split_labels
from fairtopk.estimators.methods import ROBUST, is_fair, weight_of
from fairtopk.evaluation import Beside
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config
from fairtopk.experiments.identity import IDENTITY, Identity, identity_of
from fairtopk.metrics.intervals import Mean, mean_with_interval, means_with_intervals

CONFIG, METRICS = "config.toml", "metrics.json"
PER_QUERY = "per_query.safetensors"
NORMAL_95 = 1.96  # standard errors that 95 % of a normal distribution are within
KNOWN = re.compile(r"ndcg@[1-9][0-9]{0,8}")  # the metric that every metrics file has

Protocol = Literal["sampled", "full", "whole"]

USER = "user"  # the numbers of the users, beside the metrics of each


class Measures(NamedTuple):
    """What was measured of a model.

    Attributes:
        values: Every metric, one value per query, ``[Q]``.
        beside: What belongs beside the gaps, if that was measured.
        users: Whose lists, ``[Q]``; None: those of all users of the part.
    """

    values: dict[str, Tensor]
    beside: Beside | None
    users: NDArray[np.int64] | None = None


def summary(config: Config, lists: AnyLists, found: Measures, *, part: str) -> dict[str, Any]:
    """Return what a metrics file says of what was measured."""
    method, beside = config.method, found.beside
    fair = is_fair(method.name)  # without a penalty C has no effect
    all_users = getattr(lists, part).user
    return {
        "method": method.name,
        "preset": method.preset,
        "c": method.c if fair else None,
        "c_is": weight_of(method.name).words if fair and method.c is not None else None,
        "c_relative": method.c_relative if fair else None,
        "needs_labels_when_serving": method.name == ROBUST,
        "k": list(method.ks),
        "seed": config.seed,
        "data": lists.data.name,
        "protocol": config.evaluation.protocol,
        "part": part,
        "split": lists.rule,
        "users": {
            "measured": len(all_users if found.users is None else found.users),
            "of": len(all_users),
        },
        "metrics": _metrics(found, lists.data.group_names, method.dpr.separator),
        "score_spread": None if beside is None else _cell(mean_with_interval(beside.spread)),
    }


def _metrics(
    found: Measures, group_names: Sequence[str], separator: str | None
) -> dict[str, Any]:
    """Return means, chance floors and ratios of all users together, with their intervals."""
    parts = split_labels(group_names, separator).names
    means = means_with_intervals(found.values, seed=0)
    cells = {name: _cell(mean) for name, mean in means.items()}
    for name, floor in (found.beside.floors if found.beside else {}).items():
        gap, margin = means[name.replace("_floor@", "@")], NORMAL_95 * floor.error
        interval = (floor.value - margin, floor.value + margin)
        cells[name] = _cell(gap._replace(mean=floor.value, ci95=interval))
    for name, whole in (found.beside.overall if found.beside else {}).items():
        names = parts if name.partition("@")[0].endswith("_split") else group_names
        by_group = dict(zip(names, whole.by_group, strict=False))
        value = Mean(whole.value, whole.ci95, whole.n, whole.undefined)
        cells[name] = _cell(value) | {"by_group": jsonable(by_group)}
    return cells


def per_query(config: Config, lists: AnyLists, found: Measures, *, part: str) -> Saved:
    """Return per-query values as a file holds them, with what tells whose lists they are of."""
    evaluation, values = config.evaluation, found.values
    sampled = evaluation.protocol == "sampled"
    about = {
        "data": lists.data.name,
        "checksum": lists.data.checksum,
        "split": lists.rule,
        "part": part,
        "protocol": evaluation.protocol,
        "unrated": evaluation.unrated if sampled else None,
        "seed": config.seed if sampled else None,
        "metrics": list(values),  # in their order, which safetensors does not keep
    }
    users = torch.from_numpy(getattr(lists, part).user if found.users is None else found.users)
    return Saved({name: value.float() for name, value in values.items()} | {USER: users}, about)


def write_result(
    path: Path, result: dict[str, Any], queries: Saved, identity: Identity
) -> dict[str, Any]:
    """Write a metrics file, and before it the values of each query, to a file beside it.

    Both say which run they belong to. Returns what the metrics file holds.
    """
    whose = {IDENTITY: identity._asdict()}
    save_tensors(per_query_path(path), queries.tensors, queries.about | whose)
    write_text(path, json.dumps(result | whose, indent=2) + "\n")
    return result | whose


def metrics_name(result: dict[str, Any]) -> str:
    """Return the name of a file for metrics by another protocol, part or K than the run's."""
    ks = "-".join(str(k) for k in measured_ks(result))
    return f"metrics-{result['protocol']}-{result['part']}-k{ks}.json"


def is_of_some(result: dict[str, Any]) -> bool:
    """Return whether a metrics file is of a sample of the users."""
    users = result.get("users")
    return users is not None and users["measured"] < users["of"]


def measured_ks(result: dict[str, Any]) -> list[int]:
    """Return every K of a metrics file."""
    names = result["metrics"]
    return [int(name.removeprefix("ndcg@")) for name in names if name.startswith("ndcg@")]


class _Part(BaseModel, strict=True, allow_inf_nan=False):
    """A part of a metrics file, as `read_result` checks it."""


class _Cell(_Part):
    mean: float | None
    ci95: tuple[float | None, float | None]
    n: int
    undefined: int
    by_group: dict[str, float | None] = {}


class _Spread(_Part):
    mean: float | None


class _Users(_Part):
    measured: int
    of: int


class _Other(_Part):
    protocol: Protocol | None = None
    file: Annotated[str, Field(pattern=r"^metrics-[^/\\]+\.json$")] | None = None
    users: _Users | None = None
    metrics: dict[str, float | None] = {}
    left_out: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> "_Other":
        ks = [name for name in self.metrics if KNOWN.fullmatch(name)]
        if self.protocol is not None and not (self.file and self.users and ks):
            raise ValueError("a protocol without its file, users or metrics")
        return self


class _Reranked(_Part):
    method: str
    k: int
    settings: dict[str, Any]
    lists: int
    unmet: int


class _Identity(_Part):
    run: str
    config: str
    data: str


class _Result(_Part):
    """A metrics file: what its readers rely on; it may hold more."""

    identity: _Identity
    method: str
    data: str
    part: Literal["test", "validation"]
    protocol: Protocol
    metrics: dict[str, _Cell]
    preset: str | None = None
    c: float | None = None
    c_is: str | None = None
    c_relative: float | None = None
    needs_labels_when_serving: bool = False
    k: list[int] = []
    seed: int = 0
    users: _Users | None = None
    score_spread: _Spread | None = None
    unrated: int | None = None
    finished: bool = True
    chosen_epoch: int | None = None
    seconds: dict[str, float] = {}
    peak_rss_mb: float = 0.0
    other_protocol: _Other | None = None
    reranked: _Reranked | None = None
    warnings: list[str] = []

    @model_validator(mode="after")
    def _measured(self) -> "_Result":
        if not any(KNOWN.fullmatch(name) for name in self.metrics):
            raise ValueError("no NDCG")
        if any(name.startswith("ndcg@") and not KNOWN.fullmatch(name) for name in self.metrics):
            raise ValueError("an NDCG without a K")
        return self


def read_result(path: Path) -> dict[str, Any]:
    """Return what a metrics file holds, refusing what is none, or of another version."""
    text = read_text(path)
    try:
        _Result.model_validate_json(text)
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not a metrics file of this version, or damaged; fairtopk train and "
            f"evaluate write one"
        ) from error
    return found


def read_queries(path: Path, result: dict[str, Any]) -> Saved:
    """Return the values of each query that belong to a metrics file, refusing all others.

    Args:
        path: The file of the values.
        result: What the metrics file holds.
    """
    saved = load_tensors(path)
    if saved.about.get(IDENTITY) != result[IDENTITY]:
        raise InputError(f"{path} is of another run than the metrics file beside it")
    names, users = saved.about.get("metrics"), saved.tensors.get(USER)
    if not isinstance(names, list) or users is None or saved.tensors.keys() != {*names, USER}:
        raise InputError(f"{path} does not hold the values of each query")
    if any(value.shape != (len(users),) for value in saved.tensors.values()):
        raise InputError(f"{path} has metrics of other queries than it names")
    return saved


def resume_command(out: Path, config: str = CONFIG) -> str:
    """Return the command that goes on with a run that was stopped, by a file in its folder."""
    place = shlex.quote(str(out))
    return f"fairtopk train {place}/{config} --out {place} --resume"


def per_query_path(metrics: Path) -> Path:
    """Return where the values of each query are that belong to a metrics file.

    They are in ``per_query.safetensors`` for ``metrics.json``, in ``per_query-x.safetensors``
    for ``metrics-x.json`` or ``x.json``.
    """
    name = metrics.stem.removeprefix("metrics").removeprefix("-")
    return metrics.with_name(f"per_query-{name}.safetensors" if name else PER_QUERY)


def provenance(config: Config, lists: AnyLists, reused: Sequence[str]) -> dict[str, Any]:
    """Return what it takes to tell whether two results can be compared.

    `reused` says which stages of training were taken over, and from which runs.
    """
    return {
        IDENTITY: identity_of(config, lists)._asdict(),
        "fairtopk": __version__,
        "python": platform.python_version(),
        "platform": sys.platform,
        "packages": {name: version(name) for name in ("torch", "numpy", "numba", "polars")},
        "threads": torch.get_num_threads(),
        "reused": list(reused),
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
