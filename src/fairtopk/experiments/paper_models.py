"""What of the paper's experiments needs models again: pictures of rankings, flatter scores."""

import math
from collections.abc import Iterator
from pathlib import Path

from fairtopk.errors import InputError
from fairtopk.experiments.flattening import MOST_LISTS, Scored, falls, falls_once, scored
from fairtopk.experiments.rankings import Load, most_unfair, rows_of
from fairtopk.reporting.curves import Point
from fairtopk.reporting.paper_figures import Pictures
from fairtopk.reporting.paper_tables import Fall, FallOfPoint
from fairtopk.reporting.paper_views import NAMES, PaperView
from fairtopk.reporting.published import LARGE
from fairtopk.reporting.results import Result
from fairtopk.reporting.words import number

FAIR = NAMES["kso-red"]
SHARE = 0.0002  # of all lists, the most unfair, as in the paper
LEAST = 30  # lists of a picture; of small data, 0.02 % would be none
WHOLE = 1_000_000  # positions, more than any sampled list has


def pictures_of(folder: Path, view: PaperView, load: Load) -> Pictures | str:
    """Return the most unfair rankings at C = 0 and at large C, or in words why there are none.

    Args:
        folder: Where the runs are.
        view: Of sampled lists.
        load: What `rankings.loader` returned.
    """
    large = [point for point in view.curves.get(FAIR, []) if point.penalised]
    if view.base is None or not large:
        return f"{FAIR} or K-SONG was not run"
    points = [view.base, *[p for p in large if p is view.at(FAIR, LARGE)], large[-1]]
    points = list({point.name: point for point in points}.values())
    seeds = set.intersection(*({one.run.seed for one in point.results} for point in points))
    if not seeds:
        return "no seed has all of its models"
    seed, gap = min(seeds), f"exposure_gap@{view.k}"
    results = [_of_seed(point, seed) for point in points]
    lists = int(results[0].metrics[gap]["n"])
    found = most_unfair(results[0], gap, max(LEAST, math.ceil(SHARE * lists)))
    if found is None:
        return "K-SONG has no file with the values of each user"
    users, of = found
    if not of:
        return "no list of K-SONG has a gap"
    try:
        rows, groups = rows_of(folder, results, users, WHOLE, load)
    except (InputError, OSError):
        return "the data or the models could not be loaded again"
    titles = [_title(point, one, view.k) for point, one in zip(points, results, strict=True)]
    return Pictures(
        f"{view.title}: the {len(users):,} of {of:,} lists with the largest gap (Eq. 9, "
        f"K = {view.k}) at C = 0, all positions, seed {seed}",
        dict(zip(titles, rows, strict=True)),
        groups,
        tuple(one.run.name for one in results),
    )


def _title(point: Point, result: Result, k: int) -> str:
    ndcg = number(result.metrics[f"ndcg@{k}"]["mean"])
    return f"{point.curve}, {point.label or 'C = 0'} (NDCG@{k} {ndcg})"


def falls_of(folder: Path, view: PaperView, load: Load) -> tuple[list[FallOfPoint], str]:
    """Return how the softmax gaps of penalised points fall, and what is to be said of it.

    Arguments are those of `pictures_of`.
    """
    found, left_out = [], []
    blind: dict[str, Scored] = {}  # each is compared with many

    def measured(before: Result, after: Result) -> dict[str, Fall]:
        if before.run.name not in blind:
            blind[before.run.name] = scored(folder, before, load)
        return falls(blind[before.run.name], scored(folder, after, load), view.ks)

    for point, start in _with_starts(view):
        pairs = [
            (before, after)
            for after in point.results
            for before in start.results
            if before.run.seed == after.run.seed
        ]
        try:
            seeds = [falls_once(folder, *pair, view.ks, measured) for pair in pairs]
        except (InputError, OSError):
            seeds = []
        if len(seeds) < len(point.results):
            left_out.append(point.name)
        else:
            runs = [one.run.name for pair in pairs for one in pair]
            by_name = {name: [of[name] for of in seeds] for name in seeds[0]}
            found.append(FallOfPoint(point, tuple(dict.fromkeys(runs)), by_name))
    words = [f"On up to {MOST_LISTS:,} of the test lists, evenly spaced."]
    if left_out:
        words.append(
            f"Not told, for data, models or the colour-blind run could not be loaded again: "
            f"{'; '.join(left_out)}."
        )
    return found, " ".join(words)


def _with_starts(view: PaperView) -> Iterator[tuple[Point, Point]]:
    """Yield each penalised point, and the colour-blind one that it is compared with."""
    for points in view.curves.values():
        start = points[0] if not points[0].penalised else view.base
        if start is not None:
            yield from ((point, start) for point in points if point.penalised)


def _of_seed(point: Point, seed: int) -> Result:
    return next(result for result in point.results if result.run.seed == seed)
