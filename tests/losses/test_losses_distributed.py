"""Losses under DistributedDataParallel: two processes that talk by gloo.

Run as a script with a rank and a folder, this file is one of the processes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

import fairtopk as ft

pytestmark = pytest.mark.slow  # processes that import torch

WORLD, STEPS, LENGTH, FEATURES = 2, 6, 7, 3
CASES = ["inside", "outside"]  # where the loss is: in the wrapped module, or beside it


def lists(step: int) -> dict[str, Tensor]:
    """Four lists per step; queries are even ones first, then odd ones."""
    generator = torch.Generator().manual_seed(step)
    shape = (4, LENGTH)
    half = torch.randperm(4, generator=generator)[:2] * 2
    return {
        "features": torch.randn(*shape, FEATURES, generator=generator),
        "relevance": torch.randint(0, 3, shape, generator=generator),
        "groups": torch.randint(0, 2, shape, generator=generator),
        "query": torch.cat([half, half + 1]),
        "item": torch.rand(4, 12, generator=generator).topk(LENGTH).indices,
    }


class Scored(nn.Module):
    """A model with a buffer of its own, and the loss that it is trained with."""

    def __init__(self) -> None:
        super().__init__()
        self.scorer = nn.Sequential(nn.Linear(FEATURES, 1), nn.Flatten(1))
        self.register_buffer("calls", torch.zeros(()))
        self.loss = ft.losses.KsoRed(k=2, c=20.0, preset="paper")

    def forward(self, features: Tensor, **given: Tensor) -> Tensor:
        self.calls += 1
        return self.loss(self.scorer(features), **given)


def train(case: str, batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The weights, what the loss remembers and the values after a loop of one's own."""
    torch.manual_seed(0)
    module = Scored()
    # What a rank remembers from an earlier run must outlast being wrapped too.
    module(**batches[0])
    if distributed.is_initialized():
        wrapped = DistributedDataParallel(module if case == "inside" else module.scorer)
    else:
        wrapped = module if case == "inside" else module.scorer
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2)
    values = []
    for batch in batches:
        given = dict(batch)
        if case == "inside":
            value = wrapped(**given)
        else:
            value = module.loss(wrapped(given.pop("features")), **given)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.detach())
    return {**module.state_dict(), "values": torch.stack(values)}


def run_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=WORLD
    )
    half = slice(2 * rank, 2 * rank + 2)
    batches = [{name: value[half] for name, value in lists(n).items()} for n in range(STEPS)]
    found = {case: train(case, batches) for case in CASES}
    torch.save(found, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    """What both processes ended with."""
    folder = tmp_path_factory.mktemp("ranks")
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(folder)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        faults = [process.communicate(timeout=900)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(faults)
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(WORLD)]


def averages(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if "memory" in name}


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_end_with_the_weights_of_one_process_that_saw_all_lists(
    ranks: list[dict[str, dict[str, Tensor]]], case: str
) -> None:
    """A query stays with one rank, so that no average is missing there."""
    alone = train(case, [lists(n) for n in range(STEPS)])
    for name in ("scorer.0.weight", "scorer.0.bias"):
        assert ranks[0][case][name].equal(ranks[1][case][name])
        torch.testing.assert_close(ranks[0][case][name], alone[name], rtol=1e-4, atol=1e-5)
    mean = (ranks[0][case]["values"] + ranks[1][case]["values"]) / 2
    torch.testing.assert_close(mean, alone["values"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_each_rank_remembers_its_own_queries_and_no_others(
    ranks: list[dict[str, dict[str, Tensor]]], case: str
) -> None:
    for rank in range(WORLD):
        keys = ranks[rank][case]["loss.memory.queries.key"]
        known = set(keys[keys >= 0].tolist())
        assert known == {2 * n + rank for n in range(4)}


def test_it_makes_no_difference_whether_the_loss_is_inside_the_wrapped_module(
    ranks: list[dict[str, dict[str, Tensor]]],
) -> None:
    for rank in ranks:
        inside, outside = averages(rank["inside"]), averages(rank["outside"])
        assert len(inside) > 5
        for name, value in inside.items():
            torch.testing.assert_close(value, outside[name], rtol=0, atol=0, equal_nan=True)


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), Path(sys.argv[2]))
