"""Tables of the paper's experiments: every point, training times, flatter scores."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairtopk.reporting.curves import Point
from fairtopk.reporting.figures import slug
from fairtopk.reporting.paper_table import (
    UNDEFINED,
    PaperTable,
    Row,
    joined,
    measured,
    shown,
)
from fairtopk.reporting.paper_views import STARTS, PaperView, folder, folders, weight_of
from fairtopk.reporting.published import PAPER_MINUTES
from fairtopk.reporting.words import MSE, lists_words, number

DRAWN = {  # what figures show of each K
    "ndcg": "NDCG",
    "exposure_gap": "Gap, Eq. 9",
    f"exposure_gap{MSE}": "Eq. 9, squared",
    "exposure_gap_released": "Gap, as released",
    "rank_exposure_gap": "Gap by rank",
}
Facts = Mapping[str, Mapping[str, Any]]  # folder of a run to what its metrics file says


class Fall(NamedTuple):
    """How a softmax gap falls from the colour-blind model to a fair one.

    Attributes:
        before: The gap of the colour-blind model.
        flat: The gap of its order at the flatness of the fair model's scores.
        after: The gap of the fair model.
    """

    before: float
    flat: float
    after: float

    @property
    def share(self) -> float:
        """The share of the fall that is flatter scores; NaN where the gap does not fall."""
        fall = self.before - self.after
        return (self.before - self.flat) / fall if fall > 0 else float("nan")


class FallOfPoint(NamedTuple):
    """How the gaps of a point fall, seed by seed.

    Attributes:
        point: The fair one.
        runs: Folders of both models of each seed.
        seeds: Name such as ``exposure_gap@50`` to the fall in each seed.
    """

    point: Point
    runs: tuple[str, ...]
    seeds: Mapping[str, Sequence[Fall]]


def points_table(view: PaperView) -> PaperTable:
    """Return every point of the figures of a view, at the K that models were trained for."""
    rows, records, last = [], [], ""
    for point in view.points:
        runs = folders(point)
        cells = (measured(point, f"{name}@{view.k}") for name in DRAWN)
        label = point.label or "none"
        begins, last = point.curve != last, point.curve
        count = str(len(point.results))
        rows.append(Row((point.curve, label, count, *cells), runs, begins=begins))
        records += [
            {
                "method": point.curve,
                "weight": point.label,
                "metric": name,
                "k": k,
                **_values(point, f"{name}@{k}"),
                "seeds": len(point.results),
                "runs": joined(runs),
            }
            for name in DRAWN
            for k in view.ks
        ]
    lists = lists_words({"data": view.title, "part": "test", "protocol": view.protocol})
    return PaperTable(
        f"points-{slug(view.title)}-{view.protocol}",
        f"{lists}: every point, K = {view.k}",
        ("Method", "Weight", "Seeds", *DRAWN.values()),
        rows,
        records,
        ["± is half of a 95 % interval: over seeds, or over users where there is one seed."],
        texts=2,
    )


def _values(point: Point, metric: str) -> dict[str, float | None]:
    cell = point.values.get(metric)
    return {"mean": None, "low": None, "high": None} if cell is None else cell._asdict()


def time_table(views: Sequence[PaperView], facts: Facts) -> PaperTable:
    """Return how long training took by data set and method, beside the paper's minutes."""
    rows, records = [], []
    for view in views:
        first = True
        for name, points in view.curves.items():
            own = [point for point in points if point.penalised or name not in STARTS]
            runs = tuple(run for point in own for run in folders(point))
            minutes = [m for run in runs if (m := _minutes(facts.get(run, {}))) is not None]
            epochs = {len(result.run.log) for point in own for result in point.results}
            paper = PAPER_MINUTES.get(name, number(None))
            mean = sum(minutes) / len(minutes) if minutes else float("nan")
            span = f"{min(minutes):.3g} to {max(minutes):.3g}" if minutes else UNDEFINED
            trained = ", ".join(f"{n:,}" for n in sorted(epochs))
            cells = (view.title, name, str(len(runs)), trained, shown(mean), span, paper)
            rows.append(Row(cells, runs, begins=first))
            first = False
            records.append(
                {
                    "data": view.title,
                    "method": name,
                    "epochs": trained,
                    "minutes": mean,
                    "least": min(minutes, default=None),
                    "most": max(minutes, default=None),
                    "paper_minutes": paper,
                    "runs": joined(runs),
                }
            )
    header = ("Data", "Method", "Runs", "Epochs", "Minutes a run", "from, to", "Paper, minutes")
    notes = [
        "Measured in these very runs, several of which were trained at a time and shared the "
        "machine. Epochs are those of warm-up and method. Runs of one seed share their "
        "warm-up: it is in the time of the one that was trained first, as a rule K-SONG.",
        "The paper's minutes are of MovieLens-20M-H on a 24-core CPU with a V100S GPU, 120 "
        "epochs (Robust: 5, in its authors' code): other data, other hardware. Compare methods "
        "within a column, not across.",
    ]
    return PaperTable("time", "Training time by method", header, rows, records, notes, 2)


def _minutes(fact: Mapping[str, Any]) -> float | None:
    seconds = (fact.get("seconds") or {}).get("training")
    return None if seconds is None else seconds / 60


def flattening_table(view: PaperView, falls: Sequence[FallOfPoint], why: str) -> PaperTable:
    """Return which share of the fall of each softmax gap is flatter scores.

    Args:
        view: Of sampled lists.
        falls: How the gaps of each penalised point fall.
        why: In words, what could not be told; empty if all could.
    """
    rows, last = [], ""
    records: list[Mapping[str, Any]] = []
    for fall in falls:
        cells: list[str] = []
        for gap in ("exposure_gap", "exposure_gap_released"):
            seeds = fall.seeds[f"{gap}@{view.k}"]
            means = [_mean([getattr(one, part) for one in seeds]) for part in Fall._fields]
            cells += [*map(shown, means), _share(Fall(*means))]
        point = fall.point
        begins, last = point.curve != last, point.curve
        rows.append(Row((point.curve, point.label, *cells), fall.runs, begins=begins))
        records += _fall_records(fall)
    parts = ("before", "its order, as flat", "after", "flatter scores")
    header = (
        "Method",
        "Weight",
        *(f"{gap}, {part}" for gap in ("Eq. 9", "Released") for part in parts),
    )
    notes = [
        "Before is the colour-blind model: C = 0 of the method, or K-SONG. Its order, as flat: "
        "the gap that its order would have, were its scores divided by the one number that "
        "gives them the mean entropy of the fair model's softmax. The share of the fall that "
        "this alone explains can be above 100 % (the new order widens the gap) or below 0. "
        "Undefined where the gap does not fall, or no number makes them as flat. The gap by "
        "rank knows no scores.",
        *([why] if why else []),
    ]
    title = f"{view.title}: how much of the fall of a gap is flatter scores, K = {view.k}"
    return PaperTable(f"flattening-{slug(view.title)}", title, header, rows, records, notes, 2)


def _fall_records(fall: FallOfPoint) -> Iterator[dict[str, Any]]:
    for name, seeds in fall.seeds.items():
        metric, _, k = name.partition("@")
        for result, one in zip(fall.point.results, seeds, strict=True):
            yield {
                "method": fall.point.curve,
                "weight": weight_of(fall.point),
                "seed": result.run.seed,
                "metric": metric,
                "k": int(k),
                **one._asdict(),
                "share": one.share,
                "run": folder(result.run),
            }


def _share(fall: Fall) -> str:
    return UNDEFINED if fall.share != fall.share else f"{100 * fall.share:.0f} %"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
