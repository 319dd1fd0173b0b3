"""The runs of `fairtopk reproduce`, written as the files that they leave, without training."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from fairtopk.metrics.intervals import means_with_intervals
from fairtopk.reporting.results import collect, with_reranked
from fairtopk.reproduce import output as paper_outputs
from fairtopk.reproduce.figures import Drawn
from fairtopk.reproduce.output import Plan, write_figure
from fairtopk.reproduce.plan import Extent, PaperData, embedded, paper_cells
from fairtopk.reproduce.views import PaperView, paper_view
from fairtopk.runs.config_file import dump_config
from fairtopk.runs.grid import Cell
from fairtopk.runs.result import Identity, config_digest, write_result
from fairtopk.storage import Saved

USERS, KS = 40, (50, 100, 200)
REAL = "tradeoff-exposure_gap"  # the figure that is drawn
EXTENT = Extent(
    c=(1e4, 1e5), adversary=(0.0, 0.3), share=(0.0, 1.0), ablation=(1e5,), bonus=(0.1, 0.4),
    seeds=(0, 1),
)  # fmt: skip
SECRET = "/home/someone/films.zip"
HORROR = {"column": "genres", "contains": "Horror"}
DATA = {"source": "movielens-20m", "path": SECRET, "groups": HORROR}
FILMS = PaperData("horror", DATA, "MovieLens-20M-H")


def values_of(cell: Cell) -> dict[str, torch.Tensor]:
    """Values of each user: the larger the weight, the smaller gaps and NDCG."""
    config = cell.config
    generator = torch.Generator().manual_seed(config.seed)
    luck = torch.rand(USERS, generator=generator)
    weight = (config.method.c or 0.0) / 1e5
    blind = {"listnet": 0.02, "song": 0.01}.get(config.method.name, 0.0)
    values = {f"ndcg@{k}": 0.5 - blind - 0.002 * weight + 0.01 * luck for k in KS}
    gaps = ("exposure_gap", "exposure_gap_released", "rank_exposure_gap")
    values |= {f"{gap}@{k}": (0.2 + 0.01 * luck) / (1 + weight) for gap in gaps for k in KS}
    values |= {f"{gap}_mse@{k}": values[f"{gap}@{k}"] ** 2 for gap in gaps for k in KS}
    values |= {f"{gap}_floor@{k}": torch.full((USERS,), 0.1) for gap in gaps for k in KS}
    values |= {f"{gap}_signed@{k}": -values[f"{gap}@{k}"] for gap in gaps for k in KS}
    values["rank_exposure_gap@50"][0] = torch.nan
    return values


def write_fake(cell: Cell, runs: Path) -> None:
    """Write what a cell would leave, without its model."""
    out, config = runs / cell.name, cell.config
    out.mkdir(parents=True)
    values = values_of(cell)
    told: dict[str, Any] = {
        "method": config.method.name, "seed": config.seed, "part": "test", "unrated": 300,
        "data": "films-1x1", "chosen_epoch": 2, "seconds": {"training": 90.0},
        "needs_labels_when_serving": config.method.name == "robust",
        "c": config.method.c, "c_relative": config.method.c_relative,
        "metrics": {n: m._asdict() for n, m in means_with_intervals(values).items()},
    }  # fmt: skip
    tensors = values | {"user": torch.arange(USERS)}
    about = {"metrics": list(values), "data": told["data"], "part": "test"}
    sampled, full = (
        Saved(tensors, about | {"protocol": protocol, "seed": seed})
        for protocol, seed in (("sampled", config.seed), ("full", None))
    )
    identity = Identity(cell.name, config_digest(config), cell.name[:9])
    write_result(out / "metrics.json", {**told, "protocol": "sampled"}, sampled, identity)
    if "full" in cell.protocols:
        write_result(out / "metrics-full.json", {**told, "protocol": "full"}, full, identity)
    for place, asked in enumerate(cell.reranked):
        record = {"method": asked.method, "k": 50, "settings": dict(asked.options)}
        record |= {"lists": USERS, "unmet": 0}
        name = f"{told['method']} + {asked.method}"
        reranked = {**told, "protocol": "sampled", "method": name, "reranked": record}
        write_result(out / f"rerank-{place}.json", reranked, sampled, identity)
    means = {f"valid_{name}": float(value.nanmean()) for name, value in values.items()}
    log = [{"phase": "method", "epoch": epoch, "loss": 1.0, **means} for epoch in (1, 2)]
    (out / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in log))
    (out / "config.toml").write_text(dump_config(config))
    where_from = {"data": {"sha256": cell.name[:9]}, "identity": identity._asdict()}
    (out / "provenance.json").write_text(json.dumps(where_from))
    done = {"protocols": cell.protocols, "rerank": [one._asdict() for one in cell.reranked]}
    (out / "afterwards.json").write_text(json.dumps(done))


class Made(NamedTuple):
    planned: Plan
    out: Path
    page: str


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All of the embedded data; of the films SO-RED failed."""
    found = [embedded(), FILMS]
    planned = Plan(found, EXTENT, paper_cells(found, EXTENT))
    out = tmp_path_factory.mktemp("paper")
    failures = {}
    for cell in planned.cells:
        if failed(cell):
            failures[cell.name] = f"cannot read {SECRET}: it is damaged"
        else:
            write_fake(cell, out / "runs")
    (out / "runs" / "failures.json").write_text(json.dumps(failures))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_outputs, "write_figure", write_some)
        page = paper_outputs.write_paper(planned, out).read_text(encoding="utf-8")
    return Made(planned, out, page)


def write_some(drawn: Drawn, out: Path) -> None:
    """Write one of the figures in earnest: each takes seconds."""
    if drawn.name == REAL:
        write_figure(drawn, out)
    else:
        for kind in ("pdf", "png"):
            (out / f"{drawn.name}.{kind}").write_bytes(b"a figure")


def failed(cell: Cell) -> bool:
    return cell.config.data.path == SECRET and cell.config.method.name == "so-red"


@pytest.fixture(scope="session")
def views(made: Made) -> dict[str, PaperView]:
    runs = made.out / "runs"
    data = {
        cell.name: "horror" if cell.config.data.path == SECRET else "embedded"
        for cell in made.planned.cells
    }
    results = with_reranked(runs, collect(runs)).results
    found = {}
    for title in ("horror", "embedded"):
        of = [one for one in results if data[one.run.name.partition(", ")[0]] == title]
        view = paper_view(title, FILMS.paper if title == "horror" else None, "sampled", of)
        assert view is not None
        found[title] = view
    return found
