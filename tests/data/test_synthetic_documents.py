"""Generated documents with features."""

import numpy as np
import pytest

import fairtopk as ft
from fairtopk.data.synthetic import make_documents


def test_one_seed_gives_the_same_documents_and_another_does_not() -> None:
    one, again, other = (make_documents(seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one.x, other.x)


def test_the_bias_is_in_the_grades_alone() -> None:
    fair, biased = make_documents(bias=0.0), make_documents(bias=2.0)
    minor = fair.groups == "minor"
    assert np.array_equal(fair.x, biased.x)
    assert np.array_equal(fair.y[~minor], biased.y[~minor])
    assert abs(fair.y[minor].mean() - fair.y[~minor].mean()) < 0.2
    assert biased.y[minor].mean() < biased.y[~minor].mean() - 1


def test_lists_have_the_length_that_is_asked_for() -> None:
    documents = make_documents(3, 5)
    assert np.bincount(documents.qid).tolist() == [5, 5, 5]
    with pytest.raises(ft.InputError, match="n_lists must be at least 1, got 0"):
        make_documents(0, 5)
