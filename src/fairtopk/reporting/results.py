"""What a page is made from: runs, what was measured of them, and what could not be found.

Finding the runs in a folder, and saying what of them is not there.

Re-ranked results beside those of the runs that they were made of, for a report.
"""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from fairtopk.errors import InputError
from fairtopk.reranking.request import NEEDS_LABELS
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import dump_config, load_config
from fairtopk.runs.result import (
    CONFIG,
    IDENTITY,
    LOG,
    METRICS,
    PROVENANCE,
    RERANKED,
    TRIES,
    DamagedError,
    Identity,
    Owner,
    is_user_sample,
    per_query_path,
    read_queries,
    read_result,
    resume_command,
)
from fairtopk.storage import MOST_FILES, read_text

USER = "user"  # the numbers of the users, beside the metrics of each


@dataclass(frozen=True)
class Run:
    """One trained model.

    Attributes:
        name: Its folder, as seen from the folder that is reported on.
        method: The method's name.
        settings: Key to value, all that shaped it but data, seed and weight of the penalty.
        weight: What the weight is called and its value; None where there is no penalty.
        seed: The run's seed.
        log: A record per epoch.
        spread: Mean standard deviation of the scores of a list, if it is known.
        config: The complete config as text, without where the data is.
        provenance: Versions, data by name and checksum, protocol.
        warnings: What is to be known of it before it is used, in sentences.
    """

    name: str
    method: str
    settings: dict[str, Any]
    weight: tuple[str, float] | None
    seed: int
    log: list[dict[str, Any]] = field(default_factory=list)
    spread: float | None = None
    config: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def penalised(self) -> bool:
        """Whether exposure was penalised, or a group's scores moved up or down."""
        return self.weight is not None and self.weight[1] != 0


@dataclass(frozen=True)
class Result:
    """What was measured of a run on one set of lists.

    Attributes:
        run: Of which model.
        lists: What tells the lists apart from others, the seed that drew them left out.
        metrics: Name such as ``ndcg@50`` to mean, ``ci95``, ``n`` and ``undefined``.
        per_query: Files with the values of each query.
        own_spread: Mean standard deviation of the scores of these lists, if it was measured.
    """

    run: Run
    lists: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    per_query: tuple[Path, ...] = ()
    own_spread: float | None = None

    @property
    def spread(self) -> float | None:
        """The spread of scores of these lists, or else what is known of the run's."""
        return self.run.spread if self.own_spread is None else self.own_spread


@dataclass(frozen=True)
class Rankings:
    """The tops of the lists that the colour-blind model ranks most unfairly, before and after.

    Attributes:
        before: The colour-blind model, in words.
        after: The fair one.
        lists: Which lists, in words.
        order: What "most unfair" goes by, in words.
        of: How many lists there are in all.
        groups: What "0" and "1" in a row stand for.
        rows_before: A text per list, a sign per position: a group, or "-" for unknown.
        rows_after: The same lists by the other model.
    """

    before: str
    after: str
    lists: str
    order: str
    of: int
    groups: tuple[str, str]
    rows_before: list[str]
    rows_after: list[str]


@dataclass(frozen=True)
class Sweep:
    """Everything found in a folder, and what was not.

    Attributes:
        title: What the page is called.
        results: What was measured.
        missing: In words for the page, what could not be shown.
        left_out: In words for whoever asked for it, runs that are left out as a whole.
    """

    title: str
    results: list[Result]
    missing: list[str]
    left_out: list[str] = field(default_factory=list)


WEIGHTS = ("c", "c_relative")


def collect(folder: Path) -> Sweep:
    """Return what the finished runs in a folder left, at any depth."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; give one that holds runs of fairtopk train"
        )
    results: dict[tuple[str, str], Result] = {}
    missing: list[str] = []
    left_out: list[str] = []
    advice: list[str] = ["make one with fairtopk train"]
    for out in _run_folders(folder):
        name = out.relative_to(folder).as_posix() if out != folder else out.resolve().name
        fault = _fault(out)
        if fault is not None and out.parent.name == TRIES:
            continue  # of a search for a weight, which tests the chosen try alone
        if fault is not None:
            missing.append(f"{name} {fault.words}: it is left out.")
            left_out.append(f"{out} {fault.words}, and left out; {fault.advice}")
            advice.append(fault.advice)
            continue
        for result in _results_of(out, name, missing):
            _add(results, result, missing)
    if not results:
        others = f", but {len(left_out)} that cannot be shown" if left_out else ""
        raise InputError(f"{folder} holds no finished run{others}; {advice[-1]}")
    return Sweep(folder.resolve().name, list(results.values()), missing, left_out)


def _run_folders(folder: Path) -> list[Path]:
    """Return the folders at any depth that hold a config, whatever that is."""
    found, seen = [], 0
    for place, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > MOST_FILES:
            raise InputError(
                f"{folder} holds more than {MOST_FILES:,} files, the most that are looked "
                f"through; give the folder of the runs"
            )
        if CONFIG in files or CONFIG in folders:
            found.append(Path(place))
    return sorted(found)


class _Logged(BaseModel, extra="allow"):
    """A line of ``log.jsonl``: an epoch, and numbers."""

    __pydantic_extra__: dict[str, float | None]

    phase: str
    epoch: int
    alarms: list[str] = []


class _Data(BaseModel, extra="allow"):
    sha256: str | None = None


class _Provenance(BaseModel, extra="allow"):
    """``provenance.json``: what is read of it; all else is shown as it is."""

    identity: dict[str, str]
    data: _Data | None = None


class Fault(NamedTuple):
    """Why a run cannot be shown, in words for anyone, and what to do about it."""

    words: str
    advice: str


def _fault(out: Path) -> Fault | None:
    """Return why a run folder cannot be shown; None if it can."""
    if not (out / METRICS).exists():
        return Fault("is not finished", f"go on with: {resume_command(out)}")
    words = "cannot be read, or is of another version"
    try:
        config = load_config(out / CONFIG)
    except (InputError, OSError) as error:
        return Fault(words, str(error))
    try:
        read_result(out / METRICS, Owner(config))
    except (DamagedError, OSError):
        again = f"remove its {METRICS}, and measure again with: {resume_command(out)}"
        return Fault(words, again)
    except InputError:
        other = f"its {CONFIG} was edited, or its {METRICS} is of another run"
        return Fault("does not hold together", f"{other}; train it again into a new folder")
    return None


def _results_of(out: Path, name: str, missing: list[str]) -> list[Result]:
    config = load_config(out / CONFIG)
    first = read_result(out / METRICS, Owner(config))
    owner = Owner(config, Identity(**first[IDENTITY]), part=None)
    run = _run(out, name, config, first, missing)
    found = [_result(run, config, out / METRICS, first, missing)]
    for path in sorted(out.glob("metrics-*.json")):
        try:
            later = read_result(path, owner)
            if later.get("finished") is False:
                missing.append(f"{name}: {path.name} is of the unfinished run: it is left out.")
            else:
                found.append(_result(run, config, path, later, missing))
        except (DamagedError, OSError):
            missing.append(f"{name}: {path.name} cannot be read: it is left out.")
        except InputError:
            missing.append(f"{name}: {path.name} is of another run: it is left out.")
    return found


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
    called = {"c": row.weight_label, "c_relative": "C/n²"}
    weights = [(called[key], float(c)) for key, c in given.items() if c is not None]
    log = _log(out / LOG)
    if not log:
        missing.append(f"{name} has no {LOG}: it has no training curve.")
    provenance = _provenance(out / PROVENANCE, result[IDENTITY])
    if not provenance:
        missing.append(f"{name} has no {PROVENANCE}: where its numbers come from is not known.")
    return Run(
        name=name,
        method=method,
        settings=settings,
        weight=weights[0] if row.is_fair and weights else None,
        seed=config.seed,
        log=log,
        spread=_spread(log, result),
        config=_shared_config(config),
        provenance=provenance,
        warnings=tuple(result.get("warnings", ())),
    )


def _result(
    run: Run, config: Config, path: Path, found: dict[str, Any], missing: list[str]
) -> Result:
    data = config.data.model_dump(mode="json", exclude={"path", "options"})
    sampled = found["protocol"] == "sampled"
    unrated = config.evaluation.unrated if sampled else None
    checksum = (run.provenance.get("data") or {}).get("sha256")
    lists = {
        "data": found["data"],
        "part": found["part"],
        "protocol": found["protocol"],
        "unrated": unrated,
        "users": _some_users(found),
        "checksum": checksum[:12] if checksum else None,
        **{key: data[key] for key in ("groups", "split", "test", "validation", "min_ratings")},
    }
    kept = per_query_path(path)
    fault = per_query_fault(kept, found)
    if fault is not None:
        missing.append(f"{run.name} {fault}: it is not tested against others.")
    spread = (found.get("score_spread") or {}).get("mean")
    return Result(run, lists, found["metrics"], (kept,) if fault is None else (), spread)


def _some_users(found: dict[str, Any]) -> str | None:
    """Return how many users were drawn of how many, in words; None where it is all."""
    if not is_user_sample(found):
        return None
    return f"{found['users']['measured']:,} of {found['users']['of']:,} users"


def per_query_fault(path: Path, result: dict[str, Any]) -> str | None:
    """Return what is wrong with the values of each query of a result; None if nothing is."""
    if not path.exists():
        return f"has no {path.name}"
    try:
        read_queries(path, result)
    except InputError:
        return f"has a damaged {path.name}, or one of another run"
    return None


def _add(results: dict[tuple[str, str], Result], result: Result, missing: list[str]) -> None:
    """Put a result beside the others, or into the one of the same run and lists at other K."""
    run = result.run
    lists = json.dumps(result.lists, sort_keys=True, default=str)
    key = (run.name, lists)
    if key in results:
        old = results[key]
        results[key] = replace(
            old,
            metrics=result.metrics | old.metrics,
            per_query=old.per_query + result.per_query,
        )
        return
    for (_, other_lists), other in results.items():
        same = (other.run.seed, other.run.weight, other.run.settings)
        if other_lists == lists and same == (run.seed, run.weight, run.settings):
            missing.append(f"{run.name} is {other.run.name} once more: it is left out.")
            return
    results[key] = result


def _spread(log: list[dict[str, Any]], result: dict[str, Any]) -> float | None:
    """Return the spread of scores in test lists, or in training lists at the kept epoch."""
    measured = (result.get("score_spread") or {}).get("mean")
    if measured is not None:
        return float(measured)
    # Epochs count anew in each phase, and the last phase is the method's.
    kept = [record for record in log if record.get("epoch") == result.get("chosen_epoch")]
    return kept[-1].get("spread") if kept else None


def _log(path: Path) -> list[dict[str, Any]]:
    """Return the records of a log; none where one of them is damaged."""
    try:
        lines = read_text(path).splitlines()
        return [_Logged.model_validate_json(line).model_dump() for line in lines]
    except ValueError:
        return []


def _provenance(path: Path, identity: dict[str, str]) -> dict[str, Any]:
    """Return where a run's numbers come from; empty where that is damaged or of another."""
    try:
        found = _Provenance.model_validate_json(read_text(path)).model_dump()
    except ValueError:
        return {}
    return found if found.pop(IDENTITY) == identity else {}


def _shared_config(config: Config) -> str:
    """Return a config as TOML that does not tell where files are."""
    options = {key: value for key, value in config.data.options.items() if key != "items"}
    data = config.data.model_copy(update={"path": None, "options": options})
    return dump_config(config.model_copy(update={"data": data}))


SWEPT_OPTIONS = {"group-bonus": "bonus"}  # the option that is swept; of others it is K


def with_reranked(folder: Path, sweep: Sweep) -> Sweep:
    """Return what was found in a folder, and what `fairtopk rerank` left in its runs.

    They are methods of their own, named by both parts and marked as needing labels.
    """
    found, missing = [], []
    by_run = {result.run.name: result for result in sweep.results}
    for name, own in by_run.items():
        out = folder / name if (folder / name).is_dir() else folder
        owner = _owner(out)
        for path in sorted(out.glob(f"{RERANKED}*.json")):
            try:
                told = read_result(path, owner)
                if told.get("finished") is False:
                    missing.append(f"{name}: {path.name} is of the unfinished run: left out.")
                else:
                    found.append(_reranked_result(own, path, told))
                    missing += _unmet(name, path, told)
                    fault = per_query_fault(per_query_path(path), told)
                    if fault is not None:
                        missing.append(f"{name} {fault}: it is not tested against others.")
            except InputError as error:
                damaged = isinstance(error, DamagedError)
                words = "cannot be read" if damaged else "is of another run"
                missing.append(f"{name}: {path.name} {words}: it is left out.")
            except (KeyError, OSError, TypeError, ValueError, AttributeError):
                missing.append(f"{name}: {path.name} cannot be read: it is left out.")
    return replace(sweep, results=[*sweep.results, *found], missing=[*sweep.missing, *missing])


def _owner(out: Path) -> Owner:
    """Return the run whose results are in a folder, as its metrics file has it."""
    own = Owner(load_config(out / CONFIG))
    whose = Identity(**read_result(out / METRICS, own)[IDENTITY])
    return own._replace(identity=whose, part=None)


def _unmet(name: str, path: Path, told: dict[str, Any]) -> list[str]:
    """Return what is to be said of lists that a result has, but not as they were asked for."""
    unmet, lists = told["reranked"]["unmet"], told["reranked"]["lists"]
    if not unmet:
        return []
    return [f"{name}: {unmet:,} of {lists:,} lists of {path.name} have not what was asked for."]


def _reranked_result(own: Result, path: Path, told: dict[str, Any]) -> Result:
    record = told["reranked"]
    settings = {f"rerank.{key}": value for key, value in record["settings"].items()}
    settings["rerank.k"] = record["k"]
    swept = SWEPT_OPTIONS.get(record["method"], "k")
    weight = (swept, float(settings.pop(f"rerank.{swept}")))
    # What was the weight of the penalty is a setting like others now.
    trained = {f"method.{name}": value for name, value in filter(None, [own.run.weight])}
    run = replace(
        own.run,
        name=f"{own.run.name}, {path.stem}",
        method=f"{told['method']} ({NEEDS_LABELS})",
        settings={**own.run.settings, **trained, **settings},
        weight=weight,
        log=[],
        warnings=(),
        config=f"{own.run.config}\n# re-ranked: {json.dumps(record)}\n",
    )
    measured = {key: told[key] for key in ("part", "protocol", "unrated")}
    lists = own.lists | measured | {"users": None}  # of all
    kept = per_query_path(path)
    spread = (told.get("score_spread") or {}).get("mean")
    queries = () if per_query_fault(kept, told) else (kept,)
    return Result(run, lists, told["metrics"], queries, spread)
