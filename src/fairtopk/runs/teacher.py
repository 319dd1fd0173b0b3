"""Teachers of a student that are not the student: another model, or a table of rankings.

Only their order is read. A model is trained as a colour-blind run of the same data, seed and
training would train it. A table has what another system ranks highest for each user; behind
that, and for users it lacks, items are in the student's own order.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.data.tables import read_table
from fairtopk.distillation.teacher import Order
from fairtopk.errors import InputError
from fairtopk.lists.queries import AnyLists
from fairtopk.lists.users import Lists
from fairtopk.models.scoring import catalogue_scores
from fairtopk.objectives.methods import BLIND, TeacherTable
from fairtopk.runs.config import NO_EPOCHS, Config

Train = Callable[[Config, AnyLists], nn.Module]


def teacher_order(config: Config, lists: AnyLists, train: Train) -> tuple[Order | None, str]:
    """Return the order of a run's teacher, None for the student's own, and words about it.

    `train` returns the trained scorer of a config; it is called when the order is first needed.
    """
    teacher = config.method.distill.teacher
    foreign = config.method.row.family == "distillation" and teacher != config.model.name
    if teacher is None or not foreign or not isinstance(lists, Lists):
        return None, ""
    if isinstance(teacher, TeacherTable):
        order = TableOrder(teacher, lists, config.method.distill.head)
        return order, order.found
    values = config.model_dump(mode="json", exclude={"model", "method"})
    values |= {"model": {"name": teacher}, "method": {"name": BLIND, "k": config.method.k}}
    if config.model.is_fitted:  # its epochs are none
        values["training"] = {
            key: value for key, value in values["training"].items() if key not in NO_EPOCHS
        }
    return ModelOrder(Config.model_validate(values), lists, train), ""


class ModelOrder:
    """The order of a model.

    Args:
        config: The run that trains it.
        lists: The data.
        train: Returns the trained scorer of a config.
    """

    def __init__(self, config: Config, lists: Lists, train: Train) -> None:
        self.config, self.lists, self.train = config, lists, train

    @cached_property
    def scorer(self) -> nn.Module:
        """The model, trained when it is first read."""
        return self.train(self.config, self.lists)

    def __call__(self, users: NDArray[np.int64], own: Tensor) -> Tensor:
        """Return the model's scores."""
        return torch.from_numpy(catalogue_scores(self.scorer, users, own.shape[1]))


class TableOrder:
    """The order of a table, best first, and of the student's own scores behind it.

    Args:
        table: Names the file and its columns.
        lists: The data, which numbers users and items.
        head: Items that each user should have, apart from those rated in training.

    Attributes:
        found: What the table holds, in a sentence.
    """

    def __init__(self, table: TeacherTable, lists: Lists, head: int) -> None:
        data, columns = lists.data, {"user": table.user, "item": table.item}
        frame, origin = read_table(
            table.path, ids=list(columns.values()), numbers=[table.score]
        )
        if not frame[table.score].is_finite().fill_null(False).all():
            raise InputError(f"{origin.name}: {table.score} must be a finite number everywhere")
        rows = frame.select(score=table.score, **columns)
        unknown = {}
        for name, ids in {"user": data.user_ids, "item": data.item_ids}.items():
            known = pl.DataFrame({name: ids, f"{name}_number": np.arange(len(ids))})
            own = rows.with_columns(pl.col(name).cast(ids.dtype, strict=False))
            rows = own.join(known, on=name, how="left", maintain_order="left")
            unknown[name] = rows.filter(pl.col(f"{name}_number").is_null())[name].n_unique()
        rows = rows.drop_nulls(["user_number", "item_number"])
        if not len(rows):
            raise InputError(f"{origin.name} has no user and item of {data.name} in one row")
        if (twice := rows.select("user", "item").is_duplicated()).any():
            user, item = rows.filter(twice).select("user", "item").row(0)
            raise InputError(f"{origin.name} ranks item {item!r} twice for user {user!r}")
        rows = rows.sort("user_number", -pl.col("score"), maintain_order=True)
        users = rows["user_number"].to_numpy()
        self.item = rows["item_number"].to_numpy()
        self.offsets = np.searchsorted(users, np.arange(data.n_users + 1))
        # Items that a user has rated in training are never shown, and do not count.
        rated, each = lists.train, np.diff(lists.train.offsets)
        seen = np.repeat(np.arange(data.n_users), each) * data.n_items + rated.item
        new = ~np.isin(users * data.n_items + self.item, seen)
        count = np.bincount(users[new], minlength=data.n_users)
        n_ranked = len(np.unique(users))
        n_short = int((count < np.minimum(head, data.n_items - each)).sum())
        n_short -= data.n_users - n_ranked
        parts = [
            (n_ranked, "users are ranked"),
            (data.n_users - n_ranked, "others keep their own order"),
            (n_short, f"have fewer items than the head, {head:,}, and their own order behind"),
            (unknown["user"], f"users are not in {data.name}"),
            (unknown["item"], f"items are not in {data.name}"),
        ]  # fmt: skip
        told = "; ".join(f"{number:,} {words}" for number, words in parts if number)
        self.found = f"{origin.name}: {told}"

    def __call__(self, users: NDArray[np.int64], own: Tensor) -> Tensor:
        """Return scores with the table's items on top, in its order."""
        count = np.diff(self.offsets)[users]
        row = np.repeat(np.arange(len(users)), count)
        left = np.repeat(np.cumsum(count), count) - np.arange(len(row))  # 1 for the last item
        slot = np.repeat(self.offsets[users + 1], count) - left
        by = own.double()
        best = by.amax(-1).clamp(min=0.0).numpy()
        by[row, self.item[slot]] = torch.from_numpy(best[row] + left)
        return by
