"""One seed, one result, whatever else runs in the process; and nothing else is changed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import fairtopk as ft

DOCUMENTS = ft.make_documents(12, 10)


def of_features(model: str) -> bytes:
    x, y, qid, groups = DOCUMENTS
    ranker = ft.FairRanker(model=model, k=5, epochs=6, batch_size=4, dropout=0.3)
    return ranker.fit(x, y, qid=qid, groups=groups).predict(x, qid=qid).tobytes()


def of_ids(method: str) -> bytes:
    data = ft.make_synthetic(ft.SyntheticShape(60, 60, 1_500)).data
    options = {"training": {"warmup_epochs": 2}, "model": {"backend": "torch"}}
    ranker = ft.FairRanker(
        method, k=5, epochs=3, batch_size=16, dropout=0.3, hidden=(8,), options=options
    )
    weights = ranker.fit(ft.split(data, test=3)).scorer_.state_dict()
    return b"".join(weights[name].numpy().tobytes() for name in sorted(weights))


FITS: dict[str, Callable[[], bytes]] = {
    "mlp": lambda: of_features("mlp"),
    "attention": lambda: of_features("attention"),
    "kso-red": lambda: of_ids("kso-red"),
    "dpr-rsp": lambda: of_ids("dpr-rsp"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_fits_in_four_threads_give_the_bits_of_one_alone(name: str) -> None:
    alone = FITS[name]()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: FITS[name](), range(4)))
    assert all(bits == alone for bits in together)


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_a_fit_leaves_the_callers_random_numbers_alone(name: str) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = FITS[name]()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    assert FITS[name]() == first
