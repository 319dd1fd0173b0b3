"""Where sampled lists call a method fairer than colour-blind, and the catalogue less fair."""

from collections.abc import Iterator

from fairtopk.reporting.curves import Cell, Point, View
from fairtopk.reporting.words import gap_words

CALLED_FAIRER = ("exposure_gap", "rank_exposure_gap")  # by any of these, on sampled lists
DECIDES = "rank_exposure_gap"  # on the catalogue: a softmax gap can fall by flatter scores
BY_PROTOCOL = ("protocol", "unrated", "users")  # what differs between two views of the same


def disagreements(views: list[View]) -> list[str]:
    """Return a sentence for each method and weight of which the two protocols say opposites.

    Fairer, or less fair, is one whose interval lies wholly beside that of the colour-blind
    point of the same lists.
    """
    return [
        sentence
        for sampled, full in _pairs(views)
        for sentence in _between(sampled, full, _by_both(sampled, full))
    ]


def _between(sampled: View, full: View, both: list[tuple[Point, Point]]) -> Iterator[str]:
    """Yield the sentences of two views, of the points that are in `both`."""
    base = next((pair for pair in both if pair[0] is sampled.base), None)
    if base is None:
        return
    for pair in both:
        for gap in CALLED_FAIRER:
            ks = [str(k) for k in sampled.ks if _opposite(base, pair, gap, k)]
            if ks:
                yield (
                    f"{pair[0].name}, {full.label}: at K = {', '.join(ks)} sampled lists call "
                    f"it fairer than {base[0].name} ({gap_words(gap)}), and on the catalogue "
                    f"it is less fair ({gap_words(DECIDES)})"
                )
                break


def _by_both(sampled: View, full: View) -> list[tuple[Point, Point]]:
    """Return the points that were measured by both protocols, by the one and by the other."""
    on_catalogue = {point.name: point for point in full.points}
    return [
        (point, on_catalogue[point.name])
        for point in sampled.points
        if point.name in on_catalogue
    ]


def _opposite(base: tuple[Point, Point], pair: tuple[Point, Point], gap: str, k: int) -> bool:
    """Return whether a point is fairer than the base on sampled lists, and then less fair."""
    fairer = _change(base[0], pair[0], f"{gap}@{k}") < 0
    return fairer and _change(base[1], pair[1], f"{DECIDES}@{k}") > 0


def _change(base: Point, point: Point, name: str) -> int:
    """Return -1 where a gap is smaller than the base's, 1 where it is larger, else 0."""
    before, after = base.values.get(name), point.values.get(name)
    if before is None or after is None:
        return 0
    return int(_below(before, after)) - int(_below(after, before))


def _below(first: Cell, second: Cell) -> bool:
    return first.high < second.low


def _pairs(views: list[View]) -> Iterator[tuple[View, View]]:
    """Yield views of sampled lists and of the catalogue that are alike in all else."""
    for sampled in views:
        for full in views:
            kinds = (_of(sampled).get("protocol"), _of(full).get("protocol"))
            if kinds == ("sampled", "full") and _rest(sampled) == _rest(full):
                yield sampled, full


def _of(view: View) -> dict[str, object]:
    return view.points[0].results[0].lists


def _rest(view: View) -> dict[str, object]:
    return {key: value for key, value in _of(view).items() if key not in BY_PROTOCOL}
