"""torch's own random numbers, which dropout draws, lent to one piece of work at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lending = threading.RLock()


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Run with torch's generators seeded by `key`, and leave them as they were.

    They belong to the whole process: of several threads one at a time has them, so that what
    each draws depends on its keys alone.
    """
    devices = torch.cuda.is_available()
    with _lending:
        before = torch.default_generator.get_state()
        of_devices = torch.cuda.get_rng_state_all() if devices else []
        # The usual call seeds devices that may come, keeping a stack trace for each of them,
        # which takes as long as a small step.
        (torch.manual_seed if devices else torch.default_generator.manual_seed)(key)
        try:
            yield
        finally:
            torch.default_generator.set_state(before)
            if devices:
                torch.cuda.set_rng_state_all(of_devices)
