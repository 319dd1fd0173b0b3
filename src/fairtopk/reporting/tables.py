"""The table of results, a row per point for one set of lists and one gap; LaTeX tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairtopk.metrics.names import MSE, heading
from fairtopk.reporting import curves
from fairtopk.terminal import DASH, mean_cell, number

AUC = "group_auc"
LOSS = 0.05  # share of NDCG that the model whose leakage is shown may have lost


@dataclass(frozen=True)
class Shown:
    """A number of the table: its text, and whether it differs from the base."""

    text: str
    mark: str = ""
    better: bool = False
    said: str = ""


@dataclass(frozen=True)
class ResultsTable:
    """What a page shows for one view and gap."""

    view: int  # place of the view
    gap: str  # such as `exposure_gap` or `exposure_gap_mse`
    label: str  # of the gap
    ks: list[int]  # for each there are columns of NDCG, gap, chance level if known, signed gap
    floors: bool  # whether chance levels are known
    leaks: bool  # whether the group AUC is known
    rows: list[dict[str, Any]]  # names, seeds, spread, AUC, then the cells of each K
    notes: list[str]  # what the marks mean, and how well scores tell groups apart


def results_tables(views: list[curves.View]) -> list[ResultsTable]:
    """Return a table for each view, gap and form of it."""
    tables = []
    for place, view in enumerate(views):
        forms = [gap + form for gap in view.gaps for form in ("", MSE)]
        measured = {name for point in view.points for name in point.values}
        names = [f"{name}@{k}" for name in ("ndcg", *forms) for k in view.ks]
        tests = curves.paired_tests(view, [name for name in names if name in measured])
        for gap in forms:
            if any(f"{gap}@{k}" in measured for k in view.ks):
                tables.append(_table(place, view, gap, tests))
    return tables


def _table(place: int, view: curves.View, gap: str, tests: curves.Tests) -> ResultsTable:
    p_values = curves.corrected(
        tests, [f"{name}@{k}" for name in ("ndcg", gap) for k in view.ks]
    )
    floors = any(f"{gap}_floor@{k}" in point.values for point in view.points for k in view.ks)
    signed = f"{gap.removesuffix(MSE)}_signed"
    rows = []
    for point in view.points:
        cells = []
        for k in view.ks:
            floor = [Shown(number(point.mean(f"{gap}_floor@{k}")))] if floors else []
            cells.append(
                (
                    _shown(point, f"ndcg@{k}", tests, p_values),
                    _shown(point, f"{gap}@{k}", tests, p_values),
                    *floor,
                    Shown(number(point.mean(f"{signed}@{k}"))),
                )
            )
        spreads = [of.spread for of in point.results if of.spread is not None]
        rows.append(
            {
                "curve": point.curve,
                "label": point.label,
                "base": point is view.base,
                "seeds": [result.run.seed for result in point.results],
                "spread": number(sum(spreads) / len(spreads) if spreads else None),
                "auc": _shown(point, AUC, tests, {}).text,
                "cells": cells,
            }
        )
    return ResultsTable(
        view=place,
        gap=gap,
        label=heading(gap),
        ks=view.ks,
        floors=floors,
        leaks=any(AUC in point.values for point in view.points),
        rows=rows,
        notes=_notes(view, gap.removesuffix(MSE), tests, len(p_values)),
    )


def _shown(
    point: curves.Point, name: str, tests: curves.Tests, p_values: dict[tuple[str, str], float]
) -> Shown:
    if name not in point.values:
        return Shown(number(None))
    text = with_interval(point.values[name])
    p = p_values.get((point.name, name), 1.0)
    if not p < curves.LEVEL:
        return Shown(text)
    rise = tests[point.name][name].difference > 0
    mark, word = ("▲", "higher") if rise else ("▼", "lower")
    said = f"{word} than the colour-blind model, p = {p:.2g} (Holm)"
    return Shown(text, mark, rise == name.startswith("ndcg@"), said)


def with_interval(cell: curves.Cell) -> str:
    """Return a mean with half of its interval."""
    return mean_cell(cell.mean, (cell.low, cell.high), digits=4, undefined=DASH)


def _notes(view: curves.View, gap: str, tests: curves.Tests, number_of_tests: int) -> list[str]:
    if view.base is None:
        return ["No marks: there is no colour-blind run to compare with."]
    notes = []
    k = view.ks[0]
    after = curves.fairest(view, gap, k, loss=LOSS)
    if after is not None and AUC in view.base.values and AUC in after.values:
        before, fair = (
            f"{with_interval(point.values[AUC])} ({point.name})" for point in (view.base, after)
        )
        notes.append(
            f"How well scores tell groups apart (AUC; 0.5 is not at all): {before} before, "
            f"{fair} after. After is the model with the smallest gap at K = {k} among those "
            f"that lose at most {LOSS:.0%} of NDCG, or else the one that loses least."
        )
    if tests:
        notes.append(
            f"▲ ▼: differs from {view.base.name} (p < {curves.LEVEL:g} with Holm's correction "
            f"for the {number_of_tests} tests of this table); green is better. The test is a "
            f"paired randomisation over lists of the difference from the colour-blind run of "
            f"the same seed, averaged over seeds: it shows that these models differ, not that "
            f"other seeds would."
        )
    if number_of_tests > curves.MOST_TESTS:
        notes.append(f"With more than {curves.MOST_TESTS} tests at once no mark can appear.")
    untested = sum(p is not view.base and p.name not in tests for p in view.points)
    if untested:
        notes.append(
            f"{untested} of {len(view.points) - 1} rows could not be tested: they lack the "
            f"values of each user, or a colour-blind run of the same seed."
        )
    return notes


SPECIAL = str.maketrans(
    {  # so that LaTeX sets text literally
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        # Most fonts lack these.
        "±": r"$\pm$",
        "\u2013": "--",
        ">": "$>$",
        "<": "$<$",
        "²": "$^2$",
    }
)


def latex_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: int | None = None,
    begins: Sequence[bool] = (),
) -> str:
    """Return a ``tabular`` for the package booktabs.

    Args:
        header: A text per column.
        rows: Cells as text.
        texts: How many columns, from the first, are set to the left. By default the first is,
            and the others are numbers: one may be like ``1e-05``, and ``nan`` becomes a dash.
        begins: Whether a rule is above each row; the first has one anyway. By default no other.
    """
    left = 1 if texts is None else texts
    lines = [
        rf"\begin{{tabular}}{{{'l' * left}{'r' * (len(header) - left)}}}",
        r"\toprule",
        rf"{' & '.join(text.translate(SPECIAL) for text in header)} \\",
        r"\midrule",
    ]
    for place, row in enumerate(rows):
        if place and begins and begins[place]:
            lines.append(r"\midrule")
        cells = [cell.translate(SPECIAL) for cell in row]
        if texts is None:
            for column, text in enumerate(row[1:], start=1):
                mantissa, _, exponent = text.partition("e")
                power = rf" \times 10^{{{int(exponent)}}}" if exponent else ""
                cells[column] = "--" if text == "nan" else f"${mantissa}{power}$"
        lines.append(rf"{' & '.join(cells)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
