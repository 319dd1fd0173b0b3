"""From a [sweep] table to cells."""

import re
from pathlib import Path
from typing import Any

import pytest

from fairtopk.errors import InputError
from fairtopk.runs.grid import Afterwards, Cell, cells_of, load_sweep, n_choices, product


def cells(
    grid: dict[str, Any], base: dict[str, Any] | None = None, **afterwards: Any
) -> list[Cell]:
    base = {"method": {"name": "k-song"}} if base is None else base
    return cells_of(base, grid, Afterwards.model_validate(afterwards), where="here")


def test_tables_multiply_and_lists_add_up() -> None:
    grid = {"seed": [0, 1], "method": [{"name": "a"}, {"name": "b", "c": [1, 2]}]}
    found = [
        (one["seed"], one["method"]["name"], one["method"].get("c")) for one in product(grid)
    ]
    assert found == [
        (0, "a", None), (0, "b", 1), (0, "b", 2), (1, "a", None), (1, "b", 1), (1, "b", 2),
    ]  # fmt: skip


def test_a_value_that_is_a_list_stands_in_a_list() -> None:
    found = cells({"model": {"hidden": [[64], [64, 32]]}})
    assert [cell.config.model.hidden for cell in found] == [(64,), (64, 32)]


def test_a_method_without_a_penalty_is_trained_once_for_all_weights() -> None:
    grid = {"method": {"name": ["k-song", "kso-red"], "c": [1.0, 10.0], "k": [20]}}
    found = cells(grid)
    assert [(cell.config.method.name, cell.config.method.c) for cell in found] == [
        ("k-song", None), ("kso-red", 1.0), ("kso-red", 10.0),
    ]  # fmt: skip


def test_a_cells_folder_tells_data_method_weight_k_and_seed() -> None:
    rule = {"column": "genres", "contains": "Horror"}
    (cell,) = cells(
        {"method": [{"name": "kso-red", "c_relative": 0.5, "k": 50}], "seed": [3]},
        {"data": {"source": "movielens-1m", "path": "x.zip", "groups": rule}, "method": {}},
    )
    assert cell.name == "movielens-1m-genres-horror/kso-red-cn0.5-k50/seed3"


def test_names_stay_when_more_is_swept_along_the_same_lines() -> None:
    few = {cell.name for cell in cells({"seed": [0]})}
    assert few < {cell.name for cell in cells({"seed": [0, 1], "method": {"k": [50, 100]}})}


def test_cells_that_would_share_a_folder_are_told_apart() -> None:
    found = cells({"data": {"options": [{"bias": 1.00000001}, {"bias": 1.0}]}})
    assert len({cell.name for cell in found}) == 2


def test_a_folders_name_is_one_that_file_systems_allow() -> None:
    source = {"source": "csv", "path": "x.csv"}
    groups = [{"column": "genres", "contains": "x" * 300 + last} for last in "ab"]
    found = cells({"data": {"groups": groups}}, {"data": source, "method": {"name": "k-song"}})
    names = {cell.name for cell in found}
    assert len(names) == 2
    assert max(len(part) for name in names for part in name.split("/")) < 255


def test_a_folder_is_never_outside_of_the_sweeps() -> None:
    source = {"source": "csv", "path": "../..", "groups": {"column": "..", "contains": "/../"}}
    (cell,) = cells({}, {"data": source, "method": {"name": "k-song"}})
    assert cell.name == "csv/k-song-k50/seed0"


def test_a_weight_of_one_kind_replaces_that_of_the_other() -> None:
    base = {"method": {"name": "kso-red", "c": 5.0}}
    (cell,) = cells({"method": {"c_relative": [0.5]}}, base)
    assert (cell.config.method.c, cell.config.method.c_relative) == (None, 0.5)


def test_what_is_set_beside_a_preset_stays() -> None:
    base = {"method": {"name": "kso-red", "c": 5.0}}
    (cell,) = cells({"method": {"gamma_u": [0.6], "preset": ["paper"]}}, base)
    assert cell.config.method.gamma_u == 0.6


def test_runs_on_the_same_data_follow_one_another() -> None:
    found = cells({"seed": [0, 1], "data": {"test": [5, 6]}})
    assert [cell.config.data.test for cell in found] == [5, 5, 6, 6]


def test_colour_blind_runs_are_reranked_unless_others_are_named() -> None:
    grid = {"method": [{"name": "k-song"}, {"name": "kso-red", "c": 1.0}]}
    rerank = [{"method": "group-bonus", "bonus": [0.1, 0.2]}]
    blind, fair = cells(grid, rerank=rerank)
    assert [asked.options["bonus"] for asked in blind.reranked] == [0.1, 0.2]
    assert fair.reranked == ()
    blind, fair = cells(grid, rerank=rerank, rerank_of=["kso-red"])
    assert (len(blind.reranked), len(fair.reranked)) == (0, 2)


def test_robust_is_not_measured_on_the_catalogue() -> None:
    grid = {"method": [{"name": "k-song"}, {"name": "robust", "c": 1.0}]}
    blind, robust = cells(grid, protocols=["sampled", "full"])
    assert (blind.protocols, robust.protocols) == (("full",), ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[sweep]\nseed = [0]\nmetod = 1", "sweep: unknown key metod; check its spelling"),
        ('[method]\nname = "x"\n[sweep]\nseed = [0]', "method.name must be"),
        ("[method]\nname = 'k-song'\n[sweep]\nmethod.ks = [9]", "unknown key method.ks"),
        ("sweep = 3", "sweep must be a table, got 3"),
        ("[sweep]\nmethod.name = ['k-song']\nrerank = [{ k = 3 }]", "needs a method"),
        ("[sweep]\nmethod.name = ['k-song']\nrerank = [{ method = 'best' }]", "sweep.rerank: "),
        ("[method]\nname = 'k-song'", "has no [sweep] table, or an empty one; list there"),
        ("[method]\nname = 'k-song'\n[sweep]\nseed = []", "sweep.seed lists nothing; give"),
        ("[sweep]\nmethod = [{ name = 'kso-red', c = [] }]", "sweep.method.c lists nothing"),
        (
            "[sweep]\nmethod.name = ['k-song']\nrerank = [{ method = 'fa-ir', alpha = [] }]",
            "sweep.rerank.0.alpha lists nothing",
        ),
        ("[sweep]\nmethod.name = ['k-song']\nrerank_of = ['ksong']", "rerank_of.0 must be"),
        (
            "[data]\nsource = 'letor'\n[sweep]\nmethod.name = ['k-song']\n"
            "rerank = [{ method = 'fa-ir' }]",
            "takes users and items, and letor holds documents with features; leave it out",
        ),
    ],
)
def test_what_is_wrong_with_a_sweep_is_told_in_a_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(sentence)):
        load_sweep(path)


def test_the_example_is_a_sweep() -> None:
    found = load_sweep(Path(__file__).parents[2] / "examples" / "sweep.toml")
    assert len(found) == 3 * (1 + 2 + 2)
    assert [len(cell.reranked) for cell in found[:2]] == [4, 0]


def test_too_many_runs_are_counted_without_being_made() -> None:
    many = {"seed": list(range(1000)), "method": [{"c": list(range(1000)), "k": [1, 2]}, {}]}
    assert n_choices(many) == 1000 * 2001
    with pytest.raises(InputError) as error:
        cells(many)
    assert str(error.value) == (
        "here: [sweep] lists 2,001,000 runs, and 10,000 is the most; split it into several "
        "sweeps"
    )
    with pytest.raises(InputError, match=r"lists 10,001 re-rankers, and 10,000 is the most"):
        cells({"seed": [0]}, rerank=[{"method": "group-bonus", "bonus": [0.1] * 10_001}])


def test_what_is_counted_is_what_is_made() -> None:
    for grid in ({"a": [1, 2], "b": {"c": [1, 2, 3]}}, [{"a": [1, 2]}, 3, [4, 5]], {}, 1):
        assert n_choices(grid) == len(product(grid))
