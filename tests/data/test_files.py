from pathlib import Path

import pytest

from fairtopk.data.files import replacing


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

    with pytest.raises(OSError, match="disk full"):
        write_half()
    assert list(tmp_path.iterdir()) == []
