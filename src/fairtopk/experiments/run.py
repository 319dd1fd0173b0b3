"""One training run and its folder.

`config.toml` (what was run, complete), `log.jsonl` (a line per epoch), `model.safetensors` and
`state.safetensors` (the checkpoint), `metrics.json`, `per_query.safetensors` and
`provenance.json` (the result), and of the other protocol `metrics-*.json` and its values of
each query. Files appear by atomic rename; a run that was killed goes on to the same bits.
"""

import json
import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fairtopk.checkpoints import STATE, Saved, has_checkpoint, load_pair, save_pair
from fairtopk.data.files import write_text
from fairtopk.errors import InputError
from fairtopk.experiments.alarms import alarms
from fairtopk.experiments.both_protocols import disagreement, measure_other, told_of_other
from fairtopk.experiments.build import (
    AnyLists,
    build_any_lists,
    build_model,
    has_adversary,
    is_penalised,
)
from fairtopk.experiments.choosing import chooser, latest
from fairtopk.experiments.config import Config
from fairtopk.experiments.config_file import dump_config, load_config, what_differs
from fairtopk.experiments.keys import run_key
from fairtopk.experiments.measuring import longest_list, measure
from fairtopk.experiments.phases import build_phases, starts_blind
from fairtopk.experiments.result import (
    CONFIG,
    METRICS,
    jsonable,
    per_query,
    provenance,
    summary,
    write_result,
)
from fairtopk.experiments.stages import begin_after, keep_for_others, shared_stages
from fairtopk.experiments.stopping import finishing_steps
from fairtopk.experiments.validating import build_validation
from fairtopk.kernels.threads import torch_on_one_thread
from fairtopk.lists import Lists
from fairtopk.robust.drawing import draw_problem, feature_problem
from fairtopk.robust.ranker import RobustRanker, check_length
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.training import Trainer

LOG, PROVENANCE = "log.jsonl", "provenance.json"
AnyTrainer = Trainer | RobustTrainer
Report = Callable[[AnyTrainer, dict[str, Any] | None], None]
Finish = Callable[[Config, Path, AnyLists, AnyTrainer, float], dict[str, Any]]


def train_run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    report: Report = lambda trainer, record: None,
    warmups: Path | None = None,
    lists: AnyLists | None = None,
    finish: Finish | None = None,
) -> dict[str, Any]:
    """Train what `config` says into the folder `out`; return what ``metrics.json`` holds.

    Args:
        config: The run.
        out: A new folder, or with `resume` that of a run that was stopped.
        resume: Go on where it stopped; a finished run is returned as it is.
        report: Called after each step, and with its record after each epoch.
        warmups: Folder where warm-ups and teachers are kept to be shared between runs.
        lists: The data, if it is at hand; otherwise it is loaded.
        finish: Measures what was trained, in place of the test, which writes ``metrics.json``;
            given the config, `out`, the data, the trainer and the seconds that training took.
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
    stages = shared_stages(config, lists, warmups) if warmups is not None else []
    spent = 0.0
    if resume and has_checkpoint(out):  # a run that was killed early has none
        model, state = load_pair(out)
        if any(saved.about.get("run") != about["run"] for saved in (model, state)):
            raise InputError(f"the checkpoint in {out} is of another run, or of other data")
        trainer.load_state(state.tensors, state.about["progress"], model.tensors)
        spent = state.about["seconds"]
    else:
        begin_after(stages, trainer)
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
            if record is not None:
                keep_for_others(stages, trainer)
    if not has_checkpoint(out):  # there was no epoch to train
        _save(trainer, out, about, spent)
    seconds = time.perf_counter() - started + spent
    return (finish or _finish)(config, out, lists, trainer, seconds)


def build_trainer(config: Config, lists: AnyLists, scorer: nn.Module) -> AnyTrainer:
    """Return what trains `scorer` as `config` says and chooses an epoch on validation lists.

    Without any the last epoch is kept.
    """
    training = config.training
    validate, k, blocks = build_validation(config, lists)
    select_gap = f"valid_{config.evaluation.select_gap}@{k}"
    tuned_fairly = is_penalised(config.method) and not starts_blind(config)
    gap = select_gap if tuned_fairly else None
    choose = chooser(f"valid_ndcg@{k}", gap, tolerance=training.tolerance)
    trained = scorer.base if isinstance(scorer, RobustRanker) else scorer
    trainer = Trainer(
        trained,
        build_phases(
            config, trained, lists, latest if has_adversary(config.method) else choose
        ),
        validate=partial(validate, trained),
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
    started = time.perf_counter()
    other = measure_other(trainer.scorer, lists, config, out)
    result["seconds"]["other_protocol"] = time.perf_counter() - started
    result["other_protocol"] = told_of_other(config, other)
    warning = disagreement(result, other, lists.data.group_names)
    result["warnings"] = [warning] if warning else []
    write_text(out / PROVENANCE, json.dumps(provenance(config, lists), indent=2) + "\n")
    write_result(out / METRICS, result, per_query(config, lists, found, part="test"))
    return result


def _finished(out: Path) -> dict[str, Any]:
    """Return what a finished run left in its metrics file."""
    try:
        found: dict[str, Any] = json.loads((out / METRICS).read_text(encoding="utf-8"))
    except ValueError as error:
        kept = (out / STATE).exists()  # which a sweep removes
        advice = "it, and --resume measures again" if kept else "its folder, and train it again"
        raise InputError(f"{out / METRICS} is damaged; remove {advice}") from error
    return found


def _resumed_config(config: Config, out: Path) -> Config:
    if not (out / CONFIG).exists():
        raise InputError(f"{out} holds no run to go on with; start it without --resume")
    kept = load_config(out / CONFIG)
    if dump_config(kept) != dump_config(config):
        raise InputError(
            f"{out} was started with another config: {what_differs(kept, config)}; go on with "
            f"its own {CONFIG}, or choose another folder"
        )
    return kept
