"""What the robust method is asked for and cannot do: refused in a sentence, or marked."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fairtopk as ft
from fairtopk.data.synthetic import SyntheticShape, make_synthetic
from fairtopk.lists.users import Lists
from fairtopk.models.scoring import score
from fairtopk.robust.ranker import RobustRanker
from fairtopk.runs.build import build_model
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.open import open_run
from fairtopk.runs.run import train_run
from fairtopk.storage import load_tensors


def config(c: float = 1.0, *, unrated: int = 40, **robust: Any) -> Config:
    values = {
        "model": {"name": "mf", "width": 8},
        "method": {
            "name": "robust", "k": 20, "c": c,
            "robust": {"rounds": 2, "iterations": 4, "users": 100, **robust},
        },
        "training": {"warmup_epochs": 2, "warmup_rate": 1e-2, "epochs": 2, "batch_size": 100},
        "evaluation": {"k": [20, 45], "unrated": unrated},
    }  # fmt: skip
    return check_config(values, "test")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return ft.split(make_synthetic(SyntheticShape(120, 150, 4_000), bias=2.0).data)


def treatment_gap(out: Path, settings: Config, lists: Lists) -> float:
    """Exposure over merit, of the minority less that of the rest, in whole test lists."""
    (block,) = lists.test.batches(unrated=40, seed=0)
    scores = score(open_run(out, load=lambda *_: lists).scorer, block)
    exposure = ft.metrics.group_rank_exposures(scores, block.group, k=45, mask=block.mask)
    merit = load_tensors(out / "model.safetensors").tensors["merit"]
    mean = (exposure[:, :2] / merit).nanmean(0)
    return float(mean[0] - mean[1])


@pytest.mark.slow
def test_treatment_lowers_the_gap_that_it_is_about(lists: Lists, tmp_path: Path) -> None:
    """What the minority is recorded to be worth is little, so that it starts with too much."""
    found = {}
    for c in (0.0, 0.3):
        settings, out = config(c, notion="treatment"), tmp_path / f"{c}"
        result = train_run(settings, out, lists=lists, warmups=tmp_path / "warm")
        assert result["c_is"] == "share of the gap that is taken away, from 0 to 1"
        assert "unmet" not in result["metrics"]
        found[c] = treatment_gap(out, settings, lists)
    assert found[0.0] > 0.1
    assert found[0.3] < 0.85 * found[0.0]


@pytest.mark.slow
def test_lists_that_cannot_have_what_is_asked_for_are_marked(
    lists: Lists, tmp_path: Path
) -> None:
    """With a multiplier for each list, those that fail do not end the run."""
    settings = config(notion="treatment", multiplier="list")
    cell = train_run(settings, tmp_path / "fails", lists=lists)["metrics"]["unmet"]
    assert cell["mean"] > 0.2
    assert cell["n"] + cell["undefined"] == len(lists.test.user)
    for other in (
        config(multiplier="list"),
        config(0.0, notion="treatment", multiplier="list"),
    ):
        out = tmp_path / f"{other.method.c}-{other.method.robust.notion}"
        assert "unmet" not in train_run(other, out, lists=lists)["metrics"]


def test_lists_of_one_side_alone_have_no_multiplier(lists: Lists) -> None:
    blocks = lists.test.batches(unrated=40, seed=0)
    alone = [block._replace(group=block.group.clamp(max=0)) for block in blocks]
    model = build_model(config(), lists)
    assert isinstance(model, RobustRanker)
    with pytest.raises(ft.InputError, match="lists with items of both sides, and there are no"):
        model.calibrate(alone)
    model.share = 0.0
    model.calibrate(alone)
    assert float(model.lam) == 0


def test_lists_too_long_to_be_sampled_are_refused_before_training(
    lists: Lists, tmp_path: Path
) -> None:
    with pytest.raises(ft.InputError, match="at most 100 items, got a list of 105"):
        train_run(config(unrated=100, ranking="sampled"), tmp_path / "run", lists=lists)
    assert not (tmp_path / "run").exists()
    by_five = [
        ft.split(lists.data, test=test, validation=validation)
        for test, validation in ((5, 5), (6, 2), (2, 6))
    ]
    for parts in by_five:
        for part in (parts.test, parts.validation):
            for unrated in (10, 140):
                blocks = part.batches(unrated=unrated, seed=0)
                longest = max(int(block.mask.sum(-1).max()) for block in blocks)
                assert part.lengths(unrated=unrated).max() == longest


def test_ratings_without_any_above_0_are_refused(tmp_path: Path) -> None:
    ratings = [
        {"user": user, "item": (7 * user + step) % 40, "rating": 0.0, "time": step}
        for user in range(20)
        for step in range(14)
    ]
    items = pl.DataFrame({"item": range(40), "kind": ["rare"] * 4 + ["common"] * 36})
    data = ft.Interactions.from_frame(
        pl.DataFrame(ratings),
        user="user",
        item="item",
        rating="rating",
        time="time",
        groups=ft.groups_from(items, item="item", column="kind"),
    )
    for notion in ("parity", "treatment"):
        with pytest.raises(ft.InputError, match="robust needs relevant items, and no rating"):
            train_run(config(notion=notion), tmp_path / notion, lists=ft.split(data))
