"""Rows that spoil a word of the command line."""

from drill.rows import ESCAPE, HUGE, Row, as_folder, nothing, put, row, swap

AUDIT = "audit ranked.csv --query user --item item --score score --groups group --k 5"
RERANK = (
    "rerank ranked.csv --method det-const-sort --query user --item item --score score "
    "--groups group --k 5"
)
PREPARE = (
    "data prepare csv --from ratings.csv --out made --user user --item item --rating rating "
    "--time time --items items.csv"
)
BASES = {  # valid, each of its words can be spoilt
    "audit": AUDIT,
    "rerank": f"{RERANK} --out made.csv",
    "rerank a run": "rerank runs/k-song --method det-greedy --k 5",
    "train": "train kso-red.toml --out made",
    "evaluate": "evaluate runs/kso-red --k 4",
    "sweep": "sweep sweep.toml --out made",
    "report": "report runs",
    "recommend": "recommend runs/kso-red --out made.csv",
    "recommend histories": "recommend ease-run --histories histories.csv --out made.csv",
    "export": "export runs/kso-red made.onnx",
    "prepare": PREPARE,
    "reproduce": "reproduce --out made --quick",
    "demo": "demo",
}
PAST = {  # at a K that no list is longer than
    "evaluate": "evaluate runs/kso-red --k 400",
    "evaluate on the catalogue": "evaluate runs/kso-red --k 400 --protocol full",
    "evaluate documents": "evaluate docs-run --k 400",
    "train": "train k-song.toml --out made --set evaluation.k=[400]",
    "sweep": "sweep sweep.toml --out made --processes 1 --set evaluation.k=[400]",
    "rerank": f"{RERANK} --infeasible mark".replace("--k 5", "--k 400"),
}
# What an option of each kind must not be.
WHOLE = ("x", "", "1.5", "1e3", "nan", HUGE, "1;2", "0x10")
NUMBER = ("x", "", "nan", "inf", "1,5")
POSITIVE = ("0", "-1")
TEXT = ("nonsense", "")

OPTIONS: list[tuple[str, str, tuple[str, ...]]] = [
    ("audit", "--k", (*WHOLE, *POSITIVE, "5,5,x", ",", "5,")),
    ("audit", "--seed", (*WHOLE, "-1")),
    ("audit", "--min-group", WHOLE),
    ("audit", "--separator", ("", ";;", "é")),
    ("audit", "--query", TEXT),
    ("audit", "--item", TEXT),
    ("audit", "--score", TEXT),
    ("audit", "--groups", (*TEXT, ",", "group,group", "user")),
    ("audit", "--relevance", TEXT),
    ("audit", "--items", ("none.csv", "")),
    ("audit", "--baseline", ("none.csv", "")),
    ("audit", "--fail-if", ("nonsense", "", "impact_ratio@9 < 1", "< 1", "impact_ratio@5 < x")),
    ("audit", "--out", ("", "ranked.csv", "ranked.csv/below", "made\0name")),
    ("rerank", "--k", (*WHOLE, *POSITIVE)),
    ("rerank", "--method", TEXT),
    ("rerank", "--infeasible", TEXT),
    ("rerank", "--separator", ("", ";;")),
    ("rerank", "--groups", TEXT),
    ("rerank", "--score", TEXT),
    ("rerank", "--target", ("a", "a=x", "a=2", "=1", "nobody=0.5", "a=nan")),
    ("rerank", "--out", ("", "made.txt", "ranked.csv", "ranked.csv/made.csv")),
    ("rerank", "--p", NUMBER),
    ("rerank", "--bonus", ("x", ",")),
    ("rerank", "--protocol", ("full",)),
    ("rerank a run", "--k", (*POSITIVE, "x", "")),
    ("rerank a run", "--protocol", TEXT),
    ("rerank a run", "--part", TEXT),
    ("rerank a run", "--query", ("user",)),
    ("rerank a run", "--out", ("", "made.csv", "items.csv/made.json")),
    ("rerank a run", "--data", ("none", "")),
    ("train", "--out", ("", "ratings.csv", "ratings.csv/below", "runs")),
    ("train", "--set", ("=", "", "seed", "=1", "seed.x=1", "data=1", "a.b.c=1",
                        "method.c=[", ".=1", "seed =true", "method..c=1", "method.name=",
                        f"seed={HUGE}", f"model.width={HUGE}")),
    ("evaluate", "--k", (*WHOLE, *POSITIVE)),
    ("evaluate", "--protocol", TEXT),
    ("evaluate", "--part", TEXT),
    ("evaluate", "--data", ("none.csv", "")),
    ("evaluate", "--out", ("", "ratings.csv", "ratings.csv/made.json")),
    ("sweep", "--out", ("", "ratings.csv", "ratings.csv/below", "runs")),
    ("sweep", "--processes", (*WHOLE, *POSITIVE)),
    ("sweep", "--set", ("=", "", "sweep=1", "sweep.seed=1e5", "sweep.method=[]", "sweep=",
                        "sweep.rerank=[1]", "sweep.protocols=['x']", "sweep.keep_models='y'")),
    ("report", "--out", ("", "runs", "ratings.csv/made.html")),
    ("report", "--figures", ("", "ratings.csv", "ratings.csv/below")),
    ("recommend", "--k", (*WHOLE, *POSITIVE)),
    ("recommend", "--users", ("none.txt", "", "users.json")),
    ("recommend histories", "--histories", ("none.csv", "", "users.txt", "users.csv")),
    ("recommend", "--out", ("", "made.txt", "runs", "ratings.csv/made.csv")),
    ("recommend", "--data", ("none.csv", "")),
    ("export", "--data", ("none.csv", "")),
    ("prepare", "--from", ("none.csv", "", ".")),
    ("prepare", "--out", ("", "ratings.csv", "ratings.csv/below", "runs")),
    ("prepare", "--user", TEXT),
    ("prepare", "--item", TEXT),
    ("prepare", "--rating", TEXT),
    ("prepare", "--time", TEXT),
    ("prepare", "--items", ("none.csv", "")),
    ("prepare", "--separator", ("", ";;")),
    ("prepare", "--subset", ("10",)),
    ("prepare", "--column", TEXT),
    ("prepare", "--below", ("1990",)),
    ("reproduce", "--out", ("", "ratings.csv", "ratings.csv/below", "runs")),
    ("reproduce", "--data", ("none", "", "runs", "ratings.csv")),
    ("reproduce", "--processes", (*POSITIVE, "x")),
    ("demo", "--out", ("", "ratings.csv", "ratings.csv/below", "runs")),
]  # fmt: skip


def _with(words: list[str], option: str, value: str) -> list[str]:
    """Return a command line with an option of another value."""
    if option in words:
        place = words.index(option)
        words = words[:place] + words[place + 2 :]
    return [*words, option, value]


def options() -> list[Row]:
    """Return a row for every option and value it must not have."""
    return [
        row(f"{base} {option} {_short(value)}", _with(BASES[base].split(), option, value))
        for base, option, values in OPTIONS
        for value in values
    ]


def commands() -> list[Row]:
    """Return rows for each command as a whole: words missing, unknown, too many."""
    rows = [
        row("no such command", "nonsense", says="nonsense"),
        row("no such command below data", "data nonsense", says="nonsense"),
        row("a command with escapes", [f"non{ESCAPE}sense"]),
        row("an option before the command", "--nonsense audit", says="--nonsense"),
        row("data list takes no words", "data list nonsense", says="nonsense"),
        row("prepare an unknown data set", "data prepare nonsense --from x", says="nonsense"),
        row("prepare synthetic", "data prepare synthetic --from ratings.csv", says="synthetic"),
        row("prepare netflix, which has no download", "data prepare netflix", says="netflix"),
        row("prepare movielens-1m without agreement", "data prepare movielens-1m",
            says="--accept-licence"),
        row("prepare a data set whose name has escapes", ["data", "prepare", f"c{ESCAPE}"]),
        row("audit --rank beside --score", f"{AUDIT} --rank score"),
        row("audit without score and rank", AUDIT.replace(" --score score", "")),
        row("audit intersections of one column", f"{AUDIT} --intersections"),
        row("audit local items with a table of items",
            f"{AUDIT} --local-items --items items.csv"),
        row("audit with a table of items that contradicts the rankings",
            f"{AUDIT} --items items.csv", swap("items.csv", "1,a,", "1,b,"),
            says="correct one of them"),
        row("audit with a rule on an unknown metric", f"{AUDIT} --fail-if 'nonsense@5 < 1'",
            says="there is impact_ratio, "),
        row("rerank a run for fa-ir with p of 2", "rerank runs/k-song --method fa-ir --p 2"),
        row("rerank a run for fa-ir with alpha of 0",
            "rerank runs/k-song --method fa-ir --alpha 0"),
        row("rerank a run with a bonus that is no number",
            "rerank runs/k-song --method group-bonus --bonus x"),
        row("rerank a run with a bonus that is nan",
            "rerank runs/k-song --method group-bonus --bonus nan"),
        row("rerank a run with a notion that is none",
            "rerank runs/k-song --method exposure-lp --notion x"),
        row("rerank a run with a rounding that is none",
            "rerank runs/k-song --method det-greedy --rounding up", says="rounding"),
        row("rerank a run with rounding for another method",
            "rerank runs/k-song --method fa-ir --rounding random", says="rounding"),
        row("rerank a run with slack below 0",
            "rerank runs/k-song --method exposure-lp --slack=-1"),
        row("rerank documents", "rerank docs-run --method det-greedy", says="docs-run"),
        row("recommend documents", "recommend docs-run --out made.csv", says="docs-run"),
        row("recommend by histories from a model of known users",
            "recommend runs/kso-red --histories histories.csv --out made.csv", says="ease"),
        row("recommend for users and by histories",
            "recommend ease-run --users users.csv --histories histories.csv --out made.csv",
            says="--users"),
        row("export robust", "export robust-run made.onnx", says="export"),
        row("export to another ending", "export runs/kso-red made.txt", says="made.txt"),
        row("export to a folder", "export runs/kso-red x.onnx", as_folder("x.onnx"),
            says="x.onnx"),
        row("export to nothing", ["export", "runs/kso-red", ""]),
        row("train with a goal in the config and a weight",
            "train goal.toml --out made --set method.c=1", says="method.c"),
        row("sweep of a config that is none", "sweep kso-red.toml --out made", says="[sweep]"),
        row("sweep of a goal", "sweep goal.toml --out made", says="goal"),
        row("train of a sweep", "train sweep.toml --out made", says="sweep"),
        row("train into a folder that is used", "train kso-red.toml --out runs/k-song",
            says="runs/k-song"),
        row("resume with another config", "train k-song.toml --out runs/kso-red --resume",
            says="method"),
        row("resume with another seed",
            "train kso-red.toml --out runs/kso-red --resume --set seed=1", says="seed"),
        row("report on a folder without runs", "report prepared", says="prepared"),
        row("report on a file", "report ratings.csv", says="ratings.csv"),
        row("report on nothing", ["report", ""]),
        row("evaluate nothing", ["evaluate", ""]),
        row("train nothing", ["train", "", "--out", "made"]),
        row("audit nothing", ["audit", "", *AUDIT.split()[2:]]),
        row("evaluate what is no run", "evaluate prepared", says="prepared"),
        row("recommend of what is no run", "recommend prepared --out m.csv", says="prepared"),
        row("export of what is no run", "export prepared made.onnx", says="prepared"),
        row("rerank of what is no run", "rerank prepared --method det-greedy", says="prepared"),
        row("a name with a NUL", ["evaluate", "runs\0"]),
        row("a name with an escape", ["evaluate", f"runs{ESCAPE}"]),
        row("a name that is too long", ["evaluate", "x" * 5_000]),
        row("an output name that is too long",
            ["recommend", "runs/kso-red", "--out", "x" * 300 + ".csv"]),
        row("a name that is not UTF-8", ["evaluate", "runs\udcff"]),
        row("a name in markup", ["evaluate", "[bold]runs[/x]"], says="[bold]runs[/x]"),
    ]  # fmt: skip
    for name, words in BASES.items():
        rows.append(row(f"{name} --nonsense", f"{words} --nonsense", says="--nonsense"))
        rows.append(row(f"{name} with a word too many", f"{words} many many"))
        given = words.split()
        needed = 2 if name == "prepare" else 1
        if len(given) > needed:
            rows.append(row(f"{name} without its words", given[:needed]))
            rows.append(row(f"{name} whose last option has no value", given[:-1]))
    return some_of(rows)


def some_of(rows: list[Row]) -> list[Row]:
    """Return the rows that are faults: some commands need no words."""
    fine = {"demo without its words", "reproduce whose last option has no value"}
    return [one for one in rows if one.name not in fine]


def markup() -> list[Row]:
    """Return rows whose output has a name that looks like markup; all are rightly accepted."""
    place = "[/x]"
    return [
        row("audit into [/x]", f"{AUDIT} --out [/x]", code=0, says=place),
        row("rerank into [/x]", f"{RERANK} --out [/x].csv", code=0, says=place),
        row("train into [/x]", "train k-song.toml --out [/x]", code=0, says=place),
        row("evaluate into [/x]", "evaluate runs/kso-red --out [/x].json", code=0, says=place),
        row("report into [/x]", "report runs --out [/x].html", code=0, says=place),
        row("recommend into [/x]", "recommend runs/kso-red --out [/x].csv", code=0, says=place),
        row("export into [/x]", "export runs/kso-red [/x].onnx", code=0, says=place),
        row("prepare into [/x]", PREPARE.replace("made", "[/x]"), code=0, says=place),
        row("sweep into [/x]", "sweep sweep.toml --out [/x] --processes 1", code=0, says=place),
        row("audit into [bold]", f"{AUDIT} --out [bold]", code=0, says="[bold]"),
    ]  # fmt: skip


def valid() -> list[Row]:
    """Return the commands as they are, so that what the others refuse is what was spoilt."""
    kept = {name: words for name, words in BASES.items() if name not in ("reproduce", "demo")}
    rows = [row(f"{name} as it should be", words, code=0) for name, words in kept.items()]
    return [
        *rows,
        row("data list", "data list", code=0, says="movielens-1m"),
        row("a finished run resumed", "train kso-red.toml --out runs/kso-red --resume", code=0),
        row("a finished goal resumed", "train goal.toml --out goal-run --resume", code=(0, 1)),
        row("resume where there is nothing", "train k-song.toml --out made --resume", code=0),
        row("resume in an empty folder", "train k-song.toml --out e --resume", as_folder("e"),
            code=0),
        row("audit a rule that holds", f"{AUDIT} --fail-if 'impact_ratio@5 < 100'", code=1),
        row("audit of Parquet", AUDIT.replace(".csv", ".parquet"), code=0),
        row("audit of gz", AUDIT.replace(".csv", ".csv.gz"), code=0),
        row("recommend for users of a text",
            "recommend runs/kso-red --users users.txt --out m.csv", code=0),
        row("recommend for users of a table",
            "recommend runs/kso-red --users users.csv --out m.parquet", code=0),
        row("recommend by histories",
            "recommend ease-run --histories histories.csv --out m.parquet", code=0,
            says="for 2 users"),
        row("evaluate a fitted model", "evaluate ease-run --protocol full", code=0),
        row("a finished fit resumed", "train ease.toml --out ease-run --resume", code=0),
        row("evaluate documents", "evaluate docs-run", code=0),
        row("an audit with a number written as +5", AUDIT.replace("--k 5", "--k +5"), code=0),
        row("train from prepared data", "train kso-red.toml --out made --set data.options= "
            "--set data.path=prepared", code=0),
        *(row(f"{what}, at a K past the lists", words, code=0, says="all items are in the top")
          for what, words in PAST.items()),
        *(row(f"train on lists with too many {what}", "train k-song.toml --out made "
              f"--set training.lists.{what}=1000", code=0, says=f"lists.{what} is 1,000")
          for what in ("rated", "unrated")),
        row("a note in the folder", "report runs", put("runs/notes.txt", "hello"), code=0),
        row("nothing is done", "--version", nothing, code=0, says="fairtopk"),
    ]  # fmt: skip


def _short(value: str) -> str:
    text = repr(value)
    return text if len(text) < 40 else f"{text[:20]}... of {len(value):,} characters"


ROWS = [*options(), *commands(), *markup(), *valid()]
