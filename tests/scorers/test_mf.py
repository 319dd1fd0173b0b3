import pytest
import torch

from fairtopk.batches import list_batch
from fairtopk.scorers.mf import MatrixFactorization


@pytest.mark.parametrize("backend", ["auto", "torch", "compiled"])
def test_a_score_is_the_product_of_the_vectors_and_the_items_bias(backend: str) -> None:
    generator = torch.Generator().manual_seed(1)
    model = MatrixFactorization(2, 3, width=2, backend=backend, generator=generator).double()
    with torch.no_grad():
        model.user.weight[:] = torch.tensor([[1, 2], [3, -1]])
        model.item.weight[:] = torch.tensor([[5, 0], [1, 1], [0, 2]])
        model.bias.weight[:, 0] = torch.tensor([0.5, 0, -1])
    item = torch.tensor([[2, 1, 0, 0], [0, 1, 1, 2]], dtype=torch.int32)
    mask, group = torch.ones(2, 4, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.int32)
    batch = list_batch(torch.tensor([0, 1]), torch.zeros(2, 4), group, mask, item=item)
    assert model(batch).tolist() == [[3.0, 3.0, 5.5, 5.5], [15.5, 2.0, 2.0, -3.0]]
    assert model.score_all(torch.tensor([1])).tolist() == [[15.5, 2.0, -3.0]]


def test_restarting_the_last_layer_changes_nothing() -> None:
    model = MatrixFactorization(2, 3, generator=torch.Generator().manual_seed(1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.restart_last_layer(torch.Generator().manual_seed(2))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
