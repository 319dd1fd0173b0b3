"""A small sweep, written as the files that runs leave, without training."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairtopk.metrics.intervals import means_with_intervals
from fairtopk.runs.config_file import check_config, dump_config, load_config
from fairtopk.runs.result import Identity, config_digest, write_result
from fairtopk.storage import Saved

USERS = 60
GAPS = ("exposure_gap", "rank_exposure_gap")
EVIL = "</script><script>window.hacked = 1</script>"

WriteRun = Callable[..., Path]


def metrics_of(c: float, seed: int, ks: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """NDCG falls and gaps shrink as c grows, for each user by about as much."""
    generator = torch.Generator().manual_seed(seed)
    luck = 0.01 * torch.rand(USERS, generator=generator)
    values = {f"ndcg@{k}": 0.5 - 0.01 * c + luck + 0.001 * k for k in ks}
    for gap in GAPS:
        for k in ks:
            value = (0.1 + luck) / (1 + c) + 0.001 * k
            value[0] = torch.nan
            values |= {f"{gap}@{k}": value, f"{gap}_mse@{k}": value**2}
            values[f"{gap}_signed@{k}"] = -value
            values[f"{gap}_floor@{k}"] = torch.full((USERS,), 0.02)
    return values


def write_run(
    out: Path,
    *,
    c: float | None,
    seed: int = 0,
    method: str | None = None,
    data: str = "films",
    ks: tuple[int, ...] = (10, 20),
    protocol: str = "sampled",
    file: str = "metrics.json",
    source: dict[str, str] | None = None,
    sha256: str = "ab" * 32,
    **settings: Any,
) -> Path:
    """Write the files of a run: K-SONG, or with a weight KSO-RED."""
    name = method or ("k-song" if c is None else "kso-red")
    given = {"name": name, "k": ks[0], **settings}
    given |= {} if c is None else {"c_relative": c}
    config = check_config(
        {
            "seed": seed,
            "method": given,
            "data": source or {"source": "synthetic"},
            "evaluation": {"k": list(ks)},
        },
        "the test",
    )
    if file != "metrics.json":  # measured later, by other settings than the run's own
        config = load_config(out / "config.toml")
    values = metrics_of(c or 0.0, seed, ks)
    result = {
        "method": name, "c": None, "c_relative": c, "seed": seed, "data": data,
        "protocol": protocol, "part": "test", "chosen_epoch": 2,
        "needs_labels_when_serving": False,
        "metrics": {
            key: mean._asdict() for key, mean in means_with_intervals(values, seed=0).items()
        },
    }  # fmt: skip
    if protocol == "full":  # there, some values of all users together
        cell = {"mean": 0.3 / (1 + (c or 0.0)), "ci95": [0.01, 0.9], "n": USERS, "undefined": 0}
        result["metrics"] |= {f"{name}@{k}": cell for name in ("rsp", "reo") for k in ks}
        result["score_spread"] = {"mean": 1.25}
    about = {"data": data, "protocol": protocol, "metrics": list(values), "part": "test"}
    about["seed"] = seed if protocol == "sampled" else None
    users = {"user": torch.arange(USERS)}
    identity = Identity(f"{out}", config_digest(config), sha256)
    write_result(out / file, result, Saved(values | users, about), identity)
    log = [
        {"phase": phase, "epoch": epoch, "loss": 1.0 / epoch, "spread": 0.5 + 0.1 * epoch,
         "valid_ndcg@10": 0.4, "alarms": ["flat <b>"] if c and epoch == 2 else []}
        for phase, epoch in (("warm-up", 1), ("fine-tuning", 1), ("fine-tuning", 2))
    ]  # fmt: skip
    (out / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in log))
    (out / "config.toml").write_text(dump_config(config))
    said = {"fairtopk": "0", "seed": seed, "data": {"name": data, "sha256": sha256}}
    said["identity"] = identity._asdict()
    (out / "provenance.json").write_text(json.dumps(said))
    return out


@pytest.fixture(name="write_run")
def write_run_fixture() -> WriteRun:
    return write_run


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return write_sweep(tmp_path / "sweep")


@pytest.fixture
def evil_sweep(sweep: Path) -> Path:
    return write_evil(sweep)


def write_sweep(folder: Path) -> Path:
    """Three weights and a colour-blind method, of two seeds."""
    for seed in (0, 1):
        for c in (None, 0.0, 1.0, 4.0):
            write_run(folder / f"{c}" / f"seed-{seed}", c=c, seed=seed)
    return folder


def write_evil(sweep: Path) -> Path:
    """Add the full catalogue, and names that try to be markup."""
    for seed in (0, 1):
        for c in (None, 4.0):
            out = sweep / f"{c}" / f"seed-{seed}"
            write_run(out, c=c, seed=seed, protocol="full", file="metrics-full.json", data=EVIL)
    write_run(sweep / "<img src=x onerror=alert(1)>", c=2.0, method="ng-de")
    return sweep
