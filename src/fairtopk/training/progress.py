"""How far training has come, and checks of progress read from a file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairtopk.errors import InputError

Record = dict[str, Any]


@dataclass
class Progress:
    """How far training is, and what it saw on the way."""

    phase: int = 0
    epoch: int = 0
    step: int = 0  # of the epoch
    total: int = 0  # steps in all
    sums: dict[str, float] = field(default_factory=dict)  # of this epoch's steps
    counts: dict[str, int] = field(default_factory=dict)  # how many steps each sum has
    history: list[Record] = field(default_factory=list)  # a record per epoch
    chosen: int | None = None  # place of the chosen epoch in the history

    @property
    def mark(self) -> int:
        """A number that rises with every step and with every end of an epoch."""
        return self.total + len(self.history)


class Stretch(NamedTuple):
    """A phase as its progress is counted: its name, its epochs, and the steps of each."""

    name: str
    epochs: int
    steps: int


def check_progress(progress: Progress, stretches: Sequence[Stretch]) -> None:
    """Refuse progress that training by these phases cannot have made.

    Args:
        progress: How far training is said to be.
        stretches: All phases, in order.
    """
    if not 0 <= progress.phase <= len(stretches):
        raise InputError(f"there is no phase {progress.phase}")
    over = progress.phase == len(stretches)
    now = Stretch("", 0, 0) if over else stretches[progress.phase]
    if not (0 <= progress.epoch <= now.epochs and 0 <= progress.step <= now.steps):
        raise InputError(
            f"phase {progress.phase} has no step {progress.step} in epoch {progress.epoch}"
        )
    counted = progress.sums.keys() == progress.counts.keys()
    if not counted or any(count < 1 for count in progress.counts.values()):
        raise InputError("the sums of the epoch and the counts of its steps do not fit")

    # A record has a phase, an epoch, perhaps alarms, and otherwise numbers alone.
    for record in progress.history:
        alarms = record.get("alarms", [])
        numbers = [value for name, value in record.items() if name not in ("phase", "alarms")]
        if not (
            isinstance(record.get("phase"), str)
            and type(record.get("epoch")) is int
            and isinstance(alarms, list)
            and all(isinstance(alarm, str) for alarm in alarms)
            and all(type(value) in (int, float) for value in numbers)
        ):
            raise InputError("a record of the history is not that of an epoch")

    # The records are those of every epoch so far, in order.
    found = [(record["phase"], record["epoch"]) for record in progress.history]
    expected: list[tuple[str, int]] = []
    for place, one in enumerate(stretches[: progress.phase + 1]):
        # A phase that ran out of patience has fewer epochs than it might have had.
        done = sum(name == one.name for name, _ in found)
        last = progress.epoch if place == progress.phase else min(done, one.epochs)
        expected += [(one.name, number + 1) for number in range(last)]
    if found != expected:
        raise InputError("the history is not that of the epochs so far")
    steps = {one.name: one.steps for one in stretches}
    total = sum(steps[name] for name, _ in found) + progress.step
    if progress.total != total:
        raise InputError(f"progress says {progress.total} steps, its epochs have {total}")
    if progress.chosen is not None and not 0 <= progress.chosen < len(progress.history):
        raise InputError(f"epoch {progress.chosen} is chosen, and not in the history")
