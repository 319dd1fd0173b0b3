"""The command line: each command reads its options, calls one library function and prints."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

import fairtopk
from fairtopk.cli.console import console, run, say
from fairtopk.cli.data import data_app
from fairtopk.cli.rankings import audit, rerank
from fairtopk.cli.serve import export, recommend, report
from fairtopk.cli.sweep import reproduce, sweep
from fairtopk.cli.train import evaluate, train
from fairtopk.errors import Exit

# The mark keeps its lines apart where help is folded.
CODES = "\b\nExit codes:\n" + "\n".join(f"  {code:<5}{code.meaning}" for code in Exit)

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(data_app, name="data")
app.command()(train)
app.command()(evaluate)
app.command()(sweep)
app.command()(report)
app.command()(audit)
app.command()(rerank)
app.command()(recommend)
app.command()(export)
app.command()(reproduce)


@app.callback(invoke_without_command=True, epilog=CODES)
def fairtopk_command(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="print the version and exit")] = False,
    debug: Annotated[bool, Option("--debug", help="show a traceback with an error")] = False,
) -> None:
    """Fair top-K learning to rank: train, measure and compare fair rankers."""
    if version:
        say(f"fairtopk {fairtopk.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        console.print(context.get_help())


@app.command()
def demo(
    out: Annotated[
        Path, Option(help="folder for the runs and the page; replaces an earlier demo")
    ] = Path("runs/demo"),
) -> None:
    """Compare a colour-blind ranker, KSO-RED and fair-distill on the embedded data.

    All three are trained, measured on the full catalogue and on sampled lists, and compared on
    one page.

    Example: fairtopk demo --out runs/demo
    """
    from fairtopk.cli.demo import run_demo

    page = run_demo(out)
    say(f"written to {page}; open it in a browser")


def main() -> None:
    """Run the command line."""
    run(app)
