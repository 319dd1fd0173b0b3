"""The game on documents with features."""

import numpy as np
import polars as pl
import pytest
import torch

import fairtopk as ft
from fairtopk.lists.queries import feature_batch
from fairtopk.models.features import FeatureModel, FeatureScorer, OfTable
from fairtopk.objectives.methods import RobustSettings
from fairtopk.robust import learning as drawing
from fairtopk.robust.learning import feature_problem
from fairtopk.robust.ranker import RobustRanker, features, n_features


@pytest.fixture(scope="module")
def data() -> ft.Features:
    x, y, qid, groups = ft.make_documents(12, 10)
    frame = pl.DataFrame(x, schema=list("abcd")).with_columns(y=y, q=qid, kind=groups)
    shorter = frame.filter(~((pl.col("q") == 3) & (pl.int_range(pl.len()) % 2 == 0)))
    return ft.Features.from_frame(
        shorter, query="q", relevance="y", features=list("abcd"), group="kind"
    )


def ranker(data: ft.Features, model: FeatureModel = "linear", **settings: int) -> RobustRanker:
    scorer = FeatureScorer(model, 4, hidden=(8,), dropout=0.5)
    scorer.scale.fit(torch.from_numpy(data.values))
    base = OfTable(scorer, torch.from_numpy(data.values))
    return RobustRanker(base, RobustSettings(**settings), share=1.0, seed=0).eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["linear", "mlp", "attention"])
def test_features_are_what_the_last_layer_weighs_less_the_mean_of_the_list(
    data: ft.Features, model: FeatureModel
) -> None:
    """Of a linear scorer they are the documents' own, of others the score is one more."""
    base = ranker(data, model).base
    assert isinstance(base, OfTable)
    batch = feature_batch(data, np.arange(12))
    with torch.no_grad():
        found, scores = features(base, batch), base(batch)
    assert found.shape[-1] == n_features(base) == (4 if model == "linear" else 9)
    weighed = base.scorer.output(found[..., : base.scorer.output.in_features])[..., 0]
    for row, inside in enumerate(batch.mask):
        mine = scores[row, inside] - scores[row, inside].mean()
        torch.testing.assert_close(weighed[row, inside].detach(), mine, atol=1e-5, rtol=1e-4)
        assert (found[row, ~inside] == 0).all()
        if model != "linear":
            torch.testing.assert_close(found[row, inside, -1], mine, atol=1e-5, rtol=1e-4)


def test_gains_of_whole_lists_are_over_the_best_grade_of_training(data: ft.Features) -> None:
    some = np.array([1, 3, 4])
    problem = feature_problem(ranker(data), data, some)
    assert problem.game.mask.sum(-1).tolist() == [10, 5, 10]
    batch = feature_batch(data, some)
    best = float(batch.relevance.max())
    expected = (2.0 ** batch.relevance.double().numpy() - 1) / (2.0**best - 1)
    np.testing.assert_allclose(problem.relevance, expected)
    spread = problem.features[..., :-1][torch.from_numpy(problem.game.mask)].pow(2).mean(0)
    torch.testing.assert_close(spread.float(), torch.ones(4))


def test_many_lists_and_long_ones_are_thinned(
    data: ft.Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = np.arange(12)
    assert len(feature_problem(ranker(data, users=5), data, everything).features) == 5
    monkeypatch.setattr(drawing, "MOST_NUMBERS", 10 * 5 * 3)  # documents, features and 1, lists
    first, again = (feature_problem(ranker(data), data, everything) for _ in range(2))
    assert len(first.features) == 3
    assert torch.equal(first.features, again.features)


def test_over_other_documents_a_ranker_is_the_same(data: ft.Features) -> None:
    model = ranker(data)
    model.theta[:2] = torch.tensor([-1.0, -0.5])
    batch = feature_batch(data, np.arange(12))
    model.calibrate([batch])
    assert isinstance(model.base, OfTable)
    turned = torch.from_numpy(np.ascontiguousarray(data.values[::-1]))
    other = model.over(OfTable(model.base.scorer, turned))
    last = torch.tensor(data.n_rows - 1, dtype=torch.int32)
    assert torch.equal(other(batch._replace(item=last - batch.item)), model(batch))


def test_grades_of_0_alone_are_refused(data: ft.Features) -> None:
    frame = data.to_frame().with_columns(relevance=pl.lit(0.0))
    blank = ft.Features.from_frame(
        frame, query="query", relevance="relevance", features=list("abcd"), group="group"
    )
    with pytest.raises(ft.InputError, match="none has a grade above 0"):
        feature_problem(ranker(data), blank, np.arange(12))
