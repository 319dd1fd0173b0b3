"""Models of a config, before they are made."""

from typing import Any

import pytest

import fairtopk as ft
from fairtopk import storage
from fairtopk.errors import InputError
from fairtopk.models.features import FEATURE_MODELS, FeatureModel, FeatureScorer
from fairtopk.runs.build import build_sampler, build_scorer, n_weights
from fairtopk.runs.config import Config, ModelConfig
from fairtopk.runs.config_file import check_config

SIZE = (3_000, 2_000)  # users and items


def config(**model: Any) -> Config:
    return check_config({"method": {"name": "k-song"}, "model": model}, "here")


@pytest.mark.parametrize("name", ["mf", "neumf"])
@pytest.mark.parametrize("hidden", [[8], [64, 32, 4]])
def test_the_weights_of_a_model_are_counted_before_it_is_made(
    name: str, hidden: list[int]
) -> None:
    asked = config(name=name, width=8, hidden=hidden)
    made = sum(one.numel() for one in build_scorer(asked, *SIZE).parameters())
    assert n_weights(asked.model, 5_000) == pytest.approx(made, rel=0.1)


@pytest.mark.parametrize("name", FEATURE_MODELS)
def test_those_of_a_model_of_features_are_too(name: FeatureModel) -> None:
    made = FeatureScorer(name, 40, hidden=(64, 32))
    counted = n_weights(ModelConfig(name=name, hidden=(64, 32)), 40)
    assert counted == pytest.approx(sum(one.numel() for one in made.parameters()), rel=0.1)


def test_a_batch_that_does_not_fit_into_memory_is_refused(
    data: ft.Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "memory_bytes", lambda: 1_000_000_000)
    lists = ft.split(data, test=1, validation=0)
    for rated, refused in ((10, False), (10_000_000, True)):
        sizes = {"rated": rated, "unrated": 300}
        method = {"name": "k-song"}
        asked = check_config({"method": method, "training": {"lists": sizes}}, "here")
        if not refused:
            build_sampler(asked, asked.method, lists)
            continue
        with pytest.raises(InputError, match=r"3 lists of 10,000,300 items takes 1\.9 GB"):
            build_sampler(asked, asked.method, lists)


@pytest.mark.parametrize(("name", "takes"), [("mf", "1,000.0"), ("neumf", "2,025.8")])
def test_a_model_that_does_not_fit_into_memory_is_refused(
    name: str, takes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "memory_bytes", lambda: 16_000_000_000)
    build_scorer(config(name=name), *SIZE)
    with pytest.raises(InputError) as error:
        build_scorer(config(name=name, width=10_000_000), *SIZE)
    assert f"{name} of width 10,000,000" in str(error.value)
    assert f"for 3,000 users and 2,000 items takes {takes} GB" in str(error.value)
    assert "memory of 16.0 GB" in str(error.value)
