"""What needs the models again, on runs that were really trained."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fairtopk.metrics import entropy, exposure_gap
from fairtopk.reporting.rankings import FALLS, Fall, falls, falls_once, flattened, scored
from fairtopk.reporting.results import collect
from fairtopk.reproduce.figures import Drawn, falls_of, pictures_of
from fairtopk.reproduce.tables import flattening_table
from fairtopk.reproduce.views import PaperView, paper_view
from fairtopk.runs.config_file import check_config
from fairtopk.runs.open import cached_loader
from fairtopk.runs.run import train_run

K, UNRATED, HELD_OUT = 10, 50, 5
METHODS = ({"name": "k-song"}, {"name": "kso-red", "c": 1e3}, {"name": "kso-red", "c": 1e5})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for place, method in enumerate(METHODS):
        config = check_config(
            {
                "model": {"name": "mf", "width": 4},
                "method": {"k": K, **method},
                "training": {
                    "warmup_epochs": 2, "epochs": 1, "lists": {"rated": 5, "unrated": 20},
                    "warmup_rate": 0.05,
                },
                "evaluation": {"k": [K], "unrated": UNRATED},
            },
            "the test",
        )  # fmt: skip
        train_run(config, folder / str(place), warmups=folder / "warmups")
    return folder


@pytest.fixture(scope="module")
def view(runs: Path) -> PaperView:
    found = paper_view("embedded", None, "sampled", collect(runs).results)
    assert found is not None
    return found


@pytest.mark.slow
def test_a_picture_shows_whole_lists_at_c_0_at_100k_and_at_the_largest(
    runs: Path, view: PaperView
) -> None:
    found = pictures_of(runs, view, cached_loader())
    assert isinstance(found, Drawn)
    assert found.runs == ("0", "2")  # 100K is the largest here
    assert [axes.get_title().partition(" (")[0] for axes in found.figure.axes] == [
        "K-SONG, C = 0",
        "KSO-RED, C = 100000",
    ]
    for axes in found.figure.axes:
        pixels = axes.images[0].get_array()
        assert pixels is not None
        assert pixels.shape == (30, UNRATED + HELD_OUT)
        assert not np.isnan(pixels).any()
    assert "30 of 1,000 lists" in found.title


def test_gaps_of_lists_scored_again_are_those_of_the_metrics_file(
    runs: Path, view: PaperView
) -> None:
    found, words = falls_of(runs, view, cached_loader())
    assert [one.point.label for one in found] == ["C = 1000", "C = 100000"]
    for one in found:
        (fall,) = one.seeds[f"exposure_gap@{K}"]
        base = view.base
        assert base is not None
        assert fall.before == pytest.approx(base.mean(f"exposure_gap@{K}"), rel=1e-5)
        assert fall.after == pytest.approx(one.point.mean(f"exposure_gap@{K}"), rel=1e-5)
        assert one.runs[0] == "0"
    table = flattening_table(view, found, words)
    assert [row.runs for row in table.rows] == [("0", "1"), ("0", "2")]
    share = found[0].seeds[f"exposure_gap@{K}"][0].share
    assert table.records[0]["share"] == pytest.approx(share, nan_ok=True)


def test_falls_are_measured_once_for_a_pair_of_models(
    runs: Path, view: PaperView, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    first, _ = falls_of(folder, view, cached_loader())
    for model in folder.rglob("model.safetensors"):
        model.unlink()
    assert falls_of(folder, view, cached_loader())[0] == first
    assert view.base is not None
    before, after = view.base.results[0], first[0].point.results[0]
    other = {name: {"mean": 2 * cell["mean"]} for name, cell in before.metrics.items()}
    retrained = replace(before, metrics=other)
    new = {f"exposure_gap@{K}": Fall(0.3, math.nan, 0.1)}
    assert falls_once(folder, retrained, after, [K], lambda *pair: new) == new
    kept = falls_once(
        folder, retrained, after, [K], lambda *pair: pytest.fail("measured again")
    )
    assert repr(kept) == repr(new)
    (folder / after.run.name / FALLS).write_text("{")
    assert falls_once(folder, retrained, after, [K], lambda *pair: new) == new


def test_a_model_that_is_gone_is_told(runs: Path, view: PaperView, tmp_path: Path) -> None:
    assert pictures_of(tmp_path, view, cached_loader()) == (
        "the data or the models could not be loaded again"
    )
    found, words = falls_of(tmp_path, view, cached_loader())
    assert found == []
    assert "KSO-RED, C = 1000; KSO-RED, C = 100000" in words


def test_without_k_song_there_is_no_picture(runs: Path, view: PaperView) -> None:
    alone = [result for result in collect(runs).results if result.run.method != "k-song"]
    found = paper_view("embedded", None, "sampled", alone)
    assert found is not None
    assert pictures_of(runs, found, cached_loader()) == "KSO-RED or K-SONG was not run"


def test_flatter_scores_of_the_same_order_are_flattening_alone(
    runs: Path, view: PaperView
) -> None:
    assert view.base is not None
    scores, lists = scored(runs, view.base.results[0], cached_loader())
    found = falls((scores, lists), (scores / 3, lists), [K])
    (fall,) = {fall for name, fall in found.items() if "released" not in name}
    assert fall.share == pytest.approx(1.0, abs=1e-4)


def test_flattened_scores_have_the_mean_entropy_of_the_others() -> None:
    generator = torch.Generator().manual_seed(0)
    blind, fair = torch.randn(2, 7, 9, generator=generator)
    mask = torch.ones(7, 9, dtype=torch.bool)
    flat = flattened(3 * blind, fair, mask)
    assert float(entropy(flat).mean()) == pytest.approx(float(entropy(fair).mean()), abs=1e-5)
    assert torch.equal(flat.argsort(-1), blind.argsort(-1))


def test_where_no_temperature_will_do_the_share_is_undefined(
    runs: Path, view: PaperView
) -> None:
    assert view.base is not None
    scores, lists = scored(runs, view.base.results[0], cached_loader())
    steep = 1e9 * scores  # the first item has all exposure
    fall = falls((scores, lists), (steep, lists), [K])[f"exposure_gap@{K}"]
    assert fall.flat != fall.flat
    assert fall.share != fall.share
    gap = exposure_gap(steep, lists.group, k=K, mask=lists.mask)
    assert fall.after == pytest.approx(float(gap.nanmean()))


def test_the_share_of_a_gap_that_does_not_fall_is_undefined() -> None:
    assert Fall(0.2, 0.1, 0.0).share == 0.5
    assert Fall(0.2, 0.1, 0.2).share != Fall(0.2, 0.1, 0.2).share
