"""The table of settings, one changed at a time, that studies/movielens/choices.py makes."""

import json
from pathlib import Path

import polars as pl
import pytest

from fairtopk.runs.config_file import dump_config
from fairtopk.runs.result import config_digest, sealed
from studies.movielens import choices

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "ml-1m.zip").touch()  # is looked for, and not read
    return tmp_path


@pytest.mark.slow
def test_each_choice_changes_what_is_trained(data: Path) -> None:
    texts = [
        dump_config(cell.config)
        for choice in choices.CHOICES
        for cell in choices.cells_for(choice, data)
    ]
    blind = sum("name" in one.get("method", {}) for one in choices.CHOICES.values())
    assert len(texts) == len(set(texts)) == 3 * blind + 3 * 2 * (len(choices.CHOICES) - blind)


def test_changes_are_from_k_song_of_the_same_seed(data: Path) -> None:
    cells = {one: choices.cells_for(one, data) for one in (choices.BLIND, choices.DEFAULTS)}
    for of in cells.values():
        for cell in of:
            seed, c = cell.config.seed, cell.config.method.c
            value = (1.0 + seed) * {None: 1.0, 1e4: 0.75, 5e4: 0.5}[c]
            names = [*choices.CHANGED, choices.SIGNED]
            measured = {"mean": value, "ci95": [value, value], "n": 9, "undefined": 0}
            metrics = {f"{name}@{k}": measured for name in names for k in choices.KS}
            folder = data / cell.name
            folder.mkdir(parents=True)
            result = {
                "identity": {
                    "run": cell.name, "config": config_digest(cell.config), "data": "",
                },
                "seed": seed, "c": c, "c_relative": None, "needs_labels_when_serving": False,
                "method": cell.config.method.name, "data": "films", "part": "test",
                "protocol": "sampled", "metrics": metrics,
            }  # fmt: skip
            (folder / "metrics.json").write_text(json.dumps(sealed(result)))
    rows = pl.DataFrame(choices.read_rows(cells, data), infer_schema_length=None)
    assert rows["seeds"].to_list() == [3] * 9
    changes = rows["rank_exposure_gap_change"].to_list()
    assert changes == pytest.approx([0.0] * 3 + [-0.25] * 3 + [-0.5] * 3)
    lines = choices.shown(rows).split("\n")
    assert lines[3] == (
        "| KSO-RED by its defaults | 10000 | 3 | "
        + "-25.0 / -25.0 / -25.0 | " * 3
        + "+1.5 / +1.5 / +1.5 |"
    )
