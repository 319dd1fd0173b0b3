"""Seconds that numba compiles in `fairtopk demo` with an empty cache, by kernel.

Run: python benchmarks/compile.py [--types]

A kernel is compiled once for every combination of types that it is called with, and compiles
those that it calls along the way: `own` leaves those out, so that the column adds up to the
total. The total is numba's own count, the durations of its outermost ``numba:compile`` events;
beside it is the time of the processor, which other programs do not lengthen.
"""

import argparse
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple


class Compilation(NamedTuple):
    """What numba compiled once.

    Attributes:
        kernel: Its module and name.
        types: Of its arguments.
        span: When, in seconds.
        processor: Seconds of the processor.
        own: The same, less what was compiled along the way.
        outermost: Whether it was compiled for its own sake.
    """

    kernel: str
    types: str
    span: tuple[float, float]
    processor: float
    own: float
    outermost: bool


def main() -> None:
    with tempfile.TemporaryDirectory() as empty:
        script = [sys.executable, __file__, *sys.argv[1:], "--out", str(Path(empty) / "demo")]
        environment = os.environ | {"NUMBA_CACHE_DIR": str(Path(empty) / "cache")}
        started = time.perf_counter()
        subprocess.run(script, env=environment, check=True)
        print(f"{time.perf_counter() - started:8.1f} s for the whole demo, started anew")


def watch_demo(out: Path, *, with_types: bool) -> None:
    """Run the demo in this process, and print what was compiled."""
    import numba.core.event as events

    from fairtopk.cli.demo import run_demo

    found: list[Compilation] = []
    here = threading.local()  # each thread nests on its own

    class Watch(events.Listener):
        def on_start(self, event: events.Event) -> None:
            here.begun = [
                *getattr(here, "begun", []),
                (time.perf_counter(), time.thread_time()),
            ]
            here.nested = [*getattr(here, "nested", []), 0.0]

        def on_end(self, event: events.Event) -> None:
            (*here.begun, (wall, begun)), (*here.nested, nested) = here.begun, here.nested
            took = time.thread_time() - begun
            function = event.data["dispatcher"].py_func
            kernel = f"{function.__module__.removeprefix('fairtopk.')}.{function.__name__}"
            types = ", ".join(str(one) for one in event.data["args"])
            span, outermost = (wall, time.perf_counter()), not here.begun
            if here.nested:
                here.nested[-1] += took
            found.append(Compilation(kernel, types, span, took, took - nested, outermost))

    events.register("numba:compile", Watch())
    with redirect_stdout(io.StringIO()):
        run_demo(out)
    kernels: dict[str, list[Compilation]] = defaultdict(list)
    for one in found:
        kernels[one.kernel].append(one)
    print("     own   times  kernel (seconds of the processor)")
    for name, of in sorted(kernels.items(), key=lambda item: -sum(one.own for one in item[1])):
        print(f"{sum(one.own for one in of):8.2f} {len(of):7}  {name}")
        for one in of if with_types else []:
            print(f"{one.own:20.2f}  ({one.types})")
    print(f"{sum(one.own for one in found):8.1f} s of the processor in all")
    outermost = sorted(one.span for one in found if one.outermost)
    print(f"{covered(outermost):8.1f} s in all, numba's count")


def covered(spans: list[tuple[float, float]]) -> float:
    """Return how long any of some spans lasts; of two threads one waits for the other."""
    total, end = 0.0, 0.0
    for first, last in spans:
        total += max(last - max(first, end), 0.0)
        end = max(end, last)
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--types", action="store_true", help="show the types of each call")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.out:
        watch_demo(chosen.out, with_types=chosen.types)
    else:
        main()
