"""Which run a file belongs to: its config, its data and how that was split.

What a metrics file and its values of each query may hold, as it is checked when read.

What a run leaves behind to be shared: its metrics and where they came from.

Data is named by name and checksum, never by path.
"""

import hashlib
import json
import platform
import re
import shlex
import sys
import zlib
from collections.abc import Mapping, Sequence
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
from fairtopk.errors import InputError
from fairtopk.evaluation import Beside
from fairtopk.metrics.intervals import Mean, mean_with_interval, means_with_intervals
from fairtopk.objectives.dpr import split_labels
from fairtopk.runs.build import AnyLists
from fairtopk.runs.config import Config
from fairtopk.storage import jsonable, read_text, write_text

IDENTITY = "identity"  # the key that it has in JSON and in descriptions of tensors


class Identity(NamedTuple):
    """What a run is, in every file that belongs to it.

    Attributes:
        run: Equal for the same config on the same data, split alike.
        config: Equal for the same config, wherever the files of its data lie.
        data: The checksum of the data.
    """

    run: str
    config: str
    data: str

    def refuse_other(self, about: Mapping[str, Any], path: Path) -> None:
        """Refuse a file of the run's folder that says it belongs to another run.

        Args:
            about: What the file says of itself.
            path: The file.
        """
        found = about.get(IDENTITY)
        if found == self._asdict():
            return
        if not isinstance(found, dict) or found.keys() != self._asdict().keys():
            raise InputError(f"{path} does not say which run it belongs to; it is not of a run")
        if found["config"] != self.config:
            raise InputError(
                f"{path} is of another run, or the config.toml beside it was edited; put the "
                f"right file back, or train again into a new folder"
            )
        raise InputError(
            f"the data is not what {path.parent} was trained on, or is split otherwise; see "
            f"its provenance.json, or train again into a new folder"
        )


def identity_of(config: Config, lists: AnyLists) -> Identity:
    """Return what tells a run from all others."""
    of_config, data = config_digest(config), lists.data.checksum
    return Identity(digest({"config": of_config, "data": data}, lists), of_config, data)


def config_digest(config: Config) -> str:
    """Return a name for a config, equal wherever the files of its data lie."""
    values = config.model_dump(mode="json")
    values["data"].pop("path")
    values["data"]["options"].pop("items", None)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def digest(parts: Mapping[str, Any], lists: AnyLists) -> str:
    """Return a name for some settings on a split of the data."""
    found = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
    found.update(lists.part.tobytes())
    return found.hexdigest()[:32]


CHECKSUM = "checksum"  # the key under which a file carries that of all else in it
KNOWN = re.compile(r"ndcg@[1-9][0-9]{0,8}")  # the metric that every metrics file has
TOLD = ("ndcg", "rank_exposure_gap")  # what is shown of the other protocol

Protocol = Literal["sampled", "full", "whole"]
Part = Literal["test", "validation"]
Count = Annotated[int, Field(ge=0)]


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a JSON file with a checksum of it, in place of an earlier one."""
    bare = {name: value for name, value in values.items() if name != CHECKSUM}
    return bare | {CHECKSUM: _checksum(bare)}


def is_sealed(values: Mapping[str, Any]) -> bool:
    """Return whether the content of a JSON file is what its checksum was made of."""
    return bool(values.get(CHECKSUM) == sealed(values)[CHECKSUM])


def _checksum(values: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


class _Part(BaseModel, strict=True, allow_inf_nan=False):
    """A part of a file."""


class _Cell(_Part):
    mean: float | None
    ci95: tuple[float | None, float | None]
    n: Count
    undefined: Count
    by_group: dict[str, float | None] = {}

    @model_validator(mode="after")
    def _bounded(self) -> "_Cell":
        if self.mean is not None and None in self.ci95:
            raise ValueError("a mean without both bounds of its interval")
        return self


class _Spread(_Part):
    mean: float | None


class _Users(_Part):
    measured: Count
    of: Count


class _LeftOut(_Part, extra="forbid"):
    """Why there is no other protocol."""

    left_out: str


class _Other(_Part):
    """What was measured by the other protocol."""

    protocol: Protocol
    file: Annotated[str, Field(pattern=r"^metrics-[^/\\]+\.json$")]
    users: _Users
    metrics: dict[str, float | None]

    @model_validator(mode="after")
    def _shown(self) -> "_Other":
        check_names(self.metrics)
        ks = {name.partition("@")[2] for name in self.metrics}
        if any(f"{name}@{k}" not in self.metrics for name in TOLD for k in ks):
            raise ValueError("a K without NDCG or the gap by rank")
        return self


class _Reranked(_Part):
    method: str
    k: int
    settings: dict[str, Any]
    lists: Count
    unmet: Count


class _Identity(_Part):
    run: str
    config: str
    data: str


class ResultFile(_Part):
    """A metrics file: what its readers rely on; it may hold more."""

    identity: _Identity
    checksum: str
    method: str
    data: str
    seed: int
    part: Part
    protocol: Protocol
    metrics: dict[str, _Cell]
    c: float | None
    c_relative: float | None
    needs_labels_when_serving: bool
    preset: str | None = None
    c_is: str | None = None
    k: list[int] = []
    users: _Users | None = None
    score_spread: _Spread | None = None
    unrated: int | None = None
    finished: bool = True
    chosen_epoch: int | None = None
    seconds: dict[str, float] = {}
    peak_rss_mb: float = 0.0
    other_protocol: _LeftOut | _Other | None = None
    reranked: _Reranked | None = None
    warnings: list[str] = []

    @model_validator(mode="after")
    def _measured(self) -> "ResultFile":
        check_names(self.metrics)
        return self


class QueriesFile(_Part):
    """What a file with the values of each query says of them."""

    identity: _Identity
    data: str
    part: Part
    protocol: Protocol
    seed: int | None
    metrics: Annotated[list[str], Field(min_length=1)]
    checksum: str | None = None
    split: str | None = None
    unrated: int | None = None


def check_names(metrics: Mapping[str, Any]) -> None:
    """Raise ValueError unless there is NDCG at some K, and every metric at each of them.

    Metrics without a K, such as ``group_auc``, stand for themselves.
    """
    ks = [name.partition("@")[2] for name in metrics if KNOWN.fullmatch(name)]
    names = {name.partition("@")[0] for name in metrics if "@" in name}
    wanted = {f"{name}@{k}" for name in names for k in ks}
    if not ks or wanted != {name for name in metrics if "@" in name}:
        raise ValueError("not the same metrics at every K")


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
    row, fair = method.row, method.row.is_fair  # without a penalty C has no effect
    all_users = getattr(lists, part).user
    return {
        "method": method.name,
        "preset": method.preset,
        "c": method.c if fair else None,
        "c_is": row.weight_meaning if fair and method.c is not None else None,
        "c_relative": method.c_relative if fair else None,
        "needs_labels_when_serving": row.needs_labels,
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
    cell: dict[str, Any] = jsonable(found._asdict())
    return cell
