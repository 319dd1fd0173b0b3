"""A path is a path: brackets, stars and question marks in a name are letters of it.

Each file lies beside one that the name would match as a pattern, and that holds something else.
"""

import json
import zipfile
from pathlib import Path

import polars as pl
import pytest
from commands import Run

import fairtopk as ft
from fairtopk.data.registry import prepare

NAMES = ["ranked[1]", "a*b", "what?"]  # patterns that match the names below
DECOYS = {"ranked[1]": "ranked1", "a*b": "aXb", "what?": "what7"}
COLUMNS = ["--query", "q", "--item", "i", "--score", "s", "--groups", "sex", "--k", "2"]


def ranked(n_lists: int, first: int = 0) -> pl.DataFrame:
    lists = range(first, first + n_lists)
    return pl.DataFrame(
        [(q, i, (i * 7 + q) % 5 + i / 9, "mf"[i % 2]) for q in lists for i in range(8)],
        schema=["q", "i", "s", "sex"],
        orient="row",
    )


def films(n_users: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Ratings of so many users, and the films that they rate."""
    pairs = [(u, i) for u in range(n_users) for i in range(20) if (u + i) % 3]
    ratings = pl.DataFrame(
        [(u, i, 1 + (u * i) % 5, u + i) for u, i in pairs],
        schema=["user_id", "item_id", "rating", "time"],
        orient="row",
    )
    return ratings, pl.DataFrame({"item_id": range(20), "kind": ["a", "b"] * 10})


def write(frame: pl.DataFrame, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        (frame.write_parquet if path.suffix == ".parquet" else frame.write_csv)(file)
    return path


def beside(path: Path) -> Path:
    """Return the path of what `path` would match as a pattern."""
    return path.with_name(path.name.replace(path.name.split(".")[0], DECOYS[path.stem]))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("name", NAMES)
def test_audit_and_rerank_read_the_file_that_is_named(
    run: Run, tmp_path: Path, name: str, ending: str
) -> None:
    path = write(ranked(30), tmp_path / f"{name}.{ending}")
    write(ranked(7), beside(path))
    items = write(
        ranked(1).select("i", label="sex"), tmp_path / "of items" / f"{name}.{ending}"
    )
    write(ranked(1).select("i", label=pl.lit("x")), beside(items))
    words = [*COLUMNS[:-4], "--groups", "label", "--items", items, "--k", "2"]
    ended = run("audit", path, "--baseline", path, *words, "--out", tmp_path / "out")
    assert ended.code == 0, ended.stderr
    record = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert record["data"]["queries"] == record["baseline"]["queries"] == 30
    assert record["data"]["name"] == path.name
    new = tmp_path / f"new [1].{ending}"
    ended = run("rerank", path, "--method", "det-greedy", *words, "--out", new)
    assert ended.code == 0, ended.stderr
    reader = pl.read_csv if ending == "csv" else pl.read_parquet
    assert reader(new.read_bytes()).height == 30 * 8


def test_a_pattern_of_files_is_one_table(run: Run, tmp_path: Path) -> None:
    parts = tmp_path / "x[1]"
    for part in range(3):
        write(ranked(4, first=4 * part), parts / f"part-{part}.parquet")
    write(ranked(12), tmp_path / "whole.parquet")
    (parts / "_SUCCESS").touch()
    pattern = str(tmp_path / "x[[]1]" / "*.parquet")
    ways = (
        ["--glob", pattern],
        [parts],
        sorted(parts.glob("*.parquet")),
        [tmp_path / "whole.parquet"],
    )
    records = []
    for way in ways:
        ended = run("audit", *way, *COLUMNS, "--out", tmp_path / "out")
        assert ended.code == 0, ended.stderr
        records.append(json.loads((tmp_path / "out" / "audit.json").read_text()))
    assert records[0]["data"]["name"] == "part-0.parquet and 2 more"
    assert records[0]["data"]["queries"] == 12
    assert records[0] == records[1] == records[2]
    assert records[0]["columns"] == records[3]["columns"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--glob", "{tmp}/*.pq"], "no file matches the pattern '{tmp}/*.pq'"),
        (["--glob", "{tmp}/*.csv", "{tmp}/a.csv"], "or a pattern with --glob"),
        ([], "give either the files to audit or a pattern"),
        (["{tmp}/empty"], "empty is a folder without Parquet files; give the files in it"),
        (["{tmp}/*.csv"], "*.csv does not exist; check the path"),
        (["{tmp}/a.csv", "{tmp}/b.csv"], "b.csv, line 2: query 0 ranks item 0 again (first in"),
        (["{tmp}/a.csv", "{tmp}/other.csv"], "other.csv has no column 'q'"),
    ],
)
def test_files_that_make_no_table_are_refused(
    run: Run, tmp_path: Path, words: list[str], sentence: str
) -> None:
    (tmp_path / "empty").mkdir()
    write(ranked(3), tmp_path / "a.csv")
    write(ranked(3), tmp_path / "b.csv")
    (tmp_path / "other.csv").write_text("x\n1\n")
    ended = run("audit", *(word.format(tmp=tmp_path) for word in words), *COLUMNS)
    assert ended.code == 2
    (line,) = ended.stderr.splitlines()
    assert sentence.format(tmp=tmp_path) in line


def test_parts_may_write_ids_as_numbers_and_as_text(run: Run, tmp_path: Path) -> None:
    numbers = write(ranked(3), tmp_path / "a.csv")
    texts = write(
        ranked(3).with_columns(q=pl.lit("x") + pl.col("q").cast(str)), tmp_path / "b.csv"
    )
    ended = run("audit", numbers, texts, *COLUMNS)
    assert ended.code == 0, ended.stderr
    assert "a.csv and 1 more: 48 rows, 6 lists" in ended.stdout


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_data_of_ones_own_is_read_from_the_file_that_is_named(
    run: Run, tmp_path: Path, name: str, ending: str
) -> None:
    for n_users, place in ((9, lambda path: path), (3, beside)):
        ratings, items = films(n_users)
        source = tmp_path / f"{name}.{ending}"
        write(ratings, place(source))
        write(items if n_users == 9 else items.with_columns(kind=pl.lit("a")),
              place(tmp_path / "items" / source.name))  # fmt: skip
    rule = {"column": "kind", "equals": "a"}
    catalogue = tmp_path / "items" / source.name
    data = ft.load(ending, source, items=catalogue, groups=rule)
    assert (data.n_users, data.group_counts) == (9, {"a": 10, "other": 10})
    out = tmp_path / "prepared[1]"
    write(films(3)[0], tmp_path / "prepared1" / "ratings.parquet")
    ended = run("data", "prepare", ending, "--from", source, "--items", catalogue, "--out", out)
    assert ended.code == 0, ended.stderr
    assert ft.load(ending, out, groups=rule).checksum == data.checksum


def letor(folder: Path, n_queries: int) -> Path:
    lines = [f"{d % 3} qid:{q} 1:{d} 2:{q + d}" for q in range(n_queries) for d in range(4)]
    (folder / "train.txt").write_text("\n".join(lines))
    return folder / "train.txt"


def movielens(folder: Path, n_users: int) -> None:
    ratings, _ = films(n_users)
    names = ["userId", "movieId", "rating", "timestamp"]
    write(
        ratings.rename(dict(zip(ratings.columns, names, strict=True))), folder / "ratings.csv"
    )
    titles = "".join(
        f"{i},Film {i} (199{i % 10}),{'Horror' if i % 2 else 'War'}\n" for i in range(20)
    )
    (folder / "movies.csv").write_text(f"movieId,title,genres\n{titles}")


@pytest.mark.parametrize("name", NAMES)
def test_published_layouts_are_read_from_the_path_that_is_named(
    tmp_path: Path, name: str
) -> None:
    folder, decoy = tmp_path / name, tmp_path / DECOYS[name]
    for place, count in ((folder, 9), (decoy, 3)):
        place.mkdir()
        letor(place, count).rename(place.with_suffix(".txt"))
        movielens(place, count)
        with zipfile.ZipFile(place.with_suffix(".zip"), "w") as packed:
            for file in place.iterdir():
                packed.write(file, file.name)
    assert ft.load("letor", folder.with_suffix(".txt")).n_queries == 9
    assert ft.load("movielens-latest", folder).n_users == 9
    assert ft.load("movielens-latest", folder.with_suffix(".zip")).n_users == 9
    prepare("letor", folder.with_suffix(".txt"), tmp_path / "out[1]")
    assert ft.load("letor", tmp_path / "out[1]").n_queries == 9


def test_train_and_recommend_read_the_files_that_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "here[1]").mkdir()
    (tmp_path / "here1").mkdir()
    path, items = tmp_path / "here[1]" / "what?.csv", tmp_path / "here[1]" / "a*b.csv"
    for n_users, place in ((30, lambda path: path), (12, beside)):
        ratings, kinds = films(n_users)
        write(ratings, place(path))
        write(kinds if n_users == 30 else kinds.with_columns(kind=pl.lit("a")), place(items))
    config = tmp_path / "config[1].toml"
    config.write_text(
        f"""
        [data]
        source = "csv"
        path = "{path}"
        groups = {{ column = "kind", equals = "a" }}
        options = {{ items = "{items}", time = "time" }}
        test = 2
        validation = 2
        [model]
        name = "mf"
        width = 4
        [method]
        name = "kso-red"
        k = 5
        c = 1.0
        [training]
        warmup_epochs = 1
        epochs = 1
        lists = {{ rated = 2, unrated = 5 }}
        [evaluation]
        k = [5]
        """
    )
    ended = run("train", config, "--out", tmp_path / "run[1]")
    assert ended.code == 0, ended.stderr
    for ending in ("csv", "parquet", "txt"):
        users = tmp_path / f"what?.{ending}"
        if ending == "txt":
            users.write_text("1\n2\n")
            beside(users).write_text("5\n")
        else:
            write(pl.DataFrame({"user": [1, 2]}), users)
            write(pl.DataFrame({"user": [5]}), beside(users))
        out = tmp_path / "recs[1].csv"
        ended = run(
            "recommend", tmp_path / "run[1]", "--users", users, "--k", "2", "--out", out
        )
        assert ended.code == 0, ended.stderr
        assert pl.read_csv(out.read_bytes())["user"].unique().sort().to_list() == [1, 2]


def test_a_split_is_read_from_the_file_that_is_named(
    tmp_path: Path, data: ft.Interactions
) -> None:
    lists, other = (ft.split(data, test=1, validation=v) for v in (1, 0))
    ft.save_split(lists, tmp_path / "split[1].parquet")
    ft.save_split(other, tmp_path / "split1.parquet")
    again = ft.load_split(tmp_path / "split[1].parquet", data)
    assert again.part.tolist() == lists.part.tolist()
