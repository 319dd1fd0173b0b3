"""What a ranker of users and items does once it is trained."""

from typing import Any, NamedTuple, Self

import polars as pl
import torch
from torch import Tensor, nn

from fairtopk.checkpoints import Saved
from fairtopk.data.interactions import Interactions
from fairtopk.errors import InputError
from fairtopk.evaluation import evaluate, evaluate_full, sampled_blocks
from fairtopk.experiments.build import build_scorer
from fairtopk.experiments.config import Config
from fairtopk.experiments.config_file import check_config
from fairtopk.experiments.run import build_trainer
from fairtopk.lists import HeldOut, Lists, Ratings
from fairtopk.rankers.saved import check_rated, check_weights
from fairtopk.recommending import Catalogue, catalogue_of, recommend
from fairtopk.robust.ranker import RobustRanker


class IdRanker(NamedTuple):
    """A trained scorer of users and items.

    Attributes:
        scorer: Scores batches of users and items.
        config: What it was made and trained with.
        catalogue: Users and items by their original ids, and what was rated already.
        group_names: The groups that it was trained to treat alike.
        notes: What was found in the data, one sentence each.
    """

    scorer: nn.Module
    config: Config
    catalogue: Catalogue
    group_names: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def fit(cls, lists: Lists, config: Config) -> "IdRanker":
        """Return a ranker trained on a split, at the epoch that its validation part chose."""
        scorer = build_scorer(config, lists.data)
        trainer = build_trainer(config, lists, scorer)
        for _ in trainer.run():
            pass
        scorer.load_state_dict(trainer.model())
        data = lists.data
        return cls(scorer.eval(), config, catalogue_of(lists), data.group_names, data.notes)

    def recommend(self, users: Any, k: int, *, include_rated: bool) -> pl.DataFrame:
        """Return the best items of each user; see `fairtopk.recommending.recommend`."""
        if isinstance(self.scorer, RobustRanker):
            raise InputError(
                "robust needs the group of each item when it ranks, which recommend never "
                "takes; measure it with evaluate, which has the groups of the split"
            )
        return recommend(self.scorer, self.catalogue, users, k=k, include_rated=include_rated)

    def evaluate(
        self, part: HeldOut, ks: list[int], *, protocol: str, unrated: int
    ) -> dict[str, Tensor]:
        """Return every metric by name, one value per user of the part, ``[Q]``."""
        self._same_ids(part.data)
        if protocol == "full":
            return evaluate_full(self.scorer, part, ks)
        blocks = sampled_blocks(part, unrated=unrated, seed=self.config.seed)
        return evaluate(self.scorer, iter(blocks), ks)

    def saved(self) -> Saved:
        """Return weights and description, from which `from_saved` makes the same ranker."""
        tensors = {f"scorer.{name}": value for name, value in self.scorer.state_dict().items()}
        for name, value in vars(self.catalogue.rated).items():
            tensors[f"rated.{name}"] = torch.from_numpy(value)
        tensors["popularity"] = torch.from_numpy(self.catalogue.popularity)
        about = {
            "kind": "ids",
            "config": self.config.model_dump(mode="json"),
            "user_ids": self.catalogue.user_ids.to_list(),
            "item_ids": self.catalogue.item_ids.to_list(),
            "group_names": self.group_names,
            "notes": self.notes,
        }
        return Saved(tensors, about)

    @classmethod
    def from_saved(cls, saved: Saved) -> Self:
        """Return the ranker that `saved` described."""
        about, tensors = saved.about, saved.tensors
        config = check_config(about["config"], "the ranker's config")
        ids = Ids(pl.Series(about["user_ids"]), pl.Series(about["item_ids"]))
        weights = _under("scorer.", tensors)
        rest = {name: value for name, value in tensors.items() if name[:7] != "scorer."}
        check_rated(rest, ids.n_users, ids.n_items)
        scorer = build_scorer(config, ids)
        check_weights(weights, scorer.state_dict())
        scorer.load_state_dict(weights)
        rated = {name: value.numpy() for name, value in _under("rated.", tensors).items()}
        catalogue = Catalogue(*ids, Ratings(**rated), tensors["popularity"].numpy())
        names, notes = tuple(about["group_names"]), tuple(about["notes"])
        return cls(scorer.eval(), config, catalogue, names, notes)

    def _same_ids(self, data: Interactions) -> None:
        own = self.catalogue
        pairs = ((own.user_ids, data.user_ids), (own.item_ids, data.item_ids))
        if not all(one.equals(other) for one, other in pairs):
            raise InputError(
                f"{data.name} has other users or items than the ranker was fitted on; evaluate "
                f"on a part of the same split"
            )


class Ids(NamedTuple):
    """Users and items by their original ids."""

    user_ids: pl.Series
    item_ids: pl.Series

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
