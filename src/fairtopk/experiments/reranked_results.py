"""Re-ranked results beside those of the runs that they were made of, for a report."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairtopk.errors import InputError
from fairtopk.experiments.collecting import per_query_fault
from fairtopk.experiments.config_file import load_config
from fairtopk.experiments.identity import IDENTITY, Identity
from fairtopk.experiments.rerank_requests import NEEDS_LABELS
from fairtopk.experiments.reranked import PREFIX
from fairtopk.experiments.result import (
    CONFIG,
    METRICS,
    DamagedError,
    Owner,
    per_query_path,
    read_result,
)
from fairtopk.reporting.results import Result, Sweep

WEIGHTS = {"group-bonus": "bonus"}  # the option that is swept; of others it is K


def with_reranked(folder: Path, sweep: Sweep) -> Sweep:
    """Return what was found in a folder, and what `fairtopk rerank` left in its runs.

    They are methods of their own, named by both parts and marked as needing labels.
    """
    found, missing = [], []
    by_run = {result.run.name: result for result in sweep.results}
    for name, own in by_run.items():
        out = folder / name if (folder / name).is_dir() else folder
        owner = _owner(out)
        for path in sorted(out.glob(f"{PREFIX}*.json")):
            try:
                told = read_result(path, owner)
                if told.get("finished") is False:
                    missing.append(f"{name}: {path.name} is of the unfinished run: left out.")
                else:
                    found.append(_result(own, path, told))
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


def _result(own: Result, path: Path, told: dict[str, Any]) -> Result:
    record = told["reranked"]
    settings = {f"rerank.{key}": value for key, value in record["settings"].items()}
    settings["rerank.k"] = record["k"]
    swept = WEIGHTS.get(record["method"], "k")
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
