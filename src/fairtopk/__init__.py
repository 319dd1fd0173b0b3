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
    from fairtopk.data.features import Features
    from fairtopk.data.groups import GroupRule, Groups, groups_from
    from fairtopk.data.interactions import Interactions
    from fairtopk.data.registry import load
    from fairtopk.data.synthetic import (
        Documents,
        SyntheticShape,
        make_documents,
        make_synthetic,
    )
    from fairtopk.errors import InputError
    from fairtopk.lists.batch import Batch
    from fairtopk.lists.queries import split_queries
    from fairtopk.lists.users import Lists, load_split, save_split, split, split_random
    from fairtopk.models.registry import register_model
    from fairtopk.objectives.methods import register_method
    from fairtopk.rankers.fair_ranker import FairRanker
    from fairtopk.reporting.compare import compare
    from fairtopk.reporting.page import report
    from fairtopk.reranking.rerank import rerank
    from fairtopk.training.samplers import ListSampler, ListSizes

_HOMES = {
    "Audit": "fairtopk.auditing.audit",
    "Batch": "fairtopk.lists.batch",
    "Documents": "fairtopk.data.synthetic",
    "FairRanker": "fairtopk.rankers.fair_ranker",
    "Features": "fairtopk.data.features",
    "GroupRule": "fairtopk.data.groups",
    "Groups": "fairtopk.data.groups",
    "InputError": "fairtopk.errors",
    "Interactions": "fairtopk.data.interactions",
    "ListSampler": "fairtopk.training.samplers",
    "ListSizes": "fairtopk.training.samplers",
    "Lists": "fairtopk.lists.users",
    "SyntheticShape": "fairtopk.data.synthetic",
    "audit": "fairtopk.auditing.audit",
    "compare": "fairtopk.reporting.compare",
    "groups_from": "fairtopk.data.groups",
    "load": "fairtopk.data.registry",
    "load_split": "fairtopk.lists.users",
    "make_documents": "fairtopk.data.synthetic",
    "make_synthetic": "fairtopk.data.synthetic",
    "register_method": "fairtopk.objectives.methods",
    "register_model": "fairtopk.models.registry",
    "report": "fairtopk.reporting.page",
    "rerank": "fairtopk.reranking.rerank",
    "save_split": "fairtopk.lists.users",
    "split": "fairtopk.lists.users",
    "split_queries": "fairtopk.lists.queries",
    "split_random": "fairtopk.lists.users",
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
    "register_method",
    "register_model",
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
