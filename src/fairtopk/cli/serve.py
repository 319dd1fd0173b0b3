"""`fairtopk recommend`, `fairtopk export` and `fairtopk report`: the uses of a finished run."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fairtopk.cli.console import progress_bar, say, say_if_unfinished
from fairtopk.errors import InputError


def recommend(
    run: Annotated[Path, Argument(help="the folder of a run")],
    out: Annotated[Path, Option(help="the file to write, .parquet or .csv; replaced if there")],
    users: Annotated[
        Path | None,
        Option(help=".csv, .parquet, or .txt with an id in each line; default: all users"),
    ] = None,
    histories: Annotated[
        Path | None,
        Option(
            help=".csv or .parquet of user, item[, rating]: rank users, new ones too, by it"
        ),
    ] = None,
    column: Annotated[str, Option(help="column of ids, where --users is a table")] = "user",
    k: Annotated[int, Option(help="items for each user")] = 10,
    include_rated: Annotated[
        bool, Option("--include-rated", help="also recommend items that the user rated")
    ] = False,
    data: Annotated[Path | None, Option(help="where the data is now, if it moved")] = None,
    csv_safe: Annotated[
        bool, Option("--csv-safe", help="csv: quote text that a spreadsheet would run")
    ] = False,
) -> None:
    """Write the best items of the whole catalogue for each user: user, item, rank, score.

    Users who are not in the data get the items with the most training ratings: the column
    fallback marks them, and their scores are numbers of ratings. Models that are fitted to
    histories, such as ease, rank new users by what --histories says that they rated.

    Example: fairtopk recommend runs/first --users users.csv --k 10 --out recs.parquet
    """
    from fairtopk.serving import recommend as serving

    if users is not None and histories is not None:
        raise InputError("--histories names its users itself; leave out --users")
    given: serving.Users | serving.Histories | None = None
    if users is not None:
        given = serving.read_users(users, column=column)
    elif histories is not None:
        given = serving.read_histories(histories)
    with progress_bar(unit="users") as bar:
        written = serving.recommend_run(
            run,
            out,
            serving.RecommendRequest(given, k, include_rated),
            csv_safe=csv_safe,
            data=data,
            progress=lambda done, total: bar("recommending", done, total),
        )
    unknown = ""
    if written.unknown:
        why = "unknown" if histories is None else "without a known item"
        unknown = f", {written.unknown:,} of them {why} (they get the most rated items)"
    if k > written.n_items:
        say(f"--k is {k:,}, but there are only {written.n_items:,} items: shorter lists")
    if written.ignored:
        say(f"ignored: {written.ignored:,} ratings of items that are not in the data")
    say(f"{written.rows:,} items for {written.users:,} users{unknown}; written to {out}")
    say_if_unfinished(run)


def export(
    run: Annotated[Path, Argument(help="the folder of a run")],
    out: Annotated[
        Path, Argument(metavar="MODEL.onnx", help="the file to write; replaced if there")
    ],
    data: Annotated[Path | None, Option(help="where the data is now, if it moved")] = None,
) -> None:
    """Write a run's model as ONNX, checked against the original, with a model card.

    The model takes numbers of users and items, or features of documents, and no groups. The
    ids behind the numbers are written next to it.

    Example: fairtopk export runs/first model.onnx
    """
    from fairtopk.serving.export import export_run

    exported = export_run(run, out, data=data)
    say(
        f"inputs: {' and '.join(exported.inputs)}, no groups; scores differ from the original "
        f"by at most {exported.off:.1g} of the largest"
    )
    say(f"written: {', '.join(map(str, exported.files))}")
    say_if_unfinished(run)


def report(
    folder: Annotated[Path, Argument(metavar="DIR", help="a folder of runs, at any depth")],
    out: Annotated[
        Path | None, Option(help="the page to write; default: report.html in the folder")
    ] = None,
    figures: Annotated[Path | None, Option(help="folder for the curves as PDF and PNG")] = None,
) -> None:
    """Write one HTML page about all finished runs in a folder; it needs no network.

    Runs that are unfinished or cannot be read are left out, and listed on the page.

    Example: fairtopk report runs --out report.html --figures figures
    """
    from fairtopk.reporting.page import report as write_report

    page = write_report(folder, out=out, figures=figures)
    say(f"written to {page}")
    if figures is not None:
        say(f"figures in {figures}")
