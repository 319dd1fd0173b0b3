"""Runs without their models, in one small file: ``*-runs.jsonl.xz`` of docs/results.

A line is a run: the commit and the config that made it, everything that was measured of it, and
of its log the epoch that was kept. Pages can be written from it again, and runs of many hours
gone on with where the folders of the first are not at hand.
"""

import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from fairtopk.data.files import replacing, write_text
from fairtopk.errors import InputError
from fairtopk.experiments.cells import is_done
from fairtopk.experiments.config import Config
from fairtopk.experiments.config_file import check_config, dump_config
from fairtopk.experiments.grid import Cell
from fairtopk.experiments.result import CONFIG, METRICS
from fairtopk.experiments.run import LOG
from fairtopk.experiments.sweep import Event

COMMIT = "commit.txt"  # in the folder of a run
DIGITS = 6  # significant ones

Record = dict[str, Any]


def noting(commit: str, runs: Path, watch: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return what notes the commit of each run that a sweep has trained, and then watches on.

    Args:
        commit: Of the code at hand.
        runs: The folder of the sweep.
        watch: Who else is to be told.
    """

    def told(event: Event) -> None:
        if event.result is not None:  # not one that was done before
            write_text(runs / event.cell.name / COMMIT, f"{commit}\n")
        watch(event)

    return told


def commits(folders: Iterable[Path]) -> list[str]:
    """Return the commits that made runs, as far as they were noted."""
    noted = (_noted(folder) for folder in folders)
    return sorted({one for one in noted if one is not None})


def _noted(folder: Path) -> str | None:
    path = folder / COMMIT
    return path.read_text("utf-8").strip() if path.exists() else None


def keep(cells: Iterable[Cell], runs: Path, path: Path) -> None:
    """Write a record of each run that is done."""
    with replacing(path) as temporary, lzma.open(temporary, "wt", encoding="utf-8") as file:
        for cell in cells:
            if is_done(cell, runs):
                file.write(json.dumps(_record(cell, runs / cell.name)) + "\n")


def _record(cell: Cell, folder: Path) -> Record:
    files = {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    epoch = files[METRICS].get("chosen_epoch")
    log = [json.loads(line) for line in (folder / LOG).read_text("utf-8").splitlines()]
    whole = ("phase", "epoch")  # of the epochs that were not kept
    return {
        "run": cell.name,
        "commit": _noted(folder),
        "config": _without_path(cell.config),
        "files": _short(dict(sorted(files.items()))),
        "log": [
            _short(line) if line["epoch"] == epoch else {name: line[name] for name in whole}
            for line in log
        ],
    }


def _without_path(config: Config) -> dict[str, Any]:
    """Return a config without where its data is."""
    values = config.model_dump(mode="json")
    del values["data"]["path"]
    return values


def _short(value: Any) -> Any:
    """Return the same with fewer digits."""
    if isinstance(value, dict):
        return {name: _short(of) for name, of in value.items()}
    if isinstance(value, list):
        return [_short(of) for of in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def bring_back(cells: Iterable[Cell], runs: Path, path: Path) -> int:
    """Write the folders of recorded runs that are not there, without models; return how many.

    A record of another config than that of the cell is left alone.
    """
    by_name = {record["run"]: record for record in _read(path)}
    found = [
        (cell, by_name[cell.name])
        for cell in cells
        if cell.name in by_name and not (runs / cell.name).exists()
    ]
    alike = [(cell, record) for cell, record in found if _is_of(record, cell)]
    for cell, record in alike:
        _write(record, cell, runs / cell.name)
    return len(alike)


def _read(path: Path) -> Iterator[Record]:
    if path.exists():
        with lzma.open(path, "rt", encoding="utf-8") as file:
            yield from map(json.loads, file)


def _is_of(record: Record, cell: Cell) -> bool:
    values = record["config"]
    values["data"]["path"] = cell.config.data.path
    try:
        return dump_config(check_config(values, record["run"])) == dump_config(cell.config)
    except InputError:  # of a version with other settings
        return False


def _write(record: Record, cell: Cell, folder: Path) -> None:
    write_text(folder / CONFIG, dump_config(cell.config))
    write_text(folder / LOG, "".join(f"{json.dumps(line)}\n" for line in record["log"]))
    if record["commit"] is not None:
        write_text(folder / COMMIT, f"{record['commit']}\n")
    for name, values in record["files"].items():
        write_text(folder / name, json.dumps(values, indent=2) + "\n")
