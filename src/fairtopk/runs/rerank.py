"""A run's evaluation lists in the order of a re-ranker.

Protocol, lists and K are those of the run, so that its numbers and these can be compared user
by user. Re-ranking needs group labels when serving.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import HeldOut
from fairtopk.models.scoring import catalogue_scores, score
from fairtopk.reranking.lists import ExposureProgram, dealt
from fairtopk.reranking.request import RerankRequest, Unmet, reordered_lists
from fairtopk.reranking.rerank import checked_candidates
from fairtopk.runs.open import OpenRun
from fairtopk.runs.result import RERANKED
from fairtopk.terminal import Progress

BLOCK_CELLS = 2**22  # slots of full-catalogue lists that are held at once
LONGEST = 150  # characters of a file's name that say what was requested; 255 are allowed in all


class Reranking(nn.Module):
    """A model whose lists are put in another order, and keep their scores.

    Args:
        run: The run whose model it is.
        part: ``test`` or ``validation``.
        request: The re-ranking; without a K it is the one that the model was trained for.
        progress: Called with how many lists are re-ranked.

    Attributes:
        unmet: The lists for which the request cannot be met, counted.
    """

    def __init__(
        self, run: OpenRun, part: str, request: RerankRequest, progress: Progress
    ) -> None:
        super().__init__()
        request, config, data = request.checked(), run.config, run.user_lists.data
        if request.k is None:
            own = config.method.k_of == "list"
            request = request._replace(k=config.method.ks[0] if own else config.evaluation.k[0])
        if len(data.group_names) < 2:
            raise InputError(
                f"the items of {data.name} are not in groups: nothing to re-rank by"
            )
        self.settings = request.settings(data.group_names)
        self.scorer, self.request, self.evaluation = run.scorer, request, config.evaluation
        self.held_out: HeldOut = getattr(run.lists, part)
        self.progress, self.unmet = progress, Unmet()
        self.kept: dict[int, Tensor] = {}

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of lists, dealt out again by their new ranks, ``[Q, L]``.

        They are remembered by the first query, since lists are measured in several ways.
        """
        first = int(batch.query[0])
        if first not in self.kept:
            scores = score(self.scorer, batch)
            self.kept[first] = self._dealt_again(scores, batch.group, batch.mask, batch.query)
        return self.kept[first]

    def score_all(self, users: Tensor) -> Tensor:
        """Return the same for the whole catalogue, ``[Q, n_items]``.

        Items that a user rated in another part are not in the list, and keep their score.
        """
        distinct, place = torch.unique(users, return_inverse=True)
        rows = max(1, BLOCK_CELLS // self.held_out.data.n_items)
        blocks = [self._catalogue(some.numpy()) for some in distinct.split(rows)]
        return torch.cat(blocks)[place]

    def record(self, method: str) -> dict[str, Any]:
        """Return what a metrics file says of a re-ranking of `method`, once all is measured.

        Lists for which the request cannot be met are refused here, unless they may be marked.
        """
        unmet, sampled = self.unmet, self.evaluation.protocol == "sampled"
        unmet.refuse(self.request, "user", self.held_out.data.user_ids)
        return {
            "method": f"{method} + {self.request.method}",
            "needs_labels_when_serving": True,
            "unrated": self.evaluation.unrated if sampled else None,
            "reranked": {
                "method": self.request.method,
                "k": self.request.k,
                "settings": self.settings.model_dump(mode="json"),
                "lists": unmet.total,
                "unmet": unmet.count,
            },
        }

    def _catalogue(self, users: NDArray[np.int64]) -> Tensor:
        data, others = self.held_out.data, self.held_out.others
        mask = torch.ones(len(users), data.n_items, dtype=torch.bool)
        for row, user in enumerate(users):
            mask[row, others.item[others.offsets[user] : others.offsets[user + 1]]] = False
        scores = torch.from_numpy(catalogue_scores(self.scorer, users, data.n_items))
        group = torch.from_numpy(data.group).expand(mask.shape)
        return self._dealt_again(scores, group, mask, torch.from_numpy(users))

    def _dealt_again(
        self, scores: Tensor, group: Tensor, mask: Tensor, query: Tensor
    ) -> Tensor:
        lists, _ = checked_candidates(scores, group, mask, None, self.request.method)
        settings, data = self.settings, self.held_out.data
        divides = isinstance(settings, ExposureProgram) and settings.notion != "parity"
        if divides and (lists.scores < 0)[lists.mask].any():
            raise InputError(
                "treatment and impact divide by relevance, and scores of the model are below "
                "0; use --notion parity"
            )
        lists = lists._replace(query=query.cpu(), names=tuple(data.group_names))
        outcome = reordered_lists(self.request, lists, settings, self.unmet)
        self.progress("re-ranking", self.unmet.total, len(self.held_out.user))
        return dealt(lists, outcome.slot)[1]


def result_name(result: Mapping[str, Any]) -> str:
    """Return the name of the metrics file of a re-ranked run, which says what was requested."""
    record = result["reranked"]
    words = [record["method"]]
    for key, value in record["settings"].items():
        if isinstance(value, dict):
            value = "_".join(f"{group}-{share}" for group, share in value.items())
        if value is not None:
            words.append(f"{key}={value}")
    words += [f"k={record['k']}", result["protocol"], result["part"]]
    name = "-".join(words)
    if len(name) > LONGEST:  # there are as many shares as groups
        name = f"{name[:LONGEST]}-{sha256(name.encode()).hexdigest()[:12]}"
    return f"{RERANKED}{name}.json"
