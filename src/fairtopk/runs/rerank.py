"""Re-rankers beside trained methods: a run's own evaluation lists in another order.

Protocol, lists and K are those of the run, so that its numbers and these can be compared user
by user. They are of a model that has group labels at hand when it serves.
"""

import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import HeldOut, Lists
from fairtopk.models.scoring import catalogue_scores, score
from fairtopk.reranking.lists import ExposureProgram, Settings, dealt
from fairtopk.reranking.request import RerankRequest, Unmet, reordered_lists
from fairtopk.reranking.rerank import checked_candidates
from fairtopk.runs import open as opening
from fairtopk.runs.config import Config
from fairtopk.runs.config_file import load_config
from fairtopk.runs.measure import Measured, measure
from fairtopk.runs.result import CONFIG, METRICS, Measures, identity_of, per_query, summary
from fairtopk.terminal import Progress

BLOCK_CELLS = 2**22  # of lists of the whole catalogue that are held at once
PREFIX = "rerank-"  # of these files in a run's folder
LONGEST = 150  # of what their names tell, in characters: file systems allow 255 for all of it


class OpenRun(NamedTuple):
    """A trained run, and what was measured of its model on some lists.

    Attributes:
        out: The run's folder.
        config: Its config, evaluation settings changed.
        lists: The split of its data.
        scorer: The model.
        part: ``test`` or ``validation``.
        own: What was measured of the model by itself.
    """

    out: Path
    config: Config
    lists: Lists
    scorer: nn.Module
    part: str
    own: Measures

    @property
    def held_out(self) -> HeldOut:
        """The part that is ranked."""
        held_out: HeldOut = getattr(self.lists, self.part)
        return held_out


class RerankedRun(NamedTuple):
    """What a re-ranker makes of a run.

    Attributes:
        measured: What a metrics file says, and the values of each query.
        found: The same before it was summed up.
        unmet: The lists that have not what was asked for, counted.
    """

    measured: Measured
    found: Measures
    unmet: Unmet


def open_run(
    out: Path, changes: Mapping[str, Any], *, part: str = "test", data: Path | None = None
) -> OpenRun:
    """Return a run with its model and lists, measured as it is.

    Args:
        out: The run's folder.
        changes: Keys of the config's ``evaluation`` with other values.
        part: ``test`` or ``validation``.
        data: Where the data is, if not where the config says.
    """
    config, lists, scorer = opening.open_run(out, changes, part=part, data=data)
    own = measure(scorer, lists, config, part=part)
    return OpenRun(out, config, lists, scorer, part, own)


def rerank_run(
    run: OpenRun, asked: RerankRequest, *, progress: Progress = lambda what, done, total: None
) -> RerankedRun:
    """Return what a re-ranker makes of a run's lists, measured as the run was.

    Args:
        run: What `open_run` returned.
        asked: Of the re-ranker; without a K it is the one that the model was trained for.
        progress: Is told what is being done, how many lists are and of how many.
    """
    started = time.perf_counter()
    asked, config, data = asked.checked(), run.config, run.lists.data
    evaluation = config.evaluation
    if asked.k is None:
        own = config.method.ks[0] if config.method.k_of == "list" else evaluation.k[0]
        asked = asked._replace(k=own)
    if len(data.group_names) < 2:
        raise InputError(f"the items of {data.name} are not in groups: nothing to re-rank by")
    settings = asked.settings(data.group_names)
    model = Reranking(run, asked, settings, progress)
    found = measure(model, run.lists, config, part=run.part)
    unmet = model.unmet
    unmet.refuse(asked, "user", data.user_ids)
    told = summary(config, run.lists, found, part=run.part)
    record = {
        "method": asked.method,
        "k": asked.k,
        "settings": settings.model_dump(mode="json"),
        "lists": unmet.total,
        "unmet": unmet.count,
    }
    result = {
        **told,
        "method": f"{told['method']} + {asked.method}",
        "needs_labels_when_serving": True,
        "unrated": evaluation.unrated if evaluation.protocol == "sampled" else None,
        "reranked": record,
        "finished": (run.out / METRICS).exists(),
        "seconds": {"re-ranking": time.perf_counter() - started},
    }
    queries = per_query(config, run.lists, found, part=run.part)
    identity = identity_of(load_config(run.out / CONFIG), run.lists)
    return RerankedRun(Measured(result, queries, identity), found, unmet)


def result_name(result: Mapping[str, Any]) -> str:
    """Return the name of the file for what `rerank_run` says, by all that it was asked."""
    record = result["reranked"]
    words = [record["method"]]
    for key, value in record["settings"].items():
        if isinstance(value, dict):
            value = "_".join(f"{group}-{share}" for group, share in value.items())
        if value is not None:
            words.append(f"{key}={value}")
    words += [f"k={record['k']}", result["protocol"], result["part"]]
    told = "-".join(words)
    if len(told) > LONGEST:  # there are as many shares as groups
        told = f"{told[:LONGEST]}-{sha256(told.encode()).hexdigest()[:12]}"
    return f"{PREFIX}{told}.json"


class Reranking(nn.Module):
    """A model whose lists are put in another order, and keep their scores.

    Args:
        run: Whose model it is.
        asked: Of the re-ranker.
        settings: Those of its method.
        progress: Is told how many lists are re-ranked.

    Attributes:
        unmet: The lists that have not what was asked for, counted.
    """

    def __init__(
        self, run: OpenRun, asked: RerankRequest, settings: Settings, progress: Progress
    ) -> None:
        super().__init__()
        self.scorer, self.asked, self.settings = run.scorer, asked, settings
        self.held_out, self.progress, self.unmet = run.held_out, progress, Unmet()
        self.kept: dict[int, Tensor] = {}

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of lists, dealt out again by their new ranks, ``[Q, L]``.

        They are remembered by the first query, for lists are measured in several ways.
        """
        first = int(batch.query[0])
        if first not in self.kept:
            scores = score(self.scorer, batch)
            self.kept[first] = self._dealt_again(scores, batch.group, batch.mask, batch.query)
        return self.kept[first]

    def score_all(self, users: Tensor) -> Tensor:
        """Return the same of the whole catalogue, ``[Q, n_items]``.

        What a user rated in another part is not in the list, and keeps its score.
        """
        distinct, place = torch.unique(users, return_inverse=True)
        rows = max(1, BLOCK_CELLS // self.held_out.data.n_items)
        blocks = [self._catalogue(some.numpy()) for some in distinct.split(rows)]
        return torch.cat(blocks)[place]

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
        lists, _ = checked_candidates(scores, group, mask, None, self.asked.method)
        settings, data = self.settings, self.held_out.data
        divides = isinstance(settings, ExposureProgram) and settings.notion != "parity"
        if divides and (lists.scores < 0)[lists.mask].any():
            raise InputError(
                "treatment and impact divide by relevance, and scores of the model are below "
                "0; use --notion parity"
            )
        lists = lists._replace(query=query.cpu(), names=tuple(data.group_names))
        outcome = reordered_lists(self.asked, lists, settings, self.unmet)
        self.progress("re-ranking", self.unmet.total, len(self.held_out.user))
        return dealt(lists, outcome.slot)[1]
