"""Panels of trade-offs, which end where the rest could not be read."""

import pytest
from matplotlib.axes import Axes
from matplotlib.markers import CARETDOWNBASE, CARETRIGHTBASE

from fairtopk.reporting.curves import Cell, Point
from fairtopk.reproduce.figures import Panel, grid, trained
from fairtopk.reproduce.views import PaperView

INSIDE = [(0.1, 0.50), (0.2, 0.48)]


def point(curve: str, gap: float, ndcg: float) -> Point:
    values = {"exposure_gap@5": Cell(gap, gap, gap), "ndcg@5": Cell(ndcg, ndcg, ndcg)}
    return Point(curve, "", [], values)


def drawn(gap: float, ndcg: float, base_gap: float = 0.2) -> Axes:
    """Return the panel of a curve that ends at a point, beside K-SONG."""
    curves = {
        "K-SONG": [point("K-SONG", base_gap, 0.5)],
        "DELTR": [point("DELTR", *at) for at in [*INSIDE, (gap, ndcg)]],
    }
    view = PaperView("data", None, "sampled", [5], 5, curves, {}, {})
    return grid([[Panel(view, "exposure_gap", 5, "K = 5", trained(view))]]).axes[0]


def marks(axes: Axes) -> list[tuple[object, float, float]]:
    return [
        (line.get_marker(), line.get_xdata()[0], line.get_ydata()[0])  # type: ignore[index]
        for line in axes.lines
        if line.get_marker() in (CARETDOWNBASE, CARETRIGHTBASE)
    ]


def test_a_panel_without_far_points_has_no_marks() -> None:
    assert not marks(drawn(0.49, 0.46))


@pytest.mark.parametrize(
    ("at", "mark"),
    [
        ((0.1, 0.3), (CARETDOWNBASE, 0.1, 0.45)),
        ((9.0, 0.49), (CARETRIGHTBASE, 0.5, 0.49)),
        ((9.0, 0.3), (CARETDOWNBASE, 0.5, 0.45)),
    ],
)
def test_a_far_point_is_marked_at_the_edge_where_the_panel_ends(
    at: tuple[float, float], mark: tuple[object, float, float]
) -> None:
    axes = drawn(*at)
    assert marks(axes) == [(mark[0], pytest.approx(mark[1]), pytest.approx(mark[2]))]
    if at[0] > 0.5:
        assert axes.get_xlim() == pytest.approx((0.1 - 0.05 * 0.4, 0.5))
    if at[1] < 0.45:
        assert axes.get_ylim() == pytest.approx((0.45, 0.5 + 0.05 * 0.05))


def test_beside_a_gap_of_nothing_no_gap_is_far() -> None:
    assert not marks(drawn(9.0, 0.49, base_gap=0.0))
