"""One training run and its folder.

`config.toml` (what was run, complete), `log.jsonl` (a line per epoch), `model.safetensors` and
`state.safetensors` (the checkpoint), `metrics.json`, `per_query.safetensors` and
`provenance.json` (the result). Files appear by atomic rename; a run that was killed goes on to
the same bits.
"""

import json
import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fairtopk.checkpoints import (
    Saved,
    has_checkpoint,
    load_pair,
    load_tensors,
    save_pair,
    save_tensors,
)
from fairtopk.data.files import write_text
from fairtopk.errors import InputError
from fairtopk.evaluation import evaluate
from fairtopk.experiments.alarms import alarms
from fairtopk.experiments.build import (
    AnyLists,
    build_any_lists,
    build_model,
    build_phases,
    has_adversary,
    is_penalised,
    reads_features_alone,
)
from fairtopk.experiments.choosing import chooser, latest
from fairtopk.experiments.config import Config, dump_config, load_config
from fairtopk.experiments.keys import run_key, warmup_key
from fairtopk.experiments.measuring import blocks_of, longest_list, measure
from fairtopk.experiments.result import (
    CONFIG,
    METRICS,
    jsonable,
    per_query,
    provenance,
    summary,
    write_result,
)
from fairtopk.experiments.stopping import finishing_steps
from fairtopk.kernels.threads import torch_on_one_thread
from fairtopk.lists import Lists
from fairtopk.robust.drawing import draw_problem, feature_problem
from fairtopk.robust.ranker import RobustRanker, check_length
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.training import Trainer

LOG, PROVENANCE = "log.jsonl", "provenance.json"
AnyTrainer = Trainer | RobustTrainer
Report = Callable[[AnyTrainer, dict[str, Any] | None], None]


def train_run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    report: Report = lambda trainer, record: None,
    warmups: Path | None = None,
    lists: AnyLists | None = None,
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
            return _finished(out)
    elif out.exists() and any(out.iterdir()):
        raise InputError(
            f"{out} exists and is not empty; go on with --resume, or choose another"
        )
    lists = lists if lists is not None else build_any_lists(config.data, seed=config.seed)
    started = time.perf_counter()
    scorer = build_model(config, lists)
    trainer = build_trainer(config, lists, scorer)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / CONFIG, dump_config(config))
    about = {"run": run_key(config, lists), "data": lists.data.checksum}
    shared = None
    if warmups is not None and not reads_features_alone(config):
        shared = warmups / f"{warmup_key(config, lists)}.safetensors"
    spent = 0.0
    if resume and has_checkpoint(out):  # a run that was killed early has none
        model, state = load_pair(out)
        if any(saved.about.get("run") != about["run"] for saved in (model, state)):
            raise InputError(f"the checkpoint in {out} is of another run, or of other data")
        trainer.load_state(state.tensors, state.about["progress"], model.tensors)
        spent = state.about["seconds"]
    elif shared is not None:
        _take_warmup(trainer, shared)
    with finishing_steps() as asked_to_stop, threads_for(lists):
        saved_at = time.perf_counter()
        for record in trainer.run():
            report(trainer, record)
            now = time.perf_counter()
            late = now - saved_at > 60 * config.training.save_minutes
            if record is not None or late or asked_to_stop():
                _save(trainer, out, about, now - started + spent)
                saved_at = time.perf_counter()
            if asked_to_stop():
                raise KeyboardInterrupt
            progress = trainer.progress
            warm = progress.phase == 0 and progress.epoch == config.training.warmup_epochs
            if record is not None and warm and shared is not None:
                with suppress(OSError):  # a home that cannot be written to has no cache
                    save_tensors(shared, trainer.state(), {"progress": asdict(progress)})
    if not has_checkpoint(out):  # there was no epoch to train
        _save(trainer, out, about, spent)
    return _finish(config, out, lists, trainer, time.perf_counter() - started + spent)


def build_trainer(config: Config, lists: AnyLists, scorer: nn.Module) -> AnyTrainer:
    """Return what trains `scorer` as `config` says and chooses an epoch on validation lists.

    Without any the last epoch is kept.
    """
    training, evaluation = config.training, config.evaluation
    blocks = blocks_of(lists.validation, config)
    own = config.method.ks[0] if config.method.k_of == "list" else evaluation.k[0]
    k = evaluation.select_k or own

    def validate(measured: nn.Module) -> dict[str, float]:
        if not blocks:
            return {}
        values = evaluate(measured, iter(blocks), [k])
        means = {name: float(value.double().nanmean()) for name, value in values.items()}
        return {f"valid_{name}": mean for name, mean in means.items()} | {"valid": 1.0}

    gap = f"valid_{evaluation.select_gap}@{k}" if is_penalised(config.method) else None
    choose = chooser(f"valid_ndcg@{k}", gap, tolerance=training.tolerance)
    trained = scorer.base if isinstance(scorer, RobustRanker) else scorer
    trainer = Trainer(
        trained,
        build_phases(config, trained, lists),
        validate=partial(validate, trained),
        prefers=latest if has_adversary(config.method) else choose,
        watch=partial(alarms, gap=f"valid_exposure_gap_signed@{k}"),
        seed=config.seed,
        batch_size=training.batch_size,
        validate_every=training.validate_every,
        patience=training.patience,
    )
    if not isinstance(scorer, RobustRanker):
        return trainer
    if scorer.settings.ranking == "sampled":  # refused now, not after a warm-up
        for part in (lists.validation, lists.test):
            check_length(longest_list(part, config))
    if isinstance(lists, Lists):
        draw, seen = partial(draw_problem, scorer, lists), blocks
    else:
        draw = partial(feature_problem, scorer, lists.data, lists.train.user)
        seen = blocks or lists.train.blocks()
    return RobustTrainer(
        scorer, trainer, draw=draw, calibration=seen, validate=partial(validate, scorer)
    )


def threads_for(lists: AnyLists) -> AbstractContextManager[None]:
    """Return how threads are shared in training: with several, small steps take longer."""
    return nullcontext() if isinstance(lists, Lists) else torch_on_one_thread()


def _take_warmup(trainer: AnyTrainer, path: Path) -> None:
    """Begin after a warm-up that an earlier run has kept, if there is one that can be read."""
    try:
        saved = load_tensors(path)
    except InputError:
        return
    trainer.load_state(saved.tensors, saved.about["progress"], {})


def _save(trainer: AnyTrainer, out: Path, about: dict[str, Any], seconds: float) -> None:
    progress = trainer.progress
    about = about | {"step": progress.mark}
    going_on = about | {"progress": asdict(progress), "seconds": seconds}
    save_pair(out, Saved(trainer.model(), about), Saved(trainer.state(), going_on))
    write_text(
        out / LOG, "".join(json.dumps(jsonable(record)) + "\n" for record in progress.history)
    )


def _finish(
    config: Config, out: Path, lists: AnyLists, trainer: AnyTrainer, seconds: float
) -> dict[str, Any]:
    if trainer.chosen:
        trainer.scorer.load_state_dict(trainer.chosen)
    started = time.perf_counter()
    found = measure(trainer.scorer, lists, config)
    result = summary(config, lists, found, part="test")
    progress = trainer.progress
    result["chosen_epoch"] = (
        progress.history[progress.chosen]["epoch"] if progress.chosen is not None else None
    )
    result["seconds"] = {"training": seconds, "evaluation": time.perf_counter() - started}
    result["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    write_text(out / PROVENANCE, json.dumps(provenance(config, lists), indent=2) + "\n")
    write_result(out / METRICS, result, per_query(config, lists, found.values, part="test"))
    return result


def _finished(out: Path) -> dict[str, Any]:
    """Return what a finished run left in its metrics file."""
    try:
        found: dict[str, Any] = json.loads((out / METRICS).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            f"{out / METRICS} is damaged; remove it, and --resume measures again"
        ) from error
    return found


def _resumed_config(config: Config, out: Path) -> Config:
    if not (out / CONFIG).exists():
        raise InputError(f"{out} holds no run to go on with; start it without --resume")
    kept = load_config(out / CONFIG)
    if kept != config:
        raise InputError(f"{out} was started with another config; see its {CONFIG}")
    return kept
