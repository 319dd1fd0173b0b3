"""A run's model as files for elsewhere: ONNX, the ids behind its numbers, and a model card.

The models have compiled loops and gradients of their own, which torch.export cannot follow; the
`Served...` modules compute the same scores with plain operations. A file takes numbers of users
and items, or users' histories, or features of documents, and nothing else: a model that takes
groups is refused. Scores are compared with the original's in ONNX Runtime before it appears.
"""

import inspect
import logging
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from fairtopk import __version__
from fairtopk.errors import InputError
from fairtopk.lists.batch import list_batch
from fairtopk.lists.queries import QueryLists
from fairtopk.lists.users import Ratings
from fairtopk.models._torch import network_scores, products
from fairtopk.models.features import FeatureScorer, OfTable
from fairtopk.models.histories import Ease, HistoryScorer, Ials, ItemKnn, Popularity
from fairtopk.models.mf import MatrixFactorization
from fairtopk.models.neumf import NeuMF
from fairtopk.models.scoring import score
from fairtopk.runs.config_file import load_config
from fairtopk.runs.open import open_run
from fairtopk.runs.result import CONFIG, METRICS, Owner, identity_of, read_result
from fairtopk.serving.model_card import model_card
from fairtopk.storage import check_target, together, write_text

NEEDED = ("onnx", "onnxruntime", "onnxscript")
INPUTS = {"user": ("queries",), "item": ("queries", "items")}  # inputs of a file, with axes
# Item numbers, -1 past the end of a user's history, and what each item counts.
HISTORY_INPUTS = {"history": ("users", "length"), "value": ("users", "length")}
DOCUMENT_INPUTS = {"features": ("documents", None)}
OUTPUT = "score"
GROUP_WORDS = ("group", "protected")
TOLERANCE = 1e-5  # of the largest score: all scores of a fair model may be small
CHECKED = ((1, 1), (2, 3), (5, 200), (100, 7))  # queries and items that a file is checked with
CHECKED_DOCUMENTS = (1, 2, 7, 200)
EXACT = 1e-9  # error of the conjugate gradients of ials, which sets how many steps they take
MOST_STEPS = 100
TINY = 1e-30  # instead of dividing by 0; ONNX Runtime may keep it as float32
MOST_BYTES = 2**31 - 2**20  # of weights that one ONNX file can hold


class Served(nn.Module):
    """Matrix factorisation or NeuMF as it is served; later changes to the scorer are not seen.

    NeuMF's first layer and the product's output weights are applied once to each user and item.
    """

    users: Tensor
    items: Tensor
    bias: Tensor
    hidden_users: Tensor
    hidden_items: Tensor
    output: Tensor

    @torch.no_grad()
    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.deeper: nn.Module | None = None
        if isinstance(scorer, MatrixFactorization):
            tables = {"users": scorer.user, "items": scorer.item, "bias": scorer.bias}
            weights = {name: table.weight for name, table in tables.items()}
        elif isinstance(scorer, NeuMF):
            output, width = scorer.output.weight[0], scorer.product_user.embedding_dim
            weights = {
                "users": scorer.product_user.weight * output[:width],
                "items": scorer.product_item.weight,
                "hidden_users": scorer.user_layer(scorer.network_user.weight),
                "hidden_items": scorer.item_layer(scorer.network_item.weight),
                "output": output[width:],
            }
            self.deeper = deepcopy(scorer.deeper)
        else:
            got = type(scorer).__name__
            raise InputError(f"export takes the models of this package, got {got}")
        for name, weight in weights.items():
            self.register_buffer(name, weight.detach().clone())

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return the scores of lists, ``[Q, L]``."""
        product = products(embedding(user, self.users), self.items, item)
        if self.deeper is None:
            return product + embedding(item, self.bias)[..., 0]
        deeper = list(self.deeper.parameters())
        layers = list(zip(deeper[::2], deeper[1::2], strict=True))
        hidden = embedding(user, self.hidden_users)
        return product + network_scores(
            hidden, self.hidden_items, item, layers=layers, output=self.output
        )


class ServedHistories(nn.Module):
    """A fitted model as it is served; it shares the scorer's weights.

    ONNX has no solver. Conjugate gradients in float64 solve the equations of ials,
    (Y'Y + ridge I + Y'(C - 1)Y) p = Y'C 1, preconditioned by the part that all users share.
    """

    gram: Tensor
    inverse: Tensor

    @torch.no_grad()
    def __init__(self, scorer: HistoryScorer) -> None:
        super().__init__()
        self.scorer, self.steps = scorer, 0
        if isinstance(scorer, Ials):
            factors = scorer.factors.double()
            gram = factors.T @ factors + scorer.ridge * torch.eye(factors.shape[1])
            self.register_buffer("gram", gram)
            self.register_buffer("inverse", torch.cholesky_inverse(torch.linalg.cholesky(gram)))
            # Y'(C - 1)Y is at most confidence Y'Y, so that the condition is at most
            root = math.sqrt(1 + scorer.confidence)
            self.steps = math.ceil(math.log(2 / EXACT) / math.log((root + 1) / (root - 1)))

    def forward(self, history: Tensor, value: Tensor) -> Tensor:
        """Return the scores of all items, ``[users, n_items]``.

        Args:
            history: Item numbers, -1 past the end, ``[users, length]``.
            value: What each counts: 1, or 2^rating - 1 for graded input.
        """
        scorer, item = self.scorer, history.clamp(min=0)
        own = torch.where(history >= 0, value, torch.zeros_like(value))
        none = own.new_zeros(1, scorer.n_items).expand(history.shape[0], -1)
        if isinstance(scorer, Ease):
            return none.scatter_add(1, item, own) @ scorer.weight
        if isinstance(scorer, ItemKnn):
            near = embedding(item, scorer.neighbour.long()).flatten(1)
            more = own[..., None] * embedding(item, scorer.similarity)
            return none.scatter_add(1, near, more.flatten(1))
        if isinstance(scorer, Ials):
            return self._by_vectors(scorer, item, own)
        assert isinstance(scorer, Popularity)
        return none.scatter_add(1, item, 0 * own) + scorer.count

    def _by_vectors(self, scorer: Ials, item: Tensor, own: Tensor) -> Tensor:
        """Return Y p."""
        vectors = embedding(item, scorer.factors).double()  # [users, length, width]
        more = own.double() * (scorer.confidence / scorer.unit)
        left = ((more + (more > 0))[:, None] @ vectors)[:, 0]  # what of Y'C 1 is not yet met
        user, near = torch.zeros_like(left), left @ self.inverse
        step, norm = near, (left * near).sum(-1, keepdim=True)
        for _ in range(min(self.steps, MOST_STEPS)):
            weighted = (vectors @ step[..., None])[..., 0] * more
            turned = step @ self.gram + (weighted[:, None] @ vectors)[:, 0]
            length = norm / (step * turned).sum(-1, keepdim=True).clamp(min=TINY)
            user, left = user + length * step, left - length * turned
            near, before = left @ self.inverse, norm
            norm = (left * near).sum(-1, keepdim=True)
            step = near + norm / before.clamp(min=TINY) * step
        return user.float() @ scorer.factors.T


class ServedDocuments(nn.Module):
    """A scorer of features as it is served: the documents of one list, unscaled."""

    def __init__(self, scorer: FeatureScorer) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of documents, ``[documents]``, by features ``[documents, F]``."""
        one = features[None]
        scores: Tensor = self.scorer(one, torch.ones_like(one[..., 0], dtype=torch.bool))[0]
        return scores


def require_export() -> None:
    """Refuse to continue where a package that exporting needs is not installed."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InputError(
            f"export needs {' and '.join(missing)}; install with: pip install fairtopk[export]"
        )


def export_scorer(scorer: nn.Module, path: Path, *, about: Mapping[str, str]) -> float:
    """Write a scorer as an ONNX file; return how far its scores are off.

    The inputs are ``user`` numbers, int64 ``[queries]``, and ``item`` numbers, int64
    ``[queries, items]``, and the output is ``score``, ``[queries, items]``. Of a fitted model
    the inputs are ``history``, int64, and ``value``, float32, both ``[users, length]``, and
    ``score`` is ``[users, n_items]``; of documents the input is ``features``, float32
    ``[documents, F]``, of one list, and ``score`` is ``[documents]``.
    Weights past 2 GB go into a second file, with ``.data`` at the end of its name.

    Args:
        scorer: `NeuMF`, `MatrixFactorization`, a fitted model, or a scorer of a table of
            features.
        path: Where to write; an existing file is replaced once the new one is checked.
        about: What the file says about itself, name to text.

    Returns:
        The largest difference from the scorer's own scores on random inputs, as a share of the
        largest score.

    Raises:
        InputError: A package is missing, the scorer is another or has diverged, or that share
            is above 1e-5.
    """
    require_export()
    generator = torch.Generator().manual_seed(0)
    samples, expected = [], []
    module: Served | ServedHistories | ServedDocuments
    axes: Mapping[str, Sequence[str | None]] = INPUTS
    if isinstance(scorer, HistoryScorer):
        module, axes = ServedHistories(scorer).eval(), HISTORY_INPUTS
        for n_users, length in CHECKED:
            sample, histories = _drawn_histories(
                scorer, n_users, min(length, scorer.n_items), generator
            )
            samples.append(sample)
            expected.append(scorer.score_histories(histories))
    elif isinstance(scorer, OfTable):
        axes = DOCUMENT_INPUTS
        module, scale = ServedDocuments(scorer.scorer).eval(), scorer.scorer.scale
        for n_documents in CHECKED_DOCUMENTS:
            usual = torch.randn(n_documents, len(scale.mean), generator=generator)
            samples.append({"features": scale.mean + scale.spread * usual})
            with torch.no_grad():
                expected.append(module(samples[-1]["features"]))
    else:
        module = Served(scorer)
        n_users, n_items = len(module.users), len(module.items)
        for n_queries, length in CHECKED:
            user = torch.randint(n_users, (n_queries,), generator=generator)
            item = torch.randint(n_items, (n_queries, length), generator=generator)
            # Random groups: if the model used them after all, its scores would differ.
            group = torch.randint(2, item.shape, generator=generator)
            batch = list_batch(user, torch.zeros(item.shape), group, item >= 0, item=item)
            samples.append({"user": user, "item": item})
            expected.append(score(scorer, batch))
    if not all(scores.isfinite().all() for scores in expected):
        raise InputError("the model's scores are not all finite; it may have diverged")
    with together(path) as folder:
        written = folder / path.name
        write_onnx(module, written, samples[2], axes=axes, about=about)
        return check_onnx(written, samples, expected)


def _drawn_histories(
    scorer: HistoryScorer, n_users: int, length: int, generator: torch.Generator
) -> tuple[dict[str, Tensor], Ratings]:
    """Return random histories as a file takes them, and as the scorer does."""
    order = torch.rand(n_users, scorer.n_items, generator=generator).argsort(-1)
    count = torch.randint(1, length + 1, (n_users, 1), generator=generator)
    count[0] = length
    there = torch.arange(length) < count
    item = order[:, :length]
    rating = torch.randint(1, 6, item.shape, generator=generator).float()
    value = torch.exp2(rating) - 1 if scorer.graded else torch.ones_like(rating)
    offsets = np.concatenate([[0], np.cumsum(count.numpy()[:, 0])])
    ratings = Ratings(offsets, item[there].int().numpy(), rating[there].numpy())
    return {"history": item.where(there, -1), "value": value * there}, ratings


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
        axes: The names of each input's axes, None for one whose length is fixed.
        about: What the file says about itself, name to text.
    """
    _refuse_groups(inspect.signature(module.forward).parameters, axes)
    lengths = {
        name: torch.export.Dim(name) for names in axes.values() for name in names if name
    }
    shapes = {
        name: {place: lengths[one] for place, one in enumerate(names) if one}
        for name, names in axes.items()
    }
    logged = logging.root.manager.disable
    logging.disable(logging.WARNING)  # torch warns its own developers while it exports
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                tuple(sample[name] for name in axes),
                input_names=list(axes),
                output_names=[OUTPUT],
                dynamic_shapes=shapes,
                dynamo=True,
                verbose=False,
            )
    finally:
        logging.disable(logged)
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # paths of this code on the machine that ran it
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
    if not off <= TOLERANCE * largest:  # so written that NaN is refused too
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


class Exported(NamedTuple):
    """The files of an export."""

    files: list[Path]  # the model, its ids and its card
    inputs: tuple[str, ...]  # what the model takes
    off: float  # largest difference from the original's scores, as a share of the largest score


def export_run(run: Path, out: Path, *, data: Path | None = None) -> Exported:
    """Write a run's model as ONNX, the id of each of its numbers, and a card.

    Next to ``model.onnx`` are ``model.users.parquet`` and ``model.items.parquet``, of a fitted
    model the second alone, for documents ``model.features.parquet``, with columns `number` and
    `id`, and ``model.md``, the card. They appear together, and only if the file scores like the
    model.

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
    lists, scorer = opened.lists, opened.scorer
    result = None  # of a run that was stopped before it was measured
    if (run / METRICS).exists():
        config = load_config(run / CONFIG)
        result = read_result(run / METRICS, Owner(config, identity_of(config, lists)))
    about = {
        "fairtopk": __version__,
        "data": lists.data.name,
        "data_sha256": lists.data.checksum,
    }
    ids = {}
    if isinstance(lists, QueryLists):
        if not isinstance(scorer, OfTable):
            raise InputError("robust needs groups when it ranks: it cannot be exported")
        inputs, ids["features"] = tuple(DOCUMENT_INPUTS), pl.Series(lists.data.feature_names)
    else:
        inputs = tuple(INPUTS)
        if isinstance(scorer, HistoryScorer):
            inputs = tuple(HISTORY_INPUTS)
        else:
            ids["users"] = lists.data.user_ids
        ids["items"] = lists.data.item_ids
    with together(out) as folder:
        off = export_scorer(scorer, folder / out.name, about=about)
        for name, column in ids.items():
            table = pl.DataFrame({"id": column}).with_row_index("number")
            table.write_parquet(folder / f"{out.stem}.{name}.parquet")
        text = model_card(out.stem, opened.config, lists, result, off=off)
        write_text(folder / card.name, text)
        names = sorted(file.name for file in folder.iterdir())
    return Exported([out.with_name(name) for name in names], inputs, off)
