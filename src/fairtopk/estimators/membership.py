"""Which groups an item is in: one that is its label, or several that its label names.

A label such as "Horror|War" puts an item into two groups, for methods that allow it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Members(NamedTuple):
    """The groups that labels are split into.

    Attributes:
        names: Of the groups, in the order of their first label.
        member: 1 for the groups that items with each label are in, else 0, ``[labels, G]``.
    """

    names: tuple[str, ...]
    member: Tensor


def split_labels(labels: Sequence[str], separator: str | None) -> Members:
    """Return the groups that labels name; without a separator each label is a group.

    Example:
        >>> split_labels(["Horror", "Horror|War"], "|").member.tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    parts = [
        [label] if separator is None else [part.strip() for part in label.split(separator)]
        for label in labels
    ]
    names = tuple(dict.fromkeys(part for one in parts for part in one if part))
    member = [[float(name in one) for name in names] for one in parts]
    return Members(names, torch.tensor(member))
