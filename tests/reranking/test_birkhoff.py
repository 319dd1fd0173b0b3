from typing import Any

import numpy as np
import pytest
import torch

from fairtopk.errors import InputError
from fairtopk.reranking.exposure_lp import birkhoff

pytest.importorskip("scipy")


@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.parametrize("terms", [1, 3, 40])
def test_the_rankings_add_up_to_the_matrix(n: int, terms: int) -> None:
    rng = np.random.default_rng(n * terms)
    matrix = np.zeros((n, n))
    for weight in rng.dirichlet(np.ones(terms)):
        matrix[rng.permutation(n), np.arange(n)] += weight
    policy = birkhoff(matrix)
    assert len(policy.probability) <= (n - 1) ** 2 + 1
    assert (policy.probability > 0).all()
    assert policy.probability.sum().item() == pytest.approx(1)
    assert policy.slot.sort().values.tolist() == [list(range(n))] * len(policy.slot)
    torch.testing.assert_close(policy.matrix(), torch.from_numpy(matrix), rtol=0, atol=1e-7)


def test_single_precision_is_precise_enough() -> None:
    matrix = torch.full((7, 7), 1 / 7)
    assert (birkhoff(matrix).matrix() - 1 / 7).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (torch.ones(2, 3), r"as many rows as columns, got shape \[2, 3\]"),
        (torch.ones(2, 2), "add up to 1, got sums from 2 to 2 and entries from 1"),
        (
            torch.tensor([[1.5, -0.5], [-0.5, 1.5]]),
            "got sums from 1 to 1 and entries from -0.5",
        ),
        (torch.full((2, 2), torch.nan), "add up to 1"),
        (None, "matrix must be a square tensor or array of numbers"),
        ([[1.0, 0.0], [0.0]], "matrix must be a square tensor or array of numbers"),
    ],
)
def test_what_is_not_doubly_stochastic_is_refused(matrix: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        birkhoff(matrix)
