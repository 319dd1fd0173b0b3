"""The paper's experiments as cells of a sweep, on the data sets found in a folder.

The largest data set of each kind is taken. C is the paper's, for training lists of 10 + 300. At
C = 0 KSO-RED, SO-RED and NG-DE are K-SONG, and DELTR is ListNet: these are trained once.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairtopk.errors import InputError
from fairtopk.objectives.methods import METHODS
from fairtopk.runs.grid import Afterwards, Cell, cells_of

MOVIELENS = {  # by size; the paper's is the first
    "movielens-20m": ("ml-20m", "20M"),
    "movielens-1m": ("ml-1m", "1M"),
    "movielens-100k": ("ml-100k", "100K"),
}
NETFLIX = ("nf_prize_dataset*", "netflix-prize*", "download/training_set*", "training_set*")
NETFLIX_PART = ("netflix-subset.ratings.parquet", "netflix.items.parquet")
GROUPINGS: dict[str, dict[str, Any]] = {
    "horror": {"column": "genres", "contains": "Horror"},
    "documentary": {"column": "genres", "contains": "Documentary"},
    "before 1990": {"column": "year", "below": 1990},
}
BEFORE_1990 = "before 1990"
KS = (50, 100, 200)
TRAINED_K = 50
ABLATED = ("horror", "embedded")  # in titles of data on which gamma is varied
GAMMAS = (0.2, 0.6, 1.0)
SMALL = {  # some hundred steps of 256 users are not enough
    "batch_size": 64,
    "warmup_rate": 2e-3,
    "rate": 2e-3,
    "warmup_epochs": 10,
    "epochs": 40,
    "rate_epochs": [30],
}


class PaperData(NamedTuple):
    """A data set with a grouping."""

    title: str  # its name in figures
    data: dict[str, Any]  # the `data` table of its config
    paper: str | None = None  # its name in the paper; None if the paper does not use it
    small: bool = False  # whether it is trained with the settings for small data


def embedded(seed: int = 0) -> PaperData:
    """Return the embedded data, whose bias is known."""
    options = {"bias": 2.0, "seed": seed}
    return PaperData("embedded", {"source": "synthetic", "options": options}, small=True)


def find_data(folder: Path | None, *, quick: bool) -> list[PaperData]:
    """Return every data set of the paper that a folder has, and the embedded one.

    The folder has published archives or their folders; `quick` takes MovieLens 100K only.
    """
    if folder is None:
        return [embedded()]
    if not folder.is_dir():
        raise InputError(f"--data {folder} is not a folder; give the one that holds the data")
    found = [embedded()]
    for source, (start, size) in MOVIELENS.items():
        if quick and source != "movielens-100k":
            continue
        paths = sorted(folder.glob(f"{start}*.zip")) or sorted(folder.glob(f"{start}*/"))
        if not paths:
            continue
        for title, rule in GROUPINGS.items():
            data = {"source": source, "path": str(paths[0]), "groups": rule}
            paper = {"horror": "MovieLens-20M-H", "documentary": "MovieLens-20M-D"}
            named = paper.get(title) if size == "20M" else None
            small = size == "100K"
            found.append(PaperData(f"MovieLens {size}, {title}", data, named, small))
        break
    if quick:
        return found
    rule = GROUPINGS[BEFORE_1990]
    if paths := [path for pattern in NETFLIX for path in sorted(folder.glob(pattern))]:
        data = {"source": "netflix", "path": str(paths[0]), "groups": rule}
        return [*found, PaperData(f"Netflix, {BEFORE_1990}", data, paper="Netflix-20M")]
    ratings, items = (folder / name for name in NETFLIX_PART)
    if ratings.is_file() and items.is_file():
        columns = {"user": "user_id", "item": "item_id", "rating": "rating"}
        # No dates and few ratings per user: those with 20 are tested, with a random split.
        part: dict[str, Any] = {
            "source": "parquet",
            "path": str(ratings),
            "groups": rule,
            "options": {**columns, "items": str(items)},
            "split": "random",
            "min_ratings": 20,
        }
        found.append(PaperData(f"Netflix (a part), {BEFORE_1990}", part))
    return found


class Extent(NamedTuple):
    """The extent of the experiments."""

    c: tuple[float, ...]  # weights of exposure penalties, besides 0
    adversary: tuple[float, ...]  # weights of the adversary of DPR
    share: tuple[float, ...]  # shares of the gap that robust removes
    ablation: tuple[float, ...]  # weights at which gamma is varied
    bonus: tuple[float, ...]  # constants added to the named group's scores, of either sign
    seeds: tuple[int, ...]  # seeds of every run


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
    adversary=(0.3,),  # one value: DPR and robust are the slowest
    share=(1.0,),
    ablation=(1e5,),
    bonus=(-0.4, 0.4),
    seeds=(0,),
)


def paper_cells(found: Sequence[PaperData], extent: Extent) -> list[Cell]:
    """Return the cells of all data sets, seed by seed."""
    of_groups = ("fa-ir", "det-greedy", "det-cons", "det-relaxed", "det-const-sort")
    rerank: list[dict[str, Any]] = [{"method": name} for name in (*of_groups, "exposure-lp")]
    rerank.append({"method": "group-bonus", "bonus": list(extent.bonus)})
    afterwards = Afterwards(
        protocols=("sampled", "full"), rerank=tuple(rerank), rerank_of=("k-song",)
    )
    cells: list[Cell] = []
    c = list(extent.c)
    for one in found:
        base = {
            "data": one.data,
            "training": SMALL if one.small else {},
            "evaluation": {"k": list(KS), "select_k": TRAINED_K},
        }
        methods: list[dict[str, Any]] = [
            *({"name": name} for name in ("k-song", "song", "listnet")),
            # The slowest first, so that no core runs one alone at the end.
            {"name": "robust", "c": list(extent.share)},
            *({"name": name, "c": list(extent.adversary)} for name in ("dpr-rsp", "dpr-reo")),
            *({"name": name, "c": c} for name in ("kso-red", "so-red", "ng-de", "deltr")),
            {"name": "kso-red", "preset": "paper", "c": c},
        ]
        if any(word in one.title for word in ABLATED):
            for name in ("so-red", "kso-red"):
                others = [gamma for gamma in GAMMAS if gamma != METHODS[name].gamma_u]
                methods.append({"name": name, "c": list(extent.ablation), "gamma_u": others})
        methods = [{"k": TRAINED_K, **method} for method in methods]
        grid = {"seed": list(extent.seeds), "method": methods}
        cells += cells_of(base, grid, afterwards, where=one.title)
    return sorted(cells, key=lambda cell: cell.config.seed)
