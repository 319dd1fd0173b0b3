"""What a run leaves behind to be shared: its metrics and where they came from.

Data is named by name and checksum, never by path.
"""

import json
import math
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
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
from fairtopk.experiments.identity import IDENTITY, Identity, config_digest, identity_of
from fairtopk.experiments.result_schema import QueriesFile, ResultFile, is_sealed, sealed
from fairtopk.metrics.intervals import Mean, mean_with_interval, means_with_intervals

CONFIG, METRICS = "config.toml", "metrics.json"
PER_QUERY = "per_query.safetensors"
NORMAL_95 = 1.96  # standard errors that 95 % of a normal distribution are within

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

    Both say which run they belong to, and carry a checksum. Returns what the metrics file
    holds.
    """
    whose = {IDENTITY: identity._asdict()}
    save_tensors(per_query_path(path), queries.tensors, queries.about | whose)
    told = sealed(result | whose)
    write_text(path, json.dumps(told, indent=2) + "\n")
    return told


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


class DamagedError(InputError):
    """A metrics file is not one of this version, or was damaged or edited."""


class Owner(NamedTuple):
    """The run that a metrics file must be of.

    Attributes:
        config: Its config.
        identity: What its files carry; None where its data is not at hand, and the config
            alone is compared.
        part: Which lists it must be of, by the config's protocol and at its K; None: any.
    """

    config: Config
    identity: Identity | None = None
    part: str | None = "test"

    def refuse_other(self, found: dict[str, Any], path: Path) -> None:
        """Refuse what a metrics file holds, if it is of another run or of other lists."""
        config, whose = self.config, self.identity
        if whose is None:  # the file itself is asked for what cannot be compared
            whose = Identity(**found[IDENTITY])._replace(config=config_digest(config))
        whose.refuse_other(found, path)
        method, reranked = config.method.name, found.get("reranked")
        wanted: dict[str, Any] = {
            "method": f"{method} + {reranked['method']}" if reranked else method,
            "seed": config.seed,
        }
        told = {name: found[name] for name in wanted}
        if self.part is not None:
            evaluation = config.evaluation
            wanted |= {"part": self.part, "protocol": evaluation.protocol}
            told |= {"part": found["part"], "protocol": found["protocol"]}
            wanted["K"], told["K"] = list(evaluation.k), measured_ks(found)
        for name, value in wanted.items():
            if told[name] != value:
                raise InputError(
                    f"{path} is of {name} {told[name]}, and the run of {value}; put the right "
                    f"file back, or remove it and measure again"
                )


def read_result(path: Path, owner: Owner | None) -> dict[str, Any]:
    """Return what a metrics file holds.

    Args:
        path: The file.
        owner: The run that it must be of; None: whichever it says.

    Raises:
        DamagedError: It is no metrics file of this version, or was edited.
        InputError: It is of another run, or of other lists.
    """
    try:
        text = read_text(path)
    except InputError as error:
        raise DamagedError(str(error)) from error
    try:
        ResultFile.model_validate_json(text)
        found: dict[str, Any] = json.loads(text)
        fits = is_sealed(found)
    except (ValueError, RecursionError) as error:
        raise DamagedError(
            f"{path} is not a metrics file of this version, or damaged; fairtopk train and "
            f"evaluate write one"
        ) from error
    if not fits:
        raise DamagedError(
            f"{path} was edited or is damaged (its checksum does not fit its content); "
            f"fairtopk train and evaluate write one"
        )
    if owner is not None:
        owner.refuse_other(found, path)
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
    try:
        about = QueriesFile.model_validate_json(json.dumps(saved.about))
    except ValueError as error:
        raise InputError(f"{path} does not say which values of each query it holds") from error
    names, users = about.metrics, saved.tensors.get(USER)
    if users is None or len({*names, USER}) <= len(names):
        raise InputError(f"{path} does not hold the values of each query")
    if saved.tensors.keys() != {*names, USER} or not result["metrics"].keys() >= {*names}:
        raise InputError(f"{path} does not hold the values of each query")
    sampled = result["protocol"] == "sampled"
    wanted = {key: result[key] for key in ("data", "part", "protocol")}
    wanted["seed"] = result["seed"] if sampled else None
    for key, value in wanted.items():
        if getattr(about, key) != value:
            raise InputError(
                f"{path} is of {key} {getattr(about, key)}, and the metrics file beside it of "
                f"{value}"
            )
    for name, one in saved.tensors.items():
        if one.shape != users.shape or users.dim() != 1:
            raise InputError(f"{path} has metrics of other queries than it names")
        if one.dtype != (torch.int64 if name == USER else torch.float32):
            raise InputError(f"{path} has {name!r} in {one.dtype}")
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
