"""What a page is made from: runs, what was measured of them, and what could not be found."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

USER = "user"  # the numbers of the users, beside the metrics of each


@dataclass(frozen=True)
class Run:
    """One trained model.

    Attributes:
        name: Its folder, as seen from the folder that is reported on.
        method: The method's name.
        settings: Key to value, all that shaped it but data, seed and weight of the penalty.
        weight: What the weight is called and its value; None where there is no penalty.
        seed: The run's seed.
        log: A record per epoch.
        spread: Mean standard deviation of the scores of a list, if it is known.
        config: The complete config as text, without where the data is.
        provenance: Versions, data by name and checksum, protocol.
        warnings: What is to be known of it before it is used, in sentences.
    """

    name: str
    method: str
    settings: dict[str, Any]
    weight: tuple[str, float] | None
    seed: int
    log: list[dict[str, Any]] = field(default_factory=list)
    spread: float | None = None
    config: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def penalised(self) -> bool:
        """Whether exposure was penalised, or a group's scores moved up or down."""
        return self.weight is not None and self.weight[1] != 0


@dataclass(frozen=True)
class Result:
    """What was measured of a run on one set of lists.

    Attributes:
        run: Of which model.
        lists: What tells the lists apart from others, the seed that drew them left out.
        metrics: Name such as ``ndcg@50`` to mean, ``ci95``, ``n`` and ``undefined``.
        per_query: Files with the values of each query.
        own_spread: Mean standard deviation of the scores of these lists, if it was measured.
    """

    run: Run
    lists: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    per_query: tuple[Path, ...] = ()
    own_spread: float | None = None

    @property
    def spread(self) -> float | None:
        """The spread of scores of these lists, or else what is known of the run's."""
        return self.run.spread if self.own_spread is None else self.own_spread


@dataclass(frozen=True)
class Rankings:
    """The tops of the lists that the colour-blind model ranks most unfairly, before and after.

    Attributes:
        before: The colour-blind model, in words.
        after: The fair one.
        lists: Which lists, in words.
        order: What "most unfair" goes by, in words.
        of: How many lists there are in all.
        groups: What "0" and "1" in a row stand for.
        rows_before: A text per list, a sign per position: a group, or "-" for unknown.
        rows_after: The same lists by the other model.
    """

    before: str
    after: str
    lists: str
    order: str
    of: int
    groups: tuple[str, str]
    rows_before: list[str]
    rows_after: list[str]


@dataclass(frozen=True)
class Sweep:
    """Everything found in a folder, and what was not.

    Attributes:
        title: What the page is called.
        results: What was measured.
        missing: In words for the page, what could not be shown.
        left_out: In words for whoever asked for it, runs that are left out as a whole.
    """

    title: str
    results: list[Result]
    missing: list[str]
    left_out: list[str] = field(default_factory=list)
