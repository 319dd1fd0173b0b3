"""ONNX files: they score like the model, take no groups, and appear whole or not at all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.lists.batch import list_batch
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.models.scoring import score
from fairtopk.serving import export as exporting
from fairtopk.serving.export import INPUTS, check_onnx, export_scorer, together, write_onnx

needs_onnx = pytest.mark.skipif(
    any(exporting.find_spec(name) is None for name in exporting.NEEDED),
    reason="onnx, onnxruntime and onnxscript are not installed",
)

N_USERS, N_ITEMS = 40, 60
SAMPLE = {"user": torch.tensor([1, 2]), "item": torch.tensor([[1, 2, 3], [4, 5, 6]])}


def drawn(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.01, generator=generator)
    return model


def neumf() -> nn.Module:
    generator = torch.Generator()
    return drawn(NeuMF(N_USERS, N_ITEMS, width=8, hidden=(8, 4), generator=generator))


def mf() -> nn.Module:
    generator = torch.Generator()
    return drawn(MatrixFactorization(N_USERS, N_ITEMS, width=8, generator=generator))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "new" / "model.onnx"
    assert export_scorer(neumf(), path, about={"data": "films"}) < 1e-6
    return path


def session(path: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.slow
@needs_onnx
@pytest.mark.parametrize(("queries", "items"), [(1, 1), (3, N_ITEMS), (70, 2)])
def test_a_file_scores_like_the_model_for_any_number_of_queries_and_items(
    exported: Path, queries: int, items: int
) -> None:
    generator = torch.Generator().manual_seed(queries)
    user = torch.randint(N_USERS, (queries,), generator=generator)
    item = torch.randint(N_ITEMS, (queries, items), generator=generator)
    none = torch.zeros(item.shape, dtype=torch.int64)
    expected = score(neumf(), list_batch(user, none.float(), none, none == 0, item=item))
    (found,) = session(exported).run(None, {"user": user.numpy(), "item": item.numpy()})
    assert found.shape == (queries, items)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-10)


@pytest.mark.slow
@needs_onnx
def test_a_file_takes_users_and_items_and_no_groups(exported: Path) -> None:
    inputs = session(exported).get_inputs()
    assert [(one.name, one.shape, one.type) for one in inputs] == [
        ("user", ["queries"], "tensor(int64)"),
        ("item", ["queries", "items"], "tensor(int64)"),
    ]
    assert [one.name for one in session(exported).get_outputs()] == ["score"]


@pytest.mark.slow
@needs_onnx
def test_a_file_says_what_it_is_and_not_where_it_was_made(exported: Path) -> None:
    assert session(exported).get_modelmeta().custom_metadata_map == {"data": "films"}
    content = exported.read_bytes()
    for place in (str(Path(exporting.__file__).parent), str(Path(torch.__file__).parent)):
        assert place.encode() not in content
    assert sorted(file.name for file in exported.parent.iterdir()) == ["model.onnx"]


@pytest.mark.slow
@needs_onnx
def test_large_weights_go_into_a_second_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "MOST_BYTES", 1_000)
    path = tmp_path / "large.onnx"
    export_scorer(mf(), path, about={})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["large.onnx", "large.onnx.data"]
    arrays = {name: tensor.numpy() for name, tensor in SAMPLE.items()}
    (found,) = session(path).run(None, arrays)
    assert np.isfinite(found).all()


class Grouped(nn.Module):
    """Asks for what it must not."""

    def forward(self, user: Tensor, item: Tensor, item_group: Tensor) -> Tensor:
        return user[:, None] + item.float() + item_group


class Other(nn.Module):
    def forward(self, user: Tensor, item: Tensor, time: Tensor) -> Tensor:
        return user[:, None] + item.float() + time


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (Grouped(), "the model takes item_group; one that serves must not ask for groups"),
        (Other(), "the model must take user and item alone, got user, item, time"),
    ],
)
def test_a_model_that_asks_for_groups_is_refused(
    tmp_path: Path, module: nn.Module, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        write_onnx(module, tmp_path / "m.onnx", SAMPLE, axes=INPUTS, about={})
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@needs_onnx
def test_a_file_that_takes_groups_is_refused(exported: Path) -> None:
    sample = {**SAMPLE, "group": torch.zeros(2, 3)}
    with pytest.raises(InputError, match="must take user and item and group alone, got user"):
        check_onnx(exported, [sample], [torch.zeros(2, 3)])


@pytest.mark.slow
@needs_onnx
@pytest.mark.parametrize("off", [1e-6, torch.nan])
def test_a_file_with_other_scores_is_refused(exported: Path, off: float) -> None:
    arrays = {name: tensor.numpy() for name, tensor in SAMPLE.items()}
    (found,) = session(exported).run(None, arrays)
    assert check_onnx(exported, [SAMPLE], [torch.from_numpy(found)]) == 0
    assert np.abs(found).max() < 1e-2  # so that the difference is too much
    with pytest.raises(InputError, match=r"model.onnx was not written: its scores are off by"):
        check_onnx(exported, [SAMPLE], [torch.from_numpy(found) + off])


@needs_onnx
def test_a_model_that_diverged_leaves_no_file(tmp_path: Path) -> None:
    model = mf()
    nn.init.constant_(next(model.parameters()), torch.nan)
    with pytest.raises(InputError, match="not all finite; it may have diverged"):
        export_scorer(model, tmp_path / "m.onnx", about={})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", exporting.NEEDED)
def test_without_a_package_that_it_needs_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(
        InputError, match=rf"{missing}; install .* pip install fairtopk\[export\]"
    ):
        export_scorer(mf(), tmp_path / "m.onnx", about={})


def test_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"
    target.write_text("before")

    def write(fail: bool) -> None:
        with together(target) as folder:
            for name in ("m.onnx", "m.md"):
                (folder / name).write_text("after")
            if fail:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(fail=True)
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]
    assert target.read_text() == "before"
    write(fail=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.md", "m.onnx"]
    assert target.read_text() == "after"
