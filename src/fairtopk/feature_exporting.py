"""A trained scorer of features as an ONNX file: documents in, scores out, and no groups."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from fairtopk.data.files import together
from fairtopk.errors import InputError
from fairtopk.exporting import check_onnx, require_export, write_onnx
from fairtopk.scorers.features import FeatureScorer

INPUTS = {"features": ("documents", None)}  # all that a file takes, by axis
CHECKED = (1, 2, 7, 200)  # documents of the lists that a file is checked with


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
    `fairtopk.exporting.export_scorer`.
    """
    require_export()
    module = OneList(scorer).eval()
    scale, generator = scorer.scale, torch.Generator().manual_seed(0)
    samples, expected = [], []
    for count in CHECKED:
        usual = torch.randn(count, len(scale.mean), generator=generator)
        samples.append({"features": scale.mean + scale.spread * usual})
        with torch.no_grad():
            expected.append(module(samples[-1]["features"]))
    if not all(scores.isfinite().all() for scores in expected):
        raise InputError("the model's scores are not all finite; it may have diverged")
    with together(path) as folder:
        written = folder / path.name
        write_onnx(module, written, samples[2], axes=INPUTS, about=about)
        return check_onnx(written, samples, expected)
