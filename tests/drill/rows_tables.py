"""Rows that spoil a table, an archive or a text of data."""

import gzip
import io
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import polars as pl
from drill.rows import (
    ESCAPE,
    SPOILS,
    Do,
    Row,
    all_of,
    as_link,
    as_pipe,
    changed,
    copied,
    put,
    removed,
    row,
    swap,
)  # fmt: skip
from drill.rows_words import AUDIT, PREPARE, RERANK

COLUMNS = "--user user --item item --rating rating --time time --items items.csv"
LETOR = "data prepare letor --from docs.txt --out made"
FILMS = "data prepare movielens-latest --from films.zip --out made"

READERS = {  # a file, the command that reads it
    "audit": ("ranked.csv", AUDIT),
    "audit Parquet": ("ranked.parquet", AUDIT.replace(".csv", ".parquet")),
    "audit gz": ("ranked.csv.gz", AUDIT.replace(".csv", ".csv.gz")),
    "audit items": (
        "items.csv",
        AUDIT.replace("--groups group", "--items items.csv --groups year"),
    ),
    "audit baseline": ("ranked.parquet", f"{AUDIT} --baseline ranked.parquet"),
    "rerank": ("ranked.csv", f"{RERANK} --out made.csv"),
    "prepare": ("ratings.csv", PREPARE),
    "prepare's items": ("items.csv", PREPARE),
    "prepare Parquet": (
        "ratings.parquet",
        f"data prepare parquet --from ratings.parquet --out made {COLUMNS}",
    ),
    "prepare LETOR": ("docs.txt", LETOR),
    "prepare a zip": ("films.zip", FILMS),
    "train": ("ratings.csv", "train kso-red.toml --out made"),
    "train's items": ("items.csv", "train kso-red.toml --out made"),
    "users of a text": ("users.txt", "recommend runs/kso-red --users users.txt --out m.csv"),
    "histories": (
        "histories.csv",
        "recommend ease-run --histories histories.csv --out m.csv",
    ),
    "users of a table": ("users.csv", "recommend runs/kso-red --users users.csv --out m.csv"),
}


def spoilt() -> list[Row]:
    """Return whatever may befall a file, for each file that a command reads."""
    rows = []
    for what, (name, words) in READERS.items():
        for how, spoil in SPOILS.items():
            if (what, how) in CUT_IS_FINE:
                continue
            rows.append(row(f"{what}: {name} {how}", words, spoil(name)))
    return rows


# Half of the lines is a table too, or cuts a number that is a number still.
CUT_IS_FINE = {
    (what, "is cut in half")
    for what in ("audit", "rerank", "prepare", "prepare's items", "prepare LETOR", "train",
                 "train's items", "audit items", "users of a text", "users of a table",
                 "histories")
}  # fmt: skip

HEADER = "user,item,group,relevance,score"
LINES: dict[str, Callable[[str], str]] = {  # what is done to the text of rankings
    "has a header alone": lambda text: text.splitlines()[0] + "\n",
    "has no header": lambda text: text.split("\n", 1)[1],
    "has a NUL in a cell": lambda text: text.replace(",a,", ",a\0,", 1),
    "has a NUL in its header": lambda text: text.replace("score", "sc\0ore", 1),
    "has a NUL in a score": lambda text: _last(text, "1\0"),
    "has two columns of one name": lambda text: text.replace("relevance", "score", 1),
    "has a column without a name twice": lambda text: text.replace("relevance", "user", 1),
    "lacks the column of scores": lambda text: text.replace("score", "other", 1),
    "has escapes in its header": lambda text: text.replace("score", f"s{ESCAPE}", 1),
    "has a line too long": lambda text: text + "1,2,a,3,4,5,6\n",
    "has a line too short": lambda text: text + "1,2\n",
    "has an open quote": lambda text: text + '1,2,"a,3,4\n',
    "has text for a score": lambda text: _last(text, "high"),
    "has escapes for a score": lambda text: _last(text, ESCAPE),
    "has inf for a score": lambda text: _last(text, "inf"),
    "has nan for a score": lambda text: _last(text, "nan"),
    "has 1e999 for a score": lambda text: _last(text, "1e999"),
    "has a score too few": lambda text: _last(text, ""),
    "has no scores": lambda text: _column(text, 4, lambda _: ""),
    "has no users": lambda text: _column(text, 0, lambda _: ""),
    "has no items": lambda text: _column(text, 1, lambda _: ""),
    "has no groups": lambda text: _column(text, 2, lambda _: ""),
    "has one group": lambda text: _column(text, 2, lambda _: "a"),
    "has a group for each row": lambda text: _column(text, 2, lambda n: f"g{n}"),
    "has two groups of one item": lambda text: _column(text, 2, lambda n: "ab"[n % 2]),
    "has an item twice in a list": lambda text: text + text.splitlines()[1] + "\n",
    "is UTF-16": lambda text: text.encode("utf-16").decode("latin-1"),
    "is separated by semicolons": lambda text: text.replace(",", ";"),
    "is a page of HTML": lambda text: "<!DOCTYPE html>\n<html><body>404</body></html>\n",
    "is JSON": lambda text: '[{"user": 1}]\n',
}


def _last(text: str, cell: str) -> str:
    return text.rstrip("\n").rpartition(",")[0] + f",{cell}\n"


def _column(text: str, place: int, new: Callable[[int], str]) -> str:
    lines = [line.split(",") for line in text.splitlines()]
    for number, fields in enumerate(lines[1:]):
        fields[place] = new(number)
    return "\n".join(map(",".join, lines)) + "\n"


def rankings() -> list[Row]:
    """Return what is done to the lines of rankings, for an audit and a re-ranking."""
    return [
        row(
            f"{command}: ranked.csv {how}",
            words,
            changed("ranked.csv", lambda data, change=change: _coded(change(data.decode()))),
        )
        for command, words in (("audit", AUDIT), ("rerank", f"{RERANK} --out made.csv"))
        for how, change in LINES.items()
    ]


def _coded(text: str) -> bytes:
    return text.encode("latin-1" if "\xff\xfe" in text else "utf-8")


def relevance() -> list[Row]:
    """Return grades that no gain can be made of."""
    words = f"{AUDIT} --relevance relevance"
    return [
        row(
            f"audit: relevance is {grade or 'missing'}",
            words,
            changed("ranked.csv", lambda data, grade=grade: _graded(data, grade)),
            says="relevance",
        )
        for grade in ("-1", "1000000000", "inf", "nan", "good")
    ]


def _graded(data: bytes, grade: str) -> bytes:
    return _column(data.decode(), 3, lambda n: grade if n == 7 else "1").encode()


RATINGS: dict[str, Callable[[str], str]] = {
    "has a header alone": LINES["has a header alone"],
    "has a NUL in its header": lambda text: text.replace("rating", "rat\0ing", 1),
    "has a NUL in a rating": lambda text: text.replace(",5,", ",5\0,", 1),
    "has a rating that is text": lambda text: text.replace(",5,", ",five,", 1),
    "has a rating of inf": lambda text: text.replace(",5,", ",inf,", 1),
    "has a rating of nan": lambda text: text.replace(",5,", ",nan,", 1),
    "has a rating of -1": lambda text: text.replace(",5,", ",-1,", 1),
    "has a rating of 1e9": lambda text: text.replace(",5,", ",1000000000,", 1),
    "has no rating in a row": lambda text: text.replace(",5,", ",,", 1),
    "has a time that is text": lambda text: _last(text, "noon"),
    "has a pair twice": lambda text: text + text.splitlines()[1] + "\n",
    "has two columns of one name": lambda text: text.replace("time", "rating", 1),
    "has a line too long": lambda text: text + "1,2,3,4,5,6\n",
    "has an open quote": lambda text: text + '1,"2,3,4\n',
    "has no users": lambda text: _column(text, 0, lambda _: ""),
    "has one user": lambda text: _column(text, 0, lambda _: "1"),
    "lacks the column of items": lambda text: text.replace("item", "other", 1),
}
ITEMS: dict[str, Callable[[str], str]] = {
    "has a header alone": LINES["has a header alone"],
    "has no groups": lambda text: _column(text, 1, lambda _: ""),
    "has one group": lambda text: _column(text, 1, lambda _: "a"),
    "lacks the group of the rule": lambda text: text.replace(",a,", ",c,"),
    "lacks the column of the rule": lambda text: text.replace("group", "other", 1),
    "has an item twice, in two groups": lambda text: text + "1,b,1970\n",
    "has other items": lambda text: _column(text, 0, lambda n: f"x{n}"),
}
ONLY_RULED = {  # faults only where a rule needs what is not there
    "has no groups", "has one group", "lacks the group of the rule",
    "lacks the column of the rule", "has other items", "has an item twice, in two groups",
}  # fmt: skip


def ratings() -> list[Row]:
    """Return what is done to ratings and items, for a training and a preparation."""
    rows = []
    for what, words in (("train", "train kso-red.toml --out made"), ("prepare", PREPARE)):
        for name, changes in (("ratings.csv", RATINGS), ("items.csv", ITEMS)):
            for how, change in changes.items():
                if what == "prepare" and (how in ONLY_RULED or how == "has one user"):
                    continue
                do = changed(name, lambda data, change=change: change(data.decode()).encode())
                rows.append(row(f"{what}: {name} {how}", words, do))
    return rows


DOCS: dict[str, Callable[[str], str]] = {
    "has a feature number of 10^6": lambda text: text.replace(" 3:", " 1000000:", 1),
    "has a feature number of 10^18": lambda text: text.replace(" 3:", f" {10**18}:", 1),
    "has a feature number of 10^30": lambda text: text.replace(" 3:", f" {10**30}:", 1),
    "has a negative feature number": lambda text: text.replace(" 3:", " -3:", 1),
    "has features that fall": lambda text: text.replace(" 3:", " 1:", 1),
    "has a value that is text": lambda text: text.replace("3:0 ", "3:x ", 1),
    "has a value of nan": lambda text: text.replace("3:0 ", "3:nan ", 1),
    "has a value of 1e99": lambda text: text.replace("3:0 ", "3:1e99 ", 1),
    "has no qid": lambda text: text.replace(" qid:1 ", " ", 1),
    "has a qid that is text": lambda text: text.replace("qid:1 ", "qid:one ", 1),
    "has a qid of 10^30": lambda text: text.replace("qid:1 ", f"qid:{10**30} ", 1),
    "has a relevance that is text": lambda text: "high" + text[1:],
    "has a document twice": lambda text: text + text.splitlines()[0] + "\n",
    "has comments alone": lambda text: "# nothing\n# at all\n",
    "has no features": lambda text: "1 qid:1\n2 qid:1\n",
    "has a NUL": lambda text: text.replace(" 3:", "\0 3:", 1),
}


def documents() -> list[Row]:
    """Return what is done to a LETOR text."""
    rows = []
    for what, words in (("prepare", LETOR), ("train", "train docs.toml --out made")):
        for how, change in DOCS.items():
            do = changed("docs.txt", lambda data, change=change: change(data.decode()).encode())
            rows.append(row(f"{what}: docs.txt {how}", words, do))
    negative = changed("docs.txt", lambda data: b"-1" + data[1:])
    huge = changed("docs.txt", lambda data: b"1000000000" + data[1:])
    return [
        *rows,
        row("train: docs.txt has a relevance of -1", "train docs.toml --out made", negative),
        row("train: docs.txt has a relevance of 1e9", "train docs.toml --out made", huge),
    ]


def parquet() -> list[Row]:
    """Return tables of kinds that only Parquet has."""

    def recast(name: str, column: str, dtype: pl.DataType | type[pl.DataType]) -> Do:
        def do(folder: Path) -> None:
            frame = pl.read_parquet(folder / name)
            frame.with_columns(pl.col(column).cast(dtype)).write_parquet(folder / name)

        return do

    def made(name: str, column: str, values: list[object]) -> Do:
        def do(folder: Path) -> None:
            frame = pl.read_parquet(folder / name)
            new = pl.Series(column, values * (len(frame) // len(values) + 1))[: len(frame)]
            frame.with_columns(new).write_parquet(folder / name)

        return do

    audit = AUDIT.replace(".csv", ".parquet")
    prepare = READERS["prepare Parquet"][1]
    ranked, rated = "ranked.parquet", "ratings.parquet"
    return [
        row("audit: Decimal scores", audit, recast(ranked, "score", pl.Decimal(10, 2)), code=0),
        row("audit: scores as text", audit, made(ranked, "score", ["high", "low"])),
        row("audit: scores as lists", audit, made(ranked, "score", [[1.0], [2.0]])),
        row("audit: scores as booleans", audit, made(ranked, "score", [True, False]), code=0),
        row("audit: scores of inf", audit, made(ranked, "score", [1.0, float("inf")])),
        row("audit: scores of nan", audit, made(ranked, "score", [1.0, float("nan")])),
        row("audit: scores null", audit, made(ranked, "score", [1.0, None])),
        row("audit: users as lists", audit, made(ranked, "user", [[1], [2]])),
        row("audit: users as bytes", audit, made(ranked, "user", [b"\xff", b"\x00"])),
        row("audit: items as structs", audit, made(ranked, "item", [{"a": 1}, {"a": 2}])),
        row("audit: groups as lists", audit, made(ranked, "group", [["a"], ["b"]])),
        row("audit: groups as structs", audit, made(ranked, "group", [{"a": 1}, {"a": 2}])),
        row("audit: groups as bytes", audit, made(ranked, "group", [b"a", b"\xff"])),
        row("prepare: Decimal ratings", prepare,
            made(rated, "rating", [Decimal("1.5"), Decimal("2")]), code=0),
        row("prepare: ratings as text", prepare, made(rated, "rating", ["five", "one"])),
        row("prepare: ratings as lists", prepare, made(rated, "rating", [[1.0], [2.0]])),
        row("prepare: users as structs", prepare, made(rated, "user", [{"a": 1}, {"a": 2}])),
        row("prepare: times as lists", prepare, made(rated, "time", [[1], [2]])),
    ]  # fmt: skip


def _zip(*entries: tuple[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in entries:
            archive.writestr(name, text)
    return file.getvalue()


def _long_line() -> bytes:
    return gzip.compress(b"user,item,group,relevance,score\n" + b"0" * 50_000_000)


def archives() -> list[Row]:
    """Return zips and gz files that are not what they should be."""
    films = "films.zip"
    return [
        row("a zip without files", FILMS, put(films, _zip()), says=films),
        row("a zip of other files", FILMS, put(films, _zip(("a.txt", "hello"))), says=films),
        row("a zip that climbs", FILMS, put(films, _zip(("../ratings.csv", "x"))), says=films),
        row("a zip with an absolute path", FILMS, put(films, _zip(("/x", "x"))), says=films),
        row("a zip whose member has escapes", FILMS,
            put(films, _zip((f"a{ESCAPE}.csv", "x"))), says=films),
        row("a zip with a climbing name with escapes", FILMS,
            put(films, _zip((f"../{ESCAPE}", "x"))), says=films),
        row("a zip with NULs in its ratings", FILMS,
            put(films, _zip(("ratings.csv", "userId,movieId,rating,timestamp\n1,1,\0,1\n"),
                            ("movies.csv", "movieId,title,genres\n1,A (1980),War\n")))),
        row("a gz of a line without an end", AUDIT.replace(".csv", ".csv.gz"),
            lambda folder: put("ranked.csv.gz", _long_line())(folder)),
        row("a gz that is none", AUDIT.replace(".csv", ".csv.gz"),
            put("ranked.csv.gz", "user,item\n")),
        row("one data set prepared as another", FILMS.replace("-latest", "-1m"),
            says="films.zip"),
        row("ratings prepared as netflix", "data prepare netflix --from films.zip --out made"),
        row("ratings prepared as LETOR", "data prepare letor --from ratings.csv --out made",
            says="ratings.csv"),
        row("documents prepared as ratings", PREPARE.replace("ratings.csv", "docs.txt")),
        row("a prepared folder of another name", "train kso-red.toml --out made "
            "--set data.path=prepared-docs --set data.options=", says="prepared-docs"),
        row("a folder with a pipe in it prepared",
            "data prepare letor --from below --out made",
            all_of(lambda folder: (folder / "below").mkdir(), as_pipe("below/docs.txt"))),
        row("a folder with a device in it prepared",
            "data prepare letor --from below --out made",
            all_of(lambda folder: (folder / "below").mkdir(),
                   as_link("below/docs.txt", "/dev/zero"))),
    ]  # fmt: skip


def names() -> list[Row]:
    """Return paths with signs that some readers expand: each is the file of that name."""
    rows = []
    for sign in ("[1]", "*", "?"):
        name = f"ranked{sign}.csv"
        other = all_of(copied("ranked.csv", name), _one_user("ranked1.csv"))
        rows += [
            row(f"audit {name} beside ranked1.csv", [*_named(AUDIT, name)], other, code=0,
                says="24 lists"),
            row(f"rerank {name} beside ranked1.csv", [*_named(RERANK, name)], other, code=0,
                says="24 lists"),
            row(f"audit {name} that is not there", [*_named(AUDIT, name)],
                _one_user("ranked1.csv"), says=name),
            row(f"rerank {name} that is not there", [*_named(RERANK, name)],
                _one_user("ranked1.csv"), says=name),
            row(f"audit ranked{sign}.parquet", [*_named(AUDIT, f"ranked{sign}.parquet")],
                copied("ranked.parquet", f"ranked{sign}.parquet"), code=0, says="24 lists"),
            row(f"prepare ratings{sign}.csv that is not there",
                PREPARE.replace("ratings.csv", f"'ratings{sign}.csv'"),
                copied("ratings.csv", "ratings1.csv"), says=f"ratings{sign}.csv"),
            row(f"prepare ratings{sign}.csv beside ratings1.csv",
                PREPARE.replace("ratings.csv", f"'ratings{sign}.csv'"),
                all_of(copied("ratings.csv", f"ratings{sign}.csv"), put("ratings1.csv", "x\n")),
                code=0, says="480 ratings"),
            row(f"train on ratings{sign}.csv that is not there",
                ["train", "kso-red.toml", "--out", "made", "--set",
                 f"data.path='ratings{sign}.csv'"],
                copied("ratings.csv", "ratings1.csv"), says=f"ratings{sign}.csv"),
            row(f"train on prepared{sign} that is not there",
                ["train", "kso-red.toml", "--out", "made", "--set", "data.options=", "--set",
                 f"data.path='prepare{sign}'"], says=f"prepare{sign}"),
            row(f"recommend for users{sign}.csv that is not there",
                ["recommend", "runs/kso-red", "--out", "m.csv", "--users", f"users{sign}.csv"],
                copied("users.csv", "users1.csv"), says=f"users{sign}.csv"),
            row(f"evaluate with data in ratings{sign}.csv",
                ["evaluate", "runs/kso-red", "--k", "4", "--data", f"ratings{sign}.csv"],
                all_of(copied("ratings.csv", f"ratings{sign}.csv"), put("ratings1.csv", "x\n")),
                code=0),
        ]  # fmt: skip
    return rows


def _named(words: str, name: str) -> list[str]:
    return [name if word == "ranked.csv" else word for word in words.split()]


def _one_user(name: str) -> Do:
    def do(folder: Path) -> None:
        lines = (folder / "ranked.csv").read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.startswith(("user", "1,", "2,"))]
        (folder / name).write_text("".join(kept))

    return do


def outputs() -> list[Row]:
    """Return tables that are fine, and what of them must not come through."""
    formula = '"=HYPERLINK(""http://x"",""y"")"'
    label = "<script>alert(1)</script>"
    html = changed("ranked.csv", lambda data: data.replace(b",a,", f",{label},".encode()))
    return [
        row("audit: a byte order mark", AUDIT,
            changed("ranked.csv", lambda data: b"\xef\xbb\xbf" + data), code=0),
        row("audit: line ends of Windows", AUDIT,
            changed("ranked.csv", lambda data: data.replace(b"\n", b"\r\n")), code=0),
        row("audit: HTML for a group", f"{AUDIT} --out made", html, code=0, says="script"),
        row("audit: escapes for a group", f"{AUDIT} --out made",
            changed("ranked.csv", lambda data: data.replace(b",a,", f",{ESCAPE},".encode())),
            code=0),
        row("audit: a group in markup", f"{AUDIT} --out made",
            changed("ranked.csv", lambda data: data.replace(b",a,", b",[/x],")), code=0,
            says="[/x]"),
        row("rerank: escapes for a group", f"{RERANK} --out made.csv",
            changed("ranked.csv", lambda data: data.replace(b",a,", f",{ESCAPE},".encode())),
            code=0),
        row("rerank: ids that are formulas", f"{RERANK} --out made.csv",
            changed("ranked.csv", lambda data: data.replace(b"\n1,", f"\n{formula},".encode())),
            code=0),
        row("rerank: ids that are formulas, made safe",
            f"{RERANK} --out made.csv --csv-safe",
            changed("ranked.csv", lambda data: data.replace(b"\n1,", f"\n{formula},".encode())),
            code=0),
        row("recommend for somebody unknown",
            "recommend runs/kso-red --users users.txt --out m.csv",
            put("users.txt", f"nobody\n{ESCAPE}\n[/x]\n"), code=0),
        row("recommend: a rating of 11 in a history",
            "recommend ease-run --histories histories.csv --out m.csv",
            swap("histories.csv", "901,1,5", "901,1,11"), says="histories.csv"),
        row("recommend: a history with an item twice",
            "recommend ease-run --histories histories.csv --out m.csv",
            swap("histories.csv", "901,2,3", "901,1,3"), says="histories.csv"),
        row("recommend: a history of unknown items",
            "recommend ease-run --histories histories.csv --out m.csv",
            put("histories.csv", f"user,item\n{ESCAPE},[/x]\n"), code=0, says="ignored: 1"),
        row("prepare: a title with escapes", PREPARE,
            swap("items.csv", "year", f"year{ESCAPE}"), code=0),
        row("train: a folder whose name has escapes",
            ["train", "k-song.toml", "--out", f"made{ESCAPE}"], code=0),
        row("train: data that is not there any more", "evaluate runs/kso-red",
            removed("ratings.csv"), says="ratings.csv"),
        row("evaluate: data that has changed", "evaluate runs/kso-red",
            swap("ratings.csv", ",5,", ",4,"), says="runs/kso-red"),
        row("resume: data that has changed", "train kso-red.toml --out runs/kso-red --resume",
            swap("ratings.csv", ",5,", ",4,"), says="runs/kso-red"),
    ]  # fmt: skip


ROWS = [
    *spoilt(), *rankings(), *relevance(), *ratings(), *documents(), *parquet(), *archives(),
    *names(), *outputs(),
]  # fmt: skip
