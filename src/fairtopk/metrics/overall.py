"""One value of a whole set of lists, with its interval: what groups get over all of them.

What a group gets is a ratio of two sums over lists. A value is made of these ratios, so it is
no mean of values per list; its interval comes from resampling lists.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairtopk.arguments import checked_whole
from fairtopk.metrics.intervals import interval, ratios, resampled


class Overall(NamedTuple):
    """A value of a whole set of lists.

    Attributes:
        value: NaN where fewer than two groups have an item that counts.
        ci95: A 95 % interval of it, by bootstrap over lists.
        by_group: What each group gets, of which `value` is made; NaN for a group without an
            item that counts.
        n: Lists with an item that counts.
        undefined: Lists without.
    """

    value: float
    ci95: tuple[float, float]
    by_group: tuple[float, ...]
    n: int
    undefined: int


def of_groups(amounts: Tensor, counts: Tensor) -> Tensor:
    """Return what `overall` takes, ``[Q, 2 G, 1]``: numerators, then denominators."""
    return torch.cat([amounts, counts.to(amounts)], dim=1)


def overall(sums: Tensor, value: Callable[[Tensor], Tensor], seed: int) -> Overall:
    """Return what `value` makes of the ratios of groups, over all lists.

    Args:
        sums: Numerators of each group, then denominators, ``[Q, 2 G]``.
        value: Takes ratios of at least two groups, ``[..., G]``.
        seed: Of the resamples.
    """
    return overalls({"": sums}, value, seed)[""]


def overalls(
    sums: Mapping[str, Tensor], value: Callable[[Tensor], Tensor], seed: int
) -> dict[str, Overall]:
    """Return `overall` of several sums over the same lists, from one set of resamples."""
    seed = checked_whole("seed", seed, least=0)
    held = {name: one.double().cpu() for name, one in sums.items()}
    again = resampled(torch.cat(list(held.values()), dim=-1).numpy(), seed)
    widths = np.cumsum([one.shape[-1] for one in held.values()])[:-1]
    found = {}
    for (name, one), resamples in zip(
        held.items(), np.split(again, widths, axis=-1), strict=True
    ):
        found[name] = _overall(one, torch.from_numpy(ratios(resamples)), value)
    return found


def _overall(sums: Tensor, resamples: Tensor, value: Callable[[Tensor], Tensor]) -> Overall:
    counts = sums.chunk(2, dim=-1)[1]
    n = int((counts.sum(-1) > 0).sum())
    by_group = torch.from_numpy(ratios(sums.sum(0).numpy()))
    there = counts.sum(0) > 0
    found, bounds = torch.nan, [torch.nan, torch.nan]
    if there.sum() >= 2:
        found = float(value(by_group[there]))
        # A resample without one of these groups has no value, and is left out.
        bounds = interval(value(resamples[:, there]).numpy()).tolist()
    return Overall(found, (bounds[0], bounds[1]), tuple(by_group.tolist()), n, len(sums) - n)
