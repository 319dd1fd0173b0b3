"""Draws architecture.svg: the rooms of the package, and the way of the data for three tasks.

Usage: python docs/images/architecture.py (needs nothing but Python)
"""

from html import escape
from pathlib import Path

# From the top layer to the bottom one; rooms of one layer do not import each other.
ROOMS = [
    ("cli", "commands: read the options, call one function, print"),
    ("reproduce", "the paper's experiments: plan, tables, figures"),
    ("reporting, rankers", "pages and figures of results; FairRanker"),
    ("serving", "recommendations, ONNX, model cards"),
    ("runs", "configs, run folders, sweeps, goals, measuring a run"),
    ("auditing", "rankings made elsewhere: read, measure, check"),
    ("evaluation", "a model on held-out lists, sampled or full"),
    ("robust, distillation", "methods that are more than an objective"),
    ("training", "Algorithm 1: samplers, the loop"),
    ("losses", "the methods as nn.Modules for your own loop"),
    ("objectives", "value and gradient with respect to scores; methods"),
    ("models", "MF, NeuMF, features; optimizers; top items"),
    ("reranking, statistics", "new orders of given scores; tests, fronts"),
    ("metrics", "NDCG, gaps, chance levels: one value per list"),
    ("lists", "splits and padded batches"),
    ("data", "files and frames to checked arrays"),
    ("kernels, checks, storage ...", "compiled loops, checked values, files"),
]
# Number of a step, and what happens there, by room; the numbers give the order.
WAYS = {
    "fairtopk train": (
        "#3b5b92",
        {
            "cli": (1, "train.py: the command"),
            "runs": (2, "run.py: train_run, the run folder"),
            "evaluation": (9, "held-out lists, both protocols"),
            "training": (5, "samplers.py draws a Batch; 8: loop.py steps"),
            "objectives": (7, "objective.py: Estimate(value, grad)"),
            "models": (6, "scores of the batch, [Q, L]"),
            "metrics": (10, "values per list; runs writes metrics.json"),
            "lists": (4, "users.py, queries.py: split"),
            "data": (3, "registry.py: load"),
        },
    ),
    "ft.losses": (
        "#2f7d4f",
        {
            "losses": (1, "KsoRed(scores, relevance, groups)"),
            "objectives": (3, "objective.py: gradient to backward()"),
            "lists": (2, "batch.py: checked Batch"),
        },
    ),
    "fairtopk audit": (
        "#b5482f",
        {
            "cli": (1, "rankings.py: the command"),
            "reporting, rankers": (6, "page.py: audit.html"),
            "auditing": (2, "audit.py; 5: records.py"),
            "metrics": (4, "gaps, ratios, chance levels"),
            "data": (3, "tables.py: CSV, Parquet; groups.py"),
        },
    ),
}
TOP, ROW, GAP = 62, 34, 8
ROOM_X, ROOM_WIDTH = 10, 345
WAY_X, WAY_WIDTH = 385, 290
INK, PAPER, LINE = "#1f2937", "#f4f6fa", "#c9d3e6"


def main() -> None:
    """Write the picture next to this file."""
    height = TOP + len(ROOMS) * (ROW + GAP) + 6
    width = WAY_X + WAY_WIDTH * len(WAYS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="{INK}">',
        "<title>The rooms of fairtopk and the way of the data</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(ROOM_X, 26, "Rooms, each may import those below it", bold=True),
    ]
    for number, (room, holds) in enumerate(ROOMS):
        y = TOP + number * (ROW + GAP)
        parts.append(
            f'<rect x="{ROOM_X}" y="{y}" width="{ROOM_WIDTH}" height="{ROW}" rx="5" '
            f'fill="{PAPER}" stroke="{LINE}"/>'
        )
        parts.append(_text(ROOM_X + 10, y + 15, room, bold=True))
        parts.append(_text(ROOM_X + 10, y + 29, holds, size=11))
    for number, (title, (colour, stops)) in enumerate(WAYS.items()):
        parts += _way(WAY_X + number * WAY_WIDTH, title, colour, stops)
    path = Path(__file__).with_suffix(".svg")
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def _way(x: int, title: str, colour: str, stops: dict[str, tuple[int, str]]) -> list[str]:
    """Return one column: a line through its rooms, a numbered stop at each."""
    y_of = {room: TOP + n * (ROW + GAP) + ROW // 2 for n, (room, _) in enumerate(ROOMS)}
    ys = [y_of[room] for room in stops]
    parts = [
        _text(x, 26, title, bold=True, colour=colour),
        f'<line x1="{x + 11}" y1="{min(ys)}" x2="{x + 11}" y2="{max(ys)}" '
        f'stroke="{colour}" stroke-width="3"/>',
    ]
    for room, (number, what) in stops.items():
        y = y_of[room]
        parts.append(f'<circle cx="{x + 11}" cy="{y}" r="11" fill="{colour}"/>')
        parts.append(
            f'<text x="{x + 11}" y="{y + 4}" text-anchor="middle" fill="white" '
            f'font-size="12">{number}</text>'
        )
        parts.append(_text(x + 29, y + 4, what, size=12))
    return parts


def _text(
    x: int, y: int, words: str, *, size: int = 13, bold: bool = False, colour: str = INK
) -> str:
    look = f'font-size="{size}" fill="{colour}"' + (' font-weight="bold"' if bold else "")
    return f'<text x="{x}" y="{y}" {look}>{escape(words)}</text>'


if __name__ == "__main__":
    main()
