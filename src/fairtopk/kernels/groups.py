"""Sums over the groups of lists, and back from groups to slots."""

import numpy as np
from numpy.typing import NDArray

from fairtopk.kernels.compiled import compiled, summing

Floats = NDArray[np.floating]
Labels = NDArray[np.signedinteger]

FEW = 8  # groups up to which a pass over the list for each is the quicker way


@summing
def group_sums(values: Floats, group: Labels, sums: Floats) -> None:
    """Add to `sums`, ``[Q, G]``, the values of each group's slots, ``[Q, L]``."""
    zero = values.dtype.type(0)
    for row in range(values.shape[0]):
        if sums.shape[1] > FEW:
            for slot in range(values.shape[1]):
                label = group[row, slot]
                if 0 <= label < sums.shape[1]:
                    sums[row, label] += values[row, slot]
        else:  # without one sum waiting for the other
            for label in range(sums.shape[1]):
                total = zero
                for slot in range(values.shape[1]):
                    total += values[row, slot] if group[row, slot] == label else zero
                sums[row, label] += total


@compiled
def values_of_groups(table: Floats, group: Labels, values: Floats) -> None:
    """Fill `values`, ``[Q, L]``, with what `table`, ``[Q, G]``, has for each slot's group."""
    zero = values.dtype.type(0)
    for row in range(values.shape[0]):
        for slot in range(values.shape[1]):
            label = group[row, slot]
            known = 0 <= label < table.shape[1]
            values[row, slot] = table[row, label] if known else zero
