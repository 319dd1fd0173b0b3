"""The tables of docs/results/movielens.md, findings.md and the README, as Markdown.

They answer whether KSO-RED leads, what gamma and the sharpness of psi do, how much of a smaller
gap comes from flatter scores, and what carries over from sampled lists to the full catalogue.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from fairtopk.objectives.methods import METHODS
from fairtopk.reporting.curves import Cell as SeedMean
from fairtopk.reporting.figures import slug
from fairtopk.reproduce.tradeoffs import CHANCE, GAPS, OURS, PROTOCOLS
from fairtopk.reproduce.views import ALGORITHM_1, BASE, LOSS, NAMES, PLUS
from studies.movielens.rows import (
    NONE,
    NOTHING,
    Read,
    changes,
    columns,
    difference,
    of_runs,
    percent,
    points,
    signed,
    table_or_note,
)

RIVALS = (ALGORITHM_1, *(NAMES[n] for n in ("so-red", "ng-de", "deltr", "dpr-rsp", "dpr-reo")))
OWN_GAMMA = {NAMES[name]: METHODS[name].gamma_u for name in ("so-red", "kso-red")}
SETTINGS = {OURS: "sharp, exact, gamma 1", ALGORITHM_1: "sigmoid(2x), tracked, gamma 0.2"}
WEIGHTS = (1e4, 5e4, 1e5)  # at which the two are put side by side
ROBUST = NAMES["robust"]
RERANKED = f"{BASE}{PLUS}det-const-sort"
LABELS = " ("  # what follows in a method's name says that it needs labels
LOSES_MORE = "loses more"  # in the weight of what keeps NDCG at none
NOT_CHOSEN = "none"  # weight of what has none
HARDLY = 0.05  # of the gap; shares of a smaller fall say nothing


def findings(read: Read) -> dict[str, str]:
    """Return each table of findings.md as Markdown, by the name of its mark."""
    against = list(against_rivals(read))
    return {
        "seeds": seeds(read),
        "headline": headline(read),
        "starts": starts(read),
        "verdict": verdict(against),
        "dominates": dominates(against),
        "chances": chances(read),
        "gamma": gamma(read),
        "psi": sharpness(read),
        "flat": _flat(read),
        "protocols": _protocols(read),
        "carried": _carried(read),
        "chance": _chance(read),
        "rerank": _rerank(read),
    }


def included(read: Read, name: str, title: str) -> str:
    """Return a table that `fairtopk reproduce` wrote, as Markdown."""
    path = read.tables / f"{name.format(slug(title))}.md"
    return path.read_text(encoding="utf-8").strip() if path.exists() else NOTHING


def seeds(read: Read) -> str:
    """Return how many runs and seeds there are of each data set."""
    lines = []
    for title in read.titles:
        of = read.results.filter(pl.col("data") == title)
        counts = [
            of.filter(pl.col("method") == name)["seed"].n_unique()
            for name in ("k-song", "kso-red")
        ]
        lines.append([title, f"{of['run'].n_unique():,}", *map(str, counts)])
    return table_or_note(["data", "runs", "seeds of K-SONG", "seeds of KSO-RED"], lines)


def headline(read: Read) -> str:
    """Return how each method changes K-SONG at K = 50 on sampled lists, a column per data."""
    if read.chosen.is_empty():
        return NOTHING
    kept = _chosen(read, "rank_exposure_gap", "sampled").filter(
        (pl.col("k") == 50) & pl.col("method").is_in([OURS, *RIVALS, ROBUST, RERANKED])
    )
    titles = [title for title in read.titles if title in set(kept["data"])]
    lines = []
    for (method,), part in kept.group_by(["method"], maintain_order=True):
        of = {str(data): one for (data,), one in part.group_by(["data"])}
        cells = [_three(of[title]) if title in of else NONE for title in titles]
        labels = "yes" if method in (ROBUST, RERANKED) else "no"
        lines.append([str(method).partition(LABELS)[0], labels, *cells])
    return table_or_note(["method", "labels when serving", *titles], lines)


def _three(chosen: pl.DataFrame) -> str:
    """Return how NDCG and both gaps change, in per cent; a dagger where NDCG was not kept."""
    found = {row["metric"]: row["change"] for row in chosen.to_dicts()}
    ndcg, *gaps = (100 * found[metric] for metric in ("ndcg", *GAPS))
    mark = " †" if LOSES_MORE in chosen["weight"][0] else ""
    return f"{ndcg:+.1f} / {' / '.join(f'{gap:+.0f}' for gap in gaps)}{mark}"


def _flat(read: Read) -> str:
    """Return of chosen weights which share of the fall of Eq. 9 is flatter scores."""
    if read.falls.is_empty():
        return NOTHING
    ks, lines = read.falls["k"].unique().sort().to_list(), []
    kept = _chosen(read, "exposure_gap", "sampled").unique(
        ["data", "method"], keep="first", maintain_order=True
    )
    for row in kept.iter_rows(named=True):
        of = read.falls.filter(
            (pl.col("data") == row["data"])
            & (pl.col("method") == row["method"])
            & (pl.col("weight") == _weight(row["weight"]))
            & (pl.col("metric") == "exposure_gap")
        )
        if not of.is_empty():
            cells = [_share(of.filter(pl.col("k") == k)) for k in ks]
            count = str(of["seed"].n_unique())
            lines.append([row["data"], row["method"], row["weight"], count, *cells])
    return table_or_note(
        ["data", "method", "weight", "seeds", *(f"K = {k}" for k in ks)], lines
    )


def _share(falls: pl.DataFrame) -> str:
    """Return the share of the mean fall; in words that there is none, or nothing as flat."""
    before, flat, after = (falls[name].to_list() for name in ("before", "flat", "after"))
    fall = sum(before) - sum(after)
    if fall <= 0:
        return "no fall"
    if fall < HARDLY * sum(before):
        return "hardly a fall"
    if None in flat:
        return "undefined"
    return f"{100 * (sum(before) - sum(flat)) / fall:.0f} %"


def _protocols(read: Read) -> str:
    """Return the gap by rank of what was chosen on sampled lists, by both protocols."""
    if read.chosen.is_empty():
        return NOTHING
    lines = []
    both = read.chosen.filter(
        (pl.col("chosen_for") == "rank_exposure_gap") & (pl.col("weight") != NOT_CHOSEN)
    )
    blind = _signed_of(read.chosen.filter(pl.col("method") == BASE))
    for (data, method, weight, k), part in both.group_by(
        ["data", "method", "weight", "k"], maintain_order=True
    ):
        if set(part["protocol"]) != set(PROTOCOLS):
            continue
        cells = []
        for protocol in PROTOCOLS:
            of = part.filter(pl.col("protocol") == protocol)
            fair = _signed_of(of)[data, protocol, k]
            moved = f"{signed(blind[data, protocol, k])} to {signed(fair)}"
            cells += [_told(of, "ndcg"), _told(of, "rank_exposure_gap"), moved]
        lines.append([str(data), str(method), str(weight), _count(part), str(k), *cells])
    head = ["data", "method", "weight", "seeds", "K"]
    for words in PROTOCOLS.values():
        head += [f"{words}: NDCG", "by rank", "signed"]
    return table_or_note(head, lines)


def _carried(read: Read) -> str:
    """Return how many points that are fairer by rank on sampled lists are less so in full."""
    keys = ["data", "method", "weight", "k"]
    sampled, full = (read.rows.filter(pl.col("protocol") == p) for p in PROTOCOLS)
    blind = full.filter(pl.col("method") == BASE).select(
        "data", "k", blind=pl.col("rank_exposure_gap_signed").abs()
    )
    both = sampled.join(full, on=keys, suffix="_full", maintain_order="left").join(
        blind, on=["data", "k"], maintain_order="left"
    )
    fairer = both.filter(
        (pl.col("weight") > 0)
        & (pl.col("rank_exposure_gap_change") < 0)
        & (pl.col("ndcg_change") >= -LOSS)
    )
    lines = []
    for (data, k), part in fairer.group_by(["data", "k"], maintain_order=True):
        wider = part.filter(pl.col("rank_exposure_gap_change_full") > 0).height
        further = part.filter(pl.col("rank_exposure_gap_signed_full").abs() > pl.col("blind"))
        lines.append([str(data), str(k), str(part.height), str(wider), str(further.height)])
    head = ["data", "K", "points fairer on sampled lists", "gap wider on the catalogue"]
    return table_or_note([*head, "groups further apart in the mean there"], lines)


def _chance(read: Read) -> str:
    """Return which share of K-SONG's gaps is left when labels are shuffled."""
    if read.chosen.is_empty():
        return NOTHING
    lines = []
    shuffled = read.chosen.filter(
        (pl.col("method") == CHANCE) & (pl.col("chosen_for") == "exposure_gap")
    )
    for (data, protocol, k), part in shuffled.group_by(
        ["data", "protocol", "k"], maintain_order=True
    ):
        left = []
        for gap in GAPS:
            row = part.filter(pl.col("metric") == gap).row(0, named=True)
            left.append(NONE if row["change"] is None else f"{100 * (1 + row['change']):.0f} %")
        count = str(part["seeds"].max())
        lines.append([str(data), PROTOCOLS[str(protocol)], str(k), count, *left])
    return table_or_note(
        ["data", "lists", "K", "seeds", *(f"left, {n}" for n in GAPS.values())], lines
    )


def _rerank(read: Read) -> str:
    """Return what needs labels when serving beside KSO-RED, at the K that was asked for."""
    if read.chosen.is_empty():
        return NOTHING
    lines = []
    kept = _chosen(read, "rank_exposure_gap", "sampled").filter(pl.col("k") == 50)
    for (data, method, weight), part in kept.group_by(
        ["data", "method", "weight"], maintain_order=True
    ):
        name = str(method)
        labels = PLUS in name or LABELS in name
        if labels or name == OURS:
            cells = [_told(part, m) for m in ("ndcg", "exposure_gap", "rank_exposure_gap")]
            cells.append(signed(_signed_of(part)[data, "sampled", 50]))
            needs = "yes" if labels else "no"
            lines.append([str(data), name, needs, str(weight), _count(part), *cells])
    head = ["data", "method", "labels when serving", "weight", "seeds", *columns("@50")]
    return table_or_note(head, lines)


def _chosen(read: Read, gap: str, protocol: str) -> pl.DataFrame:
    return read.chosen.filter((pl.col("chosen_for") == gap) & (pl.col("protocol") == protocol))


def _signed_of(chosen: pl.DataFrame) -> dict[tuple[Any, ...], float]:
    of = chosen.filter(pl.col("metric") == "rank_exposure_gap_signed")
    return {(row["data"], row["protocol"], row["k"]): row["mean"] for row in of.to_dicts()}


def _told(chosen: pl.DataFrame, metric: str) -> str:
    """Return how a metric of a chosen point changes."""
    row = chosen.filter(pl.col("metric") == metric).row(0, named=True)
    return percent(row["change"], None if row["high"] is None else row["high"] - row["change"])


def _count(chosen: pl.DataFrame) -> str:
    return str(chosen.filter(pl.col("metric") == "ndcg")["seeds"].min())


def _weight(label: str) -> float:
    """Return the number in a label such as ``C = 1e+06``; NaN where there is none."""
    found = re.search(r"= ([0-9.e+-]+)", label)
    return float(found[1]) if found else math.nan


class Against(NamedTuple):
    """KSO-RED beside a rival, each at the weight that was chosen for the gap.

    Attributes:
        data: What the data set is called.
        protocol: Of the lists.
        gap: That is compared.
        k: Its K.
        rival: Which.
        change: By how much more KSO-RED changes the gap, as a share of K-SONG's.
    """

    data: str
    protocol: str
    gap: str
    k: int
    rival: str
    change: SeedMean


def against_rivals(read: Read) -> Iterator[Against]:
    """Yield every comparison of KSO-RED with a trained method, seed by seed."""
    if read.chosen.is_empty():
        return
    ks = read.chosen["k"].unique().sort()
    for (data, gap), part in read.chosen.group_by(["data", "chosen_for"], maintain_order=True):
        runs = dict(part.select("method", "runs").unique("method").iter_rows())
        if OURS not in runs:
            continue
        ours, blind = (of_runs(read.results, runs[name]) for name in (OURS, BASE))
        rivals = {r: of_runs(read.results, runs[r]) for r in RIVALS if r in runs}
        for protocol in PROTOCOLS:
            for k in ks:
                key = (protocol, str(gap), k)
                for rival, theirs in rivals.items():
                    if key in ours and key in theirs:
                        change = difference(ours[key], theirs[key], blind[key])
                        yield Against(str(data), protocol, str(gap), k, rival, change)


def dominates(against: list[Against]) -> str:
    """Return every comparison in percentage points of K-SONG's gap."""
    found: dict[tuple[str, str, str, int], dict[str, SeedMean]] = {}
    for one in against:
        key = (one.data, one.protocol, one.gap, one.k)
        found.setdefault(key, {})[one.rival] = one.change
    lines = []
    for (data, protocol, gap, k), of in found.items():
        seeds = str(max(change.seeds for change in of.values()))
        cells = [points(of[rival]) if rival in of else NONE for rival in RIVALS]
        lines.append([data, PROTOCOLS[protocol], GAPS[gap], str(k), seeds, *cells])
    return table_or_note(["data", "lists", "gap", "K", "seeds", *RIVALS], lines)


def verdict(against: list[Against]) -> str:
    """Return how often KSO-RED cuts a gap by more, by less, or cannot be told from a rival."""
    lines = []
    for rival in RIVALS:
        for protocol, words in PROTOCOLS.items():
            of = [one for one in against if (one.rival, one.protocol) == (rival, protocol)]
            if of:
                cells = [_counted([a.change for a in of if a.gap == gap]) for gap in GAPS]
                lines.append([rival, words, *cells])
    return table_or_note(["against", "lists", *GAPS.values()], lines)


def _counted(found: list[SeedMean]) -> str:
    sure = [change for change in found if change.seeds > 1]
    more = sum(change.high < 0 for change in sure)
    less = sum(change.low > 0 for change in sure)
    text = f"{more} more, {less} less, {len(sure) - more - less} open"
    single = len(found) - len(sure)
    return f"{text}, {single} with one seed" if single else text


def starts(read: Read) -> str:
    """Return how models without a penalty differ from K-SONG, at K = 50 on sampled lists."""
    blind = [NAMES[name] for name in ("song", "listnet")]
    kept = read.rows.filter(
        (pl.col("k") == 50)
        & (pl.col("protocol") == "sampled")
        & (pl.col("method").is_in(blind) | (pl.col("weight") == 0))
    )
    lines = [
        [row["data"], row["method"], str(row["seeds"]), *changes(row)]
        for row in sorted(kept.to_dicts(), key=lambda row: read.titles.index(row["data"]))
    ]
    return table_or_note(["data", "method", "seeds", *columns("@50")], lines)


def chances(read: Read) -> str:
    """Return how near each method comes to equal chances over all users, at K = 50."""
    kept = read.rows.filter(
        (pl.col("k") == 50)
        & (pl.col("protocol") == "sampled")
        & (pl.col("ndcg_change") >= -LOSS)
        & pl.col("method").is_in([BASE, OURS, *RIVALS])
    )
    place = {name: number for number, name in enumerate((BASE, OURS, *RIVALS))}
    parts = dict(kept.group_by(["data", "method"], maintain_order=True))
    lines = []
    for data, method in sorted(parts, key=lambda of: (read.titles.index(of[0]), place[of[1]])):
        part, cells = parts[data, method], []
        for metric in ("rsp", "reo"):
            known = part.drop_nulls(metric).sort(metric)
            if known.is_empty():
                cells += [NONE] * 3
                continue
            best = known.row(0, named=True)
            weight = "none" if best["weight"] is None else f"{best['weight']:g}"
            cells += [f"{best[metric]:.3f}", weight, str(best["seeds"])]
        lines.append([str(data), str(method), *cells])
    return table_or_note(
        ["data", "method", "RSP", "weight", "seeds", "REO", "weight", "seeds"], lines
    )


def gamma(read: Read) -> str:
    """Return the paper's ablation over gamma, at K = 50 on sampled lists."""
    rows = read.rows.filter((pl.col("k") == 50) & (pl.col("protocol") == "sampled"))
    found: dict[tuple[str, str, float], dict[float, dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        method, _, varied = row["method"].partition(", gamma = ")
        if method in OWN_GAMMA:
            key = (row["data"], method, row["weight"])
            found.setdefault(key, {})[float(varied) if varied else OWN_GAMMA[method]] = row
    lines = [
        [data, method, f"{weight:g}", f"{one:g}", str(of[one]["seeds"]), *changes(of[one])]
        for (data, method, weight), of in found.items()
        if len(of) > 1
        for one in sorted(of)
    ]
    return table_or_note(["data", "method", "C", "gamma", "seeds", *columns("@50")], lines)


def sharpness(read: Read) -> str:
    """Return KSO-RED by our defaults beside Algorithm 1, at the same C."""
    order = {title: place for place, title in enumerate(read.titles)}
    kept = read.rows.filter(
        (pl.col("protocol") == "sampled")
        & pl.col("method").is_in(list(SETTINGS))
        & pl.col("weight").is_in(WEIGHTS)
    )
    rows = sorted(
        kept.iter_rows(named=True),
        key=lambda row: (order[row["data"]], row["weight"], row["k"], row["method"]),
    )
    lines = [
        [row["data"], f"{row['weight']:g}", str(row["k"]), SETTINGS[row["method"]],
         str(row["seeds"]), *changes(row)]
        for row in rows
    ]  # fmt: skip
    head = ["data", "C", "K", "psi, threshold, gamma", "seeds", *columns()]
    return table_or_note(head, lines)
