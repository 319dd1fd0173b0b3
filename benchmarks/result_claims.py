"""The paper's claims in tables: does KSO-RED lead, what gamma does, and how sharp psi is."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl
from result_rows import difference, of_runs
from result_text import NONE, Read, changes, columns, points, table

from fairtopk.objectives.methods import METHODS
from fairtopk.reproduce.tradeoffs import GAPS, OURS, PROTOCOLS
from fairtopk.reproduce.views import ALGORITHM_1, BASE, LOSS, NAMES, SeedMean

RIVALS = (ALGORITHM_1, *(NAMES[n] for n in ("so-red", "ng-de", "deltr", "dpr-rsp", "dpr-reo")))
OWN_GAMMA = {NAMES[name]: METHODS[name].gamma_u for name in ("so-red", "kso-red")}
SETTINGS = {OURS: "sharp, exact, gamma 1", ALGORITHM_1: "sigmoid(2x), tracked, gamma 0.2"}
WEIGHTS = (1e4, 5e4, 1e5)  # at which the two are put side by side


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
    return table(["data", "lists", "gap", "K", "seeds", *RIVALS], lines)


def verdict(against: list[Against]) -> str:
    """Return how often KSO-RED cuts a gap by more, by less, or cannot be told from a rival."""
    lines = []
    for rival in RIVALS:
        for protocol, words in PROTOCOLS.items():
            of = [one for one in against if (one.rival, one.protocol) == (rival, protocol)]
            if of:
                cells = [_counted([a.change for a in of if a.gap == gap]) for gap in GAPS]
                lines.append([rival, words, *cells])
    return table(["against", "lists", *GAPS.values()], lines)


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
    return table(["data", "method", "seeds", *columns("@50")], lines)


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
    return table(["data", "method", "RSP", "weight", "seeds", "REO", "weight", "seeds"], lines)


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
    return table(["data", "method", "C", "gamma", "seeds", *columns("@50")], lines)


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
    return table(head, lines)
