"""Rankings before and after: what stands at the top of the most unfairly ranked lists."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fairtopk.batches import Batch, candidate_batch
from fairtopk.checkpoints import load_tensors
from fairtopk.errors import InputError
from fairtopk.experiments.build import AnyLists, build_any_lists
from fairtopk.experiments.config import Config, DataConfig
from fairtopk.experiments.config_file import load_config
from fairtopk.experiments.documents import DocumentPart
from fairtopk.experiments.opening import load_model
from fairtopk.experiments.result import CONFIG, USER
from fairtopk.feature_batches import feature_batch
from fairtopk.lists import HeldOut
from fairtopk.reporting.curves import Point, View, fairest
from fairtopk.reporting.results import Rankings, Result
from fairtopk.reporting.words import gap_words, number
from fairtopk.scoring import score, top_items

SHOWN_LISTS = 30
SHOWN_POSITIONS = 100
LOSS = 0.05  # of NDCG, that the fair model may have lost

Load = Callable[[DataConfig, int], AnyLists]


def loader() -> Load:
    """Return a function that loads the data of a config, and remembers the last."""
    kept: dict[str, AnyLists] = {}

    def load(config: DataConfig, seed: int) -> AnyLists:
        key = f"{config.model_dump_json()} {seed if config.split == 'random' else 0}"
        if key not in kept:
            kept.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were told when the model was trained
                kept[key] = build_any_lists(config, seed=seed)
        return kept[key]

    return load


def rankings_of(folder: Path, view: View, load: Load) -> Rankings | str:
    """Return the rankings of a view before and after, or in words why there are none.

    Before is the colour-blind model, after the fairest that loses at most 5 % of its NDCG, both
    of the same seed.

    Args:
        folder: Where the runs are.
        view: What to choose from.
        load: What `loader` returned.
    """
    if view.base is None:
        return "there is no colour-blind run"
    k, gap = _place(view)
    after = fairest(view, gap, k, loss=LOSS)
    if after is None:
        return "there is no run with a penalty"
    of_seed = {result.run.seed: result for result in after.results}
    pairs = [
        (one, of_seed[one.run.seed]) for one in view.base.results if one.run.seed in of_seed
    ]
    if not pairs:
        return "no seed has both a colour-blind and a fair run"
    before, fair = pairs[0]
    found = most_unfair(before, f"{gap}@{k}", SHOWN_LISTS)
    if found is None:
        return "the colour-blind run has no file with the values of each user"
    users, of = found
    try:
        shown = min(max(view.ks), SHOWN_POSITIONS)
        rows, groups = rows_of(folder, [before, fair], users, shown, load)
    except (InputError, OSError):
        return "the data or the models could not be loaded again"
    titles = [
        _title(point, result, k) for point, result in ((view.base, before), (after, fair))
    ]
    order = f"gap at K = {k}, {gap_words(gap)},"
    return Rankings(
        before=titles[0],
        after=titles[1],
        lists=view.label,
        order=order,
        of=of,
        groups=groups,
        rows_before=rows[0],
        rows_after=rows[1],
    )


def _place(view: View) -> tuple[int, str]:
    """Return by which K and gap lists are chosen: the K that the models were trained for."""
    trained = [point.results[0].run.settings.get("method.k") for point in view.points]
    k = next((k for k in trained if k in view.ks), view.ks[0])
    return int(k), view.gaps[0]


def most_unfair(result: Result, name: str, count: int) -> tuple[NDArray[np.int64], int] | None:
    """Return the `count` users with the largest gaps, and how many have one."""
    for path in result.per_query:
        tensors = load_tensors(path).tensors
        if name in tensors:
            gaps = tensors[name].nan_to_num(nan=-1.0)
            known = int((gaps >= 0).sum())
            worst = gaps.argsort(descending=True, stable=True)[: min(count, known)]
            return tensors[USER][worst].numpy(), known
    return None


def rows_of(
    folder: Path, results: list[Result], users: NDArray[np.int64], shown: int, load: Load
) -> tuple[list[list[str]], tuple[str, str]]:
    """Return the rows of each result, and the names of the groups that they tell apart.

    Args:
        folder: Where the runs are.
        results: Of models on the same lists.
        users: Whose lists.
        shown: Positions of a row, from the first.
        load: What `loader` returned.
    """
    rows = []
    for result in results:
        out = folder / result.run.name if (folder / result.run.name).exists() else folder
        config = load_config(out / CONFIG)
        lists = load(config.data, config.seed)
        model = load_model(out, lists, config)
        part = getattr(lists, result.lists["part"])
        if isinstance(part, DocumentPart):
            tops = _ordered(model, feature_batch(part.data, users))
        elif result.lists["protocol"] == "full":
            tops = _full_tops(model, part, users, shown)
        else:
            tops = _sampled_tops(model, part, users, config)
        group = np.where(tops >= 0, lists.data.group[tops], -2)[:, :shown]
        rows.append(["".join(map(_sign, row)) for row in group.tolist()])
    names = [*lists.data.group_names, "", ""][:2]
    rest = names[1] if len(lists.data.group_names) == 2 else "the rest"
    return rows, (names[0], rest)


def _sampled_tops(
    model: nn.Module, part: HeldOut, users: NDArray[np.int64], config: Config
) -> NDArray[np.int32]:
    lists = part.sampled_of(users, unrated=config.evaluation.unrated, seed=config.seed)
    return _ordered(model, candidate_batch(lists, part.data.group))


def _ordered(model: nn.Module, batch: Batch) -> NDArray[np.int32]:
    """Return items from the highest score down, -1 past the end of a list, ``[Q, L]``."""
    mask = batch.mask.numpy()
    scores = np.where(mask, score(model, batch).numpy(), -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(np.where(mask, batch.item.numpy(), -1), order, axis=1)


def _full_tops(
    model: nn.Module, part: HeldOut, users: NDArray[np.int64], shown: int
) -> NDArray[np.int32]:
    n_items = part.data.n_items
    k = min(shown, n_items)
    return top_items(model, users, k=k, n_items=n_items, excluded=part.others).item


def _sign(group: int) -> str:
    return {-2: "", -1: "-", 0: "0"}.get(group, "1")


def _title(point: Point, result: Result, k: int) -> str:
    ndcg = number(result.metrics[f"ndcg@{k}"]["mean"])
    return f"{point.name}, seed {result.run.seed} (NDCG@{k} {ndcg})"
