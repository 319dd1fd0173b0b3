"""Scorers of users and items in operations that torch.export can follow.

The models themselves have loops and gradients of their own, which it cannot. What a score needs
of a user or an item alone is worked out before, once for each of them.

A trained scorer as an ONNX file: traced by torch.export, and checked in ONNX Runtime.

The file takes user and item numbers and nothing else: a model that asks for groups is refused.

A trained scorer of features as an ONNX file: documents in, scores out, and no groups.

A run's model as files for elsewhere: ONNX, the ids behind its numbers, and a card.
"""

import inspect
import logging
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from fairtopk import __version__
from fairtopk.errors import InputError
from fairtopk.lists.batch import list_batch
from fairtopk.lists.queries import AnyLists, QueryLists
from fairtopk.models._torch import network_scores, products
from fairtopk.models.features import FeatureScorer, OfTable
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.models.scoring import score
from fairtopk.runs.config_file import load_config
from fairtopk.runs.open import open_run
from fairtopk.runs.result import CONFIG, METRICS, Owner, identity_of, read_result
from fairtopk.serving.model_card import Card, model_card
from fairtopk.storage import check_target, together, write_text


def served(scorer: nn.Module) -> "ServedProduct | ServedNeuMF":
    """Return a module that takes user and item numbers and gives the scores of `scorer`."""
    if isinstance(scorer, MatrixFactorization):
        return ServedProduct(scorer)
    if isinstance(scorer, NeuMF):
        return ServedNeuMF(scorer)
    raise InputError(f"export takes the models neumf and mf, got {type(scorer).__name__}")


class ServedProduct(nn.Module):
    """Matrix factorisation, as it is served.

    Args:
        scorer: Whose scores it gives; later changes to its weights are not seen.
    """

    users: Tensor
    items: Tensor
    bias: Tensor

    def __init__(self, scorer: MatrixFactorization) -> None:
        super().__init__()
        tables = {"users": scorer.user, "items": scorer.item, "bias": scorer.bias}
        for name, table in tables.items():
            self.register_buffer(name, table.weight.detach().clone())

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return the scores of lists, ``[Q, L]``."""
        bias = embedding(item, self.bias)[..., 0]
        return products(embedding(user, self.users), self.items, item) + bias


class ServedNeuMF(nn.Module):
    """NeuMF as it is served: its first layer and the product's output weights are worked in.

    Args:
        scorer: Whose scores it gives; later changes to its weights are not seen.
    """

    users: Tensor
    items: Tensor
    hidden_users: Tensor
    hidden_items: Tensor
    output: Tensor

    @torch.no_grad()
    def __init__(self, scorer: NeuMF) -> None:
        super().__init__()
        weights, width = scorer.output.weight[0], scorer.product_user.embedding_dim
        tables = {
            "users": scorer.product_user.weight * weights[:width],
            "items": scorer.product_item.weight,
            "hidden_users": scorer.user_layer(scorer.network_user.weight),
            "hidden_items": scorer.item_layer(scorer.network_item.weight),
            "output": weights[width:],
        }
        for name, table in tables.items():
            self.register_buffer(name, table.detach().clone())
        self.deeper = deepcopy(scorer.deeper)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return the scores of lists, ``[Q, L]``."""
        deeper = list(self.deeper.parameters())
        layers = list(zip(deeper[::2], deeper[1::2], strict=True))
        hidden = embedding(user, self.hidden_users)
        network = network_scores(
            hidden, self.hidden_items, item, layers=layers, output=self.output
        )
        return products(embedding(user, self.users), self.items, item) + network


NEEDED = ("onnx", "onnxruntime", "onnxscript")
INPUTS = {"user": ("queries",), "item": ("queries", "items")}  # all that a file takes, by axis
OUTPUT = "score"
GROUP_WORDS = ("group", "protected")
TOLERANCE = 1e-5  # of the largest score: a fair model's may all be small
CHECKED = ((1, 1), (2, 3), (5, 200), (100, 7))  # queries and items that a file is checked with
MOST_BYTES = 2**31 - 2**20  # of weights that one ONNX file can hold


def require_export() -> None:
    """Refuse to go on where a package that exporting needs is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"export needs {' and '.join(missing)}; install with: pip install fairtopk[export]"
        )


def export_scorer(scorer: nn.Module, path: Path, *, about: Mapping[str, str]) -> float:
    """Write a scorer of users and items as an ONNX file; return how far its scores are off.

    Inputs are ``user`` numbers, int64 ``[queries]``, and ``item`` numbers, int64 ``[queries,
    items]``; the output is ``score``, ``[queries, items]``. Weights past 2 GB go into a second
    file, with ``.data`` at the end of its name.

    Args:
        scorer: `NeuMF` or `MatrixFactorization`.
        path: Where to write; a file that is there is replaced once the new one is checked.
        about: What the file says of itself, name to text.

    Returns:
        The largest difference from the scorer's own scores on random inputs, as a share of the
        largest score.

    Raises:
        InputError: A package is missing, the scorer is another or has diverged, or that share
            is above 1e-5.
    """
    require_export()
    module = served(scorer)
    n_users, n_items = len(module.users), len(module.items)
    generator = torch.Generator().manual_seed(0)
    samples, expected = [], []
    for queries, items in CHECKED:
        user = torch.randint(n_users, (queries,), generator=generator)
        item = torch.randint(n_items, (queries, items), generator=generator)
        # Were groups read after all, these could not be right.
        group = torch.randint(2, item.shape, generator=generator)
        batch = list_batch(user, torch.zeros(item.shape), group, item >= 0, item=item)
        samples.append({"user": user, "item": item})
        expected.append(score(scorer, batch))
    if not all(scores.isfinite().all() for scores in expected):
        raise InputError("the model's scores are not all finite; it may have diverged")
    with together(path) as folder:
        written = folder / path.name
        write_onnx(module, written, samples[1], axes=INPUTS, about=about)
        return check_onnx(written, samples, expected)


def write_onnx(
    module: nn.Module,
    path: Path,
    sample: Mapping[str, Tensor],
    *,
    axes: Mapping[str, Sequence[str | None]],
    about: Mapping[str, str],
) -> None:
    """Write a module as an ONNX file, refusing one that takes groups.

    Args:
        module: Takes tensors, and returns scores.
        path: Where to write.
        sample: Some inputs by name; no axis that may vary has a length of 1.
        axes: For each input, what its axes are called, None for one whose length is fixed.
        about: What the file says of itself, name to text.
    """
    _refuse_groups(inspect.signature(module.forward).parameters, axes)
    lengths = {
        name: torch.export.Dim(name) for names in axes.values() for name in names if name
    }
    shapes = {
        name: {place: lengths[one] for place, one in enumerate(names) if one}
        for name, names in axes.items()
    }
    with _quiet():
        program = torch.onnx.export(
            module.eval(),
            tuple(sample[name] for name in axes),
            input_names=list(axes),
            output_names=[OUTPUT],
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # where this code is on the machine that ran it
    program.model.metadata_props.update(about)
    weights = [*module.parameters(), *module.buffers()]
    size = sum(tensor.numel() * tensor.element_size() for tensor in weights)
    program.save(path, external_data=size > MOST_BYTES)


def check_onnx(
    path: Path, samples: Sequence[Mapping[str, Tensor]], expected: Sequence[Tensor]
) -> float:
    """Return how far the scores of a file are off, as a share of the largest expected.

    Args:
        path: An ONNX file.
        samples: Inputs by name.
        expected: Scores of each sample.

    Raises:
        InputError: The file takes other inputs, or that share is above 1e-5.
    """
    runtime = import_module("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    _refuse_groups([one.name for one in session.get_inputs()], samples[0])
    differences = []
    for sample, scores in zip(samples, expected, strict=True):
        arrays = {name: tensor.numpy() for name, tensor in sample.items()}
        (found,) = session.run([OUTPUT], arrays)
        differences.append(np.abs(found - scores.numpy()).max())
    off, largest = float(np.max(differences)), max(float(one.abs().max()) for one in expected)
    if not off <= TOLERANCE * largest:  # nor of NaN
        raise InputError(
            f"{path.name} was not written: its scores are off by {off:g}, where {TOLERANCE:g} "
            f"of the largest, {largest:g}, is allowed"
        )
    return off / largest if largest else 0.0


def _refuse_groups(taken: Collection[str], wanted: Collection[str]) -> None:
    for name in taken:
        if any(word in name.lower() for word in GROUP_WORDS):
            raise InputError(f"the model takes {name}; one that serves must not ask for groups")
    if list(taken) != list(wanted):
        raise InputError(
            f"the model must take {' and '.join(wanted)} alone, got {', '.join(taken)}"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep from the user what torch says to its own developers while it exports."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


DOCUMENT_INPUTS = {"features": ("documents", None)}  # all that a file takes, by axis
CHECKED_DOCUMENTS = (1, 2, 7, 200)  # documents of the lists that a file is checked with


class OneList(nn.Module):
    """A scorer of features as it is served: the documents of one list, as they came.

    Args:
        scorer: Whose scores it gives; it brings the scale of its features with it.
    """

    def __init__(self, scorer: FeatureScorer) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of documents, ``[documents]``, by features ``[documents, F]``."""
        one = features[None]
        scores: Tensor = self.scorer(one, torch.ones_like(one[..., 0], dtype=torch.bool))[0]
        return scores


def export_feature_scorer(
    scorer: FeatureScorer, path: Path, *, about: Mapping[str, str]
) -> float:
    """Write a scorer of features as an ONNX file; return how far its scores are off.

    The input is ``features``, float32 ``[documents, F]``, of one list; the output is ``score``,
    ``[documents]``. Further arguments, what is returned and what is refused are as in
    `fairtopk.serving.export.export_scorer`.
    """
    require_export()
    module = OneList(scorer).eval()
    scale, generator = scorer.scale, torch.Generator().manual_seed(0)
    samples, expected = [], []
    for count in CHECKED_DOCUMENTS:
        usual = torch.randn(count, len(scale.mean), generator=generator)
        samples.append({"features": scale.mean + scale.spread * usual})
        with torch.no_grad():
            expected.append(module(samples[-1]["features"]))
    if not all(scores.isfinite().all() for scores in expected):
        raise InputError("the model's scores are not all finite; it may have diverged")
    with together(path) as folder:
        written = folder / path.name
        write_onnx(module, written, samples[2], axes=DOCUMENT_INPUTS, about=about)
        return check_onnx(written, samples, expected)


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
    opened = open_run(run, data=data)
    config, lists, scorer = opened.config, opened.lists, opened.scorer
    kept, of_data = _kept(run, lists), lists.data
    about = {"fairtopk": __version__, "data": of_data.name, "data_sha256": of_data.checksum}
    with together(out) as folder:
        path, inputs = folder / out.name, tuple(INPUTS)
        if isinstance(lists, QueryLists):
            off = export_feature_scorer(_of_features(scorer), path, about=about)
            inputs = tuple(DOCUMENT_INPUTS)
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
