"""What the benchmarks measure with: seconds of a call, and peak memory of the process."""

import resource
import time
from collections.abc import Callable


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
