"""Rows that spoil a config, of a run, a sweep or a goal."""

from pathlib import Path

from drill.rows import (
    DEEP,
    ESCAPE,
    HUGE,
    SPOILS,
    Do,
    Row,
    all_of,
    changed,
    put,
    row,
    swap,
)  # fmt: skip

TRAIN = "train kso-red.toml --out made"
SWEEP = "sweep sweep.toml --out made"
GOAL = "train goal.toml --out made"

# What a key of each kind must not be, written as TOML.
NOT_WHOLE = ("true", "1.5", '"5"', "[5]", "{}", "-1", "1e11", "nan", HUGE)
NOT_NUMBER = ("true", '"5"', "[5]", "{}", "-1.0", "nan", "inf")
NOT_TRUTH = ("1", '"yes"', '"true"', "[]")
NOT_TEXT = ("1", "true", "[]", "{}")
NOT_LIST = ("true", '"5"', "[0]", "[true]", '["5"]', "[]", "{}", "[1.5]")

KEYS: list[tuple[str, tuple[str, ...]]] = [
    ("seed", NOT_WHOLE),
    ("data.source", (*NOT_TEXT, '"nonsense"', f'"{chr(92)}u001b[31m"')),
    ("data.path", (*NOT_TEXT, '"none.csv"', '"nul\\u0000"', '""')),
    ("data.groups", ("1", "[]", '"group"', "{}", '{ column = "none" }', '{ column = 1 }',
                     '{ column = "group", equals = "none" }',
                     '{ column = "group", contains = "a", equals = "a" }',
                     '{ column = "year", below = "x" }', '{ column = "group", below = 3 }',
                     '{ column = "year", below = nan }', '{ column = "group", nonsense = 1 }')),
    ("data.options", ("1", "[]", "{ nonsense = 1 }", '{ user = "none", item = "item" }',
                      "{ user = 1 }", '{ separator = "" }', '{ separator = ";;" }',
                      '{ items = "none.csv" }', "{ rating = true }", '{ items = ["a"] }')),
    ("data.split", ("1", '"nonsense"', "[]")),
    ("data.test", ("true", '"5"', "-1", "0", "nan", "1e11")),
    ("data.validation", ("true", "-1", "0")),
    ("data.min_ratings", ("true", "0", "1.5")),
    ("model.name", (*NOT_TEXT, '"nonsense"', '"linear"')),
    ("model.width", (*NOT_WHOLE, "0", "100000000000")),
    ("model.hidden", (*NOT_LIST, "[100000000000]", f"[{', '.join(['4'] * 100_000)}]")),
    ("model.dropout", (*NOT_NUMBER, "1.0")),
    ("model.backend", ('"nonsense"', "1")),
    ("model.input", (*NOT_TEXT, '"nonsense"')),
    ("model.ridge", (*NOT_NUMBER, "0")),
    ("model.confidence", (*NOT_NUMBER, "0")),
    ("model.iterations", (*NOT_WHOLE, "0")),
    ("model.neighbours", (*NOT_WHOLE, "0")),
    ("model.similarity", (*NOT_TEXT, '"nonsense"')),
    ("method.name", (*NOT_TEXT, '"nonsense"', '"<b>"')),
    ("method.k", ("true", "0", "-1", "1.5", '"5"', "[]", "[0]", "{}", "100000000000",
                  f"[{', '.join(map(str, range(1, 20_001)))}]")),
    ("method.c_relative", NOT_NUMBER),
    ("method.preset", (*NOT_TEXT, '"nonsense"')),
    ("method.gamma_0", ("true", '"x"', "-1", "2", "nan")),
    ("method.nonsense", ("1",)),
    ("method.distill", (
        '{ rounding = "up" }', "{ rounding = 1 }", "{ rounds = 0 }", "{ ridge = 0 }",
        "{ teacher = 1 }", '{ teacher = "nonsense" }', '{ teacher = "linear" }',
        '{ teacher = { path = "a.csv" } }',
        '{ teacher = { path = "", user = "u", item = "i", score = "s" } }',
    )),
    ("training.warmup_epochs", NOT_WHOLE),
    ("training.warmup_rate", (*NOT_NUMBER, "0")),
    ("training.epochs", NOT_WHOLE),
    ("training.rate", (*NOT_NUMBER, "0")),
    ("training.rate_epochs", ("true", '"5"', "[0]", "[1.5]", "{}")),
    ("training.optimizer", (*NOT_TEXT, '"nonsense"')),
    ("training.batch_size", (*NOT_WHOLE, "0")),
    ("training.lists", ("1", "[]", "{ rated = 0 }", "{ rated = true }", "{ nonsense = 1 }",
                        "{ top = 500 }")),
    ("training.corrected", NOT_TRUTH),
    ("training.restart_last_layer", NOT_TRUTH),
    ("training.validate_every", ("0", "true", "1.5")),
    ("training.patience", ("0", "true")),
    ("training.save_minutes", ("0", "-1", "true", "nan")),
    ("training.weight_decay", NOT_NUMBER),
    ("evaluation.k", (*NOT_LIST, "[-1]", "0")),
    ("evaluation.protocol", (*NOT_TEXT, '"nonsense"')),
    ("evaluation.unrated", (*NOT_WHOLE, "0")),
    ("evaluation.select_on", ('"nonsense"', "1")),
    ("evaluation.select_k", ("0", "true")),
    ("evaluation.select_gap", ('"nonsense"', "1")),
]  # fmt: skip
OF_DATA = ("data.path", "data.groups", "data.options", "data.test")  # told by what reads it


def _set(name: str, key: str, value: str) -> Do:
    """Set a key of a TOML file to a text, which may be no TOML."""

    def do(folder: Path) -> None:
        section, _, last = key.rpartition(".")
        lines = (folder / name).read_text().splitlines()
        lines = [line for line in lines if not line.startswith(f"{last} =")]
        place = lines.index(f"[{section}]") + 1 if section else 0
        lines.insert(place, f"{last} = {value}")
        (folder / name).write_text("\n".join(lines) + "\n")

    return do


def keys() -> list[Row]:
    """Return a row for each key and each value that it must not have."""
    return [
        row(f"{key} = {_short(value)}", TRAIN, _set("kso-red.toml", key, value),
            says="" if key in OF_DATA or value == HUGE else key.rpartition(".")[2])
        for key, values in KEYS
        for value in values
    ]  # fmt: skip


def _short(value: str) -> str:
    return value if len(value) < 40 else f"{value[:20]}... of {len(value):,} characters"


DEEP_LIST = "[" * DEEP + "]" * DEEP
TEXTS: dict[str, str | bytes] = {
    "is nested 10,000 deep": f"a = {DEEP_LIST}\n",
    "has tables nested 10,000 deep": "a = " + "{ b = " * DEEP + "1" + " }" * DEEP + "\n",
    "has a key of 10,000 parts": ".".join("a" * DEEP) + " = 1\n",
    "has an integer of 5,000 digits": f"seed = {HUGE}\n",
    "has a float of 5,000 digits": f"seed = {HUGE}.0\n",
    "has escapes for a key": '"\\u001b]0;owned\\u0007" = 1\n',
    "has markup for a key": '"[/x]" = 1\n',
    "has a line feed in a key": '"a\\nb" = 1\n',
    "has a raw escape": f"# {ESCAPE}\n",
    "has a key twice": "seed = 1\nseed = 2\n",
    "has a table twice": "[data]\n[data]\n",
    "has a NUL": "seed = 1\0\n",
    "is not UTF-8": b"seed = 1 # \xff\n",
    "is UTF-16": "seed = 1\n".encode("utf-16"),
    "has a byte order mark": b"\xef\xbb\xbfseed = 1\n",
    "has an open quote": 'seed = "1\n',
    "is JSON": '{"seed": 1}\n',
    "has a lone surrogate": b'a = "\\ud800"\n',
    "is a date": "seed = 2020-01-01\n",
    "is a word": "nonsense\n",
}
CONFIGS = {"kso-red.toml": TRAIN, "sweep.toml": SWEEP, "goal.toml": GOAL}


def texts() -> list[Row]:
    """Return what may befall a config as a text."""
    rows = []
    for name, words in CONFIGS.items():
        for how, text in TEXTS.items():
            raw = text if isinstance(text, bytes) else text.encode()
            rows.append(row(f"{name} {how}", words, put(name, raw), says=name))
        for how, spoil in SPOILS.items():
            if how != "is cut in half":
                rows.append(row(f"{name} {how}", words, spoil(name), says=name))
    return rows


def _seeds(count: int) -> str:
    return f"seed = [{', '.join(map(str, range(count)))}]"


SWEEPS = {
    "lists 120,000 cells": _seeds(60_000),
    "lists a billion cells": f"{_seeds(1_000)}\ntraining = {{ epochs = {[*range(1_000)]}, "
    f"warmup_epochs = {[*range(1_000)]} }}",
    "lists no seeds": "seed = []",
    "lists seeds that are text": 'seed = ["a"]',
    "lists seeds that are true": "seed = [true]",
    "has an unknown key": "nonsense = [1]",
    "has an unknown section": "nonsense = { a = [1] }",
    "lists an unknown key": "training = { nonsense = [1] }",
    "keeps models by a word": 'keep_models = "yes"',
    "keeps models by a number": "keep_models = 1",
    "re-ranks by nothing": "rerank_of = [1]",
    "re-ranks by an unknown method": 'rerank_of = ["nonsense"]',
}


def teachers() -> list[Row]:
    """Return what may be wrong with the table of a teacher."""
    words, usual = "train fair-distill.toml --out made", {"user": "user", "item": "item"}
    tables: dict[str, tuple[dict[str, str], str]] = {
        "that does not exist": ({"path": "none.csv", "score": "score"}, "none.csv"),
        "without the column": ({"path": "ranked.csv", "score": "points"}, "points"),
        "with text for scores": ({"path": "ranked.csv", "score": "group"}, "group"),
        "that is no Parquet": ({"path": "bad.parquet", "score": "score"}, "bad.parquet"),
    }
    rows = []
    for how, (given, says) in tables.items():
        pairs = ", ".join(f'{key} = "{value}"' for key, value in (usual | given).items())
        do = swap(
            "fair-distill.toml", "epochs = 2 }", f"epochs = 2, teacher = {{ {pairs} }} }}"
        )

        def spoil(folder: Path, do: Do = do) -> None:
            (folder / "bad.parquet").write_bytes(b"nonsense")
            do(folder)

        rows.append(row(f"a teacher's table {how}", words, spoil, says=says))
    return rows


def sweeps() -> list[Row]:
    """Return what is wrong with a sweep alone."""
    rows = [
        row(f"a sweep that {how}", SWEEP,
            swap("sweep.toml", "[sweep]\n", f"[sweep]\n{text}\n"), says="sweep.toml")
        for how, text in SWEEPS.items()
    ]  # fmt: skip
    return [
        *rows,
        row("a sweep that is a list", SWEEP,
            changed("sweep.toml", lambda data: b"sweep = [1]\n" + data.split(b"[sweep]")[0])),
        row("a sweep of an unknown method", SWEEP, swap("sweep.toml", "k-song", "nonsense")),
        row("a sweep of a re-ranker without a method", SWEEP,
            swap("sweep.toml", '{ method = "det-const-sort" }', "{ k = 5 }")),
        row("a sweep of an unknown re-ranker", SWEEP, swap("sweep.toml", "det-const", "x")),
        row("a sweep of an unknown protocol", SWEEP, swap("sweep.toml", '"full"', '"whole"')),
        row("a sweep on data that is not there", SWEEP,
            swap("sweep.toml", "ratings.csv", "n.csv"), says="n.csv"),
    ]  # fmt: skip


def goals() -> list[Row]:
    """Return what is wrong with a goal alone."""
    target = 'target = { metric = "rank_exposure_gap@5", at_most = 0.9 }'
    return [
        row(f"a goal with {text}", GOAL, swap("goal.toml", target, text), says="goal")
        for text in (
            "target = 1", "", "target = {}", 'target = { metric = "x@5", at_most = 0.9 }',
            'target = { metric = "rank_exposure_gap@5", at_most = 2 }',
            'target = { metric = "rank_exposure_gap@5", at_most = true }',
            'target = { metric = "rank_exposure_gap@5", at_most = "0.9" }',
            f'target = {{ metric = "rank_exposure_gap@{HUGE[:30]}", at_most = 0.9 }}',
            f"{target}\nkeep = 1", f"{target}\nnonsense = 1",
        )
    ] + [
        row("a goal of true runs", GOAL, swap("goal.toml", "runs = 2", "runs = true")),
        row("a goal of no runs", GOAL, swap("goal.toml", "runs = 2", "runs = 0")),
        row("a goal of a method without a weight", GOAL,
            all_of(swap("goal.toml", '"kso-red"', '"k-song"'))),
    ]  # fmt: skip


def fine() -> list[Row]:
    """Return configs that are rightly accepted, and can be read back."""
    odd = 'equals = "a"'
    weird = '{ column = "group", equals = "\\u0001\\"\\\\ \\u007f é" }'
    rule = swap("kso-red.toml", f'{{ column = "group", {odd} }}', weird)

    def relabel(folder: Path) -> None:
        text = (folder / "items.csv").read_text().replace(",a,", ',"\x01""\\ \x7f é",')
        (folder / "items.csv").write_text(text)

    return [
        row("control characters in a group rule", TRAIN, all_of(rule, relabel), code=0),
        row("a comment with letters of all kinds", TRAIN,
            swap("kso-red.toml", "seed = 0", "seed = 0 # é 漢 🙂"), code=0),
        row("line ends of Windows", TRAIN,
            changed("kso-red.toml", lambda data: data.replace(b"\n", b"\r\n")), code=0),
        row("a whole number for a number", TRAIN, _set("kso-red.toml", "training.rate", "1"),
            code=(0, 3)),
        row("evaluation.k that is one number", TRAIN, _set("kso-red.toml", "evaluation.k", "5"),
            code=0),
        row("a run folder read back after control characters", "evaluate made", _trained_oddly,
            code=0),
    ]  # fmt: skip


def _trained_oddly(folder: Path) -> None:
    from drill.running import run_in

    for one in fine():
        if one.name == "control characters in a group rule":
            one.do(folder)
            run_in(folder, one.words)


ROWS = [*keys(), *texts(), *teachers(), *sweeps(), *goals(), *fine()]
