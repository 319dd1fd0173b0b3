"""One cell of a sweep: trained, measured, tidied up."""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import TypeAdapter

from fairtopk.checkpoints import BEFORE, MODEL, STATE
from fairtopk.data.files import read_text, remove_halves, write_text
from fairtopk.errors import InputError
from fairtopk.experiments.both_protocols import has_other
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config import Config
from fairtopk.experiments.config_file import check_config
from fairtopk.experiments.grid import Cell
from fairtopk.experiments.identity import identity_of
from fairtopk.experiments.locks import ORPHANS, alone_in
from fairtopk.experiments.measuring import measure
from fairtopk.experiments.opening import load_model
from fairtopk.experiments.rankings import loader
from fairtopk.experiments.rerank_requests import Asked
from fairtopk.experiments.reranked import OpenRun, rerank_run, result_name
from fairtopk.experiments.result import (
    METRICS,
    Measures,
    Owner,
    metrics_name,
    per_query,
    read_result,
    summary,
    write_result,
)
from fairtopk.experiments.run import train_run
from fairtopk.lists import Lists

WARMUPS = "warmups"
AFTERWARDS = "afterwards.json"  # what was done with a run once it was trained

DONE = TypeAdapter(dict[Literal["protocols", "rerank"], list[Any]])

_load = loader()  # one for each process


def is_done(cell: Cell, out: Path) -> bool:
    """Return whether nothing is left to do for a cell."""
    folder = out / cell.name
    try:
        read_result(folder / METRICS, Owner(cell.config))
    except (OSError, InputError):  # a damaged one is told of when its turn comes
        return False
    return nothing_left(cell, _done(folder))


def nothing_left(cell: Cell, done: dict[str, list[Any]]) -> bool:
    """Return whether all that is asked of a trained cell is among what was done with it."""
    return all(one in done[what] for what, asked in _asked(cell).items() for one in asked)


def run_cell(cell: Cell, out: Path) -> dict[str, Any]:
    """Train and measure a cell as far as that is still to be done; return its metrics file."""
    folder = out / cell.name
    with alone_in(folder, patience=ORPHANS):
        return _run(cell, folder, out)


def _run(cell: Cell, folder: Path, out: Path) -> dict[str, Any]:
    lists = _load(cell.config.data, cell.config.seed)
    train_run(cell.config, folder, resume=True, warmups=out / WARMUPS, lists=lists)
    owner = Owner(cell.config, identity_of(cell.config, lists))
    for protocol in cell.protocols:
        if not has_other(folder, owner, protocol):
            _measure_by(protocol, cell, folder, lists)
    done = _done(folder)
    if left := [asked for asked in cell.reranked if _plain(asked) not in done["rerank"]]:
        _rerank(left, cell, folder, lists)
    for what, asked in _asked(cell).items():
        done[what] += [one for one in asked if one not in done[what]]
    write_text(folder / AFTERWARDS, json.dumps(done, indent=2) + "\n")
    tidy_up(cell, out)
    return read_result(folder / METRICS, owner)


def tidy_up(cell: Cell, out: Path) -> None:
    """Remove what a finished cell has no use for: state to go on from, older checkpoints."""
    folder = out / cell.name
    names = [f"{prefix}{name}" for prefix in (BEFORE, "new-") for name in (MODEL, STATE)]
    for name in [*names, STATE, *([] if cell.keep_model else [MODEL])]:
        (folder / name).unlink(missing_ok=True)
    remove_halves(folder)


def _measure_by(protocol: str, cell: Cell, folder: Path, lists: AnyLists) -> None:
    values = cell.config.model_dump()
    values["evaluation"]["protocol"] = protocol
    config = check_config(values, cell.name)
    found = measure(_model(folder, lists, config), lists, config)
    result = {**summary(config, lists, found, part="test"), "finished": True}
    queries = per_query(config, lists, found, part="test")
    identity = identity_of(cell.config, lists)
    write_result(folder / metrics_name(result), result, queries, identity)


def _rerank(left: list[Asked], cell: Cell, folder: Path, lists: AnyLists) -> None:
    assert isinstance(lists, Lists)  # `cells_of` refuses others
    model = _model(folder, lists, cell.config)
    run = OpenRun(folder, cell.config, lists, model, "test", Measures({}, None))
    for asked in left:
        result, queries, identity = rerank_run(run, asked).measured
        write_result(folder / result_name(result), result, queries, identity)


def _model(folder: Path, lists: AnyLists, config: Config) -> torch.nn.Module:
    if not (folder / MODEL).exists():
        raise InputError(
            f"{folder} has not kept its model, and cannot be measured in new ways; remove it, "
            f"and it is trained again"
        )
    return load_model(folder, lists, config)


def _asked(cell: Cell) -> dict[str, list[Any]]:
    """Return what is to be done with a cell once it is trained."""
    return {"protocols": [*cell.protocols], "rerank": [_plain(one) for one in cell.reranked]}


def _done(folder: Path) -> dict[str, list[Any]]:
    """Return what was done of it, now or for an earlier sweep."""
    try:
        found = DONE.validate_json(read_text(folder / AFTERWARDS))
    except ValueError:
        found = {}
    return {what: found.get(what, []) for what in ("protocols", "rerank")}


def _plain(asked: Asked) -> dict[str, Any]:
    """Return a request as JSON would give it back."""
    found: dict[str, Any] = json.loads(json.dumps(asked._asdict()))
    return found
