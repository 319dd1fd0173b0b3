import pytest
import torch

from fairtopk.lists.batch import Batch, list_batch
from fairtopk.models.neumf import NeuMF


@pytest.fixture
def batch() -> Batch:
    generator = torch.Generator().manual_seed(4)
    item = torch.randint(11, (3, 8), generator=generator, dtype=torch.int32)
    mask = torch.ones(3, 8, dtype=torch.bool)
    group = torch.zeros(3, 8, dtype=torch.int32)
    return list_batch(torch.tensor([4, 0, 4]), torch.zeros(3, 8), group, mask, item=item)


def model(hidden: tuple[int, ...], *, dropout: float = 0.0) -> NeuMF:
    generator = torch.Generator().manual_seed(1)
    made = NeuMF(5, 11, width=6, hidden=hidden, dropout=dropout, generator=generator)
    return made.double()


@torch.no_grad()
def plain_score(neumf: NeuMF, user: int, item: int) -> float:
    """He et al. 2017: a network on the concatenation of both vectors."""
    product = neumf.product_user.weight[user] * neumf.product_item.weight[item]
    active = torch.cat([neumf.network_user.weight[user], neumf.network_item.weight[item]])
    first = torch.cat([neumf.user_layer.weight, neumf.item_layer.weight], dim=1)
    active = (first @ active + neumf.user_layer.bias).relu()
    for layer in neumf.deeper:
        active = layer(active).relu()
    return (torch.cat([product, active]) @ neumf.output.weight[0]).item()


@pytest.mark.parametrize("backend", ["auto", "torch", "compiled"])
@pytest.mark.parametrize("hidden", [(7,), (7, 4, 3)])
def test_a_score_joins_the_product_and_the_network(
    batch: Batch, hidden: tuple[int, ...], backend: str
) -> None:
    neumf = model(hidden)
    neumf.backend = backend
    for parameter in neumf.parameters():
        torch.nn.init.normal_(parameter)
    expected = [
        [plain_score(neumf, int(user), int(item)) for item in items]
        for user, items in zip(batch.query, batch.item, strict=True)
    ]
    torch.testing.assert_close(neumf(batch), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("backend", ["torch", "compiled"])
def test_dropout_is_for_training(batch: Batch, backend: str) -> None:
    neumf = model((7,), dropout=0.5)
    neumf.backend = backend
    assert not torch.equal(neumf(batch), neumf(batch))
    neumf.eval()
    assert torch.equal(neumf(batch), neumf(batch))


def test_restarting_the_last_layer_draws_it_anew_and_leaves_the_rest() -> None:
    neumf = model((7,))
    before = {name: value.clone() for name, value in neumf.state_dict().items()}
    neumf.restart_last_layer(torch.Generator().manual_seed(2))
    changed = [
        name for name, value in neumf.state_dict().items() if (value != before[name]).any()
    ]
    assert changed == ["output.weight"]
    assert 0.005 < neumf.output.weight.std() < 0.02
