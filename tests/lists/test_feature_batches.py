"""Lists of documents with features as batches."""

import numpy as np
import polars as pl
import pytest
import torch

from fairtopk.data.features import Features
from fairtopk.lists.queries import feature_batch, feature_batches
from fairtopk.training.samplers import FeatureSampler


@pytest.fixture
def features() -> Features:
    frame = pl.DataFrame(
        {
            "q": ["a", "a", "a", "b", "c", "c"],
            "y": [0.0, 2.0, 1.0, 0.0, 1.0, 0.0],
            "f": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
            "g": ["x", "y", None, "x", "y", "x"],
        }
    )
    return Features.from_frame(frame, query="q", relevance="y", features=["f"], group="g")


def test_items_are_rows_of_the_table_and_lists_are_padded(features: Features) -> None:
    batch = feature_batch(features, np.array([2, 0]))
    assert batch.query.tolist() == [2, 0]
    assert batch.mask.tolist() == [[True, True, False], [True, True, True]]
    values = features.values[batch.item.numpy()][..., 0]
    assert values[batch.mask.numpy()].tolist() == [4, 5, 0, 1, 2]
    assert batch.relevance[1].tolist() == [0, 2, 1]
    unknown = batch.group[1, 2].item()
    assert unknown == -1


def test_in_training_relevant_documents_come_first_and_know_their_row(
    features: Features,
) -> None:
    sampler = FeatureSampler(features, seed=0)
    assert sampler.n_relevant.tolist() == [2, 0, 1]
    (batch,) = sampler.epoch(0, batch_size=3)
    first = batch.query.tolist().index(0)
    assert batch.relevance[first].tolist() == [2, 1, 0]
    assert batch.pair[first].tolist() == [1, 2]
    assert batch.pair[batch.query.tolist().index(1)].tolist() == [-1, -1]


def test_an_epoch_has_every_query_once_and_goes_on_in_the_middle(features: Features) -> None:
    sampler = FeatureSampler(features, seed=0)
    whole = [batch.query for batch in sampler.epoch(3, batch_size=1)]
    assert sorted(torch.cat(whole).tolist()) == [0, 1, 2]
    later = [batch.query for batch in sampler.epoch(3, batch_size=1, first=2)]
    assert [one.tolist() for one in later] == [whole[2].tolist()]


def test_a_batch_that_holds_all_lists_is_made_once(features: Features) -> None:
    sampler = FeatureSampler(features, seed=0)
    (one,), (other,) = sampler.epoch(0, batch_size=3), sampler.epoch(1, batch_size=4)
    assert one is other
    assert sorted(one.query.tolist()) == [0, 1, 2]
    assert list(sampler.epoch(1, batch_size=3, first=1)) == []


@pytest.mark.parametrize("slots", [1, 4, 6, 100])
def test_blocks_hold_all_lists_in_order_within_the_slots_allowed(
    features: Features, slots: int
) -> None:
    batches = list(feature_batches(features, slots=slots))
    assert torch.cat([batch.query for batch in batches]).tolist() == [0, 1, 2]
    for batch in batches:
        assert batch.mask.numel() <= slots or len(batch.query) == 1
