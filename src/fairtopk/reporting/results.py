"""The runs found in a folder: what was measured of them, re-ranked too, and what is missing."""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from fairtopk.errors import InputError
from fairtopk.reranking.request import NEEDS_LABELS
from fairtopk.runs import result as files
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import dump_config, load_config
from fairtopk.storage import MOST_FILES, read_text

WEIGHTS = ("c", "c_relative")
SWEPT_OPTIONS = {"group-bonus": "bonus"}  # the option that is swept; K for other re-rankers


@dataclass(frozen=True)
class Run:
    """One trained model."""

    name: str  # its folder, as seen from the folder that is reported on
    method: str
    settings: dict[str, Any]  # all that shaped it except data, seed and weight of the penalty
    weight: tuple[str, float] | None  # its label and value; None without a penalty
    seed: int
    log: list[dict[str, Any]] = field(default_factory=list)  # a record per epoch
    spread: float | None = None  # mean standard deviation of the scores of a list, if known
    config: str = ""  # complete, as text, without the location of the data
    provenance: dict[str, Any] = field(default_factory=dict)  # versions, data, protocol
    warnings: tuple[str, ...] = ()  # sentences to read before it is used

    @property
    def penalised(self) -> bool:
        """Whether exposure was penalised, or a group's scores moved up or down."""
        return self.weight is not None and self.weight[1] != 0


@dataclass(frozen=True)
class Result:
    """What was measured of a run on one set of lists."""

    run: Run  # the model
    lists: dict[str, Any]  # what tells the lists apart from others, except their seed
    metrics: dict[str, dict[str, Any]]  # `ndcg@50` to mean, `ci95`, `n` and `undefined`
    per_query: tuple[Path, ...] = ()  # files with the values of each query
    spread: float | None = None  # of the scores of these lists, or else the run's


@dataclass(frozen=True)
class Rankings:
    """The tops of the lists that the colour-blind model ranks most unfairly, before and after.

    A row is a text per list with a sign per position: a group, or "-" if it is unknown.
    """

    before: str  # title of the colour-blind model
    after: str  # title of the fair one
    lists: str  # label of the lists
    order: str  # the gap that "most unfair" refers to
    of: int  # number of lists in all
    groups: tuple[str, str]  # names of groups "0" and "1" of the rows
    rows_before: list[str]
    rows_after: list[str]  # the same lists


@dataclass(frozen=True)
class Sweep:
    """Everything found in a folder, and what was not."""

    title: str
    results: list[Result]
    missing: list[str]  # sentences for the page on what could not be shown
    left_out: list[str] = field(default_factory=list)  # warnings: runs left out as a whole


class _Logged(BaseModel, extra="allow"):
    """A line of ``log.jsonl``: an epoch, and numbers."""

    __pydantic_extra__: dict[str, float | None]

    phase: str
    epoch: int
    alarms: list[str] = []


class _Data(BaseModel, extra="allow"):
    sha256: str | None = None


class _Provenance(BaseModel, extra="allow"):
    """The keys of ``provenance.json`` that are read; all others are shown as they are."""

    identity: dict[str, str]
    data: _Data | None = None


class Fault(NamedTuple):
    """Why a run cannot be shown, and what to do about it."""

    reason: str
    advice: str


def collect(folder: Path) -> Sweep:
    """Return what the finished runs in a folder left, at any depth."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; give one that holds runs of fairtopk train"
        )
    outs, seen = [], 0
    for place, folders, names in os.walk(folder):
        seen += len(folders) + len(names)
        if seen > MOST_FILES:
            raise InputError(
                f"{folder} holds more than {MOST_FILES:,} files, the most that are looked "
                f"through; give the folder of the runs"
            )
        if files.CONFIG in names or files.CONFIG in folders:
            outs.append(Path(place))
    results: dict[tuple[str, str], Result] = {}
    missing: list[str] = []
    left_out: list[str] = []
    advice = "make one with fairtopk train"
    for out in sorted(outs):
        name = out.relative_to(folder).as_posix() if out != folder else out.resolve().name
        finished = _finished(out)
        if not isinstance(finished, Fault):
            for result in _results_of(out, name, *finished, missing):
                _add(results, result, missing)
        elif out.parent.name != files.TRIES:  # a search tests only the weight that it chose
            missing.append(f"{name} {finished.reason}: it is left out.")
            left_out.append(f"{out} {finished.reason}, and left out; {finished.advice}")
            advice = finished.advice
    if not results:
        others = f", but {len(left_out)} that cannot be shown" if left_out else ""
        raise InputError(f"{folder} holds no finished run{others}; {advice}")
    return Sweep(folder.resolve().name, list(results.values()), missing, left_out)


def _finished(out: Path) -> tuple[Config, dict[str, Any]] | Fault:
    """Return the config and the metrics of a run, or why it cannot be shown."""
    if not (out / files.METRICS).exists():
        return Fault("is not finished", f"go on with: {files.resume_command(out)}")
    unreadable = "cannot be read, or is of another version"
    try:
        config = load_config(out / files.CONFIG)
    except (InputError, OSError) as error:
        return Fault(unreadable, str(error))
    try:
        return config, files.read_result(out / files.METRICS, files.Owner(config))
    except (files.DamagedError, OSError):
        command = files.resume_command(out)
        again = f"remove its {files.METRICS}, and measure again with: {command}"
        return Fault(unreadable, again)
    except InputError:
        other = f"its {files.CONFIG} was edited, or its {files.METRICS} is of another run"
        return Fault("does not hold together", f"{other}; train it again into a new folder")


def _results_of(
    out: Path, name: str, config: Config, first: dict[str, Any], missing: list[str]
) -> list[Result]:
    run = _run(out, name, config, first, missing)
    owner = files.Owner(config, files.Identity(**first[files.IDENTITY]), part=None)
    results = []
    for path in [out / files.METRICS, *sorted(out.glob("metrics-*.json"))]:
        own = path.name == files.METRICS
        measured = first if own else _read_later(path, owner, name, missing)
        if measured is None:
            continue
        data = config.data.model_dump(mode="json", exclude={"path", "options"})
        sampled = measured["protocol"] == "sampled"
        checksum = (run.provenance.get("data") or {}).get("sha256")
        users = None  # all of them
        if files.is_user_sample(measured):
            users = f"{measured['users']['measured']:,} of {measured['users']['of']:,} users"
        lists = {
            "data": measured["data"],
            "part": measured["part"],
            "protocol": measured["protocol"],
            "unrated": config.evaluation.unrated if sampled else None,
            "users": users,
            "checksum": checksum[:12] if checksum else None,
            **{
                key: data[key]
                for key in ("groups", "split", "test", "validation", "min_ratings")
            },
        }
        queries = _per_query(name, path, measured, missing)
        spread = (measured.get("score_spread") or {}).get("mean")
        spread = run.spread if spread is None else spread
        results.append(Result(run, lists, measured["metrics"], queries, spread))
    return results


def _read_later(
    path: Path, owner: files.Owner, name: str, missing: list[str]
) -> dict[str, Any] | None:
    """Return another metrics file of a finished run; None if it cannot be shown."""
    try:
        found = files.read_result(path, owner)
        if found.get("finished") is not False:
            return found
        fault = "is of the unfinished run"
    except (files.DamagedError, OSError):
        fault = "cannot be read"
    except InputError:
        fault = "is of another run"
    missing.append(f"{name}: {path.name} {fault}: it is left out.")
    return None


def _run(
    out: Path, name: str, config: Config, result: dict[str, Any], missing: list[str]
) -> Run:
    sections = config.model_dump(mode="json", include={"method", "model", "training"})
    settings = {
        f"{part}.{key}": value for part in sections for key, value in sections[part].items()
    }
    given = {key: settings.pop(f"method.{key}") for key in WEIGHTS}
    method, row = config.method.name, config.method.row
    if result.get("needs_labels_when_serving"):
        method = f"{method} ({NEEDS_LABELS})"
    labels = {"c": row.weight_label, "c_relative": "C/n²"}
    weights = [(labels[key], float(c)) for key, c in given.items() if c is not None]
    try:
        lines = read_text(out / files.LOG).splitlines()
        log = [_Logged.model_validate_json(line).model_dump() for line in lines]
    except ValueError:
        log = []
    if not log:
        missing.append(f"{name} has no {files.LOG}: it has no training curve.")
    try:
        text = read_text(out / files.PROVENANCE)
        provenance = _Provenance.model_validate_json(text).model_dump()
    except ValueError:
        provenance = {}
    if provenance.pop(files.IDENTITY, None) != result[files.IDENTITY]:
        provenance = {}
    if not provenance:
        missing.append(
            f"{name} has no {files.PROVENANCE}: where its numbers come from is not known."
        )
    spread = (result.get("score_spread") or {}).get("mean")  # of test lists
    if spread is not None:
        spread = float(spread)
    else:
        # Or of training lists at the kept epoch. Epochs count anew in each phase, and the last
        # phase is the method's.
        kept = [record for record in log if record.get("epoch") == result.get("chosen_epoch")]
        spread = kept[-1].get("spread") if kept else None
    # The config is shown without the location of any file.
    options = {key: value for key, value in config.data.options.items() if key != "items"}
    data = config.data.model_copy(update={"path": None, "options": options})
    return Run(
        name=name,
        method=method,
        settings=settings,
        weight=weights[0] if row.is_fair and weights else None,
        seed=config.seed,
        log=log,
        spread=spread,
        config=dump_config(config.model_copy(update={"data": data})),
        provenance=provenance,
        warnings=tuple(result.get("warnings", ())),
    )


def _per_query(
    name: str, metrics: Path, result: dict[str, Any], missing: list[str]
) -> tuple[Path, ...]:
    """Return the file with the values of each query of a metrics file, if it is sound."""
    path = files.per_query_path(metrics)
    fault = f"has no {path.name}"
    if path.exists():
        try:
            files.read_queries(path, result)
            return (path,)
        except InputError:
            fault = f"has a damaged {path.name}, or one of another run"
    missing.append(f"{name} {fault}: it is not tested against others.")
    return ()


def _add(results: dict[tuple[str, str], Result], result: Result, missing: list[str]) -> None:
    """Add a result, or merge it with that of the same run and lists at other K."""
    run = result.run
    lists = json.dumps(result.lists, sort_keys=True, default=str)
    key = (run.name, lists)
    if key in results:
        old = results[key]
        metrics = result.metrics | old.metrics
        results[key] = replace(old, metrics=metrics, per_query=old.per_query + result.per_query)
        return
    for (_, other_lists), other in results.items():
        same = (other.run.seed, other.run.weight, other.run.settings)
        if other_lists == lists and same == (run.seed, run.weight, run.settings):
            missing.append(f"{run.name} is {other.run.name} once more: it is left out.")
            return
    results[key] = result


def with_reranked(folder: Path, sweep: Sweep) -> Sweep:
    """Return what was found in a folder, and what `fairtopk rerank` left in its runs.

    They are methods of their own, named by both parts and marked as needing labels.
    """
    found: list[Result] = []
    missing: list[str] = []
    by_run = {result.run.name: result for result in sweep.results}
    for name, own in by_run.items():
        out = folder / name if (folder / name).is_dir() else folder
        owner = files.Owner(load_config(out / files.CONFIG))
        identity = files.read_result(out / files.METRICS, owner)[files.IDENTITY]
        owner = owner._replace(identity=files.Identity(**identity), part=None)
        for path in sorted(out.glob(f"{files.RERANKED}*.json")):
            try:
                result = _read_later(path, owner, name, missing)
                if result is not None:
                    found.append(_reranked_result(own, path, result, missing))
            except (KeyError, OSError, TypeError, ValueError, AttributeError):
                missing.append(f"{name}: {path.name} cannot be read: it is left out.")
    return replace(sweep, results=[*sweep.results, *found], missing=[*sweep.missing, *missing])


def _reranked_result(
    own: Result, path: Path, found: dict[str, Any], missing: list[str]
) -> Result:
    name, record = own.run.name, found["reranked"]
    settings = {f"rerank.{key}": value for key, value in record["settings"].items()}
    settings["rerank.k"] = record["k"]
    swept = SWEPT_OPTIONS.get(record["method"], "k")
    weight = (swept, float(settings.pop(f"rerank.{swept}")))
    # The weight of the penalty is now a setting like others.
    trained = {f"method.{label}": value for label, value in filter(None, [own.run.weight])}
    run = replace(
        own.run,
        name=f"{name}, {path.stem}",
        method=f"{found['method']} ({NEEDS_LABELS})",
        settings={**own.run.settings, **trained, **settings},
        weight=weight,
        log=[],
        warnings=(),
        config=f"{own.run.config}\n# re-ranked: {json.dumps(record)}\n",
    )
    measured = {key: found[key] for key in ("part", "protocol", "unrated")}
    lists = own.lists | measured | {"users": None}  # all of them
    unmet, of = record["unmet"], record["lists"]
    if unmet:
        missing.append(
            f"{name}: {unmet:,} of {of:,} lists of {path.name} do not meet the targets."
        )
    spread = (found.get("score_spread") or {}).get("mean")
    queries = _per_query(name, path, found, missing)
    spread = run.spread if spread is None else spread
    return Result(run, lists, found["metrics"], queries, spread)
