import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import fairtopk as ft
from fairtopk import metrics, tensors
from fairtopk.errors import InputError, KindError

SCORES = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
GROUPS = torch.tensor([[0, 1, 1], [0, 1, -1]])
GRADES = torch.tensor([[0.0, 2.0, 1.0], [0.0, 0.0, 1.0]])
MASK = torch.tensor([[True, True, False], [True, True, True]])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: metrics.ndcg(SCORES, GRADES, k=0), "k must be at least 1, got 0"),
        (lambda: metrics.ndcg(SCORES, GRADES, k=1.5), "k must be a whole number, got 1.5"),
        (lambda: metrics.ndcg(SCORES, GRADES, k=True), "k must be a whole number, got True"),
        (
            lambda: metrics.ndcg(SCORES, GRADES, k=2**63),
            "k must be at most 9223372036854775807, got 9223372036854775808",
        ),
        (
            lambda: metrics.ndcg(SCORES[0], GRADES[0], k=1),
            "scores must have queries as rows and slots as columns, at least one of each, "
            "got shape [3]",
        ),
        (
            lambda: metrics.ndcg(SCORES, GRADES[:1], k=1),
            "relevance must have the shape of scores, [2, 3], got [1, 3]",
        ),
        (
            lambda: metrics.ndcg(SCORES, GRADES, k=1, mask=MASK[:, :2]),
            "mask must have the shape of scores, [2, 3], got [2, 2]",
        ),
        (
            lambda: metrics.ndcg(SCORES, GRADES, k=1, mask=MASK.int()),
            "mask must be boolean, False on padding, got torch.int32",
        ),
        (
            lambda: metrics.ndcg(SCORES.masked_fill(~MASK, torch.nan), GRADES, k=1),
            "scores must be finite where the mask is True, got nan in list 0, slot 2",
        ),
        (
            lambda: metrics.ndcg(SCORES.masked_fill(~MASK, -torch.inf), GRADES, k=1),
            "scores must be finite where the mask is True, got -inf in list 0, slot 2",
        ),
        (
            lambda: metrics.ndcg(SCORES, -GRADES, k=1),
            "relevance must lie between 0 and 100, got -2 in list 0, slot 1",
        ),
        (
            lambda: metrics.ndcg(SCORES, GRADES * torch.nan, k=1),
            "relevance must lie between 0 and 100, got nan in list 0, slot 0",
        ),
        (
            lambda: metrics.exposure_gap(SCORES, GRADES, k=1),
            "groups must be whole numbers from 0, and -1 where unknown, got torch.float32",
        ),
        (
            lambda: metrics.exposure_gap(SCORES, GROUPS * 5_000, k=1),
            "groups must be numbered from 0 to 999, and -1 where unknown, got 5000 in list 0, "
            "slot 1",
        ),
        (
            lambda: metrics.exposure_gap(SCORES, GROUPS * 2, k=1),
            "groups must be numbered from 0 to 999, and -1 where unknown, got -2 in list 1, "
            "slot 2",
        ),
        (
            lambda: metrics.exposure_gap(SCORES, None, k=1),
            "groups must be a tensor or array of whole numbers from 0, and -1 where unknown, "
            "got None",
        ),
        (
            lambda: metrics.exposure_gap(SCORES, [["a", "b", "b"]] * 2, k=1),
            "groups must be a tensor or array of whole numbers from 0, and -1 where unknown, "
            "got 'a'",
        ),
        (
            lambda: metrics.exposure_gap(SCORES, [[0, 1], [0, 1, 1]], k=1),
            "groups must be a tensor or array of whole numbers from 0, and -1 where unknown, "
            "got rows of different lengths",
        ),
        (
            lambda: metrics.exposure_gap(SCORES, GROUPS, k=1, variant="mean"),  # type: ignore[arg-type]
            "variant must be one of paper, released, got 'mean'",
        ),
        (
            lambda: metrics.ndcg(np.array([["a", "b"]]), GRADES, k=1),
            "scores must be a tensor or array of numbers, got 'a'",
        ),
        (
            lambda: metrics.ndcg(SCORES * 1j, GRADES, k=1),
            "scores must be a tensor or array of numbers, got 3j",
        ),
        (
            lambda: metrics.ndcg(list(SCORES), GRADES, k=1),
            "scores must be a tensor or array of numbers, got list of float32",
        ),
        (
            lambda: metrics.ndcg(SCORES, [[1.0, None, 0.0]] * 2, k=1),
            "relevance must be a tensor or array of numbers, got None",
        ),
        (
            lambda: metrics.ndcg(SCORES, None, k=1),
            "relevance must be a tensor or array of numbers, got None",
        ),
        (
            lambda: metrics.ndcg(SCORES, GRADES, k=1, mask="all"),
            "mask must be a tensor or array of booleans, got 'all'",
        ),
        (
            lambda: metrics.chance_floor(SCORES, GROUPS, k=1, metric="ndcg"),
            "metric must be one of exposure_gap, exposure_gap_released, rank_exposure_gap, "
            "representation_gap, got 'ndcg'",
        ),
        (
            lambda: metrics.chance_floor(SCORES, GROUPS, k=1, metric=["exposure_gap"]),
            "metric must be one of exposure_gap, exposure_gap_released, rank_exposure_gap, "
            "representation_gap, got ['exposure_gap']",
        ),
        (
            lambda: metrics.chance_floor(SCORES, GROUPS, k=1, seed=1.5),
            "seed must be a whole number, got 1.5",
        ),
        (
            lambda: metrics.summarise(SCORES, GRADES, GROUPS, ks=[]),
            "ks must name at least one length of the top, got none",
        ),
        (
            lambda: metrics.summarise(SCORES, GRADES, GROUPS, ks=5),
            "ks must be a sequence of lengths of the top, such as [10, 50], got 5",
        ),
        (
            lambda: metrics.chance_floors(SCORES, GROUPS, ks=None),
            "ks must be a sequence of lengths of the top, such as [10, 50], got None",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(
    call: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        call()


def test_series_and_frames_are_taken_as_the_arrays_that_they_hold() -> None:
    square = np.array([[1.0, 2.0], [4.0, 8.0]])
    expected = metrics.score_spread(square)
    assert expected.tolist() == [0.5, 2.0]
    for frame in (pd.DataFrame(square), pl.DataFrame(square)):
        assert torch.equal(metrics.score_spread(frame), expected)
    series = pd.Series([0.0, 1.0, 2.0], index=[5, 9, 7])
    assert metrics.mean_with_interval(series).mean == 1.0
    assert metrics.mean_with_interval(pl.Series([1.0, None])).undefined == 1


@pytest.mark.parametrize("ks", [range(1, 3), (1, 2), np.array([2, 1]), torch.tensor([1, 2])])
def test_lengths_of_the_top_come_in_any_sequence(ks: Any) -> None:
    found = metrics.summarise(SCORES, GRADES, GROUPS, ks=ks)
    assert [name for name in found if name.startswith("ndcg")] == ["ndcg@1", "ndcg@2"]


def test_the_largest_length_is_the_whole_list() -> None:
    for k in (3, 2**63 - 1):
        assert metrics.ndcg(SCORES, GRADES, k=k).tolist() == pytest.approx(
            [0.659, 1.0], abs=1e-4
        )


def test_a_list_without_items_is_undefined_and_the_others_are_not() -> None:
    mask = torch.tensor([[True] * 3, [False] * 3])
    found = metrics.summarise(SCORES, GRADES, GROUPS, ks=[2], mask=mask)
    alone = metrics.summarise(SCORES[:1], GRADES[:1], GROUPS[:1], ks=[2])
    for name, values in found.items():
        assert values[:1].equal(alone[name])
        assert values[1].isnan()


def test_arrays_of_numpy_of_any_layout_give_what_tensors_give() -> None:
    expected = metrics.exposure_gap(SCORES, GROUPS, k=2)
    scores, groups = SCORES.numpy(), GROUPS.numpy()
    frozen = groups.copy()
    frozen.setflags(write=False)
    turned = np.ascontiguousarray(scores[:, ::-1])[:, ::-1]
    assert torch.equal(metrics.exposure_gap(scores, frozen, k=2), expected)
    assert torch.equal(metrics.exposure_gap(turned, groups.astype(np.int8), k=2), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_unsigned_labels_are_labels_and_padding_stays_out(dtype: type) -> None:
    groups = np.array([[0, 1, 200], [0, 1, 1]], dtype)
    found = metrics.group_representations(SCORES, groups, k=1, mask=MASK)
    assert found.tolist() == [[1.0, 0.0], [0.0, 0.5]]


def test_a_boolean_marks_the_named_group() -> None:
    flags = torch.tensor([[True, False, False]] * 2)
    numbers = torch.where(flags, 0, 1)
    by_flag = metrics.representation_gap(SCORES, flags, k=1, signed=True)
    assert torch.equal(by_flag, metrics.representation_gap(SCORES, numbers, k=1, signed=True))
    assert by_flag.tolist() == [1.0, -0.5]


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (torch.int64, torch.float64),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_results_have_the_precision_of_the_scores(
    given: torch.dtype, result: torch.dtype
) -> None:
    found = metrics.summarise(SCORES.to(given), GRADES, GROUPS, ks=[2])
    assert {values.dtype for values in found.values()} == {result}


def test_a_metric_carries_no_graph() -> None:
    scores = SCORES.clone().requires_grad_()
    assert not metrics.exposure_gap(scores, GROUPS, k=2).requires_grad


def test_blocks_cover_every_query_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtopk.tensors.BLOCK_SLOTS", 12)
    values = torch.arange(33).view(11, 3)
    sizes = [len(block) for (block,) in tensors.blocks(values, n_groups=2)]
    assert sizes == [2, 2, 2, 2, 2, 1]
    assert torch.equal(tensors.by_blocks(lambda block: block, values), values)


def test_a_few_scores_are_checked_and_measured_without_the_thread_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensors, "run_all", None)
    tensors.checked_relevance(GRADES, *(lists := tensors.checked_scores(SCORES, MASK)))
    assert tensors.checked_groups(GROUPS, *lists)[1] == 2
    assert metrics.exposure_gap(SCORES, GROUPS, k=2).isfinite().all()
    loss = ft.losses.KsoRed(k=2, c=1.0)
    assert loss(SCORES, GRADES, GROUPS, query=[0, 1]).isfinite()


@pytest.mark.parametrize(
    ("scores", "fault"),
    [
        (SCORES.to("meta"), "a meta tensor, which has no values"),
        (SCORES.to_sparse(), "a sparse tensor; give it as .to_dense()"),
    ],
)
def test_a_tensor_that_is_no_array_is_of_a_wrong_kind(scores: torch.Tensor, fault: str) -> None:
    sentence = f"scores must be a dense tensor or array of numbers, got {fault}"
    with pytest.raises(KindError, match=re.escape(sentence)):
        metrics.ndcg(scores, GRADES, k=1)
