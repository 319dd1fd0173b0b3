"""A trained scorer as an ONNX file: traced by torch.export, and checked in ONNX Runtime.

The file takes user and item numbers and nothing else: a model that asks for groups is refused.
"""

import inspect
import logging
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fairtopk.batches import list_batch
from fairtopk.data.files import together
from fairtopk.errors import InputError
from fairtopk.scorers.served import served
from fairtopk.scoring import score

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
