"""A file that was damaged anyhow is refused in one sentence, or does no harm."""

import json
import random
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from drill.mutations import BYTES, Mutate, edit_header, edit_json, edit_lines
from drill.rows import row
from drill.rows_runs import CONFIG, METRICS, MODEL, PER_QUERY, PROVENANCE, RESUME, RUN, STATE
from drill.rows_tables import FILMS, LETOR
from drill.rows_words import AUDIT
from drill.running import run_in
from drill.test_rows import faults

import fairtopk as ft
from fairtopk.errors import InputError

pytestmark = pytest.mark.slow

NOWHERE = "--set data.path=none.csv"  # no run is begun, whatever a config says
EVALUATE = f"evaluate {RUN} --k 4"
REPORT = "report runs"
TRAIN = "train kso-red.toml --out made"
PREPARED = f"{TRAIN} --set data.path=prepared --set data.options="


class Kind(NamedTuple):
    """Files of one kind.

    Attributes:
        path: Which file is mutated.
        words: The command that reads it.
        count: How many mutations.
        edits: Ways to mutate, beside those of any bytes.
        other: A file of another run that may take its place.
        removed: A file that is removed first, so that the other is read.
        same: A metrics file whose numbers stay what they were, if the mutation is accepted.
    """

    path: str
    words: str
    count: int
    edits: tuple[Mutate, ...] = ()
    other: str | None = None
    removed: str | None = None
    same: str | None = None


AFTERWARDS = "swept/csv-ratings-group-a/k-song-k5/seed0/afterwards.json"
RERANKED = "runs/k-song/rerank-det-greedy-k=5-sampled-test.json"
KINDS = {
    "CSV": Kind("ranked.csv", AUDIT, 18),
    "Parquet": Kind("ranked.parquet", AUDIT.replace(".csv", ".parquet"), 18),
    "gz": Kind("ranked.csv.gz", AUDIT.replace(".csv", ".csv.gz"), 12),
    "zip": Kind("films.zip", FILMS, 18),
    "LETOR": Kind("docs.txt", LETOR, 18),
    "config": Kind("kso-red.toml", f"{TRAIN} {NOWHERE}", 18),
    "config of a run": Kind(CONFIG, EVALUATE, 12, (), "other-run/config.toml"),
    "sweep": Kind("sweep.toml", f"sweep sweep.toml --out made {NOWHERE}", 18),
    "metrics": Kind(METRICS, REPORT, 24, (edit_json,) * 8, "other-run/metrics.json"),
    "re-ranked": Kind(RERANKED, REPORT, 12, (edit_json,) * 8, "other-run/metrics.json"),
    "provenance": Kind(PROVENANCE, REPORT, 10, (edit_json,) * 5, "docs-run/provenance.json"),
    "log": Kind(f"{RUN}/log.jsonl", REPORT, 12, (edit_lines,) * 5, "docs-run/log.jsonl"),
    "values of queries": Kind(PER_QUERY, REPORT, 16, (edit_header,) * 8,
                              "docs-run/per_query.safetensors"),
    "metrics resumed": Kind(METRICS, RESUME, 8, (edit_json,) * 5, "other-run/metrics.json",
                            None, METRICS),
    "search": Kind("goal-run/search.json", "train goal.toml --out goal-run --resume", 10,
                   (edit_json,) * 8, METRICS, None, "goal-run/metrics.json"),
    "afterwards": Kind(AFTERWARDS, "sweep sweep.toml --out swept --resume --processes 1", 4,
                       (edit_json,) * 8),
    "model": Kind(MODEL, EVALUATE, 24, (edit_header,) * 10, "other-run/model.safetensors"),
    "state": Kind(STATE, RESUME, 24, (edit_header,) * 10, "other-run/state.safetensors",
                  METRICS, METRICS),
    "card": Kind("prepared/card.json", PREPARED, 16, (edit_json,) * 8,
                 "prepared-docs/card.json"),
    "prepared table": Kind("prepared/ratings.parquet", PREPARED, 8, (), "items.parquet"),
}  # fmt: skip
CACHED, RANKERS = 16, 16
CASES = [(name, number) for name, kind in KINDS.items() for number in range(kind.count)]


def mutate(path: Path, kind: Kind, chance: random.Random, folder: Path) -> None:
    """Put another content into a file."""
    ways = [*BYTES, *kind.edits]
    if kind.other is not None and chance.random() < 0.08:
        path.write_bytes((folder / kind.other).read_bytes())
    else:
        path.write_bytes(chance.choice(ways)(path.read_bytes(), chance))


def seeded(name: str, number: int) -> random.Random:
    return random.Random(zlib.crc32(name.encode()) + number)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_mutated_file_is_refused_or_does_no_harm(
    name: str, number: int, folder: Path
) -> None:
    kind = KINDS[name]
    wanted = numbers(folder / kind.same) if kind.same is not None else None
    if kind.removed is not None:
        (folder / kind.removed).unlink()
    mutate(folder / kind.path, kind, seeded(name, number), folder)
    ended = run_in(folder, kind.words.split())
    assert not faults(row(name, kind.words, code=(0, 1, 2)), ended), ended
    if kind.same is not None and ended.code != 2:
        assert numbers(folder / kind.same) == wanted


def numbers(path: Path) -> Any:
    return json.loads(path.read_text())["metrics"]


@pytest.mark.parametrize("number", range(CACHED))
def test_a_mutated_stage_of_the_cache_changes_no_number(number: int, folder: Path) -> None:
    kind = Kind("", TRAIN, CACHED, (edit_header,) * 5)
    chance = seeded("cached", number)
    for path in sorted((folder / "home").rglob("*.safetensors")):
        mutate(path, kind, chance, folder)
    ended = run_in(folder, TRAIN.split())
    assert not faults(row("cached", TRAIN, code=0), ended), ended
    assert numbers(folder / "made" / "metrics.json") == numbers(folder / METRICS)


@pytest.mark.parametrize("number", range(RANKERS))
def test_a_mutated_ranker_is_refused_or_ranks(number: int, folder: Path) -> None:
    path = folder / ("ids.ranker" if number % 2 else "features.ranker")
    kind = Kind("", "", RANKERS, (edit_header,) * 8, "ids.ranker")
    mutate(path, kind, seeded("ranker", number), folder)
    said = f"{path.name} is read"
    try:
        ft.FairRanker.load(path)
    except InputError as error:
        said = str(error)
    assert path.name in said
    assert "\n" not in said


def test_there_are_300_mutations() -> None:
    assert len(CASES) + CACHED + RANKERS >= 300
