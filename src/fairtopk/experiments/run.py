"""One training run and its folder.

`config.toml` (what was run, complete), `log.jsonl` (a line per epoch), `model.safetensors` and
`state.safetensors` (the checkpoint), `metrics.json` and `provenance.json` (the result). Files
appear by atomic rename; a run that was killed goes on to the same bits.
"""

import json
import math
import platform
import resource
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairtopk import __version__
from fairtopk.checkpoints import MODEL, Saved, load_pair, load_tensors, save_pair, save_tensors
from fairtopk.data.files import write_text
from fairtopk.errors import InputError
from fairtopk.estimators.methods import METHODS
from fairtopk.evaluation import evaluate, full_blocks, sampled_blocks
from fairtopk.experiments.alarms import alarms
from fairtopk.experiments.build import (
    build_lists,
    build_phases,
    build_sampler,
    build_scorer,
    warmup_key,
)
from fairtopk.experiments.choosing import chooser
from fairtopk.experiments.config import Config, check_config, dump_config, load_config
from fairtopk.lists import Lists
from fairtopk.metrics.intervals import Mean, mean_with_interval
from fairtopk.training import Trainer

CONFIG, LOG, METRICS, PROVENANCE = "config.toml", "log.jsonl", "metrics.json", "provenance.json"
Report = Callable[[Trainer, dict[str, Any] | None], None]


def train_run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    report: Report = lambda trainer, record: None,
    warmups: Path | None = None,
    lists: Lists | None = None,
) -> dict[str, Any]:
    """Train what `config` says into the folder `out`; return what ``metrics.json`` holds.

    Args:
        config: The run.
        out: A new folder, or with `resume` that of a run that was stopped.
        resume: Go on where it stopped; a finished run is returned as it is.
        report: Called after each step, and with its record after each epoch.
        warmups: Folder where warm-ups are kept to be shared between runs.
        lists: The data, if it is at hand; otherwise it is loaded.
    """
    if resume:
        config = _resumed_config(config, out)
        if (out / METRICS).exists():
            found: dict[str, Any] = json.loads((out / METRICS).read_text(encoding="utf-8"))
            return found
    elif out.exists() and any(out.iterdir()):
        raise InputError(
            f"{out} exists and is not empty; go on with --resume, or choose another"
        )
    lists = lists if lists is not None else build_lists(config.data, seed=config.seed)
    started = time.perf_counter()
    scorer = build_scorer(config, lists.data)
    trainer = _trainer(config, lists, scorer)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / CONFIG, dump_config(config))
    shared = (
        warmups / f"{warmup_key(config, lists)}.safetensors" if warmups is not None else None
    )
    spent = 0.0
    if resume:
        _, state = load_pair(out)
        trainer.load_state(state.tensors, state.about["progress"])
        spent = state.about["seconds"]
    elif shared is not None and shared.exists():
        saved = load_tensors(shared)
        trainer.load_state(saved.tensors | _unused(trainer), saved.about["progress"])
    minutes = config.training.save_minutes
    with _going(trainer, out, report, started - spent, minutes) as run:
        for record in run:
            progress = trainer.progress
            warm = progress.phase == 0 and progress.epoch == config.training.warmup_epochs
            if record is not None and warm and shared is not None and not shared.exists():
                _keep_warmup(trainer, shared)
    seconds = time.perf_counter() - started + spent
    return _finish(config, out, lists, trainer, seconds)


def load_model(out: Path, lists: Lists, config: Config) -> nn.Module:
    """Return the trained model of a run folder."""
    saved = load_tensors(out / MODEL)
    scorer = build_scorer(config, lists.data)
    try:
        scorer.load_state_dict(saved.tensors)
    except RuntimeError as error:
        raise InputError(f"{out / MODEL} does not fit the run's config and data") from error
    return scorer.eval()


def evaluate_run(
    out: Path, changes: Mapping[str, Any], *, part: str = "test", data: Path | None = None
) -> dict[str, Any]:
    """Return the metrics of a trained run on `part`, its evaluation settings changed.

    Args:
        out: The run's folder.
        changes: Keys of the config's ``evaluation`` with other values.
        part: ``test`` or ``validation``.
        data: Where the data is, if not where the config says.
    """
    if not (out / CONFIG).exists():
        raise InputError(f"{out} holds no run; give the folder that train wrote")
    if part not in ("test", "validation"):
        raise InputError(f"part must be test or validation, got {part!r}")
    values = tomllib.loads((out / CONFIG).read_text(encoding="utf-8"))
    values["evaluation"] |= changes
    if data is not None:
        values["data"]["path"] = str(data)
    config = check_config(values, "evaluation")
    lists = build_lists(config.data, seed=config.seed)
    scorer = load_model(out, lists, config)
    return summary(config, lists, measure(scorer, lists, config, part=part), part=part)


def measure(
    scorer: nn.Module, lists: Lists, config: Config, *, part: str = "test"
) -> dict[str, Tensor]:
    """Return every metric of a model on a part of the data, one value per query."""
    held_out = getattr(lists, part)
    evaluation = config.evaluation
    if evaluation.protocol == "full":
        return evaluate(scorer, full_blocks(held_out), evaluation.k)
    blocks = sampled_blocks(held_out, unrated=evaluation.unrated, seed=config.seed)
    return evaluate(scorer, iter(blocks), evaluation.k)


def summary(
    config: Config, lists: Lists, values: dict[str, Tensor], *, part: str
) -> dict[str, Any]:
    """Return what a metrics file says of per-query values."""
    return {
        "method": config.method.name,
        "preset": config.method.preset,
        "c": config.method.c if config.method.c_relative is None else None,
        "c_relative": config.method.c_relative,
        "k": list(config.method.ks),
        "seed": config.seed,
        "data": lists.data.name,
        "protocol": config.evaluation.protocol,
        "part": part,
        "split": lists.rule,
        "metrics": {
            name: _cell(mean_with_interval(value, seed=0)) for name, value in values.items()
        },
    }


def _trainer(config: Config, lists: Lists, scorer: nn.Module) -> Trainer:
    sampler = build_sampler(config, lists)
    training, evaluation = config.training, config.evaluation
    blocks = sampled_blocks(lists.validation, unrated=evaluation.unrated, seed=config.seed)
    k = config.method.ks[0]

    def validate() -> dict[str, float]:
        values = evaluate(scorer, iter(blocks), [k])
        means = {name: float(value.double().nanmean()) for name, value in values.items()}
        return {f"valid_{name}": mean for name, mean in means.items()} | {"valid": 1.0}

    fair = METHODS[config.method.name].fairness != "none"
    penalised = fair and (config.method.c or config.method.c_relative)
    gap = f"valid_{evaluation.select_gap}@{k}" if penalised else None
    return Trainer(
        scorer,
        build_phases(config, scorer, sampler),
        sampler,
        validate=validate,
        prefers=chooser(f"valid_ndcg@{k}", gap, tolerance=training.tolerance),
        watch=partial(alarms, gap=f"valid_exposure_gap_signed@{k}"),
        seed=config.seed,
        batch_size=training.batch_size,
        validate_every=training.validate_every,
        patience=training.patience,
    )


@contextmanager
def _going(
    trainer: Trainer, out: Path, report: Report, started: float, save_minutes: float
) -> Iterator[Iterator[dict[str, Any] | None]]:
    """Yield the run's steps, saved each epoch, every few minutes and on Ctrl-C."""
    last = time.perf_counter()

    def steps() -> Iterator[dict[str, Any] | None]:
        nonlocal last
        for record in trainer.run():
            report(trainer, record)
            if record is not None or time.perf_counter() - last > 60 * save_minutes:
                _save(trainer, out, time.perf_counter() - started)
                last = time.perf_counter()
            yield record

    try:
        yield steps()
    except KeyboardInterrupt:
        _save(trainer, out, time.perf_counter() - started)
        raise


def _save(trainer: Trainer, out: Path, seconds: float) -> None:
    progress = trainer.progress
    chosen = trainer.chosen or dict(trainer.scorer.state_dict())
    model = Saved(chosen, {"step": progress.total})
    about = {"step": progress.total, "progress": asdict(progress), "seconds": seconds}
    save_pair(out, model, Saved(trainer.state(), about))
    write_text(
        out / LOG, "".join(json.dumps(_rounded(record)) + "\n" for record in progress.history)
    )


def _keep_warmup(trainer: Trainer, path: Path) -> None:
    kept = {
        name: value
        for name, value in trainer.state().items()
        if name.startswith(("scorer.", "objective.0.", "optimizer.0."))
    }
    save_tensors(path, kept, {"progress": asdict(trainer.progress)})


def _unused(trainer: Trainer) -> dict[str, Tensor]:
    """Return the untouched state of the fine-tuning phase, which a kept warm-up lacks."""
    return {
        name: value
        for name, value in trainer.state().items()
        if name.startswith(("objective.1.", "optimizer.1."))
    }


def _finish(
    config: Config, out: Path, lists: Lists, trainer: Trainer, seconds: float
) -> dict[str, Any]:
    if trainer.chosen:
        trainer.scorer.load_state_dict(trainer.chosen)
    started = time.perf_counter()
    values = measure(trainer.scorer, lists, config)
    result = summary(config, lists, values, part="test")
    progress = trainer.progress
    result["chosen_epoch"] = (
        progress.history[progress.chosen]["epoch"] if progress.chosen is not None else None
    )
    result["seconds"] = {"training": seconds, "evaluation": time.perf_counter() - started}
    result["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    write_text(out / PROVENANCE, json.dumps(_provenance(config, lists), indent=2) + "\n")
    write_text(out / METRICS, json.dumps(result, indent=2) + "\n")
    return result


def _provenance(config: Config, lists: Lists) -> dict[str, Any]:
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


def _resumed_config(config: Config, out: Path) -> Config:
    if not (out / CONFIG).exists():
        raise InputError(f"{out} holds no run to go on with; start it without --resume")
    kept = load_config(out / CONFIG)
    if kept != config:
        raise InputError(f"{out} was started with another config; see its {CONFIG}")
    return kept


def _cell(found: Mean) -> dict[str, Any]:
    """Return a mean as a metrics file holds it."""
    low, high = found.ci95
    return _rounded(found._asdict()) | {"ci95": [_finite(low), _finite(high)]}


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record that JSON can hold: NaN becomes null."""
    return {name: _finite(value) for name, value in record.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
