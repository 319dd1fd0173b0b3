"""`fairtopk train` with a goal: the search for a weight, in a table and a few sentences."""

from pathlib import Path
from typing import Any

import typer

from fairtopk.data.home import warmups_home
from fairtopk.errors import STOPS, Exit
from fairtopk.experiments.config import Config
from fairtopk.experiments.console import TrainingProgress, add_row, console, say, table
from fairtopk.experiments.goal import Goal, with_weight
from fairtopk.experiments.goal_run import GOAL, reach
from fairtopk.experiments.result import METRICS, Owner, read_result, resume_command
from fairtopk.experiments.train_commands import show_result


def train_to_goal(
    config: Config, goal: Goal, out: Path, *, resume: bool, no_cache: bool
) -> None:
    """Search for the weight that reaches a goal, and show what was found.

    A goal that is missed ends the command with its exit code, once all is written.
    """
    finished = (out / METRICS).exists()
    try:
        told = reach(
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
        cells = (_cell(one, key) for key in ("target", "keep"))
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


def _cell(one: dict[str, Any], key: str) -> str:
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
