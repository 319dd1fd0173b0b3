"""What enters the statistics: numbers, taken as float64."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.metrics.inputs import Values, tensor_of

Floats = NDArray[np.float64]


def doubles(values: Values | Sequence[float], name: str) -> Floats:
    """Return a tensor, array or list of numbers as an array, refusing all else."""
    given = tensor_of(values, name)
    if isinstance(values, Tensor):
        return given.double().cpu().numpy()
    return np.asarray(values, np.float64)  # torch rounds what is in a list to float32
