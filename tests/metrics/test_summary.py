from functools import partial

import pytest
import torch
from torch import Tensor

from fairtopk import metrics

KS = [1, 3, 50]
GAPS = {
    "exposure_gap": metrics.exposure_gap,
    "exposure_gap_released": partial(metrics.exposure_gap, variant="released"),
    "rank_exposure_gap": metrics.rank_exposure_gap,
    "representation_gap": metrics.representation_gap,
}


def some_lists(n_groups: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n_groups)
    scores = torch.randint(-3, 4, (40, 9), generator=generator) / 2
    relevance = torch.randint(0, 4, (40, 9), generator=generator) * (scores < 0.5)
    groups = torch.randint(-1, n_groups, (40, 9), generator=generator)
    relevance[0], groups[0] = 0, 1  # a list for which every metric is undefined
    return scores, relevance, groups, torch.rand(40, 9, generator=generator) < 0.7


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize("block", [1, 2**19])
def test_the_summary_holds_what_each_metric_gives_alone(
    n_groups: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, relevance, groups, mask = some_lists(n_groups)
    expected = {}
    for k in KS:
        expected[f"ndcg@{k}"] = metrics.ndcg(scores, relevance, k=k, mask=mask)
        for name, gap in GAPS.items():
            expected[f"{name}@{k}"] = gap(scores, groups, k=k, mask=mask)
            signed = gap(scores, groups, k=k, mask=mask, signed=True)
            expected[f"{name}_signed@{k}"] = signed
            expected[f"{name}_mse@{k}"] = expected[f"{name}@{k}"] ** 2
    monkeypatch.setattr("fairtopk.tensors.BLOCK_SLOTS", block)
    found = metrics.summarise(scores, relevance, groups, ks=KS, mask=mask)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, equal_nan=True, msg=name)
        assert 0 < values.isnan().sum() < 40


def test_one_sort_serves_all_metrics_and_all_k(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtopk.metrics import gaps

    scores, relevance, groups, mask = some_lists(3)
    sorts, list_sums = [], gaps.list_sums
    monkeypatch.setattr(gaps, "list_sums", lambda *lists: sorts.append(1) or list_sums(*lists))
    metrics.summarise(scores, relevance, groups, ks=KS, mask=mask)
    assert len(sorts) == 1


def test_threads_change_no_bit() -> None:
    scores, relevance, groups, mask = (table.repeat(2_000, 1) for table in some_lists(3))
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(metrics.summarise(scores, relevance, groups, ks=KS, mask=mask))
    torch.set_num_threads(before)
    for name, values in found[0].items():
        assert torch.equal(values.nan_to_num(-9), found[1][name].nan_to_num(-9)), name


def test_a_k_named_twice_is_measured_once() -> None:
    scores, relevance, groups, mask = some_lists(2)
    found = metrics.summarise(scores, relevance, groups, ks=[3, 3], mask=mask)
    assert len(found) == 13
