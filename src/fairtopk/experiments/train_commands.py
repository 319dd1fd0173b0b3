"""`fairtopk train` and `fairtopk evaluate`."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fairtopk.errors import STOPS, InputError
from fairtopk.experiments.console import (
    TrainingProgress,
    add_row,
    console,
    say,
    table,
    whole_numbers,
)

SHOWN = {
    "ndcg": "NDCG",
    "exposure_gap": "exposure gap (Eq. 9)",
    "exposure_gap_signed": "  signed",
    "exposure_gap_floor": "  by chance",
    "rank_exposure_gap": "exposure gap by rank",
    "rank_exposure_gap_signed": "  signed",
    "rank_exposure_gap_floor": "  by chance",
    "representation_gap": "gap in share of the top",
    "representation_gap_signed": "  signed",
    "representation_gap_floor": "  by chance",
    "rsp": "statistical parity (RSP)",
    "reo": "equal opportunity (REO)",
    "rsp_split": "RSP of the groups in labels",
    "reo_split": "REO of the groups in labels",
}


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
    from fairtopk.data.home import warmups_home
    from fairtopk.experiments.goal import load_asked

    settings, goal = load_asked(config, set_ or ())  # faults are told without torch
    if goal is not None:
        from fairtopk.experiments.goal_commands import train_to_goal

        train_to_goal(settings, goal, out, resume=resume, no_cache=no_cache)
        return

    from fairtopk.checkpoints import MODEL
    from fairtopk.experiments.result import METRICS, resume_command
    from fairtopk.experiments.run import train_run

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
    from fairtopk.experiments.measuring import evaluate_run
    from fairtopk.experiments.result import metrics_name, per_query_path, write_result

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
    from fairtopk.experiments.result import measured_ks

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
