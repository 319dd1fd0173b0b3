"""The table of models by name, and rows that other packages add to it and to that of methods.

A package that is installed next to this one names a module in its entry points,

    [project.entry-points."fairtopk.plugins"]
    mine = "my_package.ranking"

which is imported when a config has a name that this package does not know, in the worker
processes of a sweep too. A value with a function, ``my_package:register``, is also called.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal

from fairtopk.errors import InputError, KindError

if TYPE_CHECKING:  # a config is checked without torch
    from torch import nn


@dataclass(frozen=True)
class Model:
    """A row of the table."""

    scores: Literal["ids", "features"]  # users and items by `ids`, or documents by `features`
    rate: float | None = None  # the learning rate that suits it, if it scores features
    build: "Callable[..., nn.Module] | None" = None  # of a registered one: `register_model`
    # Of a model that is fitted to all histories at once, the methods that can fit it; None: an
    # objective trains it, by any method.
    methods: tuple[str, ...] | None = None

    @property
    def is_fitted(self) -> bool:
        """Whether it is fitted to all histories at once, and ranks new users by theirs."""
        return self.methods is not None


MODELS: dict[str, Model] = {
    "neumf": Model("ids"),
    "mf": Model("ids"),
    "ease": Model("ids", methods=("blind", "fair-distill")),
    "ials": Model("ids", methods=("blind",)),
    "item-knn": Model("ids", methods=("blind",)),
    "popularity": Model("ids", methods=("blind",)),
    "linear": Model("features", rate=1e-2),
    "mlp": Model("features", rate=1e-3),
    "attention": Model("features", rate=1e-3),
}


def find_model(name: str) -> Model | None:
    """Return the row of a model; None if neither this package nor a plugin has it."""
    if name not in MODELS:
        load_plugins()
    return MODELS.get(name)


def models_of(scores: str) -> list[str]:
    """Return the names of the models that score `ids`, or `features`; the default is first."""
    return [name for name, row in MODELS.items() if row.scores == scores]


def fitted_models() -> list[str]:
    """Return the names of the models that rank users by their histories."""
    return [name for name, row in MODELS.items() if row.is_fitted]


def trained_models() -> list[str]:
    """Return the names of the models of users and items that an objective trains."""
    return [name for name in models_of("ids") if name not in fitted_models()]


def register_model(name: str, build: "Callable[..., nn.Module]") -> None:
    """Add a model of users and items.

    From then on `name` is a ``model.name`` of configs, sweeps and `FairRanker`. A package whose
    models the command line should find as well names a module that registers them in its entry
    points, group ``fairtopk.plugins``.

    Args:
        name: Lower-case letters, digits and ``-``; not a name that is taken.
        build: Called as ``build(n_users, n_items, width=..., hidden=..., dropout=...)`` with
            the values of the config's ``[model]``; take ``**options`` for those without a use.
            Torch's random numbers are seeded by the run when it is called. Returns a
            `torch.nn.Module` that maps an `ft.Batch` (``query`` ``[Q]``, ``item`` ``[Q, L]``)
            to scores, ``[Q, L]``. It may have ``score_all(users)``, which gives the scores of
            all items, ``[Q, n_items]``, much faster than lists do, and
            ``restart_last_layer(generator)``, called between warm-up and fine-tuning.
    """
    check_name("model", name, MODELS)
    if not callable(build):
        raise KindError(
            f"build must be a function of (n_users, n_items, **options) that returns a "
            f"torch.nn.Module, got {build!r}"
        )
    MODELS[name] = Model("ids", build=build)


@cache
def load_plugins() -> None:
    """Import what installed packages offer, once."""
    for point in entry_points(group="fairtopk.plugins"):
        try:
            found = point.load()
            if callable(found):
                found()
        except Exception as error:
            raise InputError(f"the plugin {point.value} cannot be loaded: {error}") from error


def check_name(kind: str, name: object, taken: Collection[str]) -> None:
    """Refuse a name that cannot be given to a new method or model, or that is taken."""
    if not isinstance(name, str):
        raise KindError(f"the name of a {kind} must be text, got {name!r}")
    if not re.fullmatch(r"[a-z0-9][a-z0-9._+-]*", name):  # it is part of folders' names
        raise InputError(
            f"the name of a {kind} must be of lower-case letters, digits, '.', '+', '_' and "
            f"'-', got {name!r}"
        )
    if name in taken:
        raise InputError(
            f"there already is a {kind} {name!r}; choose another name than {', '.join(taken)}"
        )
