"""Seconds that re-rankers take for 100,000 lists of 305, and milliseconds per random ranking.

Usage: python benchmarks/reranking.py [--json]

A tenth of the items is of the group that scores lower; the whole list is put in order, and with
K = 50 its top. Linear programs are solved list by list, so they are timed on fewer lists.
Beside the seconds of all are those of the processors, which other work on the machine changes
less.
"""

import argparse
import json
import time

import torch
from timing import peak_mb, seconds

import fairtopk as ft

LISTS, LENGTH, K = 100_000, 305, 50
FEW, FEWER = 1_000, 50  # lists for linear programs of two groups, and of four
FAMILY = ("fa-ir", "det-greedy", "det-cons", "det-relaxed", "det-const-sort")
LIMIT = 30  # seconds, for all of the family together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(LISTS, LENGTH, generator=generator)
    groups = (torch.rand(LISTS, LENGTH, generator=generator) > 0.1).long()
    scores -= 0.5 * (groups == 0)
    figures = {}
    for method in FAMILY:
        ft.rerank(scores[:10], groups[:10], method=method)  # compiles
    for k in (LENGTH, K):
        started = time.process_time()
        for method in FAMILY:
            figures[f"{method}_k{k}_s"] = seconds(
                lambda method=method, k=k: ft.rerank(scores, groups, method=method, k=k)
            )
        figures[f"processors_k{k}_s"] = time.process_time() - started
        figures[f"all_k{k}_s"] = sum(figures[f"{method}_k{k}_s"] for method in FAMILY)
    bonus = {"method": "group-bonus", "bonus": 0.5}
    figures["group-bonus_s"] = seconds(lambda: ft.rerank(scores, groups, **bonus))
    four = torch.randint(0, 4, (FEW, LENGTH), generator=generator)
    figures["exposure-lp_2_groups_ms"] = programs(scores[:FEW], groups[:FEW])
    figures["exposure-lp_4_groups_ms"] = programs(scores[:FEWER], four[:FEWER])
    figures["peak_mb"] = peak_mb()
    if asked.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=2))
        return
    for name, value in figures.items():
        limit = f" (under {LIMIT})" if name.startswith("all_") else ""
        print(f"{name}: {value:,.2f}{limit}")


def programs(scores: torch.Tensor, groups: torch.Tensor) -> float:
    """Return the milliseconds that a linear program of a list's top takes."""
    ft.rerank(scores[:2], groups[:2], method="exposure-lp", k=K)  # imports
    spent = seconds(lambda: ft.rerank(scores, groups, method="exposure-lp", k=K))
    return 1_000 * spent / len(scores)


if __name__ == "__main__":
    main()
