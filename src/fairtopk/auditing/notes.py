"""What a reader of an audit must know before believing it, as sentences."""

from collections.abc import Mapping
from typing import Any

from fairtopk.auditing.ties import BY_PLACE
from fairtopk.metrics.grouped import NOTIONS

Record = Mapping[str, Any]


def general_notes(record: Record, *, short: int) -> list[str]:
    """Return what is to be said of all lists, `short` of which are no longer than a top."""
    notes, what, k = [], _ordering(record), record["ks"][-1]
    if what == "ranks":
        notes.append(
            "exposure_gap, exposure_gap_released and score_spread are left out: they are made "
            "of scores, and there are only ranks"
        )
    by_relevance = {k: record["metrics"].get(f"ndcg@{k}", {}).get("tied") for k in record["ks"]}
    if any(by_relevance.values()):
        notes.append(
            f"{_decides(record)} who comes first where items of different relevance have equal "
            f"{what}: {_by_k(by_relevance, record)}; this touches ndcg"
        )
    tied = record["ties"][str(k)]["within"]
    if tied:
        notes.append(
            f"lists with equal {what} in their first {k} places: {tied:,}; of equals the "
            f"earlier row is first"
        )
    if short:
        notes.append(
            f"lists with at most {k} items, all of which are in the top {k}: {short:,}; give "
            f"all candidates of a list, not only its top"
        )
    return notes


def column_notes(column: Record, record: Record) -> list[str]:
    """Return what is to be said of one column: above all, where the order of rows decides."""
    notes, what, name, ks = [], _ordering(record), column["name"], record["ks"]
    gaps = [gap for gap in NOTIONS if f"{gap}@{ks[0]}" in column["metrics"]]
    metrics = ["impact_ratio", *gaps]
    ties = {k: column["ties"][str(k)] for k in ks}
    across = {k: counts["across"] for k, counts in ties.items()}
    within = {k: counts["within"] for k, counts in ties.items()}
    if any(across.values()):
        notes.append(
            f"{_decides(record)} who is in the top where items of different {name} have equal "
            f"{what} on both sides of the cut: {_by_k(across, record)}; this touches "
            f"{', '.join(metrics)}"
        )
    if within != across:
        by_place = (metric for metric in metrics if metric.startswith(BY_PLACE))
        notes.append(
            f"{_decides(record)} who comes first where items of different {name} have equal "
            f"{what} in the top: {_by_k(within, record)}; this touches {', '.join(by_place)}"
        )
    gap = column["metrics"][f"rank_exposure_gap@{ks[0]}"]
    if gap["n"] == 0:
        notes.append(f"no list has items of two {name}: every gap is undefined")
    elif gap["undefined"]:
        notes.append(
            f"lists without items of two {name}, left out of its gaps: {gap['undefined']:,}"
        )
    signed = column["metrics"][f"rank_exposure_gap_signed@{ks[0]}"]["undefined"]
    if gap["n"] and signed > gap["undefined"]:
        first = column["groups"][0]["name"]
        notes.append(
            f"lists that lack {first} or all others, left out of signed gaps: {signed:,}"
        )
    return notes


def baseline_notes(record: Record) -> list[str]:
    """Return what the rankings audited and their baseline do not have in common."""
    notes, changes, name = [], record["baseline"], record["data"]["name"]
    left_out = [
        f"{count:,} only in {where}"
        for count, where in (
            (changes["only_in_audited"], name),
            (changes["only_in_baseline"], "the baseline"),
        )
        if count
    ]
    if left_out:
        notes.append(f"queries left out of the comparison: {', '.join(left_out)}")
    other = changes["other_candidates"]
    if other:
        notes.append(
            f"OTHER CANDIDATES: {other:,} of {changes['queries']:,} lists rank other items in "
            f"{name} than in the baseline, so that differences are not of the order alone"
        )
    k = record["ks"][-1]
    tied = changes["ties"][str(k)]["within"]
    if tied:
        what = _ordering(record)
        notes.append(
            f"EQUAL {what.upper()}: the baseline has them too, in the first {k} places of "
            f"{tied:,} of {changes['data']['queries']:,} lists"
        )
    return notes


def check_note(check: Record, record: Record) -> str | None:
    """Return in how many lists the order of rows decides what a rule is on; None if in none."""
    if not check["tied"]:
        return None
    at_cut = check["tied_at_cut"]
    who = f", and in {at_cut:,} of them who is in the top" if at_cut else ""
    return f"{_decides(record)} {check['metric']} in {_of_lists(check['tied'], record)}{who}"


def _decides(record: Record) -> str:
    return f"EQUAL {_ordering(record).upper()}: the order of rows decides"


def _ordering(record: Record) -> str:
    return f"{record['data']['ranked_by']}s"


def _by_k(counts: Mapping[int, int], record: Record) -> str:
    said = (f"at K = {k} in {_of_lists(one, record)}" for k, one in counts.items() if one)
    return ", ".join(said)


def _of_lists(count: int, record: Record) -> str:
    lists = record["data"]["queries"]
    return f"{count:,} of {lists:,} lists ({100 * count / lists:.3g} %)"
