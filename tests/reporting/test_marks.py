"""Tests against the colour-blind runs of the same seeds."""

from pathlib import Path

import numpy as np
import pytest

from fairtopk.reporting.curves import corrected, paired_tests, views_of
from fairtopk.reporting.results import collect
from fairtopk.reporting.tables import results_tables
from fairtopk.statistics import holm, paired_difference

from .conftest import WriteRun, metrics_of

METRICS = ["ndcg@10", "exposure_gap@10"]


def test_differences_are_averaged_over_seeds_for_each_user(sweep: Path) -> None:
    (view,) = views_of(collect(sweep).results)
    tests = paired_tests(view, METRICS)
    assert list(tests) == ["kso-red, C/n² = 0", "kso-red, C/n² = 1", "kso-red, C/n² = 4"]
    for name in METRICS:
        before, after = (
            np.mean([metrics_of(c, seed, (10, 20))[name].numpy() for seed in (0, 1)], axis=0)
            for c in (0.0, 4.0)
        )
        alone = paired_difference(before.astype(float), after.astype(float))
        found = tests["kso-red, C/n² = 4"][name]
        assert found.difference == pytest.approx(alone.difference, rel=1e-5)
        assert (found.p, found.n) == (alone.p, alone.n)


def test_holm_counts_the_tests_of_one_table(sweep: Path) -> None:
    (view,) = views_of(collect(sweep).results)
    tests = paired_tests(view, METRICS)
    p_values = [tests[point][name].p for point in tests for name in METRICS]
    assert list(corrected(tests, METRICS).values()) == holm(p_values).tolist()


def test_a_point_without_files_or_without_a_seed_of_the_base_is_not_tested(
    sweep: Path, write_run: WriteRun
) -> None:
    write_run(sweep / "late", c=9.0, seed=7)
    for seed in (0, 1):
        (sweep / "1.0" / f"seed-{seed}" / "per_query.safetensors").unlink()
    found = collect(sweep)
    (view,) = views_of(found.results)
    assert list(paired_tests(view, METRICS)) == ["kso-red, C/n² = 0", "kso-red, C/n² = 4"]
    assert sum("not tested" in one for one in found.missing) == 2
    notes = results_tables([view])[0].notes
    assert any(note.startswith("2 of 4 rows could not be tested") for note in notes)


def test_a_table_marks_what_differs_and_whether_it_is_better(sweep: Path) -> None:
    (view,) = views_of(collect(sweep).results)
    table = results_tables([view])[0]
    assert (table.gap, table.ks) == ("exposure_gap", [10, 20])
    rows = {f"{row['curve']} {row['label']}": row for row in table.rows}
    ndcg, gap, chance, signed = rows["kso-red C/n² = 4"]["cells"][0]
    assert (ndcg.mark, ndcg.better) == ("▼", False)
    assert (gap.mark, gap.better) == ("▼", True)
    assert chance.text == "0.02"
    assert signed.text.startswith("-")
    assert {cell.mark for cell in rows["kso-red C/n² = 0"]["cells"][0]} == {""}
    assert rows["k-song "]["base"]
    assert rows["k-song "]["spread"] == "0.7"  # of the second epoch of fine-tuning
