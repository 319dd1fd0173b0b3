"""Scorers of documents by their features."""

import pytest
import torch

import fairtopk as ft
from fairtopk.models.features import FEATURE_MODELS, FeatureScorer, Standardise

MASK = torch.tensor([[True] * 5, [True, True, True, False, False]])


def drawn(seed: int = 0) -> torch.Tensor:
    return torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(seed))


def test_features_are_scaled_by_the_rows_they_were_fitted_on() -> None:
    scale = Standardise(3)
    rows = torch.tensor([[1.0, 10.0, 5.0], [3.0, 30.0, 5.0]])
    scale.fit(rows)
    assert scale(rows).tolist() == [[-1, -1, 0], [1, 1, 0]]
    assert scale(torch.tensor([5.0, 20.0, 6.0])).tolist() == [3, 0, 1]


@pytest.mark.parametrize("name", FEATURE_MODELS)
def test_a_score_does_not_depend_on_padding_or_on_the_order(name: str) -> None:
    scorer = FeatureScorer(name, 3, hidden=(8,)).eval()  # type: ignore[arg-type]
    values = drawn()
    scores = scorer(values, MASK)
    assert scores.shape == (2, 5)
    other = torch.where(MASK[..., None], values, 100.0)
    torch.testing.assert_close(scorer(other, MASK)[MASK], scores[MASK])
    turned = scorer(values.flip(1), MASK.flip(1)).flip(1)
    torch.testing.assert_close(turned[MASK], scores[MASK])


@pytest.mark.parametrize(
    ("name", "alone"), [("linear", True), ("mlp", True), ("attention", False)]
)
def test_only_attention_sees_the_other_documents(name: str, alone: bool) -> None:
    scorer = FeatureScorer(name, 3, hidden=(8,)).eval()  # type: ignore[arg-type]
    values = drawn()
    changed = values.clone()
    changed[:, 1:] += 1
    same = torch.allclose(scorer(values, MASK)[:, 0], scorer(changed, MASK)[:, 0])
    assert same == alone


@pytest.mark.parametrize("name", FEATURE_MODELS)
def test_a_start_depends_on_the_seed_alone(name: str) -> None:
    torch.manual_seed(5)
    one = FeatureScorer(name, 3, seed=1)  # type: ignore[arg-type]
    torch.manual_seed(6)
    again, other = (FeatureScorer(name, 3, seed=seed) for seed in (1, 2))  # type: ignore[arg-type]
    assert torch.equal(one.output.weight, again.output.weight)  # type: ignore[union-attr, arg-type]
    assert not torch.equal(one.output.weight, other.output.weight)  # type: ignore[union-attr, arg-type]


def test_attention_of_an_odd_width_has_fewer_heads() -> None:
    scorer = FeatureScorer("attention", 3, hidden=(7,)).eval()
    assert bool(scorer(drawn(), MASK)[MASK].isfinite().all())


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ft.InputError, match="one of linear, mlp, attention, got 'tree'"):
        FeatureScorer("tree", 3)  # type: ignore[arg-type]
