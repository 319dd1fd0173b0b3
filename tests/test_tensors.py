import pytest
import torch

import fairtopk as ft
from fairtopk import tensors


def test_a_few_scores_are_checked_and_measured_without_the_thread_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensors, "run_all", None)
    scores, groups = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]])
    assert ft.metrics.exposure_gap(scores, groups, k=2).isfinite().all()
    loss = ft.losses.KsoRed(k=2, c=1.0)
    assert loss(scores, torch.tensor([[1, 0, 0]]), groups, query=[0]).isfinite()
