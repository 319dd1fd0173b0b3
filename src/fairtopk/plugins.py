"""Rows that other packages add to the tables of methods and models.

A package that is installed beside this one names a module in its entry points,

    [project.entry-points."fairtopk.plugins"]
    mine = "my_package.ranking"

which is imported when a config has a name that this package does not know, in the worker
processes of a sweep too. A value with a function, ``my_package:register``, is also called.
"""

import re
from collections.abc import Collection
from functools import cache
from importlib.metadata import entry_points

from fairtopk.errors import InputError, KindError

GROUP = "fairtopk.plugins"


@cache
def load_plugins() -> None:
    """Import what installed packages offer, once."""
    for point in entry_points(group=GROUP):
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
