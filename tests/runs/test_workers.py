"""Processes that work side by side; what they do must be found by name in another process."""

import math
import os
import signal
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import spawn
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fairtopk.cli.console import lengths
from fairtopk.errors import stop
from fairtopk.runs import workers as module
from fairtopk.runs.workers import DIED, SPAWN, Finished, Workers


@pytest.mark.slow
def test_one_that_dies_or_fails_does_not_stop_the_others() -> None:
    found: dict[str, Finished] = {}
    pieces = {
        "dies": (os._exit, 9),
        "refuses": (lengths, "x"),
        "stumbles": (math.sqrt, -1.0),
        "works": (math.sqrt, 4.0),
        "threads": (torch.get_num_threads,),
        "is asked to end": (stop, signal.SIGTERM),
    }
    with Workers(2, threads=1) as workers:
        for name, (work, *given) in pieces.items():
            while not workers.is_free():
                found |= {one.name: one for one in workers.finished()}
            workers.begin(name, work, *given)  # type: ignore[arg-type]
        while len(found) < len(pieces):
            found |= {one.name: one for one in workers.finished()}
        for process, _ in workers.idle:  # for want of memory, say
            process.kill()
            process.join()
        workers.begin("after idle ones died", math.sqrt, 9.0)
        assert workers.finished() == [Finished("after idle ones died", 3.0)]
    assert found["dies"].failure == DIED
    assert found["refuses"].failure == "--k takes whole numbers such as 10,50, got 'x'"
    assert found["stumbles"].failure == "internal error (ValueError: math domain error)"
    assert found["is asked to end"].failure == (
        "stopped by SIGTERM; the work so far is saved; go on with --resume"
    )
    assert found["works"] == Finished("works", 2.0)
    assert found["threads"].value == 1


def test_one_that_dies_while_it_sends_does_not_stop_the_others() -> None:
    ours, theirs = SPAWN.Pipe()
    length = struct.pack("!i", 1_000)
    os.write(theirs.fileno(), length + b"the first bytes of what was to come")
    theirs.close()
    workers = Workers(1, threads=1)
    workers.busy[ours] = SimpleNamespace(join=lambda: None), "sends"
    assert workers.finished() == [Finished("sends", failure=DIED)]


def test_ctrl_c_while_a_process_starts_ends_it_without_a_word(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In place of the program that started it, it first waits until Ctrl-C has come."""
    program = tmp_path / "waits.py"
    program.write_text(
        "import signal, time\n"
        "while signal.SIGINT not in signal.sigpending():\n"
        "    time.sleep(0.01)\n"
    )
    usual = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        given = {**usual(name), "init_main_from_path": str(program)}
        given.pop("init_main_from_name", None)
        return given

    monkeypatch.setattr(spawn, "get_preparation_data", prepared)
    with Workers(1, threads=1) as workers:
        workers.begin("sleeps", time.sleep, 600)
    assert capfd.readouterr() == ("", "")


def test_one_whose_result_nobody_reads_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(module, "_end_with_parent", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # for the first thread alone
    ours, theirs = SPAWN.Pipe()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(module._work, theirs, torch.get_num_threads())
        ours.send((abs, (-1.0,)))
        assert ours.poll(600)
        ours.close()  # the other end sees that its bytes were not read
        assert ended.result(600) is None
