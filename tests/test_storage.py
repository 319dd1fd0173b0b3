import gzip
import json
import os
import re
import shutil
import socket
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import torch

import fairtopk as ft
from fairtopk import checks, storage
from fairtopk.data import tables as text
from fairtopk.data.columns import Origin
from fairtopk.data.registry import prepare
from fairtopk.errors import InputError
from fairtopk.serving.recommend import read_users
from fairtopk.storage import (
    Saved,
    load_pair,
    load_tensors,
    read_text,
    remove_halves,
    replacing,
    save_pair,
    save_tensors,
    write_text,
)


def test_a_file_takes_its_place_only_when_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    with replacing(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"


def test_what_stood_there_stays_when_writing_is_broken_off(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("first")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_finished_leaves_no_trace(tmp_path: Path) -> None:
    def write_half() -> None:
        with replacing(tmp_path / "out") as temporary:
            temporary.mkdir()
            (temporary / "a").touch()
            raise OSError("disk full")

    with pytest.raises(InputError, match=r"cannot write .*out: disk full"):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_in_a_sentence_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("first")
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")

    def write(what: Callable[[], object]) -> None:
        with replacing(path) as temporary:
            temporary.touch()
            what()

    def write_plainly() -> None:
        with open("/dev/full", "w") as full:
            full.write("x")

    frame = pl.DataFrame({"a": range(1000)})
    for what in (write_plainly, partial(frame.write_parquet, "/dev/full")):
        with pytest.raises(InputError, match=r"^cannot write .*a\.txt: no space left on"):
            write(what)
        assert path.read_text() == "first"
        assert list(tmp_path.iterdir()) == [path]


def test_a_temporary_name_cannot_be_guessed(tmp_path: Path) -> None:
    names = set()
    for _ in range(20):
        with replacing(tmp_path / "a.txt") as temporary:
            temporary.touch()
            names.add(temporary.name)
    assert len(names) == 20


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    write_text(path, "y")
    assert path.read_text() == "y"


def test_what_a_killed_process_left_is_removed_and_links_are_not_followed(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "a").touch()
    (tmp_path / ".b.0123.part").touch()
    (tmp_path / ".c.0123.part").mkdir()
    (tmp_path / ".d.0123.part").symlink_to(kept)
    remove_halves(tmp_path)
    assert list(tmp_path.iterdir()) == [kept]
    assert (kept / "a").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [("none", "does not exist"), ("folder", "is a folder"), ("pipe", "is a pipe, and only"),
     ("x" * 300, "cannot be read: file name too long"), ("a\0b", "holds a NUL character")],
)  # fmt: skip
def test_what_is_no_file_is_not_read(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=words):
        read_text(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\xff")
    with pytest.raises(InputError, match=r"is not UTF-8 text \(byte 0xff\)"):
        read_text(tmp_path / "a")


def pair(step: int) -> tuple[Saved, Saved]:
    about = {"step": step}
    tensors = {"w": torch.full((3,), float(step))}
    return Saved(tensors, about), Saved(tensors, about)


def found_step(folder: Path) -> int:
    model, state = load_pair(folder)
    assert model.about == state.about
    assert torch.equal(model.tensors["w"], torch.full((3,), float(model.about["step"])))
    return int(model.about["step"])


def test_tensors_come_back_with_what_is_said_of_them(tmp_path: Path) -> None:
    tensors = {
        "a.b": torch.randn(2, 3),
        "seen": torch.tensor([True, False]),
        "n": torch.tensor(7),
    }
    save_tensors(tmp_path / "x.safetensors", tensors, {"step": 3, "history": [{"x": 1.5}]})
    saved = load_tensors(tmp_path / "x.safetensors")
    assert saved.about == {"step": 3, "history": [{"x": 1.5}]}
    assert {name: value.dtype for name, value in saved.tensors.items()} == {
        name: value.dtype for name, value in tensors.items()
    }
    assert all(torch.equal(saved.tensors[name], tensors[name]) for name in tensors)


def test_a_kill_at_any_moment_leaves_a_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break off before each single file operation of the third checkpoint."""
    for step in (1, 2):
        save_pair(tmp_path / "run", *pair(step))
    plain_replace = os.replace
    for survived in range(8):
        folder = tmp_path / f"killed-{survived}"
        shutil.copytree(tmp_path / "run", folder)
        calls = 0

        def replace(old: Path, new: Path, survived: int = survived) -> None:
            nonlocal calls
            calls += 1
            if calls > survived:
                raise KeyboardInterrupt
            plain_replace(old, new)

        monkeypatch.setattr("os.replace", replace)
        with suppress(KeyboardInterrupt):
            save_pair(folder, *pair(3))
        monkeypatch.undo()
        assert calls == min(survived + 1, 4)
        assert found_step(folder) == (2 if survived < 2 else 3)


def test_the_same_tensors_are_the_same_bytes(tmp_path: Path) -> None:
    tensors, about = {"b": torch.ones(3), "a": torch.zeros(2)}, {"step": 1, "phase": "warm-up"}
    for name in map(str, range(20)):  # an order drawn at random would hardly stay so long
        save_tensors(tmp_path / name, tensors, about)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_files_of_two_checkpoints_are_not_mixed(tmp_path: Path) -> None:
    save_pair(tmp_path, *pair(1))
    save_pair(tmp_path, *pair(2))
    (tmp_path / "state.safetensors").unlink()
    assert found_step(tmp_path) == 1


@pytest.mark.parametrize("keep", [0, 7, 60, -5])
def test_a_truncated_checkpoint_falls_back_or_is_refused(tmp_path: Path, keep: int) -> None:
    save_pair(tmp_path, *pair(1))
    save_pair(tmp_path, *pair(2))
    for name in ("model", "before-model"):
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(path.read_bytes()[:keep])
        if name == "model":
            assert found_step(tmp_path) == 1
    with pytest.raises(InputError, match=r"holds no checkpoint to go on from: .* is damaged"):
        load_pair(tmp_path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="was not written by this version of fairtopk"):
        load_tensors(tmp_path / "x.safetensors")
    (tmp_path / "y.safetensors").write_text(json.dumps({"w": 1}))
    with pytest.raises(InputError, match="is damaged"):
        load_tensors(tmp_path / "y.safetensors")


def test_an_empty_folder_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert load_pair(tmp_path) is None


COLUMNS = {"query": "q", "item": "i", "score": "s", "groups": "g", "k": 1}
ROWS = "q,i,s,g\n1,1,2,a\n1,2,3,b\n"

Reader = Callable[[Path], object]
READERS: dict[str, Reader] = {
    "audit": lambda path: ft.audit(path, **COLUMNS),  # type: ignore[arg-type]
    "csv": lambda path: ft.load("csv", path),
    "items": lambda path: ft.load("csv", _ratings(path.parent), items=path),
    "letor": lambda path: ft.load("letor", path),
    "movielens": lambda path: ft.load("movielens-1m", path),
    "netflix": lambda path: ft.load("netflix", path),
    "prepare": lambda path: prepare("csv", path, path.parent / "out"),
    "users": read_users,
}


def _ratings(folder: Path) -> Path:
    path = folder / "ratings.csv"
    path.write_text("user_id,item_id,rating\n1,1,2\n1,2,3\n")
    return path


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_and_not_opened(tmp_path: Path, reader: str, ending: str) -> None:
    os.mkfifo(tmp_path / f"endless.{ending}")
    with pytest.raises(ft.InputError, match="is a pipe, and only regular files are read; save"):
        READERS[reader](tmp_path / f"endless.{ending}")


@pytest.mark.parametrize("reader", READERS)
def test_a_device_is_refused(tmp_path: Path, reader: str) -> None:
    link = tmp_path / "zero.csv"
    link.symlink_to("/dev/zero")
    with pytest.raises(ft.InputError, match="is a device, and only regular files are read"):
        READERS[reader](link)


def test_a_socket_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as one:
        one.bind(f"{folder}/s.csv")  # a short path, as sockets must have
        with pytest.raises(ft.InputError, match="is a socket"):
            READERS["csv"](Path(folder, "s.csv"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("reader", READERS)
def test_what_may_not_be_read_is_called_that_and_not_damaged(
    tmp_path: Path, reader: str
) -> None:
    path = written(tmp_path / "a.csv", ROWS)
    path.chmod(0)
    with pytest.raises(ft.InputError, match=r"a\.csv cannot be read: permission denied"):
        READERS[reader](path)


def test_a_file_that_may_only_be_read_can_be_read(tmp_path: Path) -> None:
    path = _ratings(tmp_path)
    path.chmod(0o400)
    assert ft.load("csv", path).n_ratings == 2


def test_a_path_with_nul_is_no_path() -> None:
    with pytest.raises(ft.InputError, match="path must be a path"):
        ft.load("csv", "a\0b.csv")
    with pytest.raises(ft.InputError, match="rankings must be a path"):
        READERS["audit"](Path("a\0b.csv"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (ROWS + "1,3,4," + "x" * 2**20, "line 4 is longer than 1,048,576 bytes"),
        ("q,i,s,g," + "x" * 2**20, "line 1 is longer than 1,048,576 bytes"),
        (ROWS + "1,3,4,\0\n", "line 4 holds a NUL byte; save the file as UTF-8 text"),
        (ROWS.encode("utf-16"), "line 1 holds a NUL byte"),
        ("q,i,s,g,g\n1,2,3,a,b\n", "has 2 columns called 'g'; rename or remove all but one"),
        (
            ",".join(["q,i,s,g", *map(str, range(20_000))]),
            "has 20,004 columns; at most 20,000 are read",
        ),
        (ROWS + "1,3,4," + "x" * 200_000 + "\n1,4,x,a\n", "field larger than field limit"),
        ("q,i,s,g\nnan,1,2,a\n7,2,3,b\n", "line 2: q is missing"),
        ("q,i,s,g\n1,1," + "9" * 5_000 + ",a\n1,2,3,b\n", "line 2: s is inf"),
        ("x" * 300 + "," + ",".join(map(str, range(99))), "and 80 more$"),
    ],
)
def test_text_that_is_no_table_is_refused(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    with pytest.raises(ft.InputError, match=sentence) as refused:
        READERS["audit"](written(tmp_path / "a.csv", content))
    assert len(str(refused.value)) < 500


def test_the_last_line_may_be_as_long_as_the_bound(tmp_path: Path) -> None:
    for most in range(3, 40):
        path = written(tmp_path / "a.csv", "ab\n" + "c" * most)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text, "MOST_LINE_BYTES", most)
            text.refuse_odd_bytes(path, Origin())
            patch.setattr(text, "MOST_LINE_BYTES", most - 1)
            with pytest.raises(ft.InputError, match="line 2 is longer than"):
                text.refuse_odd_bytes(path, Origin())


@pytest.mark.parametrize("mark", ["", "\0", "\n", "\r", '"', "::", "é"])
def test_what_cannot_separate_fields_is_refused(tmp_path: Path, mark: str) -> None:
    path = written(tmp_path / "a.csv", ROWS)
    with pytest.raises(ft.InputError, match="separator must be one ASCII character"):
        ft.load("csv", path, separator=mark)
    with pytest.raises(ft.InputError, match="separator must be one ASCII character"):
        ft.audit(path, **COLUMNS, separator=mark)  # type: ignore[arg-type]
    with pytest.raises(ft.InputError, match="separator of a group rule must not be empty"):
        ft.load("csv", path, groups={"column": "g", "contains": "a", "separator": ""})


def test_a_file_that_no_memory_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "memory_bytes", lambda: 4 * 10**9)
    for name, reader in (("a.csv", "audit"), ("a.txt", "letor")):
        path = written(tmp_path / name, ROWS)
        os.truncate(path, 3 * 10**9)  # of holes, which take no room
        sentence = r"takes 3\.0 GB, and at most half of this machine's memory of 4\.0 GB is"
        with pytest.raises(ft.InputError, match=sentence):
            READERS[reader](path)


def test_what_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "LEAST_BOMB", 2**16)
    vast = b"1::1::5::1\n" + b"0" * 2**20
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("ratings.dat", vast)
        packed.writestr("movies.dat", b"1::A::War\n")
    written(tmp_path / "a.csv.gz", gzip.compress(vast))
    sentence = "unpacks to more than 200 times its size"
    with pytest.raises(ft.InputError, match=f"ratings.dat of a.zip {sentence}"):
        ft.load("movielens-1m", tmp_path / "a.zip")
    with pytest.raises(ft.InputError, match=f"a.csv.gz {sentence}"):
        READERS["audit"](tmp_path / "a.csv.gz")


def test_no_packed_file_may_unpack_to_more_than_the_bound_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "MOST_UNPACKED_BYTES", 2**10)
    written(tmp_path / "a.csv.gz", gzip.compress(ROWS.encode() * 2**6))
    with pytest.raises(ft.InputError, match=r"a\.csv\.gz unpacks to more than 200 times"):
        READERS["audit"](tmp_path / "a.csv.gz")


def test_more_files_than_the_bound_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairtopk.storage.MOST_FILES", 3)
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for number in range(4):
            written(tmp_path / "folder" / "deep" / f"{number}", "x")
            packed.writestr(f"{number}", "x")
    for path in (tmp_path / "folder", tmp_path / "a.zip"):
        with pytest.raises(ft.InputError, match="holds more than 3 files, the most that are"):
            ft.load("movielens-1m", path)


def test_more_groups_than_the_bound_are_refused() -> None:
    many = checks.MOST_GROUPS + 1
    frame = pl.DataFrame({"u": [1] * many, "i": range(many), "g": map(str, range(many))})
    with pytest.raises(
        ft.InputError, match="has 1,001 groups, and at most 1,000 are told apart"
    ):
        ft.Interactions.from_frame(frame, user="u", item="i", groups={"column": "g"})


@pytest.mark.parametrize(
    ("k", "got"), [(10**12, "1 up to"), (list(range(1, 102)), "101 up to")]
)
def test_more_of_k_than_the_bound_is_refused(tmp_path: Path, k: object, got: str) -> None:
    path = written(tmp_path / "a.csv", ROWS)
    with pytest.raises(ft.InputError, match=f"up to 100 lengths .* 100,000 each, got {got}"):
        ft.audit(path, **{**COLUMNS, "k": k})  # type: ignore[arg-type]


def test_decimals_are_numbers(tmp_path: Path) -> None:
    frame = pl.read_csv(ROWS.encode()).with_columns(
        s=pl.Series([Decimal("2.5"), Decimal("3.25")]), r=pl.Series([Decimal(1), Decimal(0)])
    )
    frame.write_parquet(tmp_path / "a.parquet")
    found = ft.audit(tmp_path / "a.parquet", **COLUMNS, relevance="r")  # type: ignore[arg-type]
    exact = ft.audit(frame.cast({"s": pl.Float64, "r": pl.Float64}), **COLUMNS, relevance="r")  # type: ignore[arg-type]
    assert found.to_dict()["metrics"] == exact.to_dict()["metrics"]
    with pytest.raises(ft.InputError, match="r must lie between 0 and 100, got -1"):
        ft.audit(frame.with_columns(r=-pl.col("r")), **COLUMNS, relevance="r")  # type: ignore[arg-type]
    times = frame.with_columns(t=pl.Series([Decimal("1.25"), Decimal("1.75")]))
    data = ft.Interactions.from_frame(times, user="q", item="i", time="t")
    assert data.time is not None
    assert data.time.tolist() == [1.25, 1.75]


@pytest.mark.parametrize(
    "option", [{"user": 5}, {"items": [1]}, {"rating": True}, {"separator": None}]
)
def test_an_option_of_a_wrong_kind_is_refused(
    tmp_path: Path, option: dict[str, object]
) -> None:
    (name,) = option
    with pytest.raises(ft.InputError, match=f"option '{name}' of csv must be text, got"):
        ft.load("csv", _ratings(tmp_path), **option)  # type: ignore[call-overload]


def test_the_docs_list_the_bounds() -> None:
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
    stated = set(re.findall(r"\d[\d,]*\d|\d", page))
    for bound in (
        storage.MOST_LINE_BYTES, storage.MOST_COLUMNS, storage.MOST_ROWS, storage.MOST_FEATURE,
        storage.MOST_FILES, storage.MOST_UNPACKED, checks.MOST_GROUPS, checks.LARGEST_RELEVANCE,
    ):  # fmt: skip
        assert f"{bound:,.0f}" in stated


@pytest.mark.parametrize("row", ["1,3,4", "1,3,4\n1,4,5,b\n", "1"])
def test_a_row_that_lacks_fields_is_refused(tmp_path: Path, row: str) -> None:
    sentence = r"a\.csv, line 4: expected 4 fields separated by ',', got fewer in '1"
    with pytest.raises(ft.InputError, match=sentence):
        READERS["audit"](written(tmp_path / "a.csv", ROWS + row))


def test_what_a_damaged_zip_is_said_to_be_is_short(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("ratings.dat", b"1::1::5::1\n")
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    raw[26:28] = (2_000).to_bytes(2, "little")  # the length of the member's name
    written(tmp_path / "a.zip", bytes(raw) + bytes(3_000))
    with pytest.raises(ft.InputError) as refused:
        ft.load("movielens-1m", tmp_path / "a.zip")
    assert len(str(refused.value)) < 400


def test_ids_of_128_bits_are_ids() -> None:
    frame = pl.read_csv(ROWS.encode())
    plain = ft.audit(frame, **COLUMNS).to_dict()["columns"]  # type: ignore[arg-type]
    for wide in (pl.col("i").cast(pl.Int128), pl.col("i").cast(pl.Int128) + 2**100):
        found = ft.audit(frame.with_columns(i=wide), **COLUMNS)  # type: ignore[arg-type]
        assert found.to_dict()["columns"] == plain


def test_labels_that_are_no_text_are_refused() -> None:
    frame = pl.read_csv(ROWS.encode()).with_columns(g=pl.Series([b"\xff", b"a"]))
    with pytest.raises(ft.InputError, match="column 'g' of the table holds Binary; labels are"):
        ft.audit(frame, **COLUMNS)  # type: ignore[arg-type]
    with pytest.raises(ft.InputError, match="holds Binary; a group rule needs text"):
        ft.groups_from(frame, item="i", column="g")


def test_a_rule_without_a_finite_bound_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", ROWS)
    with pytest.raises(ft.InputError, match="a rule is a metric@K, < <= > or >=, and a number"):
        ft.audit(path, **COLUMNS, fail_if="impact_ratio@1 < 1e999")  # type: ignore[arg-type]
