"""Names of what runs start from, equal where it would end alike.

What runs share, trained once and kept: a warm-up, a colour-blind scorer to start from.

One training run and its folder.

`config.toml` (what was run, complete), `log.jsonl` (a line per epoch), `model.safetensors` and
`state.safetensors` (the checkpoint), `metrics.json`, `per_query.safetensors` and
`provenance.json` (the result), and of the other protocol `metrics-*.json` and its values of
each query. Files appear by atomic rename; a run that was killed goes on to the same bits.
"""

import hashlib
import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import llvmlite.binding
import numba
import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn

import fairtopk
from fairtopk.checkpoints import (
    FORMAT,
    MODEL,
    NEW,
    STATE,
    Saved,
    check_tensors,
    load_pair,
    load_tensors,
    remove_new,
    save_pair,
    save_tensors,
)
from fairtopk.errors import InputError, TrainingError
from fairtopk.kernels.threads import torch_on_one_thread
from fairtopk.lists.users import Lists
from fairtopk.objectives.methods import BASELINE
from fairtopk.robust.learning import draw_problem, feature_problem
from fairtopk.robust.ranker import RobustRanker, check_length
from fairtopk.robust.trainer import RobustTrainer
from fairtopk.runs.build import (
    AnyLists,
    build_any_lists,
    build_model,
    build_phases,
    chooser,
    finetune_method,
    has_third_phase,
    is_penalised,
    keeps_last_epoch,
    latest,
    shares_stages,
    starts_from_baseline,
)
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import dump_config, load_config, what_differs
from fairtopk.runs.measure import (
    disagreement,
    longest_list,
    measure,
    measure_other,
    told_of_other,
)
from fairtopk.runs.result import (
    CONFIG,
    IDENTITY,
    METRICS,
    DamagedError,
    Identity,
    Owner,
    digest,
    identity_of,
    per_query,
    provenance,
    read_result,
    summary,
    write_result,
)
from fairtopk.runs.validation import Validation, alarms, build_validation, validation_k
from fairtopk.signals import finishing_steps, stop
from fairtopk.storage import HALF, LOCK, alone_in, jsonable, remove_halves, write_text
from fairtopk.training.loop import Trainer, under
from fairtopk.training.progress import Progress

WARMUP: dict[str, Any] = {  # keys of [training] that shape the warm-up
    "warmup_epochs": True, "warmup_rate": True, "optimizer": True, "gamma_5": True,
    "weight_decay": True, "batch_size": True, "lists": {"rated", "unrated"}, "corrected": True,
}  # fmt: skip


CHOICE = {"unrated", "select_on"}  # with their K, what a colour-blind epoch is chosen by


@cache
def code_digest() -> str:
    """Return a name for what computes: this package's code, the libraries, the processor.

    A stage of training that was kept by other code, or on another kind of processor, may end
    in other bits.
    """
    found = hashlib.sha256()
    root = Path(fairtopk.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root).as_posix()}\0".encode())
        found.update(path.read_bytes())
    versions = [torch.__version__, np.__version__, numba.__version__]
    processor = llvmlite.binding.get_host_cpu_name()
    found.update(json.dumps([FORMAT, *versions, processor]).encode())
    return found.hexdigest()


def warmup_key(config: Config, lists: AnyLists) -> str:
    """Return a name for the warm-up: equal for runs whose warm-up would end alike."""
    # Groups play no part in it; but of documents they may be features too.
    data = lists.data.ratings_checksum if isinstance(lists, Lists) else lists.data.checksum
    return digest({"code": code_digest(), "data": data, **warmup_settings(config)}, lists)


def teacher_key(config: Config, lists: AnyLists) -> str:
    """Return a name for a colour-blind teacher: equal for runs that would have its like.

    Its log has gaps, so that groups play a part.
    """
    parts = {"code": code_digest(), "data": lists.data.checksum, **teacher_settings(config)}
    return digest(parts, lists)


def warmup_settings(config: Config) -> dict[str, Any]:
    """Return all of a config but its data that a warm-up hangs on."""
    return {
        "model": config.model.model_dump(),
        "seed": config.seed,
        "training": config.training.model_dump(include=WARMUP),
    }


def teacher_settings(config: Config) -> dict[str, Any]:
    """Return all of a config that a colour-blind teacher hangs on."""
    values = config.model_dump(mode="json", exclude={"method", "evaluation"})
    for key in ("catalogue_epochs", "catalogue_rate"):
        del values["training"][key]
    for key in ("per_group", "top", "head"):
        del values["training"]["lists"][key]
    return {
        "config": values,
        "method": finetune_method(config).model_dump(mode="json"),
        "chosen": config.evaluation.model_dump(include=CHOICE) | {"k": validation_k(config)},
    }


AnyTrainer = Trainer | RobustTrainer

KEY = "key"  # what a stage is named by, in its file too
CHOSEN = "chosen"  # what names of the weights of a chosen epoch begin with


class Kept(BaseModel, strict=True):
    """What a file says of the state in it.

    Attributes:
        progress: How far training was.
        seconds: How long it had taken.
        reused: Which stages were taken over from other runs, in sentences.
        made_by: Which run it is from, in words, if it was kept for others.
    """

    progress: Progress
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    reused: tuple[str, ...] = ()
    made_by: str = ""


class Stage(NamedTuple):
    """The end of a phase, by its number, and the file that it is kept in."""

    phase: int
    path: Path


def shared_stages(config: Config, lists: AnyLists, folder: Path) -> list[Stage]:
    """Return the stages of a run that others may have reached before."""
    if not shares_stages(config):
        return []
    keys = [warmup_key(config, lists)]
    if shares_teacher(config):
        keys.append(teacher_key(config, lists))
    return [Stage(phase, folder / f"{key}.safetensors") for phase, key in enumerate(keys)]


def shares_teacher(config: Config) -> bool:
    """Return whether a run ends its fine-tuning as a colour-blind teacher."""
    return has_third_phase(config) or config.method.name == BASELINE


def begin_after(stages: Sequence[Stage], trainer: AnyTrainer) -> tuple[str, ...]:
    """Begin after the last stage that an earlier run has kept and that can be read.

    Returns:
        What was reused and from which run, in a sentence; empty if nothing was.
    """
    for stage in reversed(stages):
        with suppress(InputError):  # a damaged one is trained again, and kept anew
            saved = load_tensors(stage.path)
            if saved.about.get(KEY) != stage.path.stem:
                raise InputError(f"{stage.path} is not the stage that its name tells")
            chosen = under(CHOSEN, saved.tensors)
            own = {name: one for name, one in saved.tensors.items() if not _is_chosen(name)}
            kept = load_trainer(trainer, stage.path, saved._replace(tensors=own), chosen)
            return (f"{trainer.phases[stage.phase].name} reused from {kept.made_by}",)
    return ()


def load_trainer(
    trainer: AnyTrainer, path: Path, state: Saved, model: Mapping[str, Tensor]
) -> Kept:
    """Put a trainer where a file's state is, refusing a state that does not fit it.

    A trainer that refuses one stays as it was. Returns what the file says of the state.

    Args:
        trainer: As it was built.
        path: The file of the state.
        state: What it holds.
        model: The weights of the chosen epoch, if there is one.
    """
    try:
        # As JSON: there a list is a tuple, and yet no text a number.
        kept = Kept.model_validate_json(json.dumps(state.about))
        progress = kept.progress
        if state.about.get("step", progress.mark) != progress.mark:
            raise InputError("its step is not that of its progress")
        trainer.load_state(state.tensors, asdict(progress), dict(model))
    except InputError as error:
        raise InputError(f"{path} does not fit the run's config and data: {error}") from error
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(f"{path} does not fit the run's config and data") from error
    return kept


def _is_chosen(name: str) -> bool:
    """Return whether a tensor is a weight of the chosen epoch."""
    return name.startswith(f"{CHOSEN}.")


def keep_for_others(stages: Sequence[Stage], trainer: AnyTrainer, *, made_by: str) -> None:
    """Keep the stage whose last epoch has just ended, if there is one.

    Only its owner may read it, and where it cannot be written training goes on without.

    Args:
        stages: Those of the run.
        trainer: Of the run.
        made_by: Which run that is, in words.
    """
    progress = trainer.progress
    for phase, path in stages:
        if progress.phase != phase or not trainer.phase_is_over():
            continue
        chosen = {f"{CHOSEN}.{name}": value for name, value in trainer.chosen.items()}
        about = {KEY: path.stem, "progress": asdict(progress), "made_by": made_by}
        with suppress(OSError, InputError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            save_tensors(path, trainer.state() | chosen, about, private=True)


LOG, PROVENANCE = "log.jsonl", "provenance.json"
Report = Callable[[AnyTrainer, dict[str, Any] | None], None]


class RunFolder(NamedTuple):
    """A run while it is trained.

    Attributes:
        config: What is run.
        out: Its folder.
        lists: Its data.
        identity: What its files carry.
        reused: Which stages were taken over from other runs, in sentences.
    """

    config: Config
    out: Path
    lists: AnyLists
    identity: Identity
    reused: tuple[str, ...] = ()


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
        resume: Start, or go on where it stopped; a finished run is returned as it is.
        report: Called after each step, and with its record after each epoch.
        notice: Is told in a sentence of each stage of training that is reused.
        warmups: Folder where warm-ups and teachers are kept to be shared between runs.
        lists: The data, if it is at hand; otherwise it is loaded.
        finish: Measures what was trained, in place of the test, which writes ``metrics.json``;
            given the run, its trainer and the seconds that training took.
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
            run, spent = _go_on(run, trainer, *saved)
        else:
            reused, spent = begin_after(stages, trainer), 0.0
            for sentence in reused:
                notice(sentence)
            run = run._replace(reused=reused)
        _train(run, trainer, stages, report, since=started - spent)
        return (finish or _finish)(run, trainer, time.perf_counter() - started + spent)


def is_begun(out: Path) -> bool:
    """Return whether a folder holds more than a run leaves that was killed at once."""
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
    remove_new(out)
    return saved


def _go_on(
    run: RunFolder, trainer: AnyTrainer, model: Saved, state: Saved
) -> tuple[RunFolder, float]:
    """Put a trainer where a checkpoint is; return the run, and the seconds that it took."""
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
    """Train to the end, saving as the config says; `since` is when training began."""
    saved_at, patience = time.perf_counter(), 60 * run.config.training.save_minutes
    with finishing_steps() as asked_to_stop, threads_for(run.lists):
        try:
            for record in trainer.run():
                report(trainer, record)
                now = time.perf_counter()
                asked = asked_to_stop()
                if record is not None or now - saved_at > patience or asked is not None:
                    _save(run, trainer, now - since)
                    saved_at = time.perf_counter()
                if asked is not None:
                    stop(asked)
                if record is not None:
                    keep_for_others(stages, trainer, made_by=_maker(run))
            if (asked := asked_to_stop()) is not None:  # during the last save
                stop(asked)
        except TrainingError as error:
            kept = (run.out / MODEL).exists()
            end = "; the last good checkpoint is kept" if kept else ""
            if not kept:  # nothing to go on from: the folder can be used again
                (run.out / CONFIG).unlink()
            raise TrainingError(f"{error}{end}") from error
    if not (run.out / MODEL).exists():  # there was no epoch to train
        _save(run, trainer, time.perf_counter() - since)


def _maker(run: RunFolder) -> str:
    """Return which run a stage is from, in words that tell no path."""
    config = run.config
    return f"{config.method.name}, seed {config.seed}, in {run.out.resolve().name}"


def build_trainer(config: Config, lists: AnyLists, scorer: nn.Module) -> AnyTrainer:
    """Return the trainer of a run, which chooses an epoch on validation lists.

    Without any the last epoch is kept.
    """
    validation = build_validation(config, lists)
    if not isinstance(scorer, RobustRanker):
        return _trainer(config, lists, scorer, validation)
    if scorer.settings.ranking == "sampled":  # refused now, not after a warm-up
        for part in (lists.validation, lists.test):
            check_length(longest_list(part, config))
    trainer, blocks = _trainer(config, lists, scorer.base, validation), validation.blocks
    if isinstance(lists, Lists):
        draw, seen = partial(draw_problem, scorer, lists), blocks
    else:
        draw = partial(feature_problem, scorer, lists.data, lists.train.user)
        seen = blocks or lists.train.blocks()
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


def threads_for(lists: AnyLists) -> AbstractContextManager[None]:
    """Return how threads are shared in training: with several, small steps take longer."""
    return nullcontext() if isinstance(lists, Lists) else torch_on_one_thread()


def _save(run: RunFolder, trainer: AnyTrainer, seconds: float) -> None:
    progress = trainer.progress
    about = {IDENTITY: run.identity._asdict(), "step": progress.mark}
    going_on = about | {
        "progress": asdict(progress), "seconds": seconds, "reused": list(run.reused),
    }  # fmt: skip
    save_pair(run.out, Saved(trainer.model(), about), Saved(trainer.state(), going_on))
    write_text(
        run.out / LOG,
        "".join(json.dumps(jsonable(record)) + "\n" for record in progress.history),
    )


def _finish(run: RunFolder, trainer: AnyTrainer, seconds: float) -> dict[str, Any]:
    config, out, lists = run.config, run.out, run.lists
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
    other = measure_other(trainer.scorer, lists, config, out, run.identity)
    result["seconds"]["other_protocol"] = time.perf_counter() - started
    result["other_protocol"] = told_of_other(config, other)
    warning = disagreement(result, other, lists.data.group_names)
    result["warnings"] = [warning] if warning else []
    where_from = provenance(config, lists, run.reused)
    write_text(out / PROVENANCE, json.dumps(where_from, indent=2) + "\n")
    queries = per_query(config, lists, found, part="test")
    return write_result(out / METRICS, result, queries, run.identity)


def _finished(run: RunFolder) -> dict[str, Any]:
    """Return what a finished run left in its metrics file."""
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
