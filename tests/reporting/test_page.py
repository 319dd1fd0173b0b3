"""The page as text: what is in it, what is escaped, what is said to be missing."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fairtopk as ft
from fairtopk.reporting.curves import views_of
from fairtopk.reporting.page import safe_json, sweep_page
from fairtopk.reporting.results import Rankings, Result, Run, Sweep, collect
from fairtopk.reporting.tables import results_tables
from fairtopk.runs.result import sealed

from .conftest import WriteRun

EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Every tag of a page, its attributes, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.text += data


def page_of(folder: Path) -> str:
    return ft.report(folder).read_text(encoding="utf-8")


def data_of(page: str) -> dict:
    return json.loads(re.search('id="data">(.*?)</script>', page, re.S)[1])


def test_a_page_holds_all_it_needs(sweep: Path) -> None:
    page = page_of(sweep)
    found = Tags(page)
    assert not [tag for tag, attrs in found.tags if "src" in attrs or tag == "link"]
    assert sum(tag == "script" for tag, _ in found.tags) == 3
    policy = next(attrs["content"] for _, attrs in found.tags if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'")
    assert page.count("plotly.js v") == 1


def test_the_tables_are_of_each_gap_and_only_the_first_is_shown(sweep: Path) -> None:
    tables = [attrs for tag, attrs in Tags(page_of(sweep)).tags if "data-table" in attrs]
    assert [attrs["data-gap"] for attrs in tables] == [
        "exposure_gap",
        "exposure_gap_mse",
        "rank_exposure_gap",
        "rank_exposure_gap_mse",
    ]
    assert ["hidden" in attrs for attrs in tables] == [False, True, True, True]


def test_values_of_all_lists_together_have_tables_without_marks(evil_sweep: Path) -> None:
    page = page_of(evil_sweep)
    tables = [attrs for tag, attrs in Tags(page).tags if "data-table" in attrs]
    full = [attrs["data-gap"] for attrs in tables if attrs["data-view"] == "1"]
    assert full[-2:] == ["rsp", "reo"]
    assert not {"rsp_mse", "reo_mse"} & set(full)
    assert not any("rsp" in attrs["data-gap"] for attrs in tables if attrs["data-view"] == "0")
    views = views_of(collect(evil_sweep).results)
    (table,) = (one for one in results_tables(views) if one.gap == "rsp")
    for row in table.rows:
        for _, shown, signed in row["cells"]:
            assert (shown.mark, signed.text) == ("", "\u2013")
    assert table.rows[0]["cells"][0][1].text.startswith("0.3")


def test_each_set_of_lists_has_the_spread_that_was_measured_on_it(evil_sweep: Path) -> None:
    sampled, full = data_of(page_of(evil_sweep))["views"]
    assert {run["spread"] for point in full["points"] for run in point["runs"]} == {1.25}
    assert 1.25 not in {run["spread"] for point in sampled["points"] for run in point["runs"]}


def test_the_script_gets_each_run_with_its_seed_and_log(sweep: Path) -> None:
    data = data_of(page_of(sweep))
    (view,) = data["views"]
    assert view["points"][view["base"]]["name"] == "k-song"
    assert [run["seed"] for run in view["points"][1]["runs"]] == [0, 1]
    assert data["runs"][0]["log"]["loss"] == [1.0, 1.0, 0.5]
    assert set(data["logged"]) == {"valid_ndcg@10", "loss", "spread"}


def test_text_of_data_is_never_markup(evil_sweep: Path) -> None:
    page = page_of(evil_sweep)
    found = Tags(page)
    assert sum(tag == "script" for tag, _ in found.tags) == 3
    assert "img" not in {tag for tag, _ in found.tags}
    assert "<img src=x onerror=alert(1)>" in found.text
    assert "window.hacked = 1" in found.text
    assert "flat <b>" in found.text


def test_methods_and_groups_are_escaped_for_html_and_script() -> None:
    metrics = {"ndcg@5": {"mean": 0.5, "ci95": [0.4, 0.6]}, "exposure_gap@5": {"mean": 0.1}}
    run = Run(EVIL, EVIL, {}, None, 0, config=EVIL, provenance={EVIL: [EVIL]})
    sweep = Sweep(EVIL, [Result(run, {"data": EVIL, "part": EVIL}, metrics)], [EVIL])
    pictured = Rankings(EVIL, EVIL, EVIL, EVIL, 1, (EVIL, EVIL), ["01"], ["10"])
    page = sweep_page(sweep, views_of(sweep.results), {0: pictured})
    assert EVIL not in page
    assert sum(tag == "script" for tag, _ in Tags(page).tags) == 3
    assert data_of(page)["rankings"]["0"]["groups"] == [EVIL, EVIL]


def test_json_for_a_script_has_no_sign_that_html_reads() -> None:
    given = {"a": "</script><!-- & \u2028", "b": float("nan"), "c": 0.123456789}
    text = safe_json(given)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": given["a"], "b": None, "c": 0.123457}


def test_what_is_missing_is_said(sweep: Path, write_run: WriteRun) -> None:
    for name in ("log.jsonl", "provenance.json", "per_query.safetensors"):
        (sweep / "1.0" / "seed-0" / name).unlink()
    write_run(sweep / "unfinished", c=2.0)
    (sweep / "unfinished" / "metrics.json").unlink()
    (sweep / "0.0" / "seed-1" / "per_query.safetensors").write_bytes(b"half of it")
    write_run(sweep / "twice", c=4.0)
    write_run(sweep / "wrong", c=3.0)
    (sweep / "wrong" / "config.toml").write_text("colour = 'red'\n")
    write_run(sweep / "broken", c=3.0)
    (sweep / "broken" / "metrics-full.json").write_text("{")
    early = json.loads((sweep / "broken" / "metrics.json").read_text()) | {"finished": False}
    (sweep / "broken" / "metrics-early.json").write_text(json.dumps(sealed(early)))
    with pytest.warns(UserWarning, match="and left out"):
        text = Tags(page_of(sweep)).text
    for said in (
        "1.0/seed-0 has no log.jsonl",
        "1.0/seed-0 has no provenance.json",
        "1.0/seed-0 has no per_query.safetensors",
        "0.0/seed-1 has a damaged per_query.safetensors",
        "unfinished is not finished",
        "wrong cannot be read",
        "broken: metrics-full.json cannot be read",
        "broken: metrics-early.json is of the unfinished run",
        "twice is 4.0/seed-0 once more",
    ):
        assert said in text, said


def test_each_run_that_is_left_out_is_warned_of_with_what_to_do(
    sweep: Path, write_run: WriteRun
) -> None:
    write_run(sweep / "un finished", c=2.0)
    (sweep / "un finished" / "metrics.json").unlink()
    for name, text in (("cut", '{"metrics": {'), ("empty", '{"metrics": {}}'), ("list", "[]")):
        write_run(sweep / name, c=3.0)
        (sweep / name / "metrics.json").write_text(text)
    write_run(sweep / "wrong", c=3.0)
    (sweep / "wrong" / "config.toml").write_text("colour = 'red'\n")
    with pytest.warns(UserWarning, match="left out") as warned:
        page = page_of(sweep)
    said = {str(one.message) for one in warned}
    place = f"'{sweep / 'un finished'}'"
    assert (
        f"{sweep / 'un finished'} is not finished, and left out; go on with: "
        f"fairtopk train {place}/config.toml --out {place} --resume"
    ) in said
    unreadable = "cannot be read, or is of another version, and left out"
    for name in ("cut", "empty", "list"):
        assert (
            f"{sweep / name} {unreadable}; remove its metrics.json, and measure again with: "
            f"fairtopk train {sweep / name}/config.toml --out {sweep / name} --resume"
        ) in said
    (wrong,) = (one for one in said if one.startswith(str(sweep / "wrong")))
    assert wrong.startswith(f"{sweep / 'wrong'} {unreadable}; {sweep / 'wrong'}/config.toml: ")
    assert len(said) == 5
    assert str(sweep) not in page


def test_a_lone_fair_run_has_a_page(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path / "a", c=1.0)
    text = Tags(page_of(tmp_path)).text
    assert "1 run of 1 method (kso-red), 1 seed" in text
    assert "No marks: there is no colour-blind run to compare with" in text


def test_where_the_data_is_stays_unsaid(sweep: Path, write_run: WriteRun) -> None:
    elsewhere = {"source": "movielens-1m", "path": "/home/someone/ml.zip"}
    write_run(sweep / "1.0" / "seed-0", c=1.0, source=elsewhere)
    assert "someone" not in page_of(sweep)


@pytest.mark.parametrize("make", [lambda folder: None, lambda folder: folder.mkdir()])
def test_a_folder_without_runs_is_refused(tmp_path: Path, make) -> None:
    folder = tmp_path / "none"
    make(folder)
    with pytest.raises(ft.InputError, match=r"none (is not a folder|holds no finished run)"):
        ft.report(folder)


def test_a_page_is_not_written_over_something_else(sweep: Path) -> None:
    config = next(sweep.rglob("config.toml"))
    before = config.read_text()
    with pytest.raises(ft.InputError, match=r"must end in .html or .htm"):
        ft.report(sweep, out=config)
    assert config.read_text() == before


def test_no_more_than_so_many_files_are_looked_through(
    sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairtopk.reporting.results.MOST_FILES", 3)
    with pytest.raises(ft.InputError, match=r"holds more than 3 files"):
        ft.report(sweep)


def test_a_folder_of_unfinished_runs_says_how_to_go_on(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for name in ("a", "b"):
        (write_run(tmp_path / name, c=1.0) / "metrics.json").unlink()
    out = tmp_path / "b"
    sentence = (
        f"{tmp_path} holds no finished run, but 2 that cannot be shown; go on with: "
        f"fairtopk train {out}/config.toml --out {out} --resume"
    )
    with pytest.raises(ft.InputError, match=f"^{re.escape(sentence)}$"):
        ft.report(tmp_path)


def test_a_page_is_not_written_over_a_folder(sweep: Path) -> None:
    with pytest.raises(ft.InputError, match=r"is a folder; name a file"):
        ft.report(sweep, out=sweep)
