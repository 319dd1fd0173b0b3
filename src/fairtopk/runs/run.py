"""One training run and its folder, resumed to the same bits after a kill.

`train_run` builds what a config says, trains it, saves checkpoints and ends with the metrics of
the test part by both protocols. Files of the folder are listed in `runs.result`; they appear
by atomic rename.

Runs share stages of training: a warm-up, or a colour-blind scorer to start from. A stage is
trained once and kept in a file named by a digest of all that it depends on: the settings, the
data, this code. Runs whose stage would end in the same bits have the same digest.
"""

import hashlib
import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import llvmlite.binding
import numba
import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor

import fairtopk
from fairtopk import storage
from fairtopk.errors import InputError, TrainingError, finishing_steps, stop
from fairtopk.lists.queries import AnyLists
from fairtopk.models.registry import MODELS
from fairtopk.runs import build, measure
from fairtopk.runs import result as files
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import dump_config, what_differs
from fairtopk.runs.open import OpenRun
from fairtopk.runs.trainer import AnyTrainer, build_trainer, validation_k
from fairtopk.training.loop import Progress, under

WARMUP: dict[str, Any] = {  # keys of [training] that shape the warm-up
    "warmup_epochs": True, "warmup_rate": True, "optimizer": True, "gamma_5": True,
    "weight_decay": True, "batch_size": True, "lists": {"rated", "unrated"}, "corrected": True,
}  # fmt: skip
CHOICE = {"unrated", "select_on"}  # keys of [evaluation] that choose a colour-blind epoch
KEY = "key"  # under which the file of a stage repeats its name
CHOSEN = "chosen"  # how names of the weights of the chosen epoch begin


class Hooks(NamedTuple):
    """Functions that are called while a run is trained."""

    # Called after each step, and with its record after each epoch.
    report: Callable[[AnyTrainer, dict[str, Any] | None], None] = lambda trainer, record: None
    # Called with a sentence for each stage of training that is reused, and for each size of
    # training lists that the data does not fill.
    notice: Callable[[str], None] = lambda sentence: None
    # Replaces the measuring on the test part, which writes ``metrics.json``; called with the
    # run at its chosen epoch and the seconds that training took.
    finish: Callable[[OpenRun, float], dict[str, Any]] | None = None


NO_HOOKS = Hooks()


def train_run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    hooks: Hooks = NO_HOOKS,
    warmups: Path | None = None,
    lists: AnyLists | None = None,
) -> dict[str, Any]:
    """Train what `config` says into the folder `out`; return what ``metrics.json`` holds.

    Args:
        config: The run.
        out: A new folder, or with `resume` that of a run that was stopped.
        resume: Start, or continue where it stopped; a finished run is only read.
        hooks: Functions to call on the way.
        warmups: Folder of warm-ups and teachers that runs share.
        lists: The data, if it is loaded already.
    """
    begun = is_begun(out)
    if begun:
        if not resume:
            raise InputError(
                f"{out} exists and is not empty; go on with --resume, or choose another"
            )
        if not (out / files.CONFIG).exists():
            raise InputError(f"{out} holds something else than a run; choose another folder")
        if (change := what_differs(out / files.CONFIG, config)) is not None:
            raise InputError(
                f"{out} was started with another config: {change}; go on with its own "
                f"{files.CONFIG}, or choose another folder"
            )
    lists = lists if lists is not None else build.build_any_lists(config.data, config.seed)
    identity = files.identity_of(config, lists)
    if (out / files.METRICS).exists():
        return _finished(config, out, identity)
    started = time.perf_counter()
    trainer = build_trainer(config, lists, build.build_model(config, lists))
    run = OpenRun(out, config, lists, identity, trainer.scorer)
    with storage.alone_in(out):
        if is_begun(out) != begun:  # while the data was being read
            raise InputError(f"another process has just begun a run in {out}")
        storage.remove_halves(out)  # of files that were being written when a run was killed
        saved, spent = storage.load_pair(out), 0.0
        unsettled = [out / f"{storage.NEW}{name}" for name in (storage.MODEL, storage.STATE)]
        if saved and any(path.exists() for path in unsettled):
            storage.save_pair(out, *saved)  # the newest may have a file under another name
        for path in unsettled:
            path.unlink(missing_ok=True)
        storage.write_text(out / files.CONFIG, dump_config(config))
        stages = shared_stages(config, lists, warmups) if warmups is not None else []
        if saved is not None:
            model, state = saved
            for one, name in ((model, storage.MODEL), (state, storage.STATE)):
                identity.refuse_other(one.about, out / name)
            fault = f"{out / storage.MODEL} does not fit the run's config and data:"
            storage.check_tensors(fault, model.tensors, trainer.model())
            resumed = load_trainer(trainer, out / storage.STATE, state, model.tensors)
            reused, spent = resumed.reused, resumed.seconds
            del saved, model, state  # copies of the weights
        else:
            reused = begin_after(stages, trainer)
            for sentence in reused:
                hooks.notice(sentence)
        if notice := getattr(trainer, "notice", ""):
            hooks.notice(notice)
        for sentence in build.oversized(config, lists):
            hooks.notice(sentence)
        _train(run, trainer, stages, hooks, reused=reused, since=started - spent)
        seconds = time.perf_counter() - started + spent
        if trainer.chosen:
            trainer.scorer.load_state_dict(trainer.chosen)
        if hooks.finish is not None:
            return hooks.finish(run, seconds)
        return _finish(run, trainer, seconds, reused)


def is_begun(out: Path) -> bool:
    """Return whether a folder holds more than leftovers of a run that was killed at once."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder")
    return out.is_dir() and any(
        path.name != storage.LOCK and path.suffix != storage.HALF for path in out.iterdir()
    )


def _train(
    run: OpenRun,
    trainer: AnyTrainer,
    stages: Sequence[Path],
    hooks: Hooks,
    *,
    reused: Sequence[str],
    since: float,
) -> None:
    """Train to the end, saving as the config says; `since` is the time when training began."""
    config, out = run.config, run.out
    made_by = f"{config.method.name}, seed {config.seed}, in {out.resolve().name}"
    saved_at, patience = time.perf_counter(), 60 * config.training.save_minutes
    with finishing_steps() as stop_signal, run.lists.training_threads():
        try:
            for record in trainer.run():
                hooks.report(trainer, record)
                now = time.perf_counter()
                signal = stop_signal()
                if record is not None or now - saved_at > patience or signal is not None:
                    _save(run, trainer, now - since, reused)
                    saved_at = time.perf_counter()
                if signal is not None:
                    stop(signal)
                if record is not None:
                    keep_for_others(stages, trainer, made_by=made_by)
            if (signal := stop_signal()) is not None:  # it came during the last save
                stop(signal)
        except TrainingError as error:
            if (out / storage.MODEL).exists():
                raise TrainingError(f"{error}; the last good checkpoint is kept") from error
            (out / files.CONFIG).unlink()  # nothing to resume: the folder can be used again
            raise TrainingError(str(error)) from error
    if not (out / storage.MODEL).exists():  # there was no epoch to train
        _save(run, trainer, time.perf_counter() - since, reused)


def _save(run: OpenRun, trainer: AnyTrainer, seconds: float, reused: Sequence[str]) -> None:
    progress = trainer.progress
    about = {files.IDENTITY: run.identity._asdict(), "step": progress.mark}
    state = {"progress": asdict(progress), "seconds": seconds, "reused": list(reused)}
    model = storage.Saved(trainer.model(), about)
    storage.save_pair(run.out, model, storage.Saved(trainer.state(), about | state))
    lines = [json.dumps(storage.jsonable(record)) + "\n" for record in progress.history]
    storage.write_text(run.out / files.LOG, "".join(lines))


def _finish(
    run: OpenRun, trainer: AnyTrainer, seconds: float, reused: Sequence[str]
) -> dict[str, Any]:
    """Measure a trained run on its test part by both protocols, and write its results."""
    config, progress = run.config, trainer.progress
    started = time.perf_counter()
    own = measure.measure_run(run)
    result = own.result
    del result["finished"]  # which the file itself shows
    result["chosen_epoch"] = (
        progress.history[progress.chosen]["epoch"] if progress.chosen is not None else None
    )
    result["seconds"] = {"training": seconds, "evaluation": time.perf_counter() - started}
    result["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started = time.perf_counter()
    other, result["other_protocol"] = measure.measure_other_protocol(run)
    result["seconds"]["other_protocol"] = time.perf_counter() - started
    warning = measure.disagreement(result, other, run.lists.data.group_names)
    result["warnings"] += [warning] if warning else []
    for path in run.out.glob("*.json"):  # measured at a checkpoint before the last
        with suppress(InputError):
            if not files.read_result(path, None).get("finished", True):
                files.per_query_path(path).unlink(missing_ok=True)
                path.unlink()
    sources = files.provenance(config, run.lists, reused)
    storage.write_text(run.out / files.PROVENANCE, json.dumps(sources, indent=2) + "\n")
    return own.save(run.out / files.METRICS)


def _finished(config: Config, out: Path, identity: files.Identity) -> dict[str, Any]:
    """Return the content of a finished run's metrics file."""
    path, model = out / files.METRICS, out / storage.MODEL
    try:
        found = files.read_result(path, files.Owner(config, identity))
    except files.DamagedError as error:
        kept = (out / storage.STATE).exists()  # which a sweep removes
        advice = "it, and --resume measures again" if kept else "its folder, and train it again"
        raise InputError(f"{path} is damaged; remove {advice}") from error
    if model.exists():  # a sweep may have removed it
        identity.refuse_other(storage.load_tensors(model).about, model)
    return found


class Kept(BaseModel, strict=True):
    """The description of a saved state of training."""

    progress: Progress  # how far training was
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # how long it had taken
    # A sentence for each stage that was taken over from another run.
    reused: tuple[str, ...] = ()
    made_by: str = ""  # the run that kept it for others, in words


def shared_stages(config: Config, lists: AnyLists, folder: Path) -> list[Path]:
    """Return the file in `folder` of each stage that a run shares, in the order of phases."""
    # Groups matter to a teacher, since the log of its training has gaps.
    checksums = (lists.warmup_checksum, lists.data.checksum)
    stages = []
    for data, settings in zip(checksums, stage_settings(config), strict=False):
        key = files.digest({"code": code_digest(), "data": data, **settings}, lists)
        stages.append(folder / f"{key}.safetensors")
    return stages


def stage_settings(config: Config) -> list[dict[str, Any]]:
    """Return what determines each stage that a run may share, apart from its data and code.

    The first is the warm-up. The second is fine-tuning, if it ends in a colour-blind teacher.
    A model that was registered shares nothing: its code is not known. One that is fitted has
    no such stage.
    """
    row = MODELS[config.model.name]
    if build.reads_features_alone(config) or row.build is not None or row.is_fitted:
        return []
    warmup = {
        "model": config.model.model_dump(),
        "seed": config.seed,
        "training": config.training.model_dump(include=WARMUP),
    }
    if not (build.has_third_phase(config) or config.method.row.is_teacher):
        return [warmup]
    values = config.model_dump(mode="json", exclude={"method", "evaluation"})
    for key in ("catalogue_epochs", "catalogue_rate"):
        del values["training"][key]
    for key in ("per_group", "top", "head"):
        del values["training"]["lists"][key]
    teacher = {
        "config": values,
        "method": build.finetune_method(config).model_dump(mode="json"),
        "chosen": config.evaluation.model_dump(include=CHOICE) | {"k": validation_k(config)},
    }
    return [warmup, teacher]


@cache
def code_digest() -> str:
    """Return a digest of what decides the bits: this code, the libraries, the processor."""
    found = hashlib.sha256()
    root = Path(fairtopk.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root).as_posix()}\0".encode())
        found.update(path.read_bytes())
    versions = [torch.__version__, np.__version__, numba.__version__]
    processor = llvmlite.binding.get_host_cpu_name()
    found.update(json.dumps([storage.FORMAT, *versions, processor]).encode())
    return found.hexdigest()


def begin_after(stages: Sequence[Path], trainer: AnyTrainer) -> tuple[str, ...]:
    """Begin after the last stage that an earlier run has kept and that can be read.

    Returns:
        What was reused and from which run, in a sentence; empty if nothing was.
    """
    for phase, path in reversed(list(enumerate(stages))):
        with suppress(InputError):  # a damaged one is trained again, and kept anew
            saved = storage.load_tensors(path)
            if saved.about.get(KEY) != path.stem:
                raise InputError(f"{path} is not the stage in its name")
            chosen = under(CHOSEN, saved.tensors)
            own = {
                name: value
                for name, value in saved.tensors.items()
                if not name.startswith(f"{CHOSEN}.")
            }
            kept = load_trainer(trainer, path, saved._replace(tensors=own), chosen)
            return (f"{trainer.stretches()[phase].name} reused from {kept.made_by}",)
    return ()


def keep_for_others(stages: Sequence[Path], trainer: AnyTrainer, *, made_by: str) -> None:
    """Keep the stage whose last epoch has just ended, if there is one, for other runs.

    Only the user who trained it may read it. If it cannot be written, training goes on.
    `made_by` names the run in words.
    """
    progress = trainer.progress
    if progress.phase >= len(stages) or not trainer.phase_is_over():
        return
    path = stages[progress.phase]
    chosen = {f"{CHOSEN}.{name}": value for name, value in trainer.chosen.items()}
    about = {KEY: path.stem, "progress": asdict(progress), "made_by": made_by}
    with suppress(OSError, InputError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        storage.save_tensors(path, trainer.state() | chosen, about, private=True)


def load_trainer(
    trainer: AnyTrainer, path: Path, state: storage.Saved, model: Mapping[str, Tensor]
) -> Kept:
    """Load a saved state into a new trainer; return its description.

    A state that does not fit is refused by its `path`, and leaves the trainer unchanged.
    `model` holds the weights of the chosen epoch, if there is one.
    """
    try:
        # From JSON a list may become a tuple, but a text no number.
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
