import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fairtopk as ft
from fairtopk.data.registry import KNOWN
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config, dump_config, load_config

KS = Config.model_fields["evaluation"].default.k

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


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("=", "--set takes key=value, for example method.c=1e5, got '='"),
        (".=1", "--set takes key=value, for example method.c=1e5, got '.=1'"),
        ("a..b=1", "--set takes key=value, for example method.c=1e5, got 'a..b=1'"),
        ("seed", "--set takes key=value, for example method.c=1e5, got 'seed'"),
        (f"seed={'9' * 5000}", "--set seed: Exceeds the limit (4300 digits)"),
        (f"seed=0x{'f' * 5000}", "c.toml has a whole number that does not fit into 64 bits"),
        (f"seed={'[' * 10_000}", "--set seed is nested too deeply"),
        (f"a={'[' * 30}{']' * 30}", "c.toml is nested too deeply: at most 20 tables and lists"),
        (f"{'a.' * 10_000}b=1", "c.toml is nested too deeply: at most 20 tables and lists"),
        ("data.path=\udcff", "is not UTF-8 text"),
        ("data.options={ '\udcff' = 1 }", "is not UTF-8 text"),
    ],
    ids=lambda text: text[:12],
)
def test_a_change_that_is_none_is_refused(path: Path, change: str, sentence: str) -> None:
    with pytest.raises(ft.InputError) as error:
        load_config(path, [change])
    assert sentence in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "text",
    [f"a = {'[' * 10_000}", f"seed = {'9' * 5000}", f"{'a.' * 5000}b = 1", "a = \x00", "\xff"],
    ids=lambda text: text[:6],
)
def test_a_file_that_no_config_can_be_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ft.InputError) as error:
        load_config(file)
    assert str(error.value).startswith(str(file))
    assert len(str(error.value)) < 300


def test_numbers_of_numpy_do_for_those_of_python() -> None:
    method = {"name": "kso-red", "k": np.int64(5), "c": np.float32(2)}
    given = {"seed": np.int64(1), "method": method, "model": {"hidden": [np.int32(8)]}}
    config = check_config(given, "here")
    assert (config.seed, config.method.k, config.model.hidden) == (1, 5, (8,))
    with pytest.raises(ft.InputError, match="seed must be a whole number, got True"):
        check_config({**given, "seed": np.True_}, "here")


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
    changes = ["method.c=1e3", "data.source=movielens-20m", "evaluation.k=7", "seed=9"]
    config = load_config(path, changes)
    assert (config.method.c, config.data.source, config.seed) == (1e3, "movielens-20m", 9)
    assert config.evaluation.k == (7,)


def test_a_change_to_nothing_unsets_a_key(path: Path) -> None:
    embedded = ["data.source=synthetic", "data.path=", "data.groups="]
    data = load_config(path, embedded).data
    assert (data.source, data.path, data.groups) == ("synthetic", None, None)
    with pytest.raises(ft.InputError) as error:
        load_config(path, embedded[:1])
    sentence = (
        "data: synthetic data takes no path and brings its own groups; leave out path and "
        "groups, or add: --set data.path= --set data.groups="
    )
    assert str(error.value) == f"{path}: {sentence}"
    with pytest.raises(ft.InputError, match=r"leave out groups, or add: --set data\.groups=$"):
        load_config(path, embedded[:2])


def test_the_weight_by_one_name_replaces_that_by_the_other(path: Path) -> None:
    method = load_config(path, ["method.c_relative=1.5"]).method
    assert (method.c, method.c_relative) == (None, 1.5)
    method = load_config(path, ["method.c_relative=1.5", "method.c=7"]).method
    assert (method.c, method.c_relative) == (7, None)
    path.write_text(WHOLE.replace("c = 1e5", "c = 1e5\nc_relative = 1"))
    with pytest.raises(ft.InputError, match=r"method: give c or c_relative, not both$"):
        load_config(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("sweep.seed=[0, 1]", "[sweep] lists many runs; train them by `fairtopk sweep`"),
        ("method.kk=3", "unknown key method.kk; check its spelling"),
        ("method.select-k=3", "unknown key method.select-k; check its spelling"),
        ("training.lists={ x = 3 }", "unknown key training.lists.x; check its spelling"),
        (
            "training.lists={ rated = 0 }",
            "training.lists.rated must be greater than 0, got 0",
        ),
        (
            "method.name=magic",
            "method.name must be one of blind, song, k-song, listnet, sl-at-k, deltr, ng-de, "
            "so-red, kso-red, dpr-rsp, dpr-reo, robust, fair-distill, or one that an installed "
            "package registers, got 'magic'",
        ),
        ("method.k=0", "method.k must be greater than 0, got 0"),
        ("method.k=[]", "method.k must not be empty, got []"),
        ("method.k=[3, 0]", "method.k must be greater than 0, got 0"),
        ("method.k=1.5", "method.k must be a whole number, got 1.5"),
        ("method.k=true", "method.k must be a whole number, got True"),
        ("method.c=inf", "method.c must be a finite number, got inf"),
        ("method.gamma_u=1.5", "method.gamma_u must be less than or equal to 1, got 1.5"),
        ("method=3", "method must be a table, got 3"),
        (
            "method.name=robust",
            "method: robust needs its share of the gap as c (share of the gap that is taken "
            "away, from 0 to 1), got c = 100000.0",
        ),
        (
            "method.robust={ mu = 0 }",
            "method.robust.mu must be greater than or equal to 0.1, got 0",
        ),
        (
            "data.groups={ col = 'x' }",
            "data.groups: groups has no key 'col': its keys are column, contains, equals, "
            "below, at_least, separator",
        ),
        (
            "data.groups={ column = 3 }",
            "data.groups: column of a group rule must be text, got 3",
        ),
        (
            "data.source=nowhere",
            f"data.source: unknown data set 'nowhere': the names are {', '.join(KNOWN)}",
        ),
        ("model.hidden=[]", "model.hidden must not be empty, got []"),
        ("model.hidden=64", "model.hidden must be a list, got 64"),
        ("training.rate=inf", "training.rate must be a finite number, got inf"),
        (
            "training.rate_epochs=[9, -1]",
            "training.rate_epochs.1 must be greater than 0, got -1",
        ),
        ("evaluation.k=0", "evaluation.k must be greater than 0, got 0"),
        ("evaluation.k=[]", "evaluation.k must not be empty, got []"),
        ("seed=true", "seed must be a whole number, got True"),
        ("seed=1.0", "seed must be a whole number, got 1.0"),
        ("training.corrected=yes", "training.corrected must be true or false, got 'yes'"),
        ("training.corrected=1", "training.corrected must be true or false, got 1"),
        ("training.rate='1e-3'", "training.rate must be a number, got '1e-3'"),
        ("training.rate=true", "training.rate must be a number, got True"),
        ("method.k='50'", "method.k must be a whole number, got '50'"),
        ("method.k=50.0", "method.k must be a whole number, got 50.0"),
        ("method.c='1e5'", "method.c must be a number, got '1e5'"),
        (
            "method.dpr={ batches = true }",
            "method.dpr.batches must be a whole number, got True",
        ),
        ("model.hidden=['64']", "model.hidden.0 must be a whole number, got '64'"),
        ("data.test=true", "data.test must be a whole number, got True"),
        ("data.path=''", "data.path: must name a file or folder, got ''"),
        (r'data.path="a\u0000b"', r"data.path: must name a file or folder, got 'a\x00b'"),
        (
            f"evaluation.k=[{'5, ' * 101}]",
            "evaluation.k must have at most 100 entries, got 101",
        ),
        (
            f"model.hidden=[{'5, ' * 101}]",
            "model.hidden must have at most 100 entries, got 101",
        ),
        (
            "model.width=100_000_000",
            "model.width must be less than or equal to 10000000, got 100000000",
        ),
        (
            "training.epochs=10_000_001",
            "training.epochs must be less than or equal to 10000000, got 10000001",
        ),
        ("seed=-1", "seed must be greater than or equal to 0, got -1"),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence_with_its_path(
    path: Path, change: str, sentence: str
) -> None:
    with pytest.raises(ft.InputError) as error:
        load_config(path, [change])
    assert str(error.value) == f"{path}: {sentence}"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("seed.x=1", "cannot set seed.x: seed is not a table"),
        ("nonsense", "--set takes key=value, for example method.c=1e5, got 'nonsense'"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(
    path: Path, change: str, sentence: str
) -> None:
    with pytest.raises(ft.InputError) as error:
        load_config(path, [change])
    assert str(error.value) == sentence


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("method = [")
    with pytest.raises(ft.InputError, match="is not a TOML file"):
        load_config(tmp_path / "c.toml")
    with pytest.raises(ft.InputError, match="does not exist; check the path"):
        load_config(tmp_path / "none.toml")


def test_every_example_is_a_config() -> None:
    examples = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
    names = {path.stem: load_config(path) for path in examples if path.stem != "sweep"}
    assert all(isinstance(config, Config) for config in names.values())
    assert {config.method.name for config in names.values()} == {
        "song", "k-song", "listnet", "sl-at-k", "deltr", "ng-de", "so-red", "kso-red",
        "dpr-rsp", "dpr-reo", "robust", "fair-distill", "blind",
    }  # fmt: skip


def test_robust_takes_the_whole_gap_away_unless_told_and_ranks_no_catalogue() -> None:
    assert check_config({"method": {"name": "robust"}}, "here").method.c == 1
    assert check_config({"method": {"name": "robust", "c": 0.3}}, "here").method.c == 0.3
    for method, sentence in (
        (
            {"c_relative": 0.5},
            "method: robust needs its share of the gap as c .*, got c_relative = 0.5",
        ),
        ({}, "here: robust ranks a list as a whole, and the catalogue is too long for that"),
    ):
        values = {"method": {"name": "robust", **method}, "evaluation": {"protocol": "full"}}
        with pytest.raises(ft.InputError, match=sentence):
            check_config(values, "here")


def test_a_run_is_measured_at_the_k_it_was_trained_for() -> None:
    method = {"name": "k-song", "k": 20}
    assert check_config({"method": method}, "here").evaluation.k == (20, 50, 100, 200)
    asked = check_config({"method": method, "evaluation": {"k": 10}}, "here")
    assert asked.evaluation.k == (10,)
    catalogue = check_config({"method": {**method, "k_of": "catalogue"}}, "here")
    assert catalogue.evaluation.k == (50, 100, 200)


def test_the_page_of_the_config_has_every_key_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    told: dict[str, dict[str, Any]] = {}
    for line in page.splitlines():
        if line.startswith("## `["):
            table = told.setdefault(line.strip("#` []"), {})
        elif line.startswith("| `"):
            key, default = (cell.strip("`| ") for cell in line.split(" | ")[:2])
            unset = default == "\u2013"
            table[key] = None if unset else tomllib.loads(f"value = {default}")["value"]
    plain = check_config({"method": {"name": "k-song"}, "evaluation": {"k": KS}}, "here")
    values = plain.model_dump(mode="json", exclude={"seed"})
    values["method"]["name"] = None
    values["method"]["dpr"].pop("separator")
    for key in ("rounding", "teacher"):  # which are unset
        values["method"]["distill"].pop(key)
    assert told.pop("goal") == {}
    assert told == values


ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
VALUES = st.recursive(ANY | st.integers(-(2**63), 2**63 - 1) | st.booleans(), st.lists)


@given(names=st.dictionaries(ANY, VALUES), column=ANY, value=ANY)
@example(names={"a\nb": 'c "d" \\ \x00\x1b\x7f\r\n\u2028'}, column='"\n', value="\t\x1b[31m")
def test_whatever_the_names_a_config_comes_back_from_its_own_text(
    names: dict[str, Any], column: str, value: str
) -> None:
    groups = {"column": column, "contains": value, "separator": value}
    data = {"source": "csv", "path": "a.csv", "groups": groups, "options": names}
    method = {"name": "dpr-rsp", "dpr": {"separator": value}}
    config = check_config({"data": data, "method": method}, "here")
    assert check_config(tomllib.loads(dump_config(config)), "again") == config


@pytest.mark.parametrize("condition", ["below", "at_least", "equals"])
@pytest.mark.parametrize("number", [1990, 1990.0, 0.5])
def test_a_number_of_a_group_rule_comes_back_as_the_same_rule(
    condition: str, number: float, tmp_path: Path
) -> None:
    data = {"source": "csv", "path": "a.csv", "groups": {"column": "year", condition: number}}
    config = check_config({"data": data, "method": {"name": "k-song"}}, "here")
    (tmp_path / "again.toml").write_text(dump_config(config))
    again = load_config(tmp_path / "again.toml")
    assert repr(again.data.groups) == repr(config.data.groups)
