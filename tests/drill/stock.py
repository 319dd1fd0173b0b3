"""Valid files of every kind that the commands read, which the drill then spoils."""

import gzip
import random
import zipfile
from pathlib import Path

import polars as pl
from drill.running import run_in

import fairtopk as ft

USERS, ITEMS, PER_USER = 24, 40, 20

DATA = """seed = 0
[data]
source = "csv"
path = "ratings.csv"
options = { user = "user", item = "item", time = "time", items = "items.csv" }
groups = { column = "group", equals = "a" }
test = 3
validation = 3
"""
SMALL = """[model]
width = 4
hidden = [4]
[training]
warmup_epochs = 1
epochs = 2
catalogue_epochs = 1
batch_size = 8
lists = { rated = 4, unrated = 8, per_group = 3 }
[evaluation]
k = [3, 5]
unrated = 8
"""
METHODS = {
    "kso-red": 'name = "kso-red"\nk = 5\nc_relative = 1.0\npreset = "paper"\n',
    "k-song": 'name = "k-song"\nk = 5\npreset = "paper"\n',
    "fair-distill": 'name = "fair-distill"\nk = 5\nc = 1.0\n'
    "distill = { head = 10, tail = 5, drawn = 5, epochs = 2 }\n",
    "dpr-rsp": 'name = "dpr-rsp"\nk = 5\ndpr = { batches = 1, samples = 20 }\n',
    "robust": 'name = "robust"\nk = 5\nc = 0.5\nrobust = { rounds = 2, iterations = 5 }\n',
}
DOCUMENTS = """seed = 0
[data]
source = "letor"
path = "docs.txt"
groups = { column = "f3", at_least = 0.5 }
[model]
name = "linear"
[method]
name = "kso-red"
k = 3
c_relative = 1.0
[training]
warmup_epochs = 1
epochs = 1
batch_size = 8
[evaluation]
k = [3]
"""
SWEEP = """[sweep]
method = [{ name = "k-song", k = 5 }, { name = "kso-red", k = 5, c_relative = [1.0] }]
protocols = ["full"]
rerank = [{ method = "det-const-sort" }]
"""
GOAL = """[goal]
target = { metric = "rank_exposure_gap@5", at_most = 0.9 }
runs = 2
"""


def fill(folder: Path) -> None:
    """Write one of each: tables, configs, trained runs, what else commands leave behind."""
    write_tables(folder)
    write_configs(folder)
    write_runs(folder)
    write_rankers(folder)


def write_tables(folder: Path) -> None:
    """Write ratings, rankings and documents."""
    chance = random.Random(0)
    items = pl.DataFrame(
        {
            "item": list(range(1, ITEMS + 1)),
            "group": ["a" if number % 3 == 0 else "b" for number in range(ITEMS)],
            "year": [1970 + number for number in range(ITEMS)],
        }
    )
    rows = [
        (user, item, chance.randint(1, 5), 1000 * user + moment)
        for user in range(1, USERS + 1)
        for moment, item in enumerate(chance.sample(range(1, ITEMS + 1), PER_USER))
    ]
    ratings = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    ranked = ratings.join(items, on="item", maintain_order="left").select(
        "user", "item", "group", pl.col("rating").alias("relevance"),
        score=(pl.col("rating") + pl.col("item") / 100).cast(pl.Float64),
    )  # fmt: skip
    for name, frame in (("items", items), ("ratings", ratings), ("ranked", ranked)):
        frame.write_csv(folder / f"{name}.csv")
        frame.write_parquet(folder / f"{name}.parquet")
        (folder / f"{name}.csv.gz").write_bytes(
            gzip.compress((folder / f"{name}.csv").read_bytes(), mtime=0)
        )
    (folder / "users.txt").write_text("1\n2\n3\n")
    pl.DataFrame({"user": [1, 2, 3]}).write_csv(folder / "users.csv")
    new = {"user": [901, 901, 902], "item": [1, 2, 3], "rating": [5, 3, 4]}
    pl.DataFrame(new).write_csv(folder / "histories.csv")
    films = "movieId,title,genres\n" + "".join(
        f"{item},Film {item} ({1970 + item}),{'Horror' if item % 3 == 0 else 'War'}\n"
        for item in range(1, ITEMS + 1)
    )
    lines = "userId,movieId,rating,timestamp\n" + "".join(
        f"{user},{item},{rating},{time}\n" for user, item, rating, time in rows
    )
    with zipfile.ZipFile(folder / "films.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("ml/ratings.csv", lines)
        file.writestr("ml/movies.csv", films)
    (folder / "docs.txt").write_text(
        "".join(
            f"{chance.randint(0, 3)} qid:{query} 1:{chance.random():.4f} "
            f"2:{chance.random():.4f} 3:{document % 2} # docid = D{query}-{document}\n"
            for query in range(1, 21)
            for document in range(8)
        )
    )


def write_configs(folder: Path) -> None:
    """Write a config for each kind of training, a sweep and a goal."""
    for name, method in METHODS.items():
        (folder / f"{name}.toml").write_text(f"{DATA}[method]\n{method}{SMALL}")
    ease = SMALL.replace("[model]\n", '[model]\nname = "ease"\n')
    (folder / "ease.toml").write_text(f'{DATA}[method]\nname = "blind"\nk = 5\n{ease}')
    (folder / "docs.toml").write_text(DOCUMENTS)
    (folder / "sweep.toml").write_text(f"{DATA}{SMALL}{SWEEP}")
    method = 'name = "kso-red"\nk = 5\npreset = "paper"\n'
    (folder / "goal.toml").write_text(f"{DATA}[method]\n{method}{SMALL}{GOAL}")


COLUMNS = "--user user --item item --rating rating --time time --items items.csv"


def write_runs(folder: Path) -> None:
    """Train by the commands; configs name data by relative paths, so the folder can move."""
    commands = [f"train {name}.toml --out runs/{name}" for name in ("k-song", "kso-red")]
    commands += [f"train {name}.toml --out {name}-run" for name in ("robust", "fair-distill")]
    commands += [
        "train docs.toml --out docs-run",
        "train ease.toml --out ease-run",
        "train kso-red.toml --out other-run --set seed=1",
        "train goal.toml --out goal-run",
        "rerank runs/k-song --method det-greedy --k 5 --infeasible mark",
        "sweep sweep.toml --out swept --processes 1",
        f"data prepare csv --from ratings.csv --out prepared {COLUMNS}",
        "data prepare letor --from docs.txt --out prepared-docs --column f3 --at-least 0.5",
    ]
    for words in commands:
        ended = run_in(folder, words.split())
        assert ended.code in (0, 1), (words, ended)


def write_rankers(folder: Path) -> None:
    """Save a ranker of users and items, and one of features."""
    small = {"warmup_epochs": 1, "lists": {"rated": 4, "unrated": 8, "per_group": 3}}
    data = ft.load(
        "csv", folder / "ratings.csv", user="user", item="item", rating="rating", time="time",
        items=folder / "items.csv", groups={"column": "group", "equals": "a"},
    )  # fmt: skip
    ids = ft.FairRanker(k=5, epochs=1, hidden=(4,), options={"training": small})
    ids.fit(ft.split(data, test=3, validation=3)).save(folder / "ids.ranker")
    made = ft.make_documents(20, 8)
    features = ft.FairRanker(k=3, epochs=1)
    features.fit(made.x, made.y, qid=made.qid, groups=made.groups).save(
        folder / "features.ranker"
    )
