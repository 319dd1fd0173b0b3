"""The format of a metrics file and of the values of each query, checked when they are read.

Both are JSON (of the values, the description): numbers are finite or null, and a metrics file
carries a checksum of all else in it, so that an edited one is refused.
"""

import json
import re
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

CHECKSUM = "checksum"  # the key under which a file carries that of all else in it
KNOWN = re.compile(r"ndcg@[1-9][0-9]{0,8}")  # the metric that every metrics file has
OTHER_SHOWN = ("ndcg", "rank_exposure_gap")  # what readers show of the other protocol

Protocol = Literal["sampled", "full", "whole"]
Part = Literal["test", "validation"]
Count = Annotated[int, Field(ge=0)]


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a JSON file with a checksum of it, in place of an earlier one."""
    bare = {name: value for name, value in values.items() if name != CHECKSUM}
    content = json.dumps(bare, sort_keys=True).encode()
    return bare | {CHECKSUM: f"{zlib.crc32(content):08x}"}


def is_sealed(values: Mapping[str, Any]) -> bool:
    """Return whether the content of a JSON file is what its checksum was made of."""
    return bool(values.get(CHECKSUM) == sealed(values)[CHECKSUM])


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
        if any(f"{name}@{k}" not in self.metrics for name in OTHER_SHOWN for k in ks):
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


def check_names(metrics: Mapping[str, Any]) -> None:
    """Raise ValueError unless there is NDCG at some K, and every metric at each of them.

    Metrics without a K, such as ``group_auc``, stand for themselves.
    """
    ks = [name.partition("@")[2] for name in metrics if KNOWN.fullmatch(name)]
    names = {name.partition("@")[0] for name in metrics if "@" in name}
    wanted = {f"{name}@{k}" for name in names for k in ks}
    if not ks or wanted != {name for name in metrics if "@" in name}:
        raise ValueError("not the same metrics at every K")
