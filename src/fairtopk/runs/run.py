"""One training run and its folder, resumed to the same bits after a kill.

`train_run` builds what a config says, trains it, saves checkpoints and ends with the metrics of
the test part by both protocols. Files of the folder are listed in `runs.result`; they appear
by atomic rename.
"""

import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fairtopk.errors import InputError, TrainingError, finishing_steps, stop
from fairtopk.lists.queries import AnyLists
from fairtopk.lists.users import Lists
from fairtopk.robust.learning import draw_problem, feature_problem
from fairtopk.robust.ranker import RobustRanker, check_length
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.runs.build import (
    build_any_lists,
    build_model,
    build_phases,
    chooser,
    is_penalised,
    keeps_last_epoch,
    latest,
    starts_from_baseline,
)
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import dump_config, load_config, what_differs
from fairtopk.runs.measure import (
    disagreement,
    measure_other_protocol,
    measure_run,
    other_protocol_summary,
)
from fairtopk.runs.open import OpenRun
from fairtopk.runs.result import (
    CONFIG,
    IDENTITY,
    LOG,
    METRICS,
    PROVENANCE,
    DamagedError,
    Identity,
    Owner,
    identity_of,
    provenance,
    read_result,
)
from fairtopk.runs.stages import (
    AnyTrainer,
    Stage,
    begin_after,
    keep_for_others,
    load_trainer,
    shared_stages,
)
from fairtopk.runs.validation import Validation, alarms, build_validation
from fairtopk.storage import (
    HALF,
    LOCK,
    MODEL,
    NEW,
    STATE,
    Saved,
    alone_in,
    check_tensors,
    jsonable,
    load_pair,
    load_tensors,
    remove_halves,
    save_pair,
    write_text,
)
from fairtopk.training.loop import Trainer

Report = Callable[[AnyTrainer, dict[str, Any] | None], None]


class RunFolder(NamedTuple):
    """A run while it is trained.

    Attributes:
        config: What is run.
        out: Its folder.
        lists: Its data.
        identity: What its files carry.
        reused: A sentence for each stage that was taken over from another run.
    """

    config: Config
    out: Path
    lists: AnyLists
    identity: Identity
    reused: tuple[str, ...] = ()

    def trained(self, trainer: AnyTrainer) -> OpenRun:
        """Return the run with its model at the chosen epoch."""
        if trainer.chosen:
            trainer.scorer.load_state_dict(trainer.chosen)
        return OpenRun(self.out, self.config, self.lists, self.identity, trainer.scorer)


Finish = Callable[[RunFolder, AnyTrainer, float], dict[str, Any]]


def train_run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    report: Report = lambda trainer, record: None,
    notice: Callable[[str], None] = lambda sentence: None,
    warmups: Path | None = None,
    lists: AnyLists | None = None,
    finish: Finish | None = None,
) -> dict[str, Any]:
    """Train what `config` says into the folder `out`; return what ``metrics.json`` holds.

    Args:
        config: The run.
        out: A new folder, or with `resume` that of a run that was stopped.
        resume: Start, or continue where it stopped; a finished run is only read.
        report: Called after each step, and with its record after each epoch.
        notice: Called with a sentence for each stage of training that is reused.
        warmups: Folder of warm-ups and teachers that runs share.
        lists: The data, if it is loaded already.
        finish: Replaces the measuring on the test part, which writes ``metrics.json``; called
            with the run, its trainer and the seconds that training took.
    """
    begun = is_begun(out)
    if begun:
        if not resume:
            raise InputError(
                f"{out} exists and is not empty; go on with --resume, or choose another"
            )
        config = _resumed_config(config, out)
    lists = lists if lists is not None else build_any_lists(config.data, seed=config.seed)
    run = RunFolder(config, out, lists, identity_of(config, lists))
    if (out / METRICS).exists():
        return _finished(run)
    started = time.perf_counter()
    trainer = build_trainer(config, lists, build_model(config, lists))
    with alone_in(out):
        if is_begun(out) != begun:  # while the data was being read
            raise InputError(f"another process has just begun a run in {out}")
        saved = _clear_leftovers(out)
        write_text(out / CONFIG, dump_config(config))
        stages = shared_stages(config, lists, warmups) if warmups is not None else []
        if saved is not None:
            run, spent = _resume(run, trainer, *saved)
        else:
            reused, spent = begin_after(stages, trainer), 0.0
            for sentence in reused:
                notice(sentence)
            run = run._replace(reused=reused)
        _train(run, trainer, stages, report, since=started - spent)
        return (finish or _finish)(run, trainer, time.perf_counter() - started + spent)


def is_begun(out: Path) -> bool:
    """Return whether a folder holds more than leftovers of a run that was killed at once."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder")
    return out.is_dir() and any(
        path.name != LOCK and path.suffix != HALF for path in out.iterdir()
    )


def _clear_leftovers(out: Path) -> tuple[Saved, Saved] | None:
    """Remove what was being written when a run was killed; return its last checkpoint."""
    remove_halves(out)
    saved = load_pair(out)
    if saved is not None and any((out / f"{NEW}{name}").exists() for name in (MODEL, STATE)):
        save_pair(out, *saved)  # the newest may have one of its files under another name
    for name in (MODEL, STATE):
        (out / f"{NEW}{name}").unlink(missing_ok=True)
    return saved


def _resume(
    run: RunFolder, trainer: AnyTrainer, model: Saved, state: Saved
) -> tuple[RunFolder, float]:
    """Load a checkpoint into a trainer; return the run, and the seconds that it had taken."""
    for saved, name in ((model, MODEL), (state, STATE)):
        run.identity.refuse_other(saved.about, run.out / name)
    check_tensors(run.out / MODEL, model.tensors, trainer.model())
    kept = load_trainer(trainer, run.out / STATE, state, model.tensors)
    return run._replace(reused=kept.reused), kept.seconds


def _train(
    run: RunFolder,
    trainer: AnyTrainer,
    stages: Sequence[Stage],
    report: Report,
    *,
    since: float,
) -> None:
    """Train to the end, saving as the config says; `since` is the time when training began."""
    saved_at, patience = time.perf_counter(), 60 * run.config.training.save_minutes
    with finishing_steps() as stop_signal, run.lists.training_threads():
        try:
            for record in trainer.run():
                report(trainer, record)
                now = time.perf_counter()
                signal = stop_signal()
                if record is not None or now - saved_at > patience or signal is not None:
                    _save(run, trainer, now - since)
                    saved_at = time.perf_counter()
                if signal is not None:
                    stop(signal)
                if record is not None:
                    keep_for_others(stages, trainer, made_by=_run_words(run))
            if (signal := stop_signal()) is not None:  # it came during the last save
                stop(signal)
        except TrainingError as error:
            kept = (run.out / MODEL).exists()
            end = "; the last good checkpoint is kept" if kept else ""
            if not kept:  # nothing to resume: the folder can be used again
                (run.out / CONFIG).unlink()
            raise TrainingError(f"{error}{end}") from error
    if not (run.out / MODEL).exists():  # there was no epoch to train
        _save(run, trainer, time.perf_counter() - since)


def _run_words(run: RunFolder) -> str:
    """Return a description of a run without its path."""
    config = run.config
    return f"{config.method.name}, seed {config.seed}, in {run.out.resolve().name}"


def build_trainer(config: Config, lists: AnyLists, scorer: nn.Module) -> AnyTrainer:
    """Return the trainer of a run, which chooses an epoch on validation lists.

    Without such lists the last epoch is kept.
    """
    validation = build_validation(config, lists)
    if not isinstance(scorer, RobustRanker):
        return _trainer(config, lists, scorer, validation)
    trainer, blocks = _trainer(config, lists, scorer.base, validation), validation.blocks
    if scorer.settings.ranking == "sampled":  # refused now, not after a warm-up
        for part in (lists.validation, lists.test):
            check_length(part.longest(unrated=config.evaluation.unrated))
    if isinstance(lists, Lists):
        draw, seen = partial(draw_problem, scorer, lists), blocks
    else:
        draw = partial(feature_problem, scorer, lists.data, lists.train.user)
        seen = blocks or lists.train.batches()
    validate = partial(validation.validate, scorer)
    return RobustTrainer(scorer, trainer, draw=draw, calibration=seen, validate=validate)


def _trainer(
    config: Config, lists: AnyLists, scorer: nn.Module, validation: Validation
) -> Trainer:
    training, k = config.training, validation.k
    penalised = is_penalised(config.method) and not starts_from_baseline(config)
    gap = f"valid_{config.evaluation.select_gap}@{k}" if penalised else None
    choose = chooser(f"valid_ndcg@{k}", gap, tolerance=training.tolerance)
    prefers = latest if keeps_last_epoch(config.method) else choose
    return Trainer(
        scorer,
        build_phases(config, scorer, lists, prefers),
        validate=partial(validation.validate, scorer),
        watch=partial(alarms, gap=f"valid_exposure_gap_signed@{k}"),
        seed=config.seed,
        batch_size=training.batch_size,
        validate_every=training.validate_every,
        patience=training.patience,
    )


def _save(run: RunFolder, trainer: AnyTrainer, seconds: float) -> None:
    progress = trainer.progress
    about = {IDENTITY: run.identity._asdict(), "step": progress.mark}
    state = {"progress": asdict(progress), "seconds": seconds, "reused": list(run.reused)}
    save_pair(run.out, Saved(trainer.model(), about), Saved(trainer.state(), about | state))
    lines = [json.dumps(jsonable(record)) + "\n" for record in progress.history]
    write_text(run.out / LOG, "".join(lines))


def _finish(run: RunFolder, trainer: AnyTrainer, seconds: float) -> dict[str, Any]:
    """Measure a trained run on its test part by both protocols, and write its results."""
    config, progress, trained = run.config, trainer.progress, run.trained(trainer)
    started = time.perf_counter()
    own = measure_run(trained)
    result = own.result
    del result["finished"]  # which the file itself shows
    result["chosen_epoch"] = (
        progress.history[progress.chosen]["epoch"] if progress.chosen is not None else None
    )
    result["seconds"] = {"training": seconds, "evaluation": time.perf_counter() - started}
    result["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started = time.perf_counter()
    other = measure_other_protocol(trained)
    result["seconds"]["other_protocol"] = time.perf_counter() - started
    result["other_protocol"] = other_protocol_summary(config, other)
    warning = disagreement(result, other, run.lists.data.group_names)
    result["warnings"] = [warning] if warning else []
    sources = provenance(config, run.lists, run.reused)
    write_text(run.out / PROVENANCE, json.dumps(sources, indent=2) + "\n")
    return own.save(run.out / METRICS)


def _finished(run: RunFolder) -> dict[str, Any]:
    """Return the content of a finished run's metrics file."""
    path = run.out / METRICS
    try:
        found = read_result(path, Owner(run.config, run.identity))
    except DamagedError as error:
        kept = (run.out / STATE).exists()  # which a sweep removes
        advice = "it, and --resume measures again" if kept else "its folder, and train it again"
        raise InputError(f"{path} is damaged; remove {advice}") from error
    if (run.out / MODEL).exists():  # a sweep may have removed it
        run.identity.refuse_other(load_tensors(run.out / MODEL).about, run.out / MODEL)
    return found


def _resumed_config(config: Config, out: Path) -> Config:
    if not (out / CONFIG).exists():
        raise InputError(f"{out} holds something else than a run; choose another folder")
    kept = load_config(out / CONFIG)
    if dump_config(kept) != dump_config(config):
        raise InputError(
            f"{out} was started with another config: {what_differs(kept, config)}; go on with "
            f"its own {CONFIG}, or choose another folder"
        )
    return kept
