"""The other protocol at the end of a run: measured, kept beside its own, compared with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config
from fairtopk.experiments.identity import Identity
from fairtopk.experiments.measuring import measure, some_users
from fairtopk.experiments.protocols import other_protocol, why_no_other
from fairtopk.experiments.result import (
    METRICS,
    Owner,
    is_of_some,
    measured_ks,
    metrics_name,
    per_query,
    read_result,
    summary,
    write_result,
)
from fairtopk.lists import Lists

TOLD = ("ndcg", "exposure_gap", "rank_exposure_gap", "rank_exposure_gap_signed")
SIGNED = "rank_exposure_gap_signed"


def measure_other(
    scorer: nn.Module, lists: AnyLists, config: Config, out: Path, identity: Identity
) -> dict[str, Any] | None:
    """Measure a trained model by the protocol that is not its own, and keep that in `out`.

    Of a catalogue for which that is much work, it is measured for a seeded sample of users.

    Returns:
        What the metrics file says; None where there is no other protocol.
    """
    other = other_protocol(config)
    if other is None:
        return None
    assert isinstance(lists, Lists)  # documents have one protocol
    evaluation = config.evaluation.model_copy(update={"protocol": other})
    config = config.model_copy(update={"evaluation": evaluation})
    users = some_users(lists.test, seed=config.seed) if other == "full" else None
    found = measure(scorer, lists, config, users=users)
    result = {**summary(config, lists, found, part="test"), "finished": True}
    queries = per_query(config, lists, found, part="test")
    return write_result(out / metrics_name(result), result, queries, identity)


def told_of_other(config: Config, other: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a run's metrics file says of the other protocol, or why there is none."""
    if other is None:
        return {"left_out": why_no_other(config)}
    names = [f"{name}@{k}" for k in measured_ks(other) for name in TOLD]
    return {
        "protocol": other["protocol"],
        "file": metrics_name(other),
        "users": other["users"],
        "metrics": {name: other["metrics"][name]["mean"] for name in names},
    }


def has_other(out: Path, owner: Owner, protocol: str) -> bool:
    """Return whether a finished run was measured by another protocol for all users.

    Args:
        out: The run's folder.
        owner: The run, which its metrics files must be of.
        protocol: The other one.
    """
    told = read_result(out / METRICS, owner).get("other_protocol") or {}
    if told.get("protocol") != protocol:
        return False
    try:
        other = read_result(out / told["file"], owner._replace(part=None))
        return other["protocol"] == protocol and not is_of_some(other)
    except (InputError, OSError):
        return False


def disagreement(
    own: dict[str, Any], other: dict[str, Any] | None, group_names: Sequence[str]
) -> str | None:
    """Return a sentence where sampled lists favour one side and the catalogue the other.

    A side is favoured where the 95 % interval of the signed gap by rank leaves out 0.

    Args:
        own: What the run's metrics file says.
        other: What was measured by the other protocol, if there is one.
        group_names: The first is that of the named group.
    """
    if other is None:
        return None
    by = {result["protocol"]: result["metrics"] for result in (own, other)}
    sampled, full = by["sampled"], by["full"]
    ks = [k for k in measured_ks(own) if _side(sampled, k) * _side(full, k) < 0]
    if not ks:
        return None
    k = ks[0]
    alike = [one for one in ks if _side(sampled, one) == _side(sampled, k)]
    here, there = ("more", "less") if _side(sampled, k) > 0 else ("less", "more")
    means = [metrics[f"{SIGNED}@{k}"]["mean"] for metrics in (sampled, full)]
    return (
        f"sampled lists and the catalogue disagree: at K = {', '.join(map(str, alike))}, "
        f"{group_names[0]} gets {here} than the rest by rank on sampled lists "
        f"({means[0]:+.2g} at {k}) and {there} on the whole catalogue ({means[1]:+.2g}); go by "
        f"the catalogue if that is what users see the top of"
    )


def _side(metrics: dict[str, Any], k: int) -> int:
    """Return 1 where the named group gets more than the rest, -1 less, 0 if either may be."""
    low, high = metrics.get(f"{SIGNED}@{k}", {}).get("ci95", (None, None))
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)
