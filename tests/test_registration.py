"""A loss, a model, a metric and a data set of one's own, without a change to the package."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor, nn

import fairtopk as ft
from fairtopk.data.columns import Origin
from fairtopk.data.interactions import Tables
from fairtopk.data.registry import KNOWN, READERS, Known
from fairtopk.models.registry import MODELS
from fairtopk.objectives.methods import METHODS
from fairtopk.runs.config_file import check_config
from fairtopk.runs.open import open_run
from fairtopk.runs.run import train_run

QUICK: dict[str, Any] = {
    "training": {
        "warmup_epochs": 1, "epochs": 2, "lists": {"rated": 5, "unrated": 20, "per_group": 5},
    },
    "evaluation": {"k": 10, "unrated": 40},
}  # fmt: skip

# What another package has: a loss by autograd, one with a memory, and a model.
PLUGIN = """
import fairtopk as ft
import torch
from torch import nn


def softplus_loss(scores, batch):
    scores = scores.clone().requires_grad_()
    with torch.enable_grad():
        sign = torch.where(batch.relevance > 0, -1.0, 1.0)
        loss = (nn.functional.softplus(sign * scores) * batch.mask).mean()
    return loss, torch.autograd.grad(loss, scores)[0]


class Counted(nn.Module):
    def __init__(self, n_queries):
        super().__init__()
        self.register_buffer("seen", torch.zeros(n_queries))

    def forward(self, scores, batch):
        self.seen[batch.query] += 1
        return softplus_loss(scores, batch)


class MostRated(nn.Module):
    def __init__(self, n_items):
        super().__init__()
        self.bias = nn.Embedding(n_items, 1)

    def forward(self, batch):
        return self.bias(batch.item)[..., 0]


ft.register_method("softplus", ranking=softplus_loss, fairness="top")
ft.register_method("counted", ranking=Counted)
ft.register_model("most-rated", lambda n_users, n_items, **options: MostRated(n_items))
"""


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Both tables, as they were again after a test."""
    before = dict(METHODS), dict(MODELS)
    yield
    for table, rows in zip((METHODS, MODELS), before, strict=True):
        table.clear()
        table.update(rows)  # type: ignore[arg-type]


@pytest.fixture
def registered() -> None:
    exec(PLUGIN, {})


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("method", ["softplus", "counted"])
def test_a_loss_of_ones_own_trains_by_a_config_and_is_read_back(
    method: str, tmp_path: Path
) -> None:
    weight = {"c_relative": 1.0} if METHODS[method].is_fair else {}
    config = check_config({"method": {"name": method, "k": 10, **weight}, **QUICK}, "here")
    result = train_run(config, tmp_path / "run")
    assert result["method"] == method
    assert 0 < result["metrics"]["ndcg@10"]["mean"] < 1
    assert train_run(config, tmp_path / "run", resume=True) == result


@pytest.mark.usefixtures("registered")
def test_a_loss_of_ones_own_has_the_penalty_and_the_checks_of_the_others() -> None:
    with pytest.raises(ft.InputError, match="softplus needs the weight of its penalty"):
        check_config({"method": {"name": "softplus"}}, "here")
    with pytest.raises(
        ft.InputError, match=r"one of blind, .*, softplus, counted, or one .* got"
    ):
        check_config({"method": {"name": "magic"}}, "here")


@pytest.mark.usefixtures("registered")
def test_a_model_of_ones_own_trains_by_a_config_and_is_opened_again(tmp_path: Path) -> None:
    values = {"model": {"name": "most-rated"}, "method": {"name": "k-song", "k": 10}}
    config = check_config(values | QUICK, "here")
    result = train_run(config, tmp_path / "run", warmups=tmp_path / "warm")
    assert 0 < result["metrics"]["ndcg@10"]["mean"] < 1
    assert type(open_run(tmp_path / "run").scorer).__name__ == "MostRated"
    with pytest.raises(
        ft.InputError,
        match=r"must be one of neumf, .*, most-rated, or one .* registers, got 'magic'",
    ):
        check_config(values | {"model": {"name": "magic"}}, "here")


@pytest.mark.usefixtures("registered")
def test_a_ranker_takes_both_and_data_and_a_metric_of_ones_own() -> None:
    lists = ft.split_random(own_data(), test=3, validation=3)
    options = {"training": {**QUICK["training"], "epochs": 1}}
    ranker = ft.FairRanker(
        method="softplus", model="most-rated", k=5, c_relative=1.0, options=options
    ).fit(lists)
    top = ranker.recommend(k=3)
    assert top["rank"].max() == 3
    with pytest.raises(
        ft.InputError, match=r"ranked by neumf or mf or .* or most-rated, got model='x'"
    ):
        ft.FairRanker(method="softplus", model="x", c_relative=1.0).fit(lists)
    hits = share_in_top(torch.rand(4, 9), torch.ones(4, 9), k=3)
    assert ft.metrics.mean_with_interval(hits).mean == pytest.approx(1 / 3)


def own_data() -> ft.Interactions:
    """Data as a reader of one's own gives it: a frame of ratings, and groups of its items."""
    user = torch.repeat_interleave(torch.arange(60), 20)
    item = torch.cat([torch.randperm(80)[:20] for _ in range(60)])
    frame = pl.DataFrame({"who": user.numpy(), "what": item.numpy(), "stars": 4.0})
    kinds = pl.DataFrame({"what": range(80), "kind": ["a", "b"] * 40})
    groups = ft.groups_from(kinds, item="what", column="kind", equals="a")
    return ft.Interactions.from_frame(
        frame, user="who", item="what", rating="stars", groups=groups
    )


def share_in_top(scores: Tensor, relevance: Tensor, *, k: int) -> Tensor:
    """A metric of one's own: the share of relevant items that are in the top k, ``[Q]``."""
    top = scores.argsort(-1, descending=True)[:, :k]
    return (relevance.gather(-1, top) > 0).sum(-1) / (relevance > 0).sum(-1)


def test_the_command_line_finds_what_an_installed_package_registers(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "mine-1.0.dist-info").mkdir()
    (tmp_path / "mine-1.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (tmp_path / "mine-1.0.dist-info" / "entry_points.txt").write_text(
        "[fairtopk.plugins]\nmine = mine\n"
    )
    (tmp_path / "run.toml").write_text(
        '[method]\nname = "softplus"\nc_relative = 1.0\n[model]\nname = "most-rated"\n'
        "[training]\nwarmup_epochs = 0\nepochs = 1\n[evaluation]\nk = 10\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-m", "fairtopk", "train", "run.toml", "--out", "run"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert 'name = "most-rated"' in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "k-song"}, "there already is a method 'k-song'; choose another name than"),
        ({"name": 3}, "the name of a method must be text, got 3"),
        ({"name": "My loss"}, "must be of lower-case letters, digits"),
        ({"ranking": 3}, r"ranking must be a name, a function of \(scores, batch\)"),
        ({"ranking": "best"}, "ranking must be one of ndcg, listnet, got 'best'"),
        ({"fairness": "all"}, "fairness must be one of none, list, top, got 'all'"),
        ({"ranking": "listnet", "selects": True}, 'selects is about ranking="ndcg"'),
        ({"gamma_u": 2.0}, "gamma_u must be above 0 and at most 1, got 2"),
    ],
)
def test_a_method_that_cannot_be_is_refused(given: dict[str, Any], sentence: str) -> None:
    before = dict(METHODS)
    with pytest.raises(ft.InputError, match=sentence):
        ft.register_method(**({"name": "mine"} | given))
    assert before == METHODS


def test_a_model_that_cannot_be_is_refused() -> None:
    for name, build, sentence in (
        ("mf", nn.Identity, "there already is a model 'mf'"),
        ("mine", 3, r"build must be a function of \(n_users, n_items, \*\*options\)"),
    ):
        with pytest.raises(ft.InputError, match=sentence):
            ft.register_model(name, build)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda *_, **__: 3,
            "the model mine must be a torch.nn.Module, and build returned int",
        ),
        (lambda *_, **__: Flat(), r"one score per item, \[Q, L\]: .* it gave \[1\]"),
    ],
)
def test_a_model_that_gives_no_scores_is_refused_before_it_is_trained(
    build: Any, sentence: str, tmp_path: Path
) -> None:
    ft.register_model("mine", build)
    values = {"model": {"name": "mine"}, "method": {"name": "k-song"}}
    with pytest.raises(ft.InputError, match=sentence):
        train_run(check_config(values, "here"), tmp_path / "run")


class Flat(nn.Module):
    """Gives one score per list."""

    def forward(self, batch: Any) -> Tensor:
        return torch.zeros(len(batch.query))


def test_a_loss_without_a_gradient_is_refused(tmp_path: Path) -> None:
    ft.register_method("mine", ranking=lambda scores, batch: scores.mean())
    config = check_config({"method": {"name": "mine"}, **QUICK}, "here")
    with pytest.raises(ft.InputError, match="must return the loss and its gradient with"):
        train_run(config, tmp_path / "run")


LINES = [("ann", "alien", 4), ("ann", "up", 2), ("bob", "up", 5), ("bob", "jaws", 3)]
KINDS = {"alien": "scary", "up": "mild", "jaws": "scary"}


@pytest.fixture
def odd_file(tmp_path: Path) -> Path:
    """Ratings as JSON lines, which no reader of the package takes."""
    path = tmp_path / "ratings.jsonl"
    rows = [{"who": user, "film": item, "stars": stars} for user, item, stars in LINES]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_odd(path: Path) -> Tables:
    """A reader as CONTRIBUTING asks for: `Tables` with the columns of published data."""
    ratings = pl.read_ndjson(path).select(
        user_id="who", item_id="film", rating="stars", timestamp=pl.lit(0)
    )
    items = pl.DataFrame({"item_id": list(KINDS), "kind": list(KINDS.values())})
    return Tables(ratings, items, Origin(path.name), Origin("films"))


def first_group_leads(scores: Tensor, groups: Tensor) -> Tensor:
    """A metric: whether the first item of each list is of group 0, NaN without that group."""
    best = scores.argmax(dim=1, keepdim=True)
    leads = (groups.gather(1, best)[:, 0] == 0).float()
    return leads.where((groups == 0).any(1), torch.nan)


def test_a_metric_of_ones_own_gets_a_mean_an_interval_and_a_count_of_undefined_lists() -> None:
    scores = torch.tensor([[2.0, 1.0], [1.0, 2.0], [1.0, 0.0], [2.0, 1.0]])
    groups = torch.tensor([[0, 1], [0, 1], [0, 1], [1, 1]])
    values = first_group_leads(scores, groups)
    found = ft.metrics.mean_with_interval(values)
    assert found.mean == pytest.approx(2 / 3)
    low, high = found.ci95
    assert low <= found.mean <= high
    assert (found.n, found.undefined) == (3, 1)


def test_a_metric_of_ones_own_is_compared_list_by_list() -> None:
    groups = torch.tensor([[0, 1]] * 8)
    before, after = (
        first_group_leads(torch.tensor([row] * 8), groups) for row in ([0.0, 1.0], [1.0, 0.0])
    )
    found = ft.statistics.paired_difference(before.numpy(), after.numpy())
    assert found.difference == 1
    assert found.p < 0.05


def test_a_data_set_of_ones_own_is_a_frame(odd_file: Path) -> None:
    kinds = pl.DataFrame({"film": list(KINDS), "kind": list(KINDS.values())})
    data = ft.Interactions.from_frame(
        pl.read_ndjson(odd_file),
        user="who",
        item="film",
        rating="stars",
        groups=ft.groups_from(kinds, item="film", column="kind", equals="mild"),
    )
    assert (data.n_users, data.n_items, data.n_ratings) == (2, 3, 4)
    assert data.group_counts == {"mild": 1, "other": 2}


def test_a_reader_and_its_rows_make_a_name_that_load_knows(
    odd_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Known("Odd", size="4 ratings", groups="kind", licence="none", home="this test")
    monkeypatch.setitem(KNOWN, "odd", row)
    monkeypatch.setitem(READERS, "odd", read_odd)
    rule = {"column": "kind", "equals": "scary"}
    data = ft.load("odd", odd_file, groups=rule)
    assert data.group_counts == {"scary": 2, "other": 1}
    assert "4 ratings by 2 users of 3 items" in data.notes[0]
    with pytest.raises(ft.InputError, match="odd has no option 'year'"):
        ft.load("odd", odd_file, year=3)
