"""What changes from a baseline to the rankings audited, over the queries that both have."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.auditing.measures import Doubles, Findings, Measured
from fairtopk.auditing.records import columns_of, data_record
from fairtopk.auditing.resampling import Key, Resampled
from fairtopk.errors import InputError
from fairtopk.metrics.intervals import interval
from fairtopk.statistics.holm import holm
from fairtopk.statistics.paired import paired_differences

Chosen = NDArray[np.int64]


def change_record(
    before: Findings, now: Findings, *, ks: Sequence[int], seed: int
) -> dict[str, Any]:
    """Return what changes from `before` to `now`, metric by metric."""
    rows = _common(before, now)
    pairs = list(zip(before.by_attribute, now.by_attribute, strict=True))
    of_lists, *of_gaps = _differences(
        [before.lists, *(other.gaps for other, _ in pairs)],
        [now.lists, *(one.gaps for _, one in pairs)],
        rows,
        seed,
    )
    columns = [
        {
            "name": one.attribute.name,
            "metrics": {**_ratio_changes(other, one, rows, ks, seed), **gaps},
        }
        for (other, one), gaps in zip(pairs, of_gaps, strict=True)
    ]
    return {
        "data": data_record(before),
        "queries": len(rows[0]),
        "only_in_baseline": len(before.rankings.query_ids) - len(rows[0]),
        "only_in_audited": len(now.rankings.query_ids) - len(rows[0]),
        "metrics": of_lists,
        "columns": columns,
    }


def _common(before: Findings, now: Findings) -> tuple[Chosen, Chosen]:
    """Return the numbers of the queries that both have, in either."""
    first, second = before.rankings.query_ids, now.rankings.query_ids
    if first.dtype != second.dtype:
        first, second = first.cast(pl.String), second.cast(pl.String)
    left, right = (
        pl.DataFrame({"id": ids}).with_row_index(name)
        for ids, name in ((first, "before"), (second, "now"))
    )
    both = right.join(left, on="id", maintain_order="left")
    if len(both) == 0:
        raise InputError(
            f"{now.rankings.table.origin.name} and the baseline have no query in common: the "
            f"one names queries like {second[0]!r}, the other like {first[0]!r}"
        )
    return both["before"].cast(pl.Int64).to_numpy(), both["now"].cast(pl.Int64).to_numpy()


def _differences(
    before: Sequence[dict[str, Doubles]],
    now: Sequence[dict[str, Doubles]],
    rows: tuple[Chosen, Chosen],
    seed: int,
) -> list[dict[str, Any]]:
    """Return the change of each value of each part, tested with one set of signs for all."""

    def chosen(parts: Sequence[dict[str, Doubles]], side: Chosen) -> dict[str, Doubles]:
        return {
            f"{number}:{name}": values[side]
            for number, part in enumerate(parts)
            for name, values in part.items()
        }

    found = paired_differences(chosen(before, rows[0]), chosen(now, rows[1]), seed=seed)
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
    before: Measured, now: Measured, rows: tuple[Chosen, Chosen], ks: Sequence[int], seed: int
) -> dict[str, Any]:
    """Return the change of the impact ratio; the interval resamples queries of both at once."""
    columns: dict[Key, Doubles] = {}
    for side, one, chosen in (("before", before, rows[0]), ("now", now, rows[1])):
        for key, values in columns_of(one).items():
            if key[1].startswith("rank_exposure@"):
                columns[side, *key] = values[chosen]
    means = Resampled(columns, seed=seed)

    def keys(side: str, k: int) -> list[Key]:
        """Return the groups that are there, so that a resample has a value."""
        wanted = (side, f"rank_exposure@{k}")
        return [key for key in columns if (key[0], key[2]) == wanted and means.has(key)]

    found = {}
    for k in ks:
        first, second = (means.ratio(keys(side, k)).value for side in ("before", "now"))
        bounds = [np.nan, np.nan]
        if not np.isnan(second - first):
            change = means.ratios(keys("now", k)) - means.ratios(keys("before", k))
            bounds = interval(change).tolist()
        found[f"impact_ratio@{k}"] = {
            "before": first,
            "now": second,
            "difference": second - first,
            "ci95": bounds,
        }
    return found
