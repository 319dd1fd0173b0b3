"""Runs without their models, in one small file: ``*-runs.jsonl.xz`` of docs/results.

A line is a run: the commit and the config that made it, everything that was measured of it, and
of its log the epoch that was kept. Pages can be written from it again, and runs of many hours
gone on with where the folders of the first are not at hand. Only what needs models or the
values of each user cannot: pictures of rankings, falls of gaps from a run that was brought
back to one that is new, deviations over users.
"""

import json
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fairtopk.errors import InputError
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config
from fairtopk.runs.grid import Cell
from fairtopk.runs.result import (
    AFTERWARDS,
    CONFIG,
    IDENTITY,
    LOG,
    METRICS,
    PROVENANCE,
    Identity,
    config_digest,
    sealed,
)
from fairtopk.runs.sweep import Event, is_done, nothing_left
from fairtopk.storage import replacing, write_text

COMMIT = "commit.txt"  # in the folder of a run
UNKNOWN = "one that was not noted"  # commit
DIGITS = 8  # significant ones, more than pages show
OF_MACHINE = ("path", "options")  # of the data: where files are
OF_EPOCH = ("phase", "epoch")  # all that is kept of an epoch that was not chosen

Record = dict[str, Any]


def noting(commit: str, runs: Path, watch: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return what notes the commit of each run that a sweep has worked on, and watches on.

    Args:
        commit: Of the code at hand.
        runs: The folder of the sweep.
        watch: Who else is to be told.
    """

    def told(event: Event) -> None:
        if event.result is not None:  # not one that was done before
            folder = runs / event.cell.name
            by = dict.fromkeys([*_noted(folder), commit])  # begun, perhaps, by other code
            write_text(folder / COMMIT, "".join(f"{one}\n" for one in by if one))
        watch(event)

    return told


def commits(folders: Iterable[Path]) -> list[str]:
    """Return the commits that made runs, and last, if any has none noted, that."""
    found = {one for folder in folders for one in _noted(folder) or [UNKNOWN]}
    return sorted(found, key=lambda one: (one == UNKNOWN, one))


def _noted(folder: Path) -> list[str]:
    path = folder / COMMIT
    return path.read_text("utf-8").splitlines() if path.exists() else []


def keep(cells: Iterable[Cell], runs: Path, path: Path) -> None:
    """Write a record of each run that is done; what is recorded of others stays."""
    before = _read(path)
    with replacing(path) as temporary, lzma.open(temporary, "wt", encoding="utf-8") as file:
        for cell in cells:
            record = before.get(cell.name)
            if is_done(cell, runs):
                record = _record(cell, runs / cell.name)
            if record is not None and _is_all(record, cell):
                file.write(json.dumps(record) + "\n")


def _record(cell: Cell, folder: Path) -> Record:
    files = {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    epoch = files[METRICS].get("chosen_epoch")
    log = [json.loads(line) for line in (folder / LOG).read_text("utf-8").splitlines()]
    chosen = [
        line if line["epoch"] == epoch else {name: line[name] for name in OF_EPOCH}
        for line in log
    ]
    return {
        "run": cell.name,
        "commit": _noted(folder),
        "config": _shared(cell.config),
        "files": _short(dict(sorted(files.items()))),
        "log": _short(chosen),
    }


def _shared(config: Config) -> dict[str, Any]:
    """Return a config that does not tell where files are."""
    values = config.model_dump(mode="json")
    return values | {"data": {k: v for k, v in values["data"].items() if k not in OF_MACHINE}}


def _short(value: Any) -> Any:
    """Return the same with fewer digits."""
    if isinstance(value, dict):
        return {name: _short(of) for name, of in value.items()}
    if isinstance(value, list):
        return [_short(of) for of in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def bring_back(cells: Iterable[Cell], runs: Path, path: Path) -> int:
    """Write the folders of recorded runs that are not there, without models; return how many.

    A record of another config, or with less than is asked of the cell, is left alone.
    """
    records = _read(path)
    found = [
        (cell, records[cell.name])
        for cell in cells
        if cell.name in records and not (runs / cell.name).exists()
    ]
    whole = [(cell, record) for cell, record in found if _is_all(record, cell)]
    for cell, record in whole:
        with replacing(runs / cell.name) as folder:
            _write(record, cell, folder)
    return len(whole)


def _read(path: Path) -> dict[str, Record]:
    if not path.exists():
        return {}
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return {record["run"]: record for record in map(json.loads, file)}


def _is_all(record: Record, cell: Cell) -> bool:
    """Return whether a record is of the run that is asked for, with all that is asked of it."""
    places = {name: getattr(cell.config.data, name) for name in OF_MACHINE}
    values = record["config"] | {"data": record["config"]["data"] | places}
    try:
        alike = dump_config(check_config(values, record["run"])) == dump_config(cell.config)
    except InputError:  # of a version with other settings
        return False
    return alike and nothing_left(cell, record["files"][AFTERWARDS])


def _write(record: Record, cell: Cell, folder: Path) -> None:
    write_text(folder / CONFIG, dump_config(cell.config))
    write_text(folder / LOG, "".join(f"{json.dumps(line)}\n" for line in record["log"]))
    write_text(folder / COMMIT, "".join(f"{one}\n" for one in record["commit"]))
    files = record["files"]
    data = (files.get(PROVENANCE, {}).get("data") or {}).get("sha256", "")
    whose = Identity(cell.name, config_digest(cell.config), data)._asdict()
    for name, values in files.items():
        of_run = name == PROVENANCE or "metrics" in values
        whole = sealed(values | {IDENTITY: whose}) if of_run else values
        write_text(folder / name, json.dumps(whole, indent=2) + "\n")
