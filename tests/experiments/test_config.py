from pathlib import Path

import pytest

import fairtopk as ft
from fairtopk.experiments.config import Config, check_config, dump_config, load_config

WHOLE = """
seed = 3
[data]
source = "movielens-1m"
path = "ml-1m.zip"
groups = { column = "genres", contains = "Horror" }
test = 5
validation = 5
[model]
name = "neumf"
[method]
name = "kso-red"
k = 50
c = 1e5
[training]
warmup_epochs = 20
epochs = 120
batch_size = 256
lists = { rated = 10, unrated = 300 }
[evaluation]
k = [50, 100, 200]
protocol = "sampled"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "c.toml"
    file.write_text(WHOLE)
    return file


def test_a_config_comes_back_from_its_own_text(path: Path, tmp_path: Path) -> None:
    config = load_config(
        path, ['data.options={ note = "a \\"quoted\\" \\\\ word" }', "method.k=[9, 5]"]
    )
    (tmp_path / "again.toml").write_text(dump_config(config))
    assert load_config(tmp_path / "again.toml") == config
    assert config.method.ks == (5, 9)


def test_everything_but_the_method_has_a_default() -> None:
    config = check_config({"method": {"name": "k-song"}}, "here")
    assert config.data.source == "synthetic"
    with pytest.raises(ft.InputError, match=r"here: method is missing"):
        check_config({}, "here")
    with pytest.raises(ft.InputError, match=r"here: method\.name is missing"):
        check_config({"method": {}}, "here")


def test_a_preset_fills_in_what_is_left_out(path: Path) -> None:
    method = load_config(path, ["method.preset=paper", "method.gamma_u=0.6"]).method
    assert (method.threshold, method.beta, method.beta_of) == ("tracked", 2.0, "score")
    assert method.gamma_u == 0.6
    assert load_config(path).method.threshold == "exact"


def test_changes_are_read_as_toml_or_as_text(path: Path) -> None:
    changes = ["method.c=1e3", "data.source=synthetic", "evaluation.k=7", "seed=9"]
    config = load_config(path, changes)
    assert (config.method.c, config.data.source, config.seed) == (1e3, "synthetic", 9)
    assert config.evaluation.k == (7,)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("method.kk=3", r"unknown key method\.kk; check its spelling"),
        (
            "training.lists={ rated = 1, unrated = 2, x = 3 }",
            r"unknown key training\.lists\.x|training",
        ),
        ("method.name=magic", r"method\.name: .*'song', 'k-song'.*got 'magic'"),
        ("method.k=0", r"method\.k.*greater than 0, got 0"),
        ("method.k=[]", r"method\.k"),
        ("method.c=inf", r"method\.c: .*finite"),
        ("method.c_relative=1", r"give c or c_relative, not both"),
        ("method.gamma_u=1.5", r"method\.gamma_u: .*less than or equal to 1, got 1\.5"),
        ("data.groups={ col = 'x' }", r"data\.groups: groups has no key 'col'"),
        ("data.source=nowhere", r"data\.source: unknown data set 'nowhere'"),
        ("model.hidden=[]", r"model\.hidden: needs at least one layer"),
        ("seed=-1", r"seed: .*greater than or equal to 0, got -1"),
        ("seed.x=1", r"--set seed\.x=1: seed is not a table"),
        ("nonsense", r"--set takes key=value, for example method\.c=1e5, got 'nonsense'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(path: Path, change: str, sentence: str) -> None:
    with pytest.raises(ft.InputError, match=sentence) as error:
        load_config(path, [change])
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("method = [")
    with pytest.raises(ft.InputError, match="is not a TOML file"):
        load_config(tmp_path / "c.toml")
    with pytest.raises(ft.InputError, match="does not exist; check the path"):
        load_config(tmp_path / "none.toml")


def test_every_example_is_a_config() -> None:
    examples = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
    names = {path.stem: load_config(path) for path in examples}
    assert all(isinstance(config, Config) for config in names.values())
    assert {config.method.name for config in names.values()} == {
        "song", "k-song", "listnet", "deltr", "ng-de", "so-red", "kso-red",
    }  # fmt: skip
