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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from fairtopk.checks import first_fault
from fairtopk.data.groups import GroupRule
from fairtopk.errors import InputError
from fairtopk.objectives.methods import Listed
from fairtopk.reranking.request import RerankRequest
from fairtopk.runs.config import (
    Config,
    DataConfig,
    MethodConfig,
    MethodName,
    Section,
    other_protocol,
)
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
    """One run of a sweep.

    Attributes:
        name: Its folder, relative to that of the sweep.
        config: The run.
        protocols: Protocols in addition to its own.
        reranked: The re-rankings of its lists.
        keep_model: Whether its weights are kept after all is measured.
    """

    name: str
    config: Config
    protocols: tuple[str, ...] = ()
    reranked: tuple[RerankRequest, ...] = ()
    keep_model: bool = True


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

    Args:
        base: Keys of a config.
        grid: The same tables, in which lists are alternatives.
        afterwards: What is done with each run after training.
        where: The file, for messages.
    """
    listed = {**grid, "rerank": {str(n): of for n, of in enumerate(afterwards.rerank)}}
    if (path := next(_empty(listed), None)) is not None:
        raise InputError(
            f"{where}: {path} lists nothing; give it a value or more, or leave it out"
        )
    for what, alternatives in (("runs", grid), ("re-rankers", [*afterwards.rerank])):
        if (count := n_choices(alternatives)) > MOST_CELLS:
            raise InputError(
                f"{where}: [sweep] lists {count:,} {what}, and {MOST_CELLS:,} is the most; "
                f"split it into several sweeps"
            )
    rerankers = [_asked(one, where) for given in afterwards.rerank for one in product(given)]
    configs: dict[str, Config] = {}  # by their text, so that none is there twice
    names: dict[str, str] = {}
    for chosen in map(_paths, product(grid)):
        config = _without_idle_weight(check_config(_merged(base, chosen), where))
        text = dump_config(config)
        if text not in configs:
            configs[text], names[text] = config, _name(config, chosen)
    _tell_apart(names)
    cells = []
    for text, config in configs.items():
        method, of = config.method, afterwards.rerank_of
        wanted = not method.row.is_fair if of is None else method.name in of
        if rerankers and wanted and config.data.of_documents:
            raise InputError(
                f"{where}: sweep.rerank takes users and items, and {config.data.source} holds "
                f"documents with features; leave it out"
            )
        cells.append(
            Cell(
                names[text],
                config,
                _protocols(afterwards, config),
                tuple(rerankers) if wanted else (),
                afterwards.keep_models,
            )
        )
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


def n_choices(grid: Any) -> int:
    """Return how many choices `product` would return, without making them."""
    if isinstance(grid, Mapping):
        return math.prod(map(n_choices, grid.values()))
    if isinstance(grid, list):
        return sum(n_choices(one) if isinstance(one, Mapping) else 1 for one in grid)
    return 1


def _empty(grid: Any, path: str = "sweep") -> Iterator[str]:
    """Yield the paths of empty lists of alternatives."""
    if isinstance(grid, Mapping):
        for key, value in grid.items():
            yield from _empty(value, f"{path}.{key}")
    elif isinstance(grid, list):
        if not grid:
            yield path
        for one in grid:
            if isinstance(one, Mapping):
                yield from _empty(one, path)


def _merged(base: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the chosen values; tables below a section are replaced whole."""
    values = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in base.items()
    }
    # A preset first: it unsets what it would fill in.
    for path in sorted(chosen, key=lambda path: path != "method.preset"):
        put(values, path, chosen[path])
    return values


def _paths(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chosen values by path, ``method.name``."""
    paths: dict[str, Any] = {}
    for section, value in chosen.items():
        if isinstance(value, Mapping):
            paths |= {f"{section}.{key}": one for key, one in value.items()}
        else:
            paths[section] = value
    return paths


def _without_idle_weight(config: Config) -> Config:
    """Return the config without a weight if the method has no fairness part."""
    if config.method.row.is_fair:
        return config
    method = config.method.model_copy(update={"c": None, "c_relative": None})
    return config.model_copy(update={"method": method})


def _protocols(afterwards: Afterwards, config: Config) -> tuple[str, ...]:
    """Return the protocols that a run is measured by in addition to its own."""
    other = other_protocol(config)
    return (other,) if other is not None and other in afterwards.protocols else ()


def _asked(given: Mapping[str, Any], where: str) -> RerankRequest:
    options = dict(given)
    try:
        asked = RerankRequest(options.pop("method"), options.pop("k", None), options, "mark")
    except KeyError:
        raise InputError(f"{where}: each re-ranker of sweep.rerank needs a method") from None
    try:
        return asked.checked()
    except InputError as error:
        raise InputError(f"{where}: sweep.rerank: {error}") from error


def _name(config: Config, chosen: Mapping[str, Any]) -> str:
    """Return the folder of a cell, named for its data, method and seed."""
    others = [
        f"{path.rpartition('.')[2]}{_word(value)}"
        for path, value in chosen.items()
        if path not in NAMED
    ]
    parts = [_data_words(config.data), [*_method_words(config.method), *others]]
    folders = ["-".join(filter(None, map(_slug, words))) for words in parts]
    return "/".join([*map(_short, folders), f"seed{config.seed}"])


def _data_words(data: DataConfig) -> list[str]:
    words = [data.source]
    if data.source in OWN_FILE and data.path:
        words.append(Path(data.path).stem)
    return words + ([_word(data.groups)] if data.groups is not None else [])


def _method_words(method: MethodConfig) -> list[str]:
    words = [method.name] if method.preset == "default" else [method.name, method.preset]
    if method.c is not None:
        words.append(f"c{method.c:g}")
    if method.c_relative is not None:
        words.append(f"cn{method.c_relative:g}")
    return [*words, f"k{_word(list(method.ks))}"]


def _word(value: Any) -> str:
    if isinstance(value, GroupRule):
        return _word([one for one in vars(value).values() if one is not None])
    if isinstance(value, Mapping):
        return _word([part for pair in value.items() for part in pair])
    if isinstance(value, list | tuple):
        return "-".join(_word(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _slug(word: str) -> str:
    return re.sub(r"[^a-z0-9.+_]+", "-", word.lower()).strip("-.")


def _short(name: str) -> str:
    """Return a name that file systems allow: a long one is cut, with a digest added."""
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _tell_apart(names: dict[str, str]) -> None:
    """Add a digest of the config's text to names that are equal."""
    count = Counter(names.values())
    for text, name in names.items():
        if count[name] > 1:
            names[text] = f"{name}-{_digest(text)}"
