import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from fairtopk.errors import InputError
from fairtopk.storage import Saved, load_pair, load_tensors, save_pair, save_tensors


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
