"""The paper's experiments as cells of a sweep: every method, weight and seed on each data set.

C is the paper's, for training lists of 10 + 300. At C = 0 KSO-RED, SO-RED and NG-DE are K-SONG,
and DELTR is ListNet: these are trained once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fairtopk.estimators.methods import METHODS
from fairtopk.experiments.grid import Afterwards, Cell, cells_of
from fairtopk.experiments.paper_data import Found

KS = (50, 100, 200)
TRAINED_K = 50
ABLATED = ("horror", "embedded")  # in the title of the data that gamma is varied on
GAMMAS = (0.2, 0.6, 1.0)
SMALL = {  # some hundred steps of 256 users are not enough
    "batch_size": 64,
    "warmup_rate": 2e-3,
    "rate": 2e-3,
    "warmup_epochs": 10,
    "epochs": 40,
    "rate_epochs": [30],
}


class Extent(NamedTuple):
    """How much is done.

    Attributes:
        c: Weights of exposure penalties, beside 0.
        adversary: Weights of the adversary of DPR.
        share: Shares of the gap that robust takes away.
        ablation: Weights at which gamma is varied.
        bonus: Constants added to the named group's scores; it may be the one that is ahead.
        seeds: Of every run.
    """

    c: tuple[float, ...]
    adversary: tuple[float, ...]
    share: tuple[float, ...]
    ablation: tuple[float, ...]
    bonus: tuple[float, ...]
    seeds: tuple[int, ...]


FULL = Extent(
    c=(1e3, 1e4, 5e4, 1e5, 1e6, 1e9),
    adversary=(0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    share=(0.0, 0.5, 1.0),
    ablation=(1e4, 1e5, 1e6),
    bonus=(-0.8, -0.4, -0.2, -0.1, -0.05, 0.05, 0.1, 0.2, 0.4, 0.8),
    seeds=(0, 1, 2, 3, 4),
)
QUICK = Extent(
    c=(1e4, 1e5),
    adversary=(0.3,),  # with robust the slowest: their curves have no start
    share=(1.0,),
    ablation=(1e5,),
    bonus=(-0.4, 0.4),
    seeds=(0,),
)


def paper_cells(found: Sequence[Found], extent: Extent) -> list[Cell]:
    """Return the cells of all data sets, seed by seed."""
    cells = [cell for one in found for cell in _cells(one, extent)]
    return sorted(cells, key=lambda cell: cell.config.seed)


def _cells(found: Found, extent: Extent) -> list[Cell]:
    base = {
        "data": found.data,
        "training": SMALL if found.small else {},
        "evaluation": {"k": list(KS), "select_k": TRAINED_K},
    }
    afterwards = Afterwards(
        protocols=("sampled", "full"),
        rerank=tuple(_rerankers(extent)),
        rerank_of=("k-song",),
    )
    methods = [{"k": TRAINED_K, **method} for method in _methods(found, extent)]
    grid = {"seed": list(extent.seeds), "method": methods}
    return cells_of(base, grid, afterwards, where=found.title)


def _methods(found: Found, extent: Extent) -> Iterator[dict[str, Any]]:
    c = list(extent.c)
    for name in ("k-song", "song", "listnet"):
        yield {"name": name}
    # The slowest before others, so that none is left to one core at the end.
    yield {"name": "robust", "c": list(extent.share)}
    for name in ("dpr-rsp", "dpr-reo"):
        yield {"name": name, "c": list(extent.adversary)}
    for name in ("kso-red", "so-red", "ng-de", "deltr"):
        yield {"name": name, "c": c}
    yield {"name": "kso-red", "preset": "paper", "c": c}
    if any(word in found.title for word in ABLATED):
        for name in ("so-red", "kso-red"):
            others = [gamma for gamma in GAMMAS if gamma != METHODS[name].gamma_u]
            yield {"name": name, "c": list(extent.ablation), "gamma_u": others}


def _rerankers(extent: Extent) -> Iterator[dict[str, Any]]:
    for name in ("fa-ir", "det-greedy", "det-cons", "det-relaxed", "det-const-sort"):
        yield {"method": name}
    yield {"method": "exposure-lp"}
    yield {"method": "group-bonus", "bonus": list(extent.bonus)}
