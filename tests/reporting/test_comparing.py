"""Two runs compared: what is told of them, and which cannot be."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from rich.console import Console
from torch import Tensor

import fairtopk as ft
from fairtopk.reporting.compare import Comparison
from fairtopk.runs.config_file import check_config
from fairtopk.runs.result import Identity, write_result
from fairtopk.runs.run import train_run
from fairtopk.statistics import holm, paired_difference
from fairtopk.storage import Saved

ABOUT = {
    "data": "films", "checksum": "1f", "split": "last 5", "part": "test", "protocol": "sampled",
    "unrated": 300, "seed": 0,
}  # fmt: skip


def values(*, shift: float = 0.0, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ndcg, gap = torch.rand(2, 40, generator=generator)
    gap[:3] = torch.nan
    return {"ndcg@5": ndcg + shift, "exposure_gap@5": gap}


def result(folder: Path, of: dict[str, Tensor], **about: Any) -> Path:
    users = {"user": torch.arange(len(next(iter(of.values()))))}
    cell = {"mean": 0.5, "ci95": [0.4, 0.6], "n": 40, "undefined": 0}
    said = ABOUT | about
    told = said | {
        "method": "k-song", "metrics": dict.fromkeys(of, cell), "seed": said["seed"] or 0,
        "c": None, "c_relative": None, "needs_labels_when_serving": False,
    }  # fmt: skip
    saved = Saved(of | users, said | {"metrics": list(of)})
    write_result(folder / "metrics.json", told, saved, Identity(folder.name, "c", "d"))
    return folder


@pytest.fixture
def compared(tmp_path: Path) -> Comparison:
    a = result(tmp_path / "k_song", values())
    b = result(tmp_path / "[red]", values(shift=0.1, seed=1))
    return ft.compare(a, b)


def test_each_metric_has_the_paired_difference_of_its_values(compared: Comparison) -> None:
    a, b = values(), values(shift=0.1, seed=1)
    assert list(compared.metrics) == ["ndcg@5", "exposure_gap@5"]
    for name, found in compared.metrics.items():
        alone = paired_difference(a[name], b[name])
        assert (found.p, found.n, found.undefined) == (alone.p, alone.n, alone.undefined)
        assert found.difference == pytest.approx(alone.difference)
    p_values = [found.p for found in compared.metrics.values()]
    assert list(compared.p_holm.values()) == holm(p_values).tolist()


def test_a_frame_and_a_csv_have_a_row_per_metric(compared: Comparison, tmp_path: Path) -> None:
    frame = compared.to_frame()
    assert frame.columns == [
        "metric", "a", "b", "difference", "low", "high", "p", "p_holm", "n", "undefined"
    ]  # fmt: skip
    row = frame.row(by_predicate=pl.col("metric") == "exposure_gap@5", named=True)
    assert (row["n"], row["undefined"]) == (37, 3)
    assert row["b"] - row["a"] == pytest.approx(row["difference"])
    assert row["low"] < row["difference"] < row["high"]
    compared.to_csv(tmp_path / "new" / "a.csv")
    assert pl.read_csv(tmp_path / "new" / "a.csv").equals(frame)


def test_a_table_for_latex_names_the_runs(compared: Comparison, tmp_path: Path) -> None:
    compared.to_latex(tmp_path / "a.tex")
    lines = (tmp_path / "a.tex").read_text().splitlines()
    assert r"metric & k\_song & [red] & difference & low & high & p & p (Holm) \\" in lines
    (row,) = (line for line in lines if line.startswith(r"exposure\_gap@5 & "))
    assert row.count("&") == 7


def test_printing_shows_a_table_and_takes_names_as_text(compared: Comparison) -> None:
    screen = io.StringIO()
    Console(file=screen, width=78).print(compared)
    for text in (str(compared), screen.getvalue()):
        assert "a = k_song, b = [red]; test, sampled lists of films" in text
        assert "ndcg@5" in text
        assert "up to 3 lists" in " ".join(text.split())
        assert "…" not in text


def test_only_the_metrics_asked_for_are_corrected_for(tmp_path: Path) -> None:
    a, b = result(tmp_path / "a", values()), result(tmp_path / "b", values(seed=1))
    for asked in ("ndcg@5", ["ndcg@5"]):
        found = ft.compare(a, b, metrics=asked)
        assert list(found.metrics) == ["ndcg@5"]
        assert found.p_holm["ndcg@5"] == found.metrics["ndcg@5"].p
    for wrong in (["ndcg@6"], []):
        with pytest.raises(
            ft.InputError, match=r"^metrics must be of ndcg@5, exposure_gap@5, g"
        ):
            ft.compare(a, b, metrics=wrong)


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        ({"checksum": "2e"}, "the checksum of the data, groups and all, is 1f in the one, 2e"),
        (
            {"split": "random"},
            "the split is last 5 in the one, random in the other; train both",
        ),
        (
            {"part": "validation"},
            "the part is test in the one, validation in the other; measur",
        ),
        ({"protocol": "full", "seed": None}, "the protocol is sampled in the one, full in the"),
        ({"unrated": 99}, "the number of unrated items in a list is 300 in the one, 99 in the"),
        (
            {"seed": 7},
            "the seed that drew the lists is 0 in the one, 7 in the other; compare r",
        ),
    ],
)
def test_runs_that_did_not_rank_the_same_lists_are_refused(
    tmp_path: Path, about: dict[str, Any], sentence: str
) -> None:
    a, b = result(tmp_path / "a", values()), result(tmp_path / "b", values(), **about)
    with pytest.raises(ft.InputError, match=f"^{a} and {b} cannot be compared: {sentence}"):
        ft.compare(a, b)


def test_results_of_other_users_or_without_a_metric_in_common_are_refused(
    tmp_path: Path,
) -> None:
    a = result(tmp_path / "a", values())
    fewer = result(tmp_path / "b", {"ndcg@5": torch.rand(39)})
    with pytest.raises(ft.InputError, match="cannot be compared: they rank different users"):
        ft.compare(a, fewer)
    others = result(tmp_path / "c", {"ndcg@9": torch.rand(40)})
    with pytest.raises(ft.InputError, match="have no metric in common; measure both at one K"):
        ft.compare(a, others)


def test_what_is_no_result_is_refused_in_one_sentence(tmp_path: Path) -> None:
    a = result(tmp_path / "a", values())
    with pytest.raises(
        ft.InputError, match="holds no result; give the folder of a finished run"
    ):
        ft.compare(a, tmp_path)
    with pytest.raises(ft.InputError, match=r"none\.json does not exist; give the folder"):
        ft.compare(str(tmp_path / "none.json"), a)
    (a / "per_query.safetensors").unlink()
    with pytest.raises(
        ft.InputError, match=r"has no per_query\.safetensors next to it with the"
    ):
        ft.compare(a, a)
    (a / "per_query.safetensors").write_bytes(b"half of it")
    with pytest.raises(ft.InputError, match=r"per_query\.safetensors is damaged"):
        ft.compare(a, a)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", b"seed = 0"),
        ("results.json", b'[{"metrics": {"ndcg@5": {"mean": 0.5}}}]'),
        ("audit.json", b'{"columns": []}'),
        ("metrics.json", b'{"metrics": {"ndcg@5"'),
        ("model.safetensors", b"\x08\x00\xff"),
    ],
)
def test_another_file_is_refused_with_what_to_give_instead(
    tmp_path: Path, name: str, content: bytes
) -> None:
    a = result(tmp_path / "a", values())
    (tmp_path / name).write_bytes(content)
    sentence = (
        f"{tmp_path / name} is not a metrics file, or damaged; give the folder of a finished "
        f"run, or a metrics file such as its metrics.json or what fairtopk evaluate wrote"
    )
    for pair in ((a, tmp_path / name), (tmp_path / name, a)):
        with pytest.raises(ft.InputError, match=f"^{re.escape(sentence)}$"):
            ft.compare(*pair)


def test_an_unfinished_run_is_refused_with_the_command_that_ends_it(tmp_path: Path) -> None:
    a, out = result(tmp_path / "a", values()), tmp_path / "b"
    out.mkdir()
    (out / "config.toml").touch()
    sentence = (
        f"{out} is not finished, so it holds no result; go on with: fairtopk train {out}/"
    )
    with pytest.raises(ft.InputError, match=f"^{re.escape(sentence)}.* --resume$"):
        ft.compare(a, out)


def test_two_trained_runs_are_compared_by_their_folders(tmp_path: Path) -> None:
    lists = ft.split(ft.load("synthetic"))
    means = {}
    for model in ("mf", "neumf"):
        config = check_config(
            {
                "model": {"name": model, "width": 4},
                "method": {"name": "listnet"},
                "training": {"warmup_epochs": 1, "epochs": 0, "warmup_rate": 0.01},
                "evaluation": {"k": [10], "unrated": 50},
            },
            "test",
        )
        trained = train_run(config, tmp_path / model, lists=lists)
        means[model] = trained["metrics"]["ndcg@10"]["mean"]
    found = ft.compare(tmp_path / "mf", str(tmp_path / "neumf")).metrics["ndcg@10"]
    assert (found.mean_a, found.mean_b) == pytest.approx((means["mf"], means["neumf"]))
    assert np.sign(found.ci95[0]) == np.sign(found.ci95[1])
    assert found.p < 0.01
