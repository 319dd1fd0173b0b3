"""Fair top-K learning to rank.

The names below are the library's public face. Each is imported when it is first used, so that
``import fairtopk`` and the command line start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fairtopk import losses, metrics, statistics
    from fairtopk.auditing.audit import Audit, audit
    from fairtopk.batches import Batch
    from fairtopk.data.features import Features
    from fairtopk.data.groups import GroupRule, Groups, groups_from
    from fairtopk.data.interactions import Interactions
    from fairtopk.data.load import load
    from fairtopk.data.synthetic import SyntheticShape, make_synthetic
    from fairtopk.data.synthetic_documents import Documents, make_documents
    from fairtopk.errors import InputError
    from fairtopk.experiments.comparing import compare
    from fairtopk.experiments.report import report
    from fairtopk.feature_lists import split_queries
    from fairtopk.lists import Lists, load_split, save_split, split, split_random
    from fairtopk.rankers.fair_ranker import FairRanker
    from fairtopk.rerankers import rerank
    from fairtopk.samplers import ListSampler, ListSizes

_HOMES = {
    "Audit": "fairtopk.auditing.audit",
    "Batch": "fairtopk.batches",
    "Documents": "fairtopk.data.synthetic_documents",
    "FairRanker": "fairtopk.rankers.fair_ranker",
    "Features": "fairtopk.data.features",
    "GroupRule": "fairtopk.data.groups",
    "Groups": "fairtopk.data.groups",
    "InputError": "fairtopk.errors",
    "Interactions": "fairtopk.data.interactions",
    "ListSampler": "fairtopk.samplers",
    "ListSizes": "fairtopk.samplers",
    "Lists": "fairtopk.lists",
    "SyntheticShape": "fairtopk.data.synthetic",
    "audit": "fairtopk.auditing.audit",
    "compare": "fairtopk.experiments.comparing",
    "groups_from": "fairtopk.data.groups",
    "load": "fairtopk.data.load",
    "load_split": "fairtopk.lists",
    "make_documents": "fairtopk.data.synthetic_documents",
    "make_synthetic": "fairtopk.data.synthetic",
    "report": "fairtopk.experiments.report",
    "rerank": "fairtopk.rerankers",
    "save_split": "fairtopk.lists",
    "split": "fairtopk.lists",
    "split_queries": "fairtopk.feature_lists",
    "split_random": "fairtopk.lists",
}

__all__ = [
    "Audit",
    "Batch",
    "Documents",
    "FairRanker",
    "Features",
    "GroupRule",
    "Groups",
    "InputError",
    "Interactions",
    "ListSampler",
    "ListSizes",
    "Lists",
    "SyntheticShape",
    "audit",
    "compare",
    "groups_from",
    "load",
    "load_split",
    "losses",
    "make_documents",
    "make_synthetic",
    "metrics",
    "report",
    "rerank",
    "save_split",
    "split",
    "split_queries",
    "split_random",
    "statistics",
]


_ROOMS = ("losses", "metrics", "statistics")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"fairtopk.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fairtopk' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
