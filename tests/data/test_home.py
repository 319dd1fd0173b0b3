import json
import sys
from pathlib import Path

import pytest

from fairtopk.data.registry import acknowledge, acknowledged, data_home, warmups_home
from fairtopk.errors import InputError


def test_an_agreed_licence_is_remembered_per_data_set(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert not acknowledged("ml-1m", folder)
    acknowledge("ml-1m", "research only", folder)
    acknowledge("netflix", "no redistribution", folder)
    assert acknowledged("ml-1m", folder)
    assert acknowledged("netflix", folder)
    assert not acknowledged("ml-100k", folder)
    assert [file.name for file in folder.iterdir()] == ["licences.json"]
    stored = json.loads((folder / "licences.json").read_text())
    assert stored == {"ml-1m": "research only", "netflix": "no redistribution"}


@pytest.mark.parametrize("content", ["", "{ 'ml-1m'", "[]", "\xff", "[" * 100_000])
def test_a_damaged_memory_of_licences_asks_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "licences.json").write_bytes(content.encode("latin-1"))
    assert not acknowledged("ml-1m", tmp_path)
    acknowledge("ml-1m", "research only", tmp_path)
    assert acknowledged("ml-1m", tmp_path)


def test_the_data_folder_is_the_one_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRTOPK_HOME", "~/films")
    assert data_home() == Path.home() / "films"


@pytest.mark.parametrize(
    ("platform", "variables", "usual"),
    [
        ("linux", {}, "user/.local/share/fairtopk"),
        ("linux", {"XDG_DATA_HOME": "share"}, "share/fairtopk"),
        ("darwin", {"XDG_DATA_HOME": "share"}, "user/Library/Application Support/fairtopk"),
        ("win32", {}, "user/AppData/Local/fairtopk"),
    ],
)
def test_the_data_folder_is_else_the_platforms(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    platform: str,
    variables: dict[str, str],
    usual: str,
) -> None:
    for name in ("FAIRTOPK_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(sys, "platform", platform)
    for name, folder in variables.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    assert data_home() == tmp_path / usual


def test_a_user_without_a_home_is_told_what_to_set_and_shares_no_warm_ups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FAIRTOPK_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", nowhere)
    with pytest.raises(InputError, match="no home folder; set FAIRTOPK_HOME"):
        data_home()
    assert warmups_home() is None
