"""What `Interactions` and `Features` share: counts of their groups, and a checksum."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray


def count_groups(group: NDArray[np.int32], names: Sequence[str]) -> dict[str, int]:
    """Return how many have each group, unknown ones left out."""
    known = np.bincount(group[group >= 0], minlength=len(names))
    return dict(zip(names, known.tolist(), strict=True))


def shown_groups(group: NDArray[np.int32], names: Sequence[str]) -> str:
    """Return the groups and their counts in words."""
    counts = count_groups(group, names) | {"(unknown)": int((group < 0).sum())}
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def label_texts(group: NDArray[np.int32], names: Sequence[str]) -> pl.Series:
    """Return group numbers as their names, null where unknown."""
    texts = pl.Series([*names, None], dtype=pl.String)
    return texts.gather(np.where(group < 0, len(names), group))


def checksum(arrays: Iterable[NDArray[Any] | None], columns: Iterable[pl.Series]) -> str:
    """Return the SHA-256 of arrays and columns: types, lengths and values."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none")
            continue
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    for column in columns:
        digest.update(f"{column.dtype}{len(column)}".encode())
        texts = column.cast(pl.String)
        digest.update(np.ascontiguousarray(texts.str.len_bytes().to_numpy()).data)
        digest.update("".join(texts).encode())
    return digest.hexdigest()
