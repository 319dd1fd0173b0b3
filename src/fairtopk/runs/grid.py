"""A config with a ``[sweep]`` table as cells, one for each combination.

    [sweep]
    seed = [0, 1, 2]
    method = [{ name = "k-song" }, { name = "kso-red", c_relative = [0.1, 0.5] }]

is three seeds of three runs. Lists are alternatives; tables multiply and lists add up, at any
depth; a value that is a list itself stands in a list, ``model.hidden = [[64], [64, 32]]``.
Settings without effect are left out: a method without a penalty is trained once in all.
"""

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from fairtopk.checks import first_fault
from fairtopk.data.groups import GroupRule
from fairtopk.errors import InputError
from fairtopk.objectives.methods import Listed
from fairtopk.reranking.request import RerankRequest
from fairtopk.runs.config import Config, MethodName, Section, other_protocol
from fairtopk.runs.config_file import check_config, dump_config, put, read_config

SECTIONS = tuple(Config.model_fields)
NAMED = {  # keys that are part of every cell's name, swept or not
    "seed", "data", "data.source", "data.path", "data.groups", "method", "method.name",
    "method.preset", "method.c", "method.c_relative", "method.k",
}  # fmt: skip
OWN_FILE = ("csv", "parquet", "letor")  # sources whose name does not identify the data
MOST_CELLS = 10_000
LONGEST = 150  # characters of a folder's name; file systems allow 255


class Afterwards(Section):
    """What is done with each run after training."""

    protocols: Listed[Literal["sampled", "full"]] = ()  # measured in addition to the run's own
    rerank: Listed[dict[str, Any]] = ()  # re-rankers: method, k and their options
    rerank_of: Listed[MethodName] | None = None  # None: those without a fairness part
    keep_models: bool = True


class Cell(NamedTuple):
    """One run of a sweep."""

    name: str  # its folder, relative to that of the sweep
    config: Config  # the run
    protocols: tuple[str, ...] = ()  # protocols in addition to its own
    reranked: tuple[RerankRequest, ...] = ()  # the re-rankings of its lists
    keep_model: bool = True  # whether its weights are kept after all is measured


def load_sweep(path: Path, changes: Sequence[str] = ()) -> list[Cell]:
    """Return the cells of a TOML file; `changes` are like ``training.epochs=5``."""
    values = read_config(path, changes)
    if "goal" in values:
        raise InputError(
            f"{path}: a goal is searched by `fairtopk train`, and cannot stand in a sweep; "
            f"leave [goal] out, or train it alone"
        )
    swept = values.pop("sweep", None)
    if not swept:
        raise InputError(
            f"{path} has no [sweep] table, or an empty one; list there what is to be varied, "
            f"or train a single run with `fairtopk train`"
        )
    if not isinstance(swept, dict):
        raise InputError(f"{path}: sweep must be a table, got {swept!r}")
    grid = {key: swept.pop(key) for key in SECTIONS if key in swept}
    try:
        afterwards = Afterwards.model_validate(swept)
    except ValidationError as error:
        raise InputError(f"{path}: sweep: {first_fault(error, swept)}") from error
    return cells_of(values, grid, afterwards, where=str(path))


def cells_of(
    base: Mapping[str, Any], grid: Mapping[str, Any], afterwards: Afterwards, *, where: str
) -> list[Cell]:
    """Return a cell for each combination of the alternatives in `grid`, put into `base`.

    Both have the tables of a config; lists in `grid` are alternatives. `where` is the file, for
    messages.
    """
    counts = {"runs": n_choices(grid, f"{where}: sweep")}
    counts["re-rankers"] = sum(
        n_choices(given, f"{where}: sweep.rerank.{place}")
        for place, given in enumerate(afterwards.rerank)
    )
    for what, count in counts.items():
        if count > MOST_CELLS:
            raise InputError(
                f"{where}: [sweep] lists {count:,} {what}, and {MOST_CELLS:,} is the most; "
                f"split it into several sweeps"
            )
    rerankers, cells = [], []
    for options in itertools.chain.from_iterable(map(product, afterwards.rerank)):
        if "method" not in options:
            raise InputError(f"{where}: each re-ranker of sweep.rerank needs a method")
        name, k = options.pop("method"), options.pop("k", None)
        try:
            rerankers.append(RerankRequest(name, k, options, "mark").checked())
        except InputError as error:
            raise InputError(f"{where}: sweep.rerank: {error}") from error
    for name, config in _named(base, grid, where).items():
        method, of, (other, _) = config.method, afterwards.rerank_of, other_protocol(config)
        wanted = not method.row.is_fair if of is None else method.name in of
        if rerankers and wanted and config.data.of_documents:
            raise InputError(
                f"{where}: sweep.rerank takes users and items, and {config.data.source} holds "
                f"documents with features; leave it out"
            )
        protocols = (other,) if other is not None and other in afterwards.protocols else ()
        reranked = tuple(rerankers) if wanted else ()
        cells.append(Cell(name, config, protocols, reranked, afterwards.keep_models))
    # Runs on the same data follow one another: a process keeps the last data at hand.
    places = {cell.config.data.model_dump_json(): place for place, cell in enumerate(cells)}
    return sorted(cells, key=lambda cell: places[cell.config.data.model_dump_json()])


def product(grid: Any) -> list[Any]:
    """Return every choice of one alternative from each list of a grid."""
    if isinstance(grid, Mapping):
        combinations = itertools.product(*(product(value) for value in grid.values()))
        return [dict(zip(grid, chosen, strict=True)) for chosen in combinations]
    if isinstance(grid, list):
        return [
            choice
            for one in grid
            for choice in (product(one) if isinstance(one, Mapping) else [one])
        ]
    return [grid]


def n_choices(grid: Any, path: str = "sweep") -> int:
    """Return how many choices `product` would return, without making them.

    A list without alternatives is refused by its path, which begins with `path`.
    """
    if isinstance(grid, Mapping):
        return math.prod([n_choices(value, f"{path}.{key}") for key, value in grid.items()])
    if not isinstance(grid, list):
        return 1
    if not grid:
        raise InputError(f"{path} lists nothing; give it a value or more, or leave it out")
    return sum(n_choices(one, path) if isinstance(one, Mapping) else 1 for one in grid)


def _named(base: Mapping[str, Any], grid: Mapping[str, Any], where: str) -> dict[str, Config]:
    """Return the config of each choice from `grid`, put into `base`, by its folder."""
    configs: dict[str, Config] = {}  # by their text, so that none is there twice
    names: dict[str, str] = {}
    for choice in product(grid):
        chosen: dict[str, Any] = {}  # by path, such as method.name
        for section, value in choice.items():
            if isinstance(value, Mapping):
                chosen |= {f"{section}.{key}": one for key, one in value.items()}
            else:
                chosen[section] = value
        values = {
            key: dict(value) if isinstance(value, Mapping) else value
            for key, value in base.items()
        }
        # A preset first: it unsets what it would fill in.
        for path in sorted(chosen, key=lambda path: path != "method.preset"):
            put(values, path, chosen[path])  # tables below a section are replaced whole
        config = check_config(values, where)
        if not config.method.row.is_fair:  # a weight has no effect
            method = config.method.model_copy(update={"c": None, "c_relative": None})
            config = config.model_copy(update={"method": method})
        text = dump_config(config)
        if text not in configs:
            configs[text], names[text] = config, _name(config, chosen)
    count = Counter(names.values())
    return {
        (name if count[name] == 1 else f"{name}-{_digest(text)}"): configs[text]
        for text, name in names.items()
    }


def _name(config: Config, chosen: Mapping[str, Any]) -> str:
    """Return the folder of a cell, named for its data, method and seed."""
    data, method = config.data, config.method
    of_data, of_method = [data.source], [method.name]
    if data.source in OWN_FILE and data.path:
        of_data.append(Path(data.path).stem)
    if data.groups is not None:
        of_data.append(_word(data.groups))
    if method.preset != "default":
        of_method.append(method.preset)
    if method.c is not None:
        of_method.append(f"c{method.c:g}")
    if method.c_relative is not None:
        of_method.append(f"cn{method.c_relative:g}")
    of_method.append(f"k{_word(list(method.ks))}")
    for path, value in chosen.items():
        if path not in NAMED:
            of_method.append(f"{path.rpartition('.')[2]}{_word(value)}")
    folders = []
    for words in (of_data, of_method):
        plain = (re.sub(r"[^a-z0-9.+_]+", "-", one.lower()).strip("-.") for one in words)
        folder = "-".join(filter(None, plain))
        cut = f"{folder[:LONGEST]}-{_digest(folder)}"
        folders.append(folder if len(folder) <= LONGEST else cut)
    return "/".join([*folders, f"seed{config.seed}"])


def _word(value: Any) -> str:
    if isinstance(value, GroupRule):
        return _word([one for one in vars(value).values() if one is not None])
    if isinstance(value, Mapping):
        return _word([part for pair in value.items() for part in pair])
    if isinstance(value, list | tuple):
        return "-".join(_word(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
