"""Files of a run's folder: their names, which run they belong to, metrics written and read.

A run leaves ``config.toml`` (all that was run), ``log.jsonl`` (a line per epoch),
``model.safetensors`` and ``state.safetensors`` (the checkpoint), ``metrics.json`` with
``per_query.safetensors``, and ``provenance.json``. Each carries the `Identity` of its run. Data
is named by name and checksum, never by path, so that a folder can be shared.

A metrics file is JSON whose numbers are finite or null. Its format is checked when it is read,
and so is the checksum that it carries of all else in it: an edited one is refused.
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

import torch
from pydantic import AfterValidator, BaseModel, Field, model_validator

from fairtopk import __version__
from fairtopk.errors import InputError
from fairtopk.lists.queries import AnyLists
from fairtopk.runs.config import Config
from fairtopk.storage import Saved, load_tensors, read_text, save_tensors, write_text

# Of a run (the checkpoint's names are in `checkpoints`).
CONFIG, LOG, PROVENANCE = "config.toml", "log.jsonl", "provenance.json"
METRICS, PER_QUERY = "metrics.json", "per_query.safetensors"
RERANKED = "rerank-"  # how the metrics file of a re-ranked run begins
LONGEST = 150  # characters of its name that say what was requested; 255 are allowed in all
# Of the search for a weight, which has a run for each weight that it tries.
GOAL, SEARCH, TRIES, VALIDATED = "goal.toml", "search.json", "tries", "validation.json"
# Of a sweep, and in the folder of each of its runs.
WARMUPS, RESULTS, FAILURES = "warmups", "results.json", "failures.json"
AFTERWARDS = "afterwards.json"  # how a run was measured and re-ranked once it was trained

IDENTITY = "identity"  # the key that it has in JSON and in descriptions of tensors
USER = "user"  # the numbers of the users, among the metrics of each
CHECKSUM = "checksum"  # the key under which a file carries that of all else in it
KNOWN = re.compile(r"ndcg@[1-9][0-9]{0,8}")  # the metric that every metrics file has
OTHER_SHOWN = ("ndcg", "rank_exposure_gap")  # what readers show of the other protocol


class Identity(NamedTuple):
    """Tells a run from all others, in every file that belongs to it."""

    run: str  # equal for the same config on the same data, split alike
    config: str  # equal for the same config, wherever the files of its data lie
    data: str  # the checksum of the data

    def refuse_other(self, about: Mapping[str, Any], path: Path) -> None:
        """Refuse a file of the run's folder whose description `about` names another run."""
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
    """Return the identity of a config on its data."""
    of_config, data = config_digest(config), lists.data.checksum
    return Identity(digest({"config": of_config, "data": data}, lists), of_config, data)


def config_digest(config: Config) -> str:
    """Return a digest of a config, equal wherever the files of its data lie."""
    values = config.model_dump(mode="json")
    values["data"].pop("path")
    values["data"]["options"].pop("items", None)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def digest(parts: Mapping[str, Any], lists: AnyLists) -> str:
    """Return a digest of some settings on a split of the data."""
    found = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
    found.update(lists.part.tobytes())
    return found.hexdigest()[:32]


class DamagedError(InputError):
    """A metrics file is not one of this version, or was damaged or edited."""


class Owner(NamedTuple):
    """The run that a metrics file must belong to."""

    config: Config  # its config
    # What its files carry; None if its data is not loaded: then only the config is compared.
    identity: Identity | None = None
    # The lists that were measured, by the config's protocol and at its K; None: any.
    part: str | None = "test"


def write_result(
    path: Path, result: dict[str, Any], queries: Saved, identity: Identity
) -> dict[str, Any]:
    """Write a metrics file, and before it the file with the values of each query.

    Both say which run they belong to, and carry a checksum. Returns what the metrics file
    holds.
    """
    whose = {IDENTITY: identity._asdict()}
    save_tensors(per_query_path(path), queries.tensors, queries.about | whose)
    content = sealed(result | whose)
    write_text(path, json.dumps(content, indent=2) + "\n")
    return content


def read_result(path: Path, owner: Owner | None) -> dict[str, Any]:
    """Return the content of a metrics file, which must belong to `owner` if that is given.

    Raises:
        DamagedError: It is no metrics file of this version, or was edited.
        InputError: It belongs to another run, or to other lists.
    """
    try:
        text = read_text(path)
    except InputError as error:
        raise DamagedError(str(error)) from error
    try:
        ResultFile.model_validate_json(text)
        found: dict[str, Any] = json.loads(text)
        fits = found == sealed(found)
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
    if owner is None:
        return found
    config, whose = owner.config, owner.identity
    if whose is None:  # only its config can be compared
        whose = Identity(**found[IDENTITY])._replace(config=config_digest(config))
    whose.refuse_other(found, path)
    method, reranked = config.method.name, found.get("reranked")
    wanted: dict[str, Any] = {
        "method": f"{method} + {reranked['method']}" if reranked else method,
        "seed": config.seed,
    }
    if owner.part is not None:
        evaluation = config.evaluation
        wanted |= {"part": owner.part, "protocol": evaluation.protocol, "K": [*evaluation.k]}
    told = found | {"K": measured_ks(found)}
    for name, value in wanted.items():
        if told[name] != value:
            raise InputError(
                f"{path} is of {name} {told[name]}, and the run of {value}; put the right file "
                f"back, or remove it and measure again"
            )
    return found


def read_queries(path: Path, result: dict[str, Any]) -> Saved:
    """Return the values of each query that belong to the metrics file with `result`."""
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


def metrics_name(result: Mapping[str, Any]) -> str:
    """Return the name of a file for metrics that are not those that a run ends with.

    It says by which protocol, on which part and at which K they were measured, and after a
    re-ranking what was requested.
    """
    record = result.get("reranked")
    if record is None:
        ks = "-".join(str(k) for k in measured_ks(result))
        return f"metrics-{result['protocol']}-{result['part']}-k{ks}.json"
    words, settings = [record["method"]], record["settings"]
    if settings.get("rounding") == "down":  # then nothing is drawn, as ever
        settings = {key: settings[key] for key in settings if key not in ("rounding", "seed")}
    for key, value in settings.items():
        if isinstance(value, dict):
            value = "_".join(f"{group}-{share}" for group, share in value.items())
        if value is not None:
            words.append(f"{key}={value}")
    name = "-".join([*words, f"k={record['k']}", result["protocol"], result["part"]])
    if len(name) > LONGEST:  # there are as many shares as groups
        name = f"{name[:LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{RERANKED}{name}.json"


def is_user_sample(result: dict[str, Any]) -> bool:
    """Return whether only a sample of the users was measured."""
    users = result.get("users")
    return users is not None and users["measured"] < users["of"]


def measured_ks(result: Mapping[str, Any]) -> list[int]:
    """Return every K of a metrics file."""
    names = result["metrics"]
    return [int(name.removeprefix("ndcg@")) for name in names if name.startswith("ndcg@")]


def per_query_path(metrics: Path) -> Path:
    """Return the file with the values of each query that belongs to a metrics file.

    It is ``per_query.safetensors`` for ``metrics.json``, and ``per_query-x.safetensors`` for
    ``metrics-x.json`` or ``x.json``.
    """
    name = metrics.stem.removeprefix("metrics").removeprefix("-")
    return metrics.with_name(f"per_query-{name}.safetensors" if name else PER_QUERY)


def resume_command(out: Path, config: str = CONFIG) -> str:
    """Return the command that resumes a stopped run from a config in its folder."""
    place = shlex.quote(str(out))
    return f"fairtopk train {place}/{config} --out {place} --resume"


def provenance(config: Config, lists: AnyLists, reused: Sequence[str]) -> dict[str, Any]:
    """Return what decides whether two results can be compared.

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


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a JSON file with a checksum of it, in place of an earlier one."""
    bare = {name: value for name, value in values.items() if name != CHECKSUM}
    content = json.dumps(bare, sort_keys=True).encode()
    return bare | {CHECKSUM: f"{zlib.crc32(content):08x}"}


Protocol = Literal["sampled", "full", "whole"]
Part = Literal["test", "validation"]
Count = Annotated[int, Field(ge=0)]


def _same_at_every_k(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return metrics, refused unless there is NDCG at some K, and every metric at each of them.

    Metrics without a K, such as ``group_auc``, stand for themselves.
    """
    ks = [name.partition("@")[2] for name in metrics if KNOWN.fullmatch(name)]
    names = {name.partition("@")[0] for name in metrics if "@" in name}
    wanted = {f"{name}@{k}" for name in names for k in ks}
    if not ks or wanted != {name for name in metrics if "@" in name}:
        raise ValueError("not the same metrics at every K")
    return metrics


class FilePart(BaseModel, strict=True, allow_inf_nan=False):
    """A part of a file."""


class _Cell(FilePart):
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


class _Spread(FilePart):
    mean: float | None


class _Users(FilePart):
    measured: Count
    of: Count


class _LeftOut(FilePart, extra="forbid"):
    """Why there is no other protocol."""

    left_out: str


class _Other(FilePart):
    """What was measured by the other protocol."""

    protocol: Protocol
    file: Annotated[str, Field(pattern=r"^metrics-[^/\\]+\.json$")]
    users: _Users
    metrics: Annotated[dict[str, float | None], AfterValidator(_same_at_every_k)]

    @model_validator(mode="after")
    def _shown(self) -> "_Other":
        ks = {name.partition("@")[2] for name in self.metrics}
        if any(f"{name}@{k}" not in self.metrics for name in OTHER_SHOWN for k in ks):
            raise ValueError("a K without NDCG or the gap by rank")
        return self


class _Reranked(FilePart):
    method: str
    k: int
    settings: dict[str, Any]
    lists: Count
    unmet: Count


class _Identity(FilePart):
    run: str
    config: str
    data: str


class ResultFile(FilePart):
    """A metrics file: what its readers rely on; it may hold more."""

    identity: _Identity
    checksum: str
    method: str
    data: str
    seed: int
    part: Part
    protocol: Protocol
    metrics: Annotated[dict[str, _Cell], AfterValidator(_same_at_every_k)]
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


class QueriesFile(FilePart):
    """The description of a file with the values of each query."""

    identity: _Identity
    data: str
    part: Part
    protocol: Protocol
    seed: int | None
    metrics: Annotated[list[str], Field(min_length=1)]
    checksum: str | None = None
    split: str | None = None
    unrated: int | None = None
