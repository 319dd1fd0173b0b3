"""`fairtopk train`, also with a goal, and `fairtopk evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fairtopk.cli.console import console, lengths, say, training_progress
from fairtopk.errors import STOPS, Exit, InputError
from fairtopk.terminal import UNDEFINED, add_row, mean_cell, number, table

if TYPE_CHECKING:
    from fairtopk.runs.config import Config
    from fairtopk.runs.goal import Goal


def train(
    config: Annotated[Path, Argument(help="a TOML file; examples/ has one for each method")],
    out: Annotated[Path, Option(help="new folder for the run")],
    set_: Annotated[
        list[str] | None, Option("--set", help="change a key of the config: method.c=1e5")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="start, or continue a stopped run")
    ] = False,
    no_cache: Annotated[
        bool, Option("--no-cache", help="do not reuse the warm-up of an earlier run")
    ] = False,
) -> None:
    """Train one method on one data set.

    Example: fairtopk train examples/kso-red.toml --out runs/first --set method.c=1e5
    """
    from fairtopk.data.registry import warmups_home
    from fairtopk.runs.config_file import check_config, read_config

    values = read_config(config, set_ or ())
    warmups = None if no_cache else warmups_home()
    if "goal" in values:
        from fairtopk.runs.goal import check_goal

        train_to_goal(*check_goal(values, str(config)), out, resume=resume, warmups=warmups)
        return
    settings = check_config(values, str(config))  # wrong input is refused without torch

    from fairtopk.runs.result import METRICS, resume_command
    from fairtopk.runs.run import train_run
    from fairtopk.storage import MODEL

    finished = (out / METRICS).exists()
    with training_progress(f"{settings.method.name} on {settings.data.source}") as hooks:
        try:
            result = train_run(settings, out, resume=resume, hooks=hooks, warmups=warmups)
        except STOPS:
            if (out / MODEL).exists():
                say(f"saved; continue with: {resume_command(out)}")
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
    from fairtopk.runs.measure import measure_run
    from fairtopk.runs.open import open_run
    from fairtopk.runs.result import per_query_path

    changes: dict[str, Any] = {}
    if protocol is not None:
        changes["protocol"] = protocol
    if k is not None:
        changes["k"] = lengths(k)
    for path in (out, per_query_path(out)) if out is not None else ():
        if path.exists():
            raise InputError(f"--out {out}: {path} exists; choose a new file")
    found = measure_run(open_run(run, changes, data=data), part)
    result = found.result
    show_result(result)
    if not result["finished"]:
        say("the run is not finished: this is its last checkpoint")
    path = out or run / found.name
    found.save(path)
    say(f"written to {path}")


def show_result(result: dict[str, Any]) -> None:
    """Print the means of a metrics file with their intervals, a column per K."""
    from fairtopk.metrics.names import PROTOCOLS, TABLE_ROWS, label, lists_label
    from fairtopk.runs.result import measured_ks

    metrics, ks = result["metrics"], measured_ks(result)
    whose = "queries" if result["protocol"] == "whole" else "users"
    shown = table(
        f"{result['method']} on {lists_label({**result, 'users': None})} "
        f"(mean ± half of a 95 % interval over {whose})",
        "",
        *(f"K = {k}" for k in ks),
    )
    for name, row in TABLE_ROWS.items():
        if f"{name}@{ks[0]}" in metrics:
            cells = (metrics[f"{name}@{k}"] for k in ks)
            add_row(shown, row, *(mean_cell(cell["mean"], cell["ci95"]) for cell in cells))
    console.print(shown)
    most = max(metrics, key=lambda name: metrics[name]["undefined"])
    if undefined := metrics[most]["undefined"]:
        say(f"{undefined:,} {whose} excluded where {most} is undefined")
    if unmet := metrics.get("unmet", {}).get("mean"):
        say(f"{unmet:.1%} of the lists cannot meet the targets and come as close as possible")
    if result["needs_labels_when_serving"]:
        say(f"{result['method']} needs group labels when serving")
    if "protocol" in (other := result.get("other_protocol") or {}):
        # The main metrics of the other protocol, in a line.
        k = next(iter(other["metrics"])).partition("@")[2]
        means = {
            name: other["metrics"][f"{name}@{k}"] for name in ("ndcg", "rank_exposure_gap")
        }
        figures = (
            f"{label(name)} {mean:.3g}" for name, mean in means.items() if mean is not None
        )
        measured, of = other["users"]["measured"], other["users"]["of"]
        some = f" of {measured:,} drawn users" if measured < of else ""
        where = f"{PROTOCOLS[other['protocol']]}{some}, K = {k}"
        say(f"{where}: {', '.join(figures)}; see {other['file']}")
    for warning in result.get("warnings", []):
        say(f"warning: {warning}")


def train_to_goal(
    config: "Config", goal: "Goal", out: Path, *, resume: bool, warmups: Path | None
) -> None:
    """Search for the weight that reaches a goal, and show the result.

    If the goal is missed the command ends with that exit code, after everything is written.
    """
    from fairtopk.runs.goal import with_weight
    from fairtopk.runs.goal_run import search_weight
    from fairtopk.runs.result import GOAL, METRICS, Owner, read_result, resume_command

    finished = (out / METRICS).exists()
    try:
        search = search_weight(
            config,
            goal,
            out,
            resume=resume,
            warmups=warmups,
            progress=training_progress,
        )
    except STOPS:
        if (out / GOAL).exists():
            say(f"finished trials are kept; continue with: {resume_command(out, GOAL)}")
        raise
    show_trials(search)
    chosen = with_weight(config, search["chosen"]["weight"])
    show_result(read_result(out / METRICS, Owner(chosen)))
    say(verdict(search))
    gap, accuracy = (
        number(search["test"]["chosen"][key], undefined=UNDEFINED)
        for key in ("target_relative", "keep_relative")
    )
    say(f"on test lists, which the search did not use: {gap} times and {accuracy} times")
    done = f"{out} is finished already: nothing was trained"
    say(done if finished else f"written to {out}")
    if not search["reached"]:
        raise typer.Exit(Exit.MISSED)


def show_trials(search: dict[str, Any]) -> None:
    """Print a row for each weight of a search."""
    from fairtopk.metrics.names import lists_label

    target, accuracy = search["goal"]["target"]["metric"], search["accuracy"]
    shown = table(
        f"{search['method']} on {lists_label(search)} (in brackets: relative to colour-blind)",
        search["parameter"],
        target,
        accuracy,
        "",
    )
    blind, chosen = search["colour_blind"], search["chosen"]["weight"]
    cells = [f"{blind[key]:.3g}" for key in ("target", "keep")]
    add_row(shown, "0", *cells, "colour-blind" if chosen else "colour-blind, chosen")
    judged = {
        (True, True): "reaches the goal",
        (True, False): "costs too much",
        (False, True): "not fair enough",
        (False, False): "neither",
    }
    for one in search["tries"]:
        cells = [
            UNDEFINED if one[key] is None else f"{one[key]:.3g} ({one[f'{key}_relative']:.3g})"
            for key in ("target", "keep")
        ]
        how = (
            judged[one["fair"], one["accurate"]]
            if "failure" not in one
            else "training diverged"
        )
        last = ", chosen" if one["weight"] == chosen else ""
        add_row(shown, f"{one['weight']:g}", *cells, how + last)
    console.print(shown)


def verdict(search: dict[str, Any]) -> str:
    """Return whether a goal was reached, by how much and with which weight, in a sentence."""
    goal, weight = search["goal"], search["chosen"]["weight"]
    target, accuracy = goal["target"]["metric"], search["accuracy"]
    at = f"{search['parameter']} = {weight:g}"
    chosen = next((one for one in search["tries"] if one["weight"] == weight), None)
    if chosen is None:
        return (
            f"not reached: no tested {search['parameter']} lowers {target} and keeps "
            f"{accuracy}; falling back to the colour-blind model"
        )
    kept = f" (goal: at least {goal['keep']['at_least']:g})" if goal["keep"] else ""
    figures = (
        f"on {search['part']} lists {target} is {chosen['target_relative']:.3g} times that of "
        f"the colour-blind model (goal: at most {goal['target']['at_most']:g}), {accuracy} "
        f"{chosen['keep_relative']:.4g} times{kept}"
    )
    if search["reached"]:
        return f"reached at {at}: {figures}"
    parameter, blind = search["parameter"], search["colour_blind"]
    why = {
        "flat": f"the gap no longer falls as {parameter} rises",
        "top": f"{parameter} is at its largest value",
        "narrow": f"a larger {parameter} does not lower the gap",
        "runs": f"all {len(search['tries'])} runs are used; raise goal.runs for more",
    }[search["ended"]]
    if not all(one["accurate"] for one in search["tries"]):
        why = f"a larger {parameter} costs too much {accuracy}"
    chance = (blind["by_chance"] or 0.0) / blind["target"]
    if chance > goal["target"]["at_most"]:
        why += f", and the chance level is {chance:.2g} times the gap"
    return f"not reached: at {at}, the best found, {figures}; {why}"
