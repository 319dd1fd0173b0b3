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

_NAMES = {
    "auditing.audit": ("Audit", "audit"),
    "data.features": ("Features",),
    "data.groups": ("GroupRule", "Groups", "groups_from"),
    "data.interactions": ("Interactions",),
    "data.registry": ("load",),
    "data.synthetic": ("Documents", "SyntheticShape", "make_documents", "make_synthetic"),
    "errors": ("InputError",),
    "lists.batch": ("Batch",),
    "lists.queries": ("split_queries",),
    "lists.users": ("Lists", "load_split", "save_split", "split", "split_random"),
    "models.registry": ("register_model",),
    "objectives.methods": ("register_method",),
    "rankers.fair_ranker": ("FairRanker",),
    "reporting.compare": ("compare",),
    "reporting.page": ("report",),
    "reranking.rerank": ("rerank",),
    "training.samplers": ("ListSampler", "ListSizes"),
}
_HOMES = {name: f"fairtopk.{module}" for module, names in _NAMES.items() for name in names}

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
