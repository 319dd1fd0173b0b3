"""Which runs are one point, which points one curve, which results one view."""

from pathlib import Path

import pytest
from scipy.stats import t as student_t

from fairtopk.reporting.curves import View, fairest, views_of
from fairtopk.reporting.results import collect

from .conftest import WriteRun


def only_view(folder: Path) -> View:
    (view,) = views_of(collect(folder).results)
    return view


def test_runs_that_differ_in_seed_only_are_one_point(sweep: Path) -> None:
    view = only_view(sweep)
    assert {name: len(points) for name, points in view.curves.items()} == {
        "k-song": 1,
        "kso-red": 3,
    }
    labels = [point.label for point in view.curves["kso-red"]]
    assert labels == ["C/n² = 0", "C/n² = 1", "C/n² = 4"]
    (point,) = view.curves["k-song"]
    assert [result.run.seed for result in point.results] == [0, 1]
    means = [result.metrics["ndcg@10"]["mean"] for result in point.results]
    cell = point.values["ndcg@10"]
    assert cell.mean == pytest.approx(sum(means) / 2)
    half = student_t.ppf(0.975, 1) * abs(means[0] - means[1]) / 2
    assert (cell.low, cell.high) == pytest.approx((cell.mean - half, cell.mean + half))


def test_the_interval_of_one_seed_is_that_over_users(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run(tmp_path / "a", c=None)
    (point,) = only_view(tmp_path).points
    found = point.results[0].metrics["ndcg@10"]
    assert list(point.values["ndcg@10"][1:3]) == found["ci95"]


def test_runs_with_other_settings_are_another_curve(sweep: Path, write_run: WriteRun) -> None:
    write_run(sweep / "other", c=1.0, gamma_0=0.7)
    names = list(only_view(sweep).curves)
    assert names == ["k-song", "kso-red (gamma_0 0.3)", "kso-red (gamma_0 0.7)"]


def test_another_preset_is_told_by_its_name_alone(sweep: Path, write_run: WriteRun) -> None:
    write_run(sweep / "other", c=1.0, preset="paper")
    names = list(only_view(sweep).curves)
    assert names == ["k-song", "kso-red (preset default)", "kso-red (preset paper)"]


def test_each_protocol_is_a_view(sweep: Path, write_run: WriteRun) -> None:
    write_run(sweep / "1.0" / "seed-0", c=1.0, protocol="full", file="metrics-full.json")
    views = views_of(collect(sweep).results)
    assert [view.label for view in views] == [
        "films, test, sampled lists",
        "films, test, full catalogue",
    ]
    assert views[1].base is None


def test_views_of_one_name_say_what_differs(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path / "a", c=None)
    write_run(tmp_path / "b", c=None, sha256="cd" * 32)
    views = views_of(collect(tmp_path).results)
    assert [view.label for view in views] == [
        "films, test, sampled lists, checksum abababababab",
        "films, test, sampled lists, checksum cdcdcdcdcdcd",
    ]


def test_another_k_of_the_same_lists_joins_the_first(sweep: Path, write_run: WriteRun) -> None:
    write_run(sweep / "1.0" / "seed-0", c=1.0, k=10, ks=(5,), file="metrics-5.json")
    assert only_view(sweep).ks == [5, 10, 20]


def test_the_fairest_is_within_the_loss_or_loses_least(sweep: Path) -> None:
    view = only_view(sweep)
    assert view.base is not None
    assert view.base.name == "k-song"

    def found(loss: float) -> str | None:
        point = fairest(view, "exposure_gap", 10, loss=loss)
        return point and point.label

    assert found(0.5) == "C/n² = 4"
    assert found(0.05) == "C/n² = 1"  # 0.01 of about 0.515
    assert found(0.0) == "C/n² = 1"
