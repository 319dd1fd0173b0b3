"""`fairtopk train` and `fairtopk evaluate`.

`fairtopk train` with a goal: the search for a weight, in a table and a few sentences.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fairtopk.cli.console import TrainingProgress, console, say, whole_numbers
from fairtopk.errors import STOPS, Exit, InputError
from fairtopk.terminal import add_row, table

if TYPE_CHECKING:
    from fairtopk.runs.config import Config
    from fairtopk.runs.goal import Goal


def train(
    config: Annotated[Path, Argument(help="a TOML file; examples/ has one per method")],
    out: Annotated[Path, Option(help="new folder for the run")],
    set_: Annotated[
        list[str] | None, Option("--set", help="change a key of the config: method.c=1e5")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="start, or go on where a stopped run left off")
    ] = False,
    no_cache: Annotated[
        bool, Option("--no-cache", help="train a warm-up anew that an earlier run has left")
    ] = False,
) -> None:
    """Train one method on one data set.

    Example: fairtopk train examples/kso-red.toml --out runs/first --set method.c=1e5
    """
    from fairtopk.data.registry import warmups_home
    from fairtopk.runs.goal import load_run_file

    settings, goal = load_run_file(config, set_ or ())  # faults are told without torch
    if goal is not None:
        train_to_goal(settings, goal, out, resume=resume, no_cache=no_cache)
        return

    from fairtopk.checkpoints import MODEL
    from fairtopk.runs.result import METRICS, resume_command
    from fairtopk.runs.run import train_run

    finished = (out / METRICS).exists()
    with TrainingProgress(f"{settings.method.name} on {settings.data.source}") as progress:
        try:
            result = train_run(
                settings,
                out,
                resume=resume,
                report=progress,
                notice=say,
                warmups=None if no_cache else warmups_home(),
            )
        except STOPS:
            if (out / MODEL).exists():
                say(f"saved; go on with: {resume_command(out)}")
            raise
    show_result(result)
    if finished:
        say(f"{out} is finished already: nothing was trained")
        return
    kept = result["chosen_epoch"]
    say(f"kept epoch {kept}; written to {out}" if kept else f"written to {out}")


def evaluate(
    run: Annotated[Path, Argument(help="the folder of a run")],
    protocol: Annotated[str | None, Option(help="sampled or full; default: the run's")] = None,
    k: Annotated[str | None, Option(help="such as 10,50; default: the run's")] = None,
    part: Annotated[str, Option(help="test or validation")] = "test",
    data: Annotated[Path | None, Option(help="where the data is now, if it moved")] = None,
    out: Annotated[
        Path | None, Option(help="file for the metrics; default: in the run's folder")
    ] = None,
) -> None:
    """Measure a trained model again, with any protocol and any K.

    Example: fairtopk evaluate runs/first --protocol full --k 10,50
    """
    from fairtopk.runs.measure import evaluate_run
    from fairtopk.runs.result import metrics_name, per_query_path, write_result

    changes: dict[str, Any] = {}
    if protocol is not None:
        changes["protocol"] = protocol
    if k is not None:
        changes["k"] = whole_numbers(k)
    for path in (out, per_query_path(out)) if out is not None else ():
        if path.exists():
            raise InputError(f"--out {out}: {path} exists; choose a new file")
    result, queries, identity = evaluate_run(run, changes, part=part, data=data)
    show_result(result)
    if not result["finished"]:
        say("the run is not finished: these are figures of its last checkpoint")
    path = out or run / metrics_name(result)
    write_result(path, result, queries, identity)
    say(f"written to {path}")


def show_result(result: dict[str, Any]) -> None:
    """Print the means of a metrics file with their intervals, a column per K."""
    from fairtopk.metrics.names import SHOWN
    from fairtopk.runs.result import measured_ks

    metrics, ks = result["metrics"], measured_ks(result)
    whose = "queries" if result["protocol"] == "whole" else "users"
    shown = table(
        f"{result['method']} on {result['data']}, {result['part']}, {result['protocol']} lists "
        f"(mean, 95 % interval over {whose})",
        "",
        *(f"K = {k}" for k in ks),
    )
    for name, words in SHOWN.items():
        if f"{name}@{ks[0]}" not in metrics:
            continue
        add_row(shown, words, *(_cell(metrics[f"{name}@{k}"]) for k in ks))
    console.print(shown)
    most = max(metrics, key=lambda name: metrics[name]["undefined"])
    if undefined := metrics[most]["undefined"]:
        say(f"{undefined:,} of the {whose} excluded where {most} is undefined")
    if unmet := metrics.get("unmet", {}).get("mean"):
        say(f"{unmet:.1%} of lists cannot give groups what is asked for, and come nearest")
    if result["needs_labels_when_serving"]:
        say(f"{result['method']} needs group labels when serving")
    _show_other(result.get("other_protocol") or {})
    for warning in result.get("warnings", []):
        say(f"warning: {warning}")


def _show_other(told: dict[str, Any]) -> None:
    """Print what a run's metrics file says of the other protocol, in a line."""
    if "protocol" not in told:
        return
    metrics, users = told["metrics"], told["users"]
    k = next(iter(metrics)).partition("@")[2]
    words = {"ndcg": "NDCG", "rank_exposure_gap": "gap by rank"}
    means = {said: metrics[f"{name}@{k}"] for name, said in words.items()}
    shown = [f"{said} {mean:.3g}" for said, mean in means.items() if mean is not None]
    some = f" of {users['measured']:,} drawn users" if users["measured"] < users["of"] else ""
    say(f"{told['protocol']} lists{some}, K = {k}: {', '.join(shown)}; see {told['file']}")


def _cell(cell: dict[str, Any]) -> str:
    if cell["mean"] is None:
        return "undefined"
    low, high = cell["ci95"]
    return f"{cell['mean']:.3g} ±{(high - low) / 2:.1g}"


def train_to_goal(
    config: "Config", goal: "Goal", out: Path, *, resume: bool, no_cache: bool
) -> None:
    """Search for the weight that reaches a goal, and show what was found.

    A goal that is missed ends the command with its exit code, once all is written.
    """
    from fairtopk.data.registry import warmups_home
    from fairtopk.runs.goal import with_weight
    from fairtopk.runs.goal_run import GOAL, search_weight
    from fairtopk.runs.result import METRICS, Owner, read_result, resume_command

    finished = (out / METRICS).exists()
    try:
        told = search_weight(
            config,
            goal,
            out,
            resume=resume,
            warmups=None if no_cache else warmups_home(),
            progress=TrainingProgress,
            notice=say,
        )
    except STOPS:
        if (out / GOAL).exists():
            say(f"what was tried is kept; go on with: {resume_command(out, GOAL)}")
        raise
    show_tries(told)
    chosen = with_weight(config, told["chosen"]["weight"])
    show_result(read_result(out / METRICS, Owner(chosen)))
    written = (
        f"{out} is finished already: nothing was trained" if finished else f"written to {out}"
    )
    for sentence in (verdict(told), on_test(told), written):
        say(sentence)
    if not told["reached"]:
        raise typer.Exit(Exit.MISSED)


def show_tries(told: dict[str, Any]) -> None:
    """Print what a search has tried, a row for each weight."""
    target, accuracy = told["goal"]["target"]["metric"], told["accuracy"]
    shown = table(
        f"{told['method']} on {told['data']}, {told['part']}, {told['protocol']} lists "
        f"(in brackets: of colour-blind)",
        told["parameter"],
        target,
        accuracy,
        "",
    )
    blind, chosen = told["colour_blind"], told["chosen"]["weight"]
    cells = (f"{blind[key]:.3g}" for key in ("target", "keep"))
    add_row(shown, "0", *cells, "colour-blind" if chosen else "colour-blind, chosen")
    for one in told["tries"]:
        last = ", chosen" if one["weight"] == chosen else ""
        cells = (_goal_cell(one, key) for key in ("target", "keep"))
        add_row(shown, f"{one['weight']:g}", *cells, f"{_judged(one)}{last}")
    console.print(shown)


def verdict(told: dict[str, Any]) -> str:
    """Return whether a goal was reached, by how much and with which weight, in a sentence."""
    goal, weight = told["goal"], told["chosen"]["weight"]
    target, accuracy = goal["target"]["metric"], told["accuracy"]
    at = f"{told['parameter']} = {weight:g}"
    chosen = next((one for one in told["tries"] if one["weight"] == weight), None)
    if chosen is None:
        return (
            f"not reached: no {told['parameter']} that was tried lowers {target} and keeps "
            f"{accuracy}; falling back to the colour-blind model"
        )
    kept = f" (at least {goal['keep']['at_least']:g} asked for)" if goal["keep"] else ""
    figures = (
        f"{target} is {chosen['target_relative']:.3g} of the colour-blind model's on "
        f"{told['part']} lists (at most {goal['target']['at_most']:g} asked for), "
        f"{accuracy} {chosen['keep_relative']:.4g}{kept}"
    )
    if told["reached"]:
        return f"reached at {at}: {figures}"
    return f"not reached: at {at}, the best found, {figures}; {_why(told)}"


def on_test(told: dict[str, Any]) -> str:
    """Return what the chosen model has on lists that the search has not seen, in a sentence."""
    chosen = told["test"]["chosen"]
    gap, accuracy = (
        "undefined" if chosen[key] is None else f"{chosen[key]:.4g}"
        for key in ("target_relative", "keep_relative")
    )
    return (
        f"on test lists, which the search has not looked at, these are {gap} and {accuracy} of "
        f"the colour-blind model's"
    )


def _why(told: dict[str, Any]) -> str:
    """Return why a search ended without what was asked for."""
    parameter, blind = told["parameter"], told["colour_blind"]
    reasons = {
        "flat": f"the gap no longer falls although {parameter} rises",
        "top": f"{parameter} is as large as it gets",
        "narrow": f"a larger {parameter} does not lower the gap",
        "runs": f"all runs are used up ({len(told['tries'])}; goal.runs allows more)",
    }
    why = reasons[told["ended"]]
    if not all(one["accurate"] for one in told["tries"]):
        why = f"a larger {parameter} loses too much {told['accuracy']}"
    chance = (blind["by_chance"] or 0.0) / blind["target"]
    if chance <= told["goal"]["target"]["at_most"]:
        return why
    return f"{why}, and chance alone would leave {chance:.2g} of the gap"


def _goal_cell(one: dict[str, Any], key: str) -> str:
    if one[key] is None:
        return "undefined"
    return f"{one[key]:.3g} ({one[f'{key}_relative']:.3g})"


def _judged(one: dict[str, Any]) -> str:
    if "failure" in one:
        return "training broke off"
    if one["fair"] and one["accurate"]:
        return "reaches the goal"
    if one["fair"]:
        return "loses too much"
    return "not fair enough" if one["accurate"] else "neither"
