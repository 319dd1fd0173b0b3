"""`fairtopk demo`: three rankers on the embedded data, whose bias is known.

A colour-blind ranker, KSO-RED and fair-distill are trained from the same warm-up and measured
on the full catalogue and on sampled lists. The demo also shows how much of the drop of a
softmax gap comes from flatter scores: it measures the gap that the colour-blind order would
have if its scores were as flat as those of KSO-RED.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from fairtopk.cli.console import console, training_progress
from fairtopk.data.synthetic import SIZES, Synthetic, make_synthetic
from fairtopk.errors import InputError
from fairtopk.lists.users import Lists, split
from fairtopk.metrics import exposure_gap
from fairtopk.metrics.names import TABLE_ROWS
from fairtopk.models.scoring import score
from fairtopk.reporting.page import PAGE, report
from fairtopk.reporting.rankings import Fall, flattened
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.open import open_run
from fairtopk.runs.result import METRICS, Owner, read_result
from fairtopk.runs.run import Hooks, train_run
from fairtopk.storage import alone_in, write_text
from fairtopk.terminal import table

BIAS, K = 2.0, 20
METHODS: dict[str, dict[str, Any]] = {  # by folder; others are compared with the first
    "k-song": {"name": "k-song", "k": K},
    "kso-red": {"name": "kso-red", "k": K, "c_relative": 1.0},
    "fair-distill": {"name": "fair-distill", "k": K, "distill": {"epochs": 12}},
}
NAMES = {"k-song": "colour-blind", "kso-red": "KSO-RED"}
LISTS = {"full": "Full catalogue", "sampled": "Sampled lists of 305"}
ROWS = (
    "ndcg",
    "exposure_gap",
    "rank_exposure_gap",
    "rank_exposure_gap_floor",
    "rank_exposure_gap_signed",
)
LEGEND = (
    "selection rate: the share of a group's items that are in the top {k}; here the groups are "
    "liked alike, so equal rates are fair",
    "exposure gap by rank: difference between groups in 1 / log2(1 + rank) per item",
    "chance level: the gap that remains if the group labels are shuffled; no order is expected "
    "to be fairer",
    "signed gap of a: exposure of a minus that of b (0 = equal); negative: a is under-exposed",
)

MARK = ".demo"  # the file by which a demo recognises its folder
RESULTS, WARMUPS = "results.json", "warmups"
WRITTEN = (*METHODS, WARMUPS, RESULTS, PAGE)  # what the next demo removes

Results = dict[str, dict[str, dict[str, Any]]]  # of each protocol, by method


def run_demo(out: Path, *, seed: int = 0) -> Path:
    """Train the rankers into `out`, print how they compare, and return the path of the page.

    Files of an earlier demo in `out` are replaced; any other folder must be empty, hidden files
    aside.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is not a folder; choose another --out")
    is_ours = (out / MARK).is_file()
    names = [path.name for path in out.iterdir()] if out.is_dir() and not is_ours else []
    if not all(name.startswith(".") for name in names):
        raise InputError(
            f"{out} is not empty and not from an earlier demo; nothing was changed: choose "
            f"another --out"
        )
    with alone_in(out):
        if not is_ours:
            write_text(out / MARK, "Made by fairtopk demo, and replaced by the next one.\n")
        for path in (out / name for name in WRITTEN):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        made = make_synthetic(SIZES["demo"], bias=BIAS, seed=seed)
        lists = split(made.data)
        _show_bias(made)
        configs = {folder: demo_config(method, seed) for folder, method in METHODS.items()}
        for folder, config in configs.items():
            with training_progress(f"training {folder}") as hooks:
                train_run(
                    config,
                    out / folder,
                    lists=lists,
                    hooks=Hooks(report=hooks.report),
                    warmups=out / WARMUPS,
                )
        shutil.rmtree(out / WARMUPS, ignore_errors=True)
        results: Results = {"full": {}, "sampled": {}}
        for folder, config in configs.items():
            own = read_result(out / folder / METRICS, Owner(config))
            file = own["other_protocol"]["file"]
            other = read_result(out / folder / file, Owner(config, part=None))
            for result in (own, other):
                results[result["protocol"]][folder] = result
        for protocol, of_methods in results.items():
            _show_comparison(LISTS[protocol], of_methods)
        for line in LEGEND:
            console.print(f"- {line.format(k=K)}")
        console.print(_flattening(results["sampled"], out, lists, seed))
        console.print(_finding(results["full"]))
        listed = [result for one in results.values() for result in one.values()]
        write_text(out / RESULTS, json.dumps(listed, indent=2) + "\n")
        return report(out)


def demo_config(method: dict[str, Any], seed: int) -> Config:
    """Return the config of a run that trains in seconds."""
    return check_config(
        {
            "seed": seed,
            "data": {"source": "synthetic", "options": {"bias": BIAS, "seed": seed}},
            "model": {"width": 32, "hidden": [32]},
            "method": method,
            "training": {
                "warmup_epochs": 8,
                "warmup_rate": 3e-3,
                "epochs": 20,
                "rate": 3e-3,
                "rate_epochs": [12],
                "batch_size": 64,
                "restart_last_layer": False,  # there is no time to train it again
                "lists": {"rated": 10, "unrated": 100},
            },
            # All epochs are selected on the catalogue: then the colour-blind model is also the
            # teacher's starting point of fair-distill, and is trained once.
            "evaluation": {"k": [10, K, 50], "protocol": "full", "select_on": "full"},
        },
        "the demo",
    )


def _show_bias(made: Synthetic) -> None:
    data = made.data
    group = data.group[data.item]
    liked = made.truth.utility(data.user_of_slot(), data.item)
    shown = table(
        f"{data.n_ratings:,} ratings, generated with bias {BIAS:g}: "
        "users like both groups alike, but the ratings do not show it",
        "group", "items", "ratings", "of all 4s and 5s", "true liking", "mean rating",
    )  # fmt: skip
    for number, name in enumerate(data.group_names):
        of_group, high = group == number, data.rating >= 4
        shown.add_row(
            name,
            f"{(data.group == number).mean():.1%}",
            f"{of_group.mean():.1%}",
            f"{(of_group & high).sum() / high.sum():.1%}",
            f"{liked[of_group].mean():+.2f}",
            f"{data.rating[of_group].mean():.2f}",
        )
    console.print(shown)


def _show_comparison(lists: str, results: dict[str, dict[str, Any]]) -> None:
    """Print a table of the methods, with changes from the colour-blind one."""
    metrics = [result["metrics"] for result in results.values()]
    names = [NAMES.get(folder, folder) for folder in results]
    shown = table(f"{lists}, test ratings, top {K}", "", *names)
    for name in ROWS:
        means = [of[f"{name}@{K}"]["mean"] for of in metrics]
        digits = 4 if name == "ndcg" else 5
        cells = [f"{mean:.{digits}f}" for mean in means]
        if not name.endswith(("_floor", "_signed")):
            cells[1:] = [
                f"{cell} ({mean / means[0] - 1:+.0%})"
                for cell, mean in zip(cells[1:], means[1:], strict=True)
            ]
        of_a = " of a" if name.endswith("_signed") else ""
        shown.add_row(TABLE_ROWS[name] + of_a, *cells)
    rates = [of[f"rsp@{K}"]["by_group"] for of in metrics]
    for group in rates[0]:
        shown.add_row(f"selection rate of {group}", *(f"{of[group]:.2%}" for of in rates))
    for column in shown.columns:
        column.no_wrap = True
    console.print(shown)


def _flattening(results: dict[str, Any], out: Path, lists: Lists, seed: int) -> str:
    """Return how much of KSO-RED's drop on sampled lists flatter scores explain."""
    scores, gaps = {}, {}
    for folder in ("k-song", "kso-red"):
        config = demo_config(METHODS[folder], seed)
        model = open_run(out / folder, load=lambda *_: lists).scorer
        blocks = lists.test.batches(unrated=config.evaluation.unrated, seed=seed)
        scores[folder] = torch.cat([score(model, block) for block in blocks])
        gaps[folder] = results[folder]["metrics"][f"exposure_gap@{K}"]["mean"]
    mask = torch.cat([block.mask for block in blocks])
    group = torch.cat([block.group for block in blocks])
    # The colour-blind model's gap at KSO-RED's mean entropy of exposure.
    flat_scores = flattened(scores["k-song"], scores["kso-red"], mask)
    flat = float(exposure_gap(flat_scores, group, k=K, mask=mask).nanmean())
    share = Fall(gaps["k-song"], flat, gaps["kso-red"]).share
    return (
        f"KSO-RED on sampled lists: {share:.0%} of the drop of the gap of Eq. 9 comes from "
        f"flatter scores, not from a different order; the gap by rank does not depend on scores"
    )


def _finding(results: dict[str, dict[str, Any]]) -> str:
    """Return how the methods change gap and NDCG on the full catalogue, as a sentence."""
    gap, ndcg = f"rank_exposure_gap@{K}", f"ndcg@{K}"
    metrics = {
        NAMES.get(folder, folder): result["metrics"] for folder, result in results.items()
    }
    blind = metrics.pop(NAMES["k-song"])
    found = (
        f"{name} changes the exposure gap by rank by "
        f"{own[gap]['mean'] / blind[gap]['mean'] - 1:+.0%} and NDCG by "
        f"{own[ndcg]['mean'] / blind[ndcg]['mean'] - 1:+.0%}"
        for name, own in metrics.items()
    )
    chance = blind[f"rank_exposure_gap_floor@{K}"]["mean"] / blind[gap]["mean"] - 1
    return (
        f"Result on the full catalogue, against the colour-blind model: {'; '.join(found)}. "
        f"Shuffled labels would change the gap by {chance:+.0%}."
    )
