"""Faults of the machine and of those who share it: full disks, planted links, rights."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from drill.rows import row
from drill.rows_runs import RUN
from drill.rows_words import AUDIT, PREPARE, RERANK
from drill.running import Ended, run_in
from drill.test_rows import faults

pytestmark = pytest.mark.slow

TRAIN = "train kso-red.toml --out made"
WRITERS = {  # commands, each with sizes of files at which writing them fails
    "audit": (f"{AUDIT} --out made", (0, 1_000, 20_000)),
    "rerank": (f"{RERANK} --out made.csv", (0, 100)),
    "rerank to Parquet": (f"{RERANK} --out made.parquet", (0, 100)),
    "rerank a run": ("rerank runs/kso-red --method det-greedy --k 4", (0, 1_000)),
    "evaluate": ("evaluate runs/kso-red --k 4", (0, 1_000)),
    "report": ("report runs", (0, 10_000)),
    "recommend": ("recommend runs/kso-red --out made.csv", (0, 100)),
    "recommend to Parquet": ("recommend runs/kso-red --out made.parquet", (0, 100)),
    "export": ("export runs/kso-red made.onnx", (0, 500, 5_000)),
    "prepare": (PREPARE, (0, 500, 3_000)),
}
FULL = [(name, size) for name, (_, sizes) in WRITERS.items() for size in sizes]
TRAINED = (0, 300, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000)


def metrics(out: Path) -> object:
    return json.loads((out / "metrics.json").read_text())["metrics"]


@pytest.mark.parametrize(("name", "size"), FULL)
def test_a_disk_that_is_full_is_told_and_nothing_is_left(
    name: str, size: int, folder: Path
) -> None:
    words = WRITERS[name][0].split()
    ended = run_in(folder, words, largest=size)
    assert not faults(row(name, words), ended), ended
    again = run_in(folder, words)
    assert again.code == 0, again


@pytest.mark.parametrize("size", TRAINED)
def test_a_training_that_found_the_disk_full_goes_on_once_there_is_room(
    size: int, folder: Path
) -> None:
    ended = run_in(folder, TRAIN.split(), largest=size)
    assert not faults(row("train", TRAIN, code=(0, 2), leaves=True), ended), ended
    again = run_in(folder, [*TRAIN.split(), "--resume"])
    assert again.code == 0, again
    assert metrics(folder / "made") == metrics(folder / RUN)
    assert not left_over(folder)


def left_over(folder: Path) -> list[Path]:
    return [*folder.rglob("*.part"), *folder.rglob("new-*")]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    place = tmp_path / "tiny"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("free", [0, 4_096, 12_288, 24_576, 40_960])
def test_a_training_on_a_full_disk_goes_on_once_there_is_room(
    free: int, folder: Path, tiny: Path
) -> None:
    ballast = tiny / "ballast"
    ballast.write_bytes(bytes(64 * 1024 - free))
    (folder / "disk").symlink_to(tiny)
    words = ["train", "kso-red.toml", "--out", "disk/made"]
    ended = run_in(folder, words)
    assert not faults(row("train", words, leaves=True), ended), ended
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=4m", str(tiny)], check=True)
    again = run_in(folder, [*words, "--resume"])
    assert again.code == 0, again
    assert metrics(tiny / "made") == metrics(folder / RUN)
    assert not left_over(tiny)


@pytest.mark.parametrize("free", [0, 4_096, 8_192])
def test_a_full_cache_stops_no_training(free: int, folder: Path, tiny: Path) -> None:
    (tiny / "ballast").write_bytes(bytes(64 * 1024 - free))
    shutil.rmtree(folder / "home")
    (folder / "home").symlink_to(tiny)
    ended = run_in(folder, TRAIN.split())
    assert not faults(row("train", TRAIN, code=0), ended), ended
    assert metrics(folder / "made") == metrics(folder / RUN)


@pytest.mark.parametrize("place", ["/proc", "/dev/null", "/dev/full/below", "home"])
def test_a_cache_that_cannot_be_written_stops_no_training(place: str, folder: Path) -> None:
    shutil.rmtree(folder / "home")
    (folder / "home").symlink_to(place)
    ended = run_in(folder, TRAIN.split())
    assert not faults(row("train", TRAIN, code=0), ended), ended
    assert metrics(folder / "made") == metrics(folder / RUN)


LINKED = {
    "audit": (f"{AUDIT} --out made", ("made/.audit.json", "made/.audit.html")),
    "rerank": (f"{RERANK} --out made.csv", (".made.csv",)),
    "recommend": ("recommend runs/kso-red --out made.csv", (".made.csv",)),
    "evaluate": ("evaluate runs/kso-red --k 4 --out made.json", (".made.json",)),
    "report": ("report runs --out made.html", (".made.html",)),
}


@pytest.mark.parametrize("name", LINKED)
def test_links_at_names_that_can_be_guessed_are_not_followed(name: str, folder: Path) -> None:
    words, planted = LINKED[name]
    victim = folder / "victim"
    victim.write_text("mine")
    (folder / "made").mkdir()
    for link in planted:
        for end in ("part", "tmp"):
            (folder / f"{link}.{os.getpid()}.{end}").symlink_to(victim)
            (folder / f"{link}.{end}").symlink_to(victim)
    ended = run_in(folder, words.split())
    assert not faults(row(name, words, code=0), ended), ended
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    "name", [".metrics.json.123.part", "new-model.safetensors", "new-state.safetensors"]
)
def test_what_a_killed_run_left_is_cleared_by_the_next(name: str, folder: Path) -> None:
    (folder / RUN / "metrics.json").unlink()
    (folder / RUN / name).write_bytes(b"half")
    ended = run_in(folder, f"train kso-red.toml --out {RUN} --resume".split())
    assert not faults(row("resume", "", code=0), ended), ended
    assert not left_over(folder)


NOBODY = 65_534
UNREADABLE = {
    "ranked.csv": AUDIT,
    "ratings.csv": PREPARE,
    "kso-red.toml": TRAIN,
    f"{RUN}/model.safetensors": "evaluate runs/kso-red --k 4",
    f"{RUN}/config.toml": "evaluate runs/kso-red --k 4",
    "sweep.toml": "sweep sweep.toml --out made",
    "docs.txt": "data prepare letor --from docs.txt --out made",
    "prepared/card.json": f"{TRAIN} --set data.path=prepared --set data.options=",
}


@pytest.fixture(scope="session")
def _compiled(stock: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Modules and loops that commands need: another user may not see checkout or cache."""
    folder = shutil.copytree(stock, tmp_path_factory.mktemp("compiled") / "folder")
    export = "export runs/kso-red made.onnx"
    for words in ("evaluate runs/kso-red --k 4", "report runs", AUDIT, export):
        assert run_in(folder, words.split()).code == 0


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_may_not_be_read_is_called_so(name: str, stock: Path) -> None:
    with tempfile.TemporaryDirectory() as above:  # of pytest's folders others see nothing
        folder = shutil.copytree(stock, Path(above) / "folder")
        (folder / name).chmod(0)
        ended = as_nobody(folder, UNREADABLE[name].split())
    assert not faults(row(name, "", says=Path(name).name), ended), ended
    assert "damaged" not in ended.stderr
    assert re.search("permission denied|is not readable", ended.stderr.lower())


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize(
    "words",
    [
        f"{AUDIT} --out made", f"{RERANK} --out made.csv", PREPARE, TRAIN, "report runs",
        "recommend runs/kso-red --out made.csv", "evaluate runs/kso-red --k 4",
        "sweep sweep.toml --out made", "export runs/kso-red made.onnx",
    ],
)  # fmt: skip
def test_a_folder_that_may_not_be_written_is_called_so(words: str, stock: Path) -> None:
    with tempfile.TemporaryDirectory() as above:
        folder = shutil.copytree(stock, Path(above) / "folder")
        for place in (folder, folder / "runs", folder / RUN):
            place.chmod(0o555)
        ended = as_nobody(folder, words.split())
        for place in (folder, folder / "runs", folder / RUN):
            place.chmod(0o755)
    assert not faults(row(words, ""), ended), ended
    assert "permission denied" in ended.stderr.lower()


def as_nobody(folder: Path, words: list[str]) -> Ended:
    """Run a command as a user whom permissions bind, which they do not root."""
    if os.geteuid() != 0:
        return run_in(folder, words)
    folder.parent.chmod(0o755)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            os.chown(path, NOBODY, NOBODY)
    with contextlib.chdir(folder.parent):  # the checkout may be closed to other users
        try:
            os.setresuid(NOBODY, NOBODY, 0)  # the real one too: access(2) goes by it
        except OSError:
            pytest.skip("root may not become another user here")
        try:
            return run_in(folder, words)
        finally:
            os.setresuid(0, 0, 0)


@pytest.mark.parametrize(
    "words", [AUDIT, "data list", "--version", "evaluate runs/kso-red --k 4 --out made.json"]
)
def test_output_that_cannot_be_written_is_told_in_a_sentence(words: str, folder: Path) -> None:
    command = [sys.executable, "-m", "fairtopk", *words.split()]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder, timeout=600
        )
    assert ended.returncode == 2, ended
    (line,) = ended.stderr.splitlines()
    assert "no space left on device" in line.lower()


def test_what_a_spreadsheet_would_run_is_guarded_where_asked(folder: Path) -> None:
    path = folder / "ranked.csv"
    path.write_text(path.read_text().replace("\n1,", '\n"=HYPERLINK(""x"")",'))
    for end, safe in (("plain.csv", []), ("safe.csv", ["--csv-safe"])):
        ended = run_in(folder, [*RERANK.split(), "--out", end, *safe])
        assert ended.code == 0, ended
    plain, guarded = ((folder / f"{name}.csv").read_text() for name in ("plain", "safe"))
    assert any(line.startswith(("=", '"=')) for line in plain.splitlines())
    assert not any(line.startswith(("=", '"=')) for line in guarded.splitlines())


def test_the_card_of_a_model_holds_no_html_of_groups(folder: Path) -> None:
    label = "<script>alert(1)</script>"
    items = folder / "items.csv"
    items.write_text(items.read_text().replace(",a,", f",{label},"))
    rule = f'data.groups={{ column = "group", equals = "{label}" }}'
    ended = run_in(folder, ["train", "kso-red.toml", "--out", "made", "--set", rule])
    assert ended.code == 0, ended
    ended = run_in(folder, ["export", "made", "made.onnx"])
    assert ended.code == 0, ended
    assert "<script>" not in (folder / "made.md").read_text()
    ended = run_in(folder, ["report", "made"])
    assert ended.code == 0, ended
    assert label not in (folder / "made" / "report.html").read_text()
