"""`ft.compare`: two runs on the same lists, tested query by query."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from rich.table import Table

from fairtopk.checks import checked_path
from fairtopk.errors import InputError, KindError
from fairtopk.reporting.tables import latex_table
from fairtopk.runs import result as files
from fairtopk.runs.config_file import load_config
from fairtopk.statistics import Difference, holm, paired_differences
from fairtopk.storage import Saved, replacing, write_text
from fairtopk.terminal import add_row, as_text, shown, table

GIVE = (
    "give the folder of a finished run, or a metrics file such as its metrics.json or what "
    "fairtopk evaluate wrote"
)

# What two results must agree on, and what to do if they do not.
ALIKE = {
    "checksum": ("the checksum of the data, groups and all,", "train both on one data set"),
    "split": ("the split", "train both on one split"),
    "part": ("the part", "measure both on one with fairtopk evaluate --part"),
    "protocol": ("the protocol", "measure both by one with fairtopk evaluate --protocol"),
    "unrated": ("the number of unrated items in a list", "give both one evaluation.unrated"),
    "seed": (
        "the seed that drew the lists",
        "compare runs of one seed, or measure both with fairtopk evaluate --protocol full",
    ),
}


@dataclass(frozen=True)
class Comparison:
    """The differences of a run b from a run a, by metric; printing it shows a table.

    Attributes:
        a: The folder of the first.
        b: The folder of the second.
        lists: Which lists both ranked.
        metrics: Means, difference, interval and p-value of each metric.
        p_holm: The p-values with Holm's correction for all metrics of this comparison.
    """

    a: str
    b: str
    lists: str
    metrics: dict[str, Difference]
    p_holm: dict[str, float]

    def to_frame(self) -> pl.DataFrame:
        """Return a row per metric; `difference` is b minus a, `low` to `high` at 95 %."""
        rows = [
            {
                "metric": name,
                "a": found.mean_a,
                "b": found.mean_b,
                "difference": found.difference,
                "low": found.ci95[0],
                "high": found.ci95[1],
                "p": found.p,
                "p_holm": self.p_holm[name],
                "n": found.n,
                "undefined": found.undefined,
            }
            for name, found in self.metrics.items()
        ]
        return pl.DataFrame(rows)

    def to_csv(self, path: str | Path) -> None:
        """Write `to_frame` as CSV."""
        with replacing(Path(path)) as temporary:
            self.to_frame().write_csv(temporary)

    def to_latex(self, path: str | Path) -> None:
        """Write a table for LaTeX, which needs the package booktabs."""
        header = ["metric", self.a, self.b, "difference", "low", "high", "p", "p (Holm)"]
        rows = [
            [name, *(f"{value:.4g}" for value in values), f"{p:.2g}", f"{p_holm:.2g}"]
            for name, *values, p, p_holm, _, _ in self.to_frame().iter_rows()
        ]
        write_text(Path(path), latex_table(header, rows))

    def __rich__(self) -> Table:
        names = f"a = {self.a}, b = {self.b}; {self.lists}"
        shown = table(names, "", "a", "b", "b - a", "p", "p (Holm)")
        for name, a, b, change, low, high, p, p_holm, _, _ in self.to_frame().iter_rows():
            difference = f"{change:.4g} ±{(high - low) / 2:.2g}"
            figures = (f"{a:.4g}", f"{b:.4g}", difference, f"{p:.2g}", f"{p_holm:.2g}")
            add_row(shown, name, *figures)
        for column in shown.columns[1:]:
            column.no_wrap = True
        undefined = max(found.undefined for found in self.metrics.values())
        shown.caption = (
            f"±: half of a 95 % interval over lists. p: randomisation over lists. Holm: for "
            f"{len(self.metrics)} metrics. Excluded as undefined: up to {undefined:,} lists."
        )
        return shown

    def __str__(self) -> str:
        return as_text(self)


def compare(
    run_a: str | Path, run_b: str | Path, *, metrics: Sequence[str] | None = None
) -> Comparison:
    """Return how two runs differ, tested query by query.

    Both must have ranked the same lists: the same data set, groups, split, part and protocol,
    and for sampled lists the same seed. Each p-value is from a paired randomisation test over
    queries: it shows whether these two models differ, not whether two methods would with other
    seeds.

    Args:
        run_a: The folder of a finished run, or a metrics file that `fairtopk evaluate` wrote.
        run_b: The same for the other run.
        metrics: Names such as ``ndcg@50``; by default all that both have. Holm's correction is
            for this number of metrics: with fewer, smaller differences can be detected.
    """
    a, b = checked_path("run_a", run_a), checked_path("run_b", run_b)
    of_a, of_b = _per_query(a), _per_query(b)
    about = of_a.about
    for key, (words, advice) in ALIKE.items():
        first, second = about.get(key), of_b.about.get(key)
        if first != second:
            raise InputError(
                f"{a} and {b} cannot be compared: {words} is {first} in the one, {second} in "
                f"the other; {advice}"
            )
    if not torch.equal(of_a.tensors[files.USER], of_b.tensors[files.USER]):
        raise InputError(
            f"{a} and {b} cannot be compared: they rank different users or queries"
        )
    names = [name for name in about["metrics"] if name in of_b.about["metrics"]]
    if not names:
        raise InputError(f"{a} and {b} have no metric in common; measure both at one K")
    if metrics is not None:
        if not isinstance(metrics, Sequence):
            raise KindError(f"metrics must be a list of names, got {shown(metrics)}")
        chosen = [metrics] if isinstance(metrics, str) else list(metrics)
        unknown = [name for name in chosen if name not in names]
        if unknown or not chosen:
            got = shown(unknown[0]) if unknown else "none"
            raise InputError(f"metrics must be of {', '.join(names)}, got {got}")
        names = chosen
    changes = paired_differences(
        {name: of_a.tensors[name] for name in names},
        {name: of_b.tensors[name] for name in names},
    )
    corrected = holm([change.p for change in changes.values()]).tolist()
    folders = [path if path.is_dir() else path.parent for path in (a, b)]
    return Comparison(
        a=folders[0].resolve().name,
        b=folders[1].resolve().name,
        lists=f"{about['part']}, {about['protocol']} lists of {about['data']}",
        metrics=changes,
        p_holm=dict(zip(changes, corrected, strict=True)),
    )


def _per_query(path: Path) -> Saved:
    """Return the values of each query of a run's folder or metrics file."""
    metrics, config = path / files.METRICS if path.is_dir() else path, path / files.CONFIG
    if not metrics.exists():
        if config.exists():
            raise InputError(
                f"{path} is not finished, so it holds no result; go on with: "
                f"{files.resume_command(path)}"
            )
        raise InputError(
            f"{path} {'holds no result' if path.is_dir() else 'does not exist'}; {GIVE}"
        )
    try:
        owner = files.Owner(load_config(config)) if config.exists() else None
        result = files.read_result(metrics, owner)
    except files.DamagedError as error:
        raise InputError(f"{metrics} is not a metrics file, or damaged; {GIVE}") from error
    kept = files.per_query_path(metrics)
    if not kept.exists():
        raise InputError(
            f"{metrics} has no {kept.name} next to it with the values of each query; measure "
            f"the run again with fairtopk evaluate, and give the metrics file that it writes"
        )
    return files.read_queries(kept, result)
