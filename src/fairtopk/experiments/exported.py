"""A run's model as files for elsewhere: ONNX, the ids behind its numbers, and a card."""

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from torch import nn

from fairtopk import __version__
from fairtopk.data.files import together, write_text
from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists
from fairtopk.experiments.config_file import load_config
from fairtopk.experiments.documents import DocumentLists
from fairtopk.experiments.identity import identity_of
from fairtopk.experiments.model_card import Card, model_card
from fairtopk.experiments.opening import open_any_run
from fairtopk.experiments.result import CONFIG, METRICS, Owner, read_result
from fairtopk.experiments.targets import check_target
from fairtopk.exporting import INPUTS, export_scorer, require_export
from fairtopk.feature_exporting import INPUTS as FEATURE_INPUTS
from fairtopk.feature_exporting import export_feature_scorer
from fairtopk.scorers.features import FeatureScorer, OfTable


class Exported(NamedTuple):
    """What was written.

    Attributes:
        files: The model and what is beside it.
        inputs: What the model takes.
        off: The largest difference from the original's scores on random inputs, as a share of
            the largest score.
    """

    files: list[Path]
    inputs: tuple[str, ...]
    off: float


def export_run(run: Path, out: Path, *, data: Path | None = None) -> Exported:
    """Write a run's model as ONNX, the id of each of its numbers, and a card.

    Beside ``model.onnx`` are ``model.users.parquet`` and ``model.items.parquet``, or for
    documents ``model.features.parquet``, with columns `number` and `id`, and ``model.md``, the
    card. They appear together, and only if the file scores like the model.

    Args:
        run: The run's folder.
        out: The ONNX file.
        data: Where the data is, if not where the config says.
    """
    check_target(out, endings=(".onnx",))
    card = out.with_name(f"{out.stem}.md")
    if card.exists() and not out.exists():
        raise InputError(f"{card} exists, and is of no earlier export; choose another name")
    require_export()
    config, lists, scorer = open_any_run(run, data=data)
    kept, of_data = _kept(run, lists), lists.data
    about = {"fairtopk": __version__, "data": of_data.name, "data_sha256": of_data.checksum}
    with together(out) as folder:
        path, inputs = folder / out.name, tuple(INPUTS)
        if isinstance(lists, DocumentLists):
            off = export_feature_scorer(_of_features(scorer), path, about=about)
            inputs = tuple(FEATURE_INPUTS)
            numbered = {"features": pl.Series(lists.data.feature_names)}
        else:
            off = export_scorer(scorer, path, about=about)
            numbered = {"users": lists.data.user_ids, "items": lists.data.item_ids}
        for name, ids in numbered.items():
            table = pl.DataFrame({"id": ids}).with_row_index("number")
            table.write_parquet(folder / f"{out.stem}.{name}.parquet")
        told = model_card(Card(out.stem, config, lists, kept, off))
        write_text(folder / card.name, told)
        names = sorted(file.name for file in folder.iterdir())
    return Exported([out.with_name(name) for name in names], inputs, off)


def _of_features(scorer: nn.Module) -> FeatureScorer:
    """Return what scores documents by their features alone."""
    if not isinstance(scorer, OfTable):
        raise InputError("robust needs groups when it ranks: it cannot be exported")
    return scorer.scorer


def _kept(run: Path, lists: AnyLists) -> dict[str, Any] | None:
    """Return what a run's metrics file holds; None if it was stopped before it wrote one."""
    if not (run / METRICS).exists():
        return None
    config = load_config(run / CONFIG)
    return read_result(run / METRICS, Owner(config, identity_of(config, lists)))
