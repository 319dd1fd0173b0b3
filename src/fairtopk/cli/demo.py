"""`fairtopk demo`: the whole story on the embedded data, whose bias is known.

A colour-blind ranker, KSO-RED and the method for a catalogue are trained from the same warm-up
and measured on the full catalogue and on sampled lists. How much of the fall of a softmax gap
comes from flatter scores is measured too: the gap that the colour-blind order would have, were
its scores as flat as KSO-RED's.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from fairtopk.cli.console import TrainingProgress
from fairtopk.data.synthetic import SIZES, Synthetic, make_synthetic
from fairtopk.errors import InputError
from fairtopk.evaluation import sampled_blocks
from fairtopk.lists.users import Lists, split
from fairtopk.metrics import exposure_gap
from fairtopk.models.scoring import score
from fairtopk.reporting.page import PAGE, report
from fairtopk.reporting.rankings import flattened
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import check_config
from fairtopk.runs.open import load_model
from fairtopk.runs.result import METRICS, Owner, read_result
from fairtopk.runs.run import train_run
from fairtopk.storage import alone_in, write_text
from fairtopk.terminal import table

BIAS, K = 2.0, 20
METHODS: dict[str, dict[str, Any]] = {  # by folder; the first is what others are compared with
    "k-song": {"name": "k-song", "k": K},
    "kso-red": {"name": "kso-red", "k": K, "c_relative": 1.0},
    "fair-distill": {"name": "fair-distill", "k": K, "distill": {"epochs": 12}},
}
NAMES = {"k-song": "colour-blind", "kso-red": "KSO-RED"}
PROTOCOLS = {"full": "Full catalogue", "sampled": "Sampled lists of 305"}
ROWS = {
    "ndcg": "NDCG",
    "exposure_gap": "exposure gap (Eq. 9)",
    "rank_exposure_gap": "exposure gap by rank",
    "rank_exposure_gap_floor": "  chance level",
    "rank_exposure_gap_signed": "  signed gap of a",
}

MARK = ".demo"  # tells a folder that a demo made from any other
RESULTS, WARMUPS = "results.json", "warmups"
WRITTEN = (*METHODS, WARMUPS, RESULTS, PAGE)  # all that a second demo removes

Results = dict[str, dict[str, dict[str, Any]]]  # of each protocol, by method


def run_demo(console: Console, out: Path, *, seed: int = 0) -> Path:
    """Train the rankers into `out`, print how they compare, and return where the page is.

    What an earlier demo left in `out` is replaced; any other folder that holds something is
    refused.
    """
    _refuse_others(out)
    with alone_in(out):
        _clear(out)
        made = make_synthetic(SIZES["demo"], bias=BIAS, seed=seed)
        lists = split(made.data)
        _show_bias(console, made)
        for folder, method in METHODS.items():
            with TrainingProgress(f"training {folder}") as progress:
                train_run(
                    demo_config(method, seed),
                    out / folder,
                    lists=lists,
                    report=progress,
                    warmups=out / WARMUPS,
                )
        shutil.rmtree(out / WARMUPS, ignore_errors=True)
        results = _results(out, seed)
        for protocol, of_methods in results.items():
            _show_comparison(console, PROTOCOLS[protocol], of_methods)
        _show_flattening(console, results["sampled"], _flattened_gap(out, lists, seed))
        listed = [result for one in results.values() for result in one.values()]
        write_text(out / RESULTS, json.dumps(listed, indent=2) + "\n")
        return report(out)


def demo_config(method: dict[str, Any], seed: int) -> Config:
    """Return a run that trains in seconds."""
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
            # All epochs are chosen on the catalogue, so that the colour-blind model is also
            # the one that the student of the last method learns from, and is trained once.
            "evaluation": {"k": [10, K, 50], "protocol": "full", "select_on": "full"},
        },
        "the demo",
    )


def _refuse_others(out: Path) -> None:
    """Refuse a path that holds something, unless a demo made it; hidden files do not count."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is not a folder; choose another --out")
    if not out.is_dir() or (out / MARK).is_file():
        return
    if any(not path.name.startswith(".") for path in out.iterdir()):
        raise InputError(
            f"{out} holds something else than an earlier demo, and is left as it is; choose "
            f"another --out"
        )


def _clear(out: Path) -> None:
    """Mark a folder as the demo's and remove what an earlier demo wrote, and nothing else."""
    if not (out / MARK).is_file():
        write_text(out / MARK, "Made by fairtopk demo, and replaced by the next one.\n")
    for name in WRITTEN:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _results(out: Path, seed: int) -> Results:
    """Return what was measured of each method, by protocol."""
    results: Results = {protocol: {} for protocol in PROTOCOLS}
    for folder in METHODS:
        owner = Owner(demo_config(METHODS[folder], seed))
        own = read_result(out / folder / METRICS, owner)
        file = own["other_protocol"]["file"]
        other = read_result(out / folder / file, owner._replace(part=None))
        for result in (own, other):
            results[result["protocol"]][folder] = result
    return results


def _flattened_gap(out: Path, lists: Lists, seed: int) -> float:
    """Return the colour-blind model's gap at KSO-RED's mean entropy of exposure."""
    scores = {}
    for folder in ("k-song", "kso-red"):
        config = demo_config(METHODS[folder], seed)
        model = load_model(out / folder, lists, config)
        blocks = sampled_blocks(lists.test, unrated=config.evaluation.unrated, seed=seed)
        scores[folder] = torch.cat([score(model, block) for block in blocks])
    mask = torch.cat([block.mask for block in blocks])
    group = torch.cat([block.group for block in blocks])
    flat = flattened(scores["k-song"], scores["kso-red"], mask)
    return float(exposure_gap(flat, group, k=K, mask=mask).nanmean())


def _show_bias(console: Console, made: Synthetic) -> None:
    data = made.data
    group = data.group[data.item]
    liked = made.truth.utility(data.user_of_slot(), data.item)
    shown = table(
        f"{data.n_ratings:,} ratings, generated with bias {BIAS:g}: "
        "the groups are liked alike, not recorded alike",
        "group", "items", "ratings", "of all 4s and 5s", "true liking", "mean grade",
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


def _show_comparison(console: Console, lists: str, results: dict[str, dict[str, Any]]) -> None:
    """Print a table of the methods side by side, with changes from the colour-blind one."""
    metrics = [result["metrics"] for result in results.values()]
    names = [NAMES.get(folder, folder) for folder in results]
    shown = table(f"{lists}, test ratings, top {K}", "", *names)
    for name, words in ROWS.items():
        means = [of[f"{name}@{K}"]["mean"] for of in metrics]
        digits = 4 if name == "ndcg" else 5
        changes = not name.endswith(("_floor", "_signed"))
        cells = [f"{mean:.{digits}f}" for mean in means]
        if changes:
            cells[1:] = [
                f"{cell} ({mean / means[0] - 1:+.0%})"
                for cell, mean in zip(cells[1:], means[1:], strict=True)
            ]
        shown.add_row(words, *cells)
    rates = [of[f"rsp@{K}"]["by_group"] for of in metrics]
    for group in rates[0]:
        shown.add_row(f"selection rate of {group}", *(f"{of[group]:.2%}" for of in rates))
    for column in shown.columns:
        column.no_wrap = True
    console.print(shown)


def _show_flattening(console: Console, results: dict[str, dict[str, Any]], flat: float) -> None:
    old, new = (
        results[folder]["metrics"][f"exposure_gap@{K}"]["mean"]
        for folder in ("k-song", "kso-red")
    )
    share = (old - flat) / (old - new) if old > new else float("nan")
    console.print(
        f"KSO-RED on sampled lists: {share:.0%} of the drop of the gap of Eq. 9 comes from "
        f"flatter scores, not from a different order. The gap by rank does not read scores.",
        highlight=False,
    )
