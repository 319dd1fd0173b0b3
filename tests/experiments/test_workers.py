"""Processes that work side by side; what they do must be found by name in another process."""

import math
import os

import torch

from fairtopk.experiments.console import whole_numbers
from fairtopk.experiments.workers import DIED, Finished, Workers


def test_one_that_dies_or_fails_does_not_stop_the_others() -> None:
    found: dict[str, Finished] = {}
    pieces = {
        "dies": (os._exit, 9),
        "refuses": (whole_numbers, "x"),
        "stumbles": (math.sqrt, -1.0),
        "works": (math.sqrt, 4.0),
        "threads": (torch.get_num_threads,),
    }
    with Workers(2, threads=1) as workers:
        for name, (work, *given) in pieces.items():
            while not workers.is_free():
                found |= {one.name: one for one in workers.finished()}
            workers.begin(name, work, *given)  # type: ignore[arg-type]
        while len(found) < len(pieces):
            found |= {one.name: one for one in workers.finished()}
    assert found["dies"].failure == DIED
    assert found["refuses"].failure == "--k takes whole numbers such as 10,50, got 'x'"
    assert found["stumbles"].failure == "internal error (ValueError: math domain error)"
    assert found["works"] == Finished("works", 2.0)
    assert found["threads"].value == 1
