"""A run that is stopped by Ctrl-C and goes on, several times."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fairtopk.lists.users import Lists
from fairtopk.runs.config import Config
from fairtopk.runs.run import Hooks, train_run


def train_in_parts(
    settings: Config, out: Path, at: Sequence[int], *, lists: Lists | None = None
) -> None:
    """Train into `out`, stopping after each of these steps and going on, to the end."""
    stops = list(at)

    def stop(trainer: Any, record: dict[str, Any] | None) -> None:
        if stops and trainer.progress.total == stops[0]:
            stops.pop(0)
            signal.raise_signal(signal.SIGINT)  # Ctrl-C

    while stops:
        resume = len(stops) < len(at)
        with pytest.raises(KeyboardInterrupt):
            train_run(settings, out, lists=lists, hooks=Hooks(report=stop), resume=resume)
    train_run(settings, out, lists=lists, resume=True)
