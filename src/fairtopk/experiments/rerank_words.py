"""What `fairtopk rerank` prints."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fairtopk.experiments.console import add_row, console, say, table
from fairtopk.experiments.train_commands import SHOWN

if TYPE_CHECKING:
    from fairtopk.experiments.rerank_requests import Asked, Unmet
    from fairtopk.metrics.floor import Floor
    from fairtopk.metrics.inputs import Values
    from fairtopk.metrics.intervals import Mean


def show_change(
    title: str,
    before: Mapping[str, "Values"],
    after: Mapping[str, "Values"],
    floors: Mapping[str, "Floor"],
    ks: Sequence[int],
) -> None:
    """Print means over lists before and after, and of their difference.

    Args:
        title: Of the table.
        before: Metrics of the old order by name, one value per list, ``[Q]``.
        after: The same of the new order.
        floors: What chance leaves of its gaps, by name.
        ks: Where the metrics are cut.
    """
    from fairtopk.metrics.intervals import means_with_intervals

    shown = table(
        f"{title} (mean, half of a 95 % interval over lists)",
        *("", "K", "before", "after", "change"),
    )
    names = [f"{name}@{k}" for k in ks for name in SHOWN if f"{name}@{k}" in before]
    sides = {"before": before, "after": after}
    columns = {(side, name): sides[side][name] for side in sides for name in names}
    columns |= {("change", name): after[name] - before[name] for name in names}
    means = means_with_intervals({" ".join(key): values for key, values in columns.items()})
    for k in ks:
        for name, words in SHOWN.items():
            key = f"{name}@{k}"
            if key in floors:
                add_row(shown, words, str(k), "", f"{floors[key].value:.3g}", "")
            elif key in before:
                cells = (_cell(means[f"{side} {key}"]) for side in (*sides, "change"))
                add_row(shown, words, str(k), *cells)
        shown.add_section()
    console.print(shown)
    undefined = max(mean.undefined for mean in means.values())
    if undefined:
        say(f"up to {undefined:,} lists excluded where a metric is undefined")


def say_unmet(unmet: "Unmet", first: str) -> None:
    """Tell how many lists are marked, and why the first is."""
    say(f"marked: {unmet.count:,} of {unmet.total:,} lists cannot meet the targets; {first}")


def say_groups(asked: "Asked", names: Sequence[str], unknown: int, what: str) -> None:
    """Tell which group a re-ranker and signed gaps are about, and what is in no group.

    Args:
        asked: Of the re-ranker.
        names: Of the groups, by number.
        unknown: How many are in no group.
        what: Are counted: "rows" or "items".
    """
    from fairtopk.reranking.settings import FairPrefixes, GroupBonus

    settings = asked.settings(names)
    if isinstance(settings, FairPrefixes | GroupBonus):
        say(f"{asked.method} is for {names[settings.group]!r} against all others")
    say(f"signed gap = {names[0]!r} minus the rest; negative: it is under-exposed")
    if unknown:
        say(f"{unknown:,} {what} have no label: they stay, and nothing is asked for them")


def say_conditions(method: str) -> None:
    """Tell what must be there when a re-ranker serves."""
    from fairtopk.experiments.rerank_requests import NEEDS_LABELS

    say(f"{method} {NEEDS_LABELS}: they decide the order of every list")
    if method == "exposure-lp":
        say("each list is one draw of a random ranking; its groups get the same on average")


def _cell(found: "Mean") -> str:
    if not found.n:
        return "undefined"
    low, high = found.ci95
    return f"{found.mean:.3g} ±{(high - low) / 2:.1g}"
