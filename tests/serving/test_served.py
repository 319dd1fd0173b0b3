import inspect

import pytest
import torch
from torch import nn

from fairtopk.errors import InputError
from fairtopk.lists.batch import list_batch
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.models.scoring import score
from fairtopk.serving.export import Served

N_USERS, N_ITEMS = 20, 30


def models() -> list[nn.Module]:
    generator = torch.Generator().manual_seed(0)
    found = [
        MatrixFactorization(N_USERS, N_ITEMS, width=6, generator=generator),
        NeuMF(N_USERS, N_ITEMS, width=6, hidden=(5,), generator=generator),
        NeuMF(N_USERS, N_ITEMS, width=6, hidden=(5, 4, 3), generator=generator),
    ]
    found[-1].sparse = True
    for model in found:
        for parameter in model.parameters():
            nn.init.normal_(parameter, generator=generator)
    return found


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("backend", ["torch", "compiled"])
def test_what_is_served_scores_like_the_model_whatever_the_groups(
    place: int, backend: str
) -> None:
    model = models()[place].double()
    model.backend = backend
    user, item = torch.arange(N_USERS), torch.randint(N_ITEMS, (N_USERS, 8))
    group = torch.randint(-1, 3, item.shape)
    batch = list_batch(user, torch.zeros(item.shape), group, item >= 0, item=item)
    torch.testing.assert_close(Served(model)(user, item), score(model, batch))


@pytest.mark.parametrize("place", range(3))
def test_what_is_served_takes_users_and_items_and_no_groups(place: int) -> None:
    module = Served(models()[place])
    assert list(inspect.signature(module.forward).parameters) == ["user", "item"]


def test_training_on_changes_nothing_of_what_is_served() -> None:
    user, item = torch.tensor([1]), torch.tensor([[2, 3]])
    for model in models():
        module = Served(model)
        before = module(user, item)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 1
        assert torch.equal(module(user, item), before)


def test_another_module_cannot_be_served() -> None:
    with pytest.raises(InputError, match="takes the models of this package, got Linear"):
        Served(nn.Linear(1, 1))
