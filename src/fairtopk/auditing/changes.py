"""What changes from a baseline to the rankings audited, over the queries that both have."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairtopk.auditing.measures import Findings, Floats, Measured
from fairtopk.auditing.pairing import Both, Numbers, Pairing
from fairtopk.auditing.records import columns_of, data_record, ties_record
from fairtopk.auditing.resampling import Key, Resampled
from fairtopk.metrics.intervals import interval
from fairtopk.statistics.holm import holm
from fairtopk.statistics.paired import paired_differences


def change_record(
    before: Findings, now: Findings, pairing: Pairing, *, ks: Sequence[int], seed: int
) -> dict[str, Any]:
    """Return what changes from `before` to `now`, metric by metric."""
    rows = pairing.queries
    pairs = list(zip(before.by_attribute, now.by_attribute, strict=True))
    of_lists, *of_gaps = _differences(
        [before.lists, *(other.gaps for other, _ in pairs)],
        [now.lists, *(one.gaps for _, one in pairs)],
        rows,
        seed,
    )
    of_ratios = _ratio_changes(pairs, rows, ks, seed)
    columns = [
        {"name": one.attribute.name, "metrics": {**ratios, **gaps}}
        for (_, one), ratios, gaps in zip(pairs, of_ratios, of_gaps, strict=True)
    ]
    return {
        "data": data_record(before),
        "queries": len(rows.now),
        "only_in_baseline": len(before.rankings.query_ids) - len(rows.now),
        "only_in_audited": len(now.rankings.query_ids) - len(rows.now),
        "other_candidates": pairing.other_candidates,
        "ties": ties_record(before.ties, ks, len(before.rankings.query_ids)),
        "metrics": of_lists,
        "columns": columns,
    }


def _differences(
    before: Sequence[dict[str, Floats]],
    now: Sequence[dict[str, Floats]],
    rows: Both,
    seed: int,
) -> list[dict[str, Any]]:
    """Return the change of each value of each part, tested with one set of signs for all."""

    def chosen(parts: Sequence[dict[str, Floats]], side: Numbers) -> dict[str, Floats]:
        return {
            f"{number}:{name}": values[side]
            for number, part in enumerate(parts)
            for name, values in part.items()
        }

    found = paired_differences(chosen(before, rows.before), chosen(now, rows.now), seed=seed)
    corrected = holm([one.p for one in found.values()]).tolist()
    records: list[dict[str, Any]] = [{} for _ in now]
    for (key, one), p_holm in zip(found.items(), corrected, strict=True):
        number, name = key.split(":", 1)
        records[int(number)][name] = {
            "before": one.mean_a,
            "now": one.mean_b,
            "difference": one.difference,
            "ci95": list(one.ci95),
            "p": one.p,
            "p_holm": p_holm,
            "n": one.n,
            "undefined": one.undefined,
        }
    return records


def _ratio_changes(
    pairs: Sequence[tuple[Measured, Measured]], rows: Both, ks: Sequence[int], seed: int
) -> list[dict[str, Any]]:
    """Return the changes of impact ratios; intervals resample the queries of both at once."""
    columns: dict[Key, Floats] = {}
    for pair in pairs:
        for side, one, chosen in zip(Both._fields, pair, rows, strict=True):
            for key, values in columns_of(one).items():
                if key[1].startswith("rank_exposure@"):
                    columns[side, *key] = values[chosen]
    means = Resampled(columns, seed=seed)

    def change(name: str, k: int) -> dict[str, Any]:
        # Of groups that are there, so that a resample has a value.
        before, now = (
            [
                key
                for key in columns
                if key[:3] == (side, name, f"rank_exposure@{k}") and means.has(key)
            ]
            for side in Both._fields
        )
        first, second = means.ratio(before).value, means.ratio(now).value
        bounds = [np.nan, np.nan]
        if not np.isnan(second - first):
            bounds = interval(means.ratios(now) - means.ratios(before)).tolist()
        return {"before": first, "now": second, "difference": second - first, "ci95": bounds}

    return [
        {f"impact_ratio@{k}": change(one.attribute.name, k) for k in ks} for _, one in pairs
    ]
