import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from fairtopk.errors import InputError
from fairtopk.storage import read_text, remove_halves, replacing, write_text


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
