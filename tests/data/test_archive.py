import gzip
import zipfile
from pathlib import Path

import pytest

import fairtopk as ft
from fairtopk.data.archive import Archive


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def test_a_zip_a_folder_and_a_file_read_alike(tmp_path: Path) -> None:
    (tmp_path / "set" / "inner").mkdir(parents=True)
    (tmp_path / "set" / "inner" / "a.txt").write_bytes(b"1\t2\n")
    packed = zipped(tmp_path / "set.zip", {"inner/a.txt": b"1\t2\n"})
    for path in (tmp_path / "set", packed):
        archive = Archive(path)
        assert archive.names == ["inner/a.txt"]
        assert archive.read("inner/a.txt") == b"1\t2\n"
    assert Archive(tmp_path / "set" / "inner" / "a.txt").read("a.txt") == b"1\t2\n"


def test_a_gz_file_is_unpacked_on_reading(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"hello\n"))
    assert Archive(tmp_path / "a.txt.gz").read("a.txt.gz") == b"hello\n"


def test_files_are_found_by_what_they_hold(tmp_path: Path) -> None:
    files = {
        "x/readme": b"7 seas\n",
        "x/part": b"1\t1\n",
        "x/whole": b"1\t1\n2\t2\n",
        "x/e": b"",
    }
    archive = Archive(zipped(tmp_path / "a.zip", files))
    assert archive.find_all(r"\d\t\d") == ["x/part", "x/whole"]
    assert archive.find(r"\d\t\d", usual=["u.data"], what="ratings") == "x/whole"
    assert archive.find(r"\d\t\d", usual=["part"], what="ratings") == "x/part"
    with pytest.raises(ft.InputError, match=r"holds no films: none of its files \(x/e, x/part"):
        archive.find(r"film", usual=[], what="films")


def test_a_byte_order_mark_does_not_hide_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfuser,item\r\n1,2\r\n")
    assert Archive(tmp_path).find_all("user,item") == ["a.csv"]


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ft.InputError, match="does not exist; check the path"):
        Archive(tmp_path / "none.zip")


def test_an_empty_folder_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ft.InputError, match="holds no files"):
        Archive(tmp_path)
    (tmp_path / "a.txt").touch()
    with pytest.raises(ft.InputError, match=r"a\.txt of .* is empty"):
        Archive(tmp_path).read("a.txt")


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.99])
def test_a_truncated_zip_is_refused(tmp_path: Path, keep: float) -> None:
    whole = zipped(tmp_path / "a.zip", {"a": bytes(range(256)) * 40}).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(ft.InputError, match="is not a complete zip file; download it again"):
        Archive(tmp_path / "cut.zip")


def test_a_zip_with_damaged_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:  # stored, so that the content can be found
        file.writestr("a", b"precious content")
    path.write_bytes(path.read_bytes().replace(b"precious", b"tampered"))
    with pytest.raises(
        ft.InputError, match=r"a of a\.zip cannot be read .*; download it again"
    ):
        Archive(path).read("a")


@pytest.mark.parametrize("name", ["../evil", "x/../../evil", "/etc/evil", "..\\evil", "C:evil"])
def test_a_zip_whose_files_climb_out_is_refused(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "a.zip", {"good": b"1", name: b"2"})
    with pytest.raises(ft.InputError, match="points outside its folder; do not trust it"):
        Archive(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.zip"]


def test_a_zip_with_a_damaged_directory_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a": b"content"})
    path.write_bytes(path.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x09"))
    with pytest.raises(ft.InputError, match=r"a damaged zip .*; download it again"):
        Archive(path)


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a": b"content"})
    whole = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        whole[whole.index(mark) + flags] |= 1
    path.write_bytes(whole)
    with pytest.raises(ft.InputError, match=r"cannot be read \(.*encrypted"):
        Archive(path).read("a")
