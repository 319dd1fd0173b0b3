"""The pages in docs/: their sessions run, and say what the code says."""

import doctest
import re
import runpy
from pathlib import Path

import pytest

from fairtopk.data.interactions import Grouped
from fairtopk.objectives.methods import METHODS
from fairtopk.reranking.rerank import RERANKERS

DOCS = Path(__file__).parents[1] / "docs"
SESSIONS = {
    f"{page.name}-{number}": session
    for page in sorted(DOCS.glob("*.md"))
    for number, session in enumerate(re.findall(r"```pycon\n(.*?)```", page.read_text(), re.S))
}


def options_of(method: str) -> dict[str, str]:
    """The options of a re-ranker in the table of docs/api.md, and what they are left out."""
    family = "det-*" if method.startswith("det-") else method
    row = rf"\| `{re.escape(family)}` \| `(\w+)` \| (.+?) \|"
    return dict(re.findall(row, (DOCS / "api.md").read_text()))


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_prints_what_its_page_shows(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(SESSIONS[name], {}, name, name, 0)
    assert test.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("method", [*METHODS, *RERANKERS])
def test_every_method_is_in_the_table_of_methods(method: str) -> None:
    rows = [line.split("|")[1] for line in (DOCS / "methods.md").read_text().splitlines()
            if line.startswith("| `")]  # fmt: skip
    assert any(f"`{method}`" in row for row in rows)


@pytest.mark.parametrize("method", RERANKERS)
def test_the_options_of_a_reranker_are_in_their_table(method: str) -> None:
    fields = RERANKERS[method].settings.model_fields
    told = options_of(method)
    assert list(told) == list(fields)
    for name, field in fields.items():
        if field.is_required():
            assert told[name] == "must be given"
        elif field.default is not None:
            assert told[name].strip('`"') == str(field.default)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/images/architecture.py"])
def test_every_room_of_the_package_is_on_the_map(page: str) -> None:
    text = (DOCS.parent / page).read_text()
    package = DOCS.parent / "src" / "fairtopk"
    rooms = [path.name for path in package.iterdir() if (path / "__init__.py").exists()]
    assert len(rooms) > 10
    assert [room for room in rooms if not re.search(rf"\b{room}\b", text)] == []


EXAMPLES = Path(__file__).parents[1] / "examples"


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, float]]:
    """The numbers of each line that an example prints, by the words before them."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    found = [re.findall(r"([a-z_][a-z_ ]*?) ([+-]?\d+\.\d+)", line) for line in lines]
    return [{words.strip(): float(number) for words, number in line} for line in found]


def test_two_towers_in_a_plain_loop(capsys: pytest.CaptureFixture[str]) -> None:
    without, fair = printed("two_tower", capsys)
    assert without["c_relative"] == 0 < fair["c_relative"]
    assert without["gap"] < -0.02  # against the group that the data is biased against
    assert abs(fair["gap"]) < 0.6 * abs(without["gap"])
    assert fair["ndcg"] > 0.9 * without["ndcg"]


def test_boosted_trees_by_lightgbm(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm")
    without, fair = printed("boosted_trees", capsys)
    assert without["c_relative"] == 0 < fair["c_relative"]
    assert without["gap"] < -0.03
    assert abs(fair["gap"]) < 0.75 * abs(without["gap"])
    assert fair["ndcg"] > 0.97 * without["ndcg"]
    # What is recorded is biased; by what is merited the fairer ranking is no worse.
    assert fair["by merit"] > without["by merit"] - 0.005


@pytest.mark.parametrize("kind", ["interactions.Interactions", "features.Features"])
def test_the_counts_of_groups_are_documented_though_they_are_inherited(kind: str) -> None:
    entry = rf"::: fairtopk\.data\.{kind}\s+options:\s+inherited_members: \[(.+)\]"
    found = re.search(entry, (DOCS / "api.md").read_text())
    assert found is not None
    inherited = {
        name
        for name, member in vars(Grouped).items()
        if isinstance(member, property) and not name.startswith("_")
    }
    assert set(found[1].split(", ")) == inherited


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", sorted((DOCS.parent / "benchmarks").glob("*.py")), ids=lambda path: path.stem
)
def test_a_benchmark_finds_all_that_it_imports(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(script.parent)
    try:
        runpy.run_path(str(script), run_name="imported")
    except ModuleNotFoundError as error:
        if error.name in {"libauc", "torchmetrics"}:  # of `make oracles`
            pytest.skip(f"{error.name} is not installed")
        raise
