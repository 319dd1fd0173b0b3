"""What scikit-learn asks of an estimator, without needing scikit-learn.

Only methods that scikit-learn itself calls import it.
"""

import inspect
from typing import Any, Self

from fairtopk.errors import InputError


class Estimator:
    """Parameters are stored as given to ``__init__`` under their names, and nothing else is."""

    @classmethod
    def _names(cls) -> list[str]:
        return sorted(
            name for name in inspect.signature(cls.__init__).parameters if name != "self"
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; there are none within others."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name, for the next `fit`."""
        names = self._names()
        for name, value in params.items():
            if name not in names:
                raise InputError(
                    f"{type(self).__name__} has no parameter {name!r}; "
                    f"it has {', '.join(names)}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {
            name: value
            for name, value in self.get_params().items()
            if value is not defaults[name].default and value != defaults[name].default
        }
        shown = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"{type(self).__name__}({shown})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags  # type: ignore[import-untyped]

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, positive_only=True),
            input_tags=InputTags(),
            requires_fit=True,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def get_metadata_routing(self) -> Any:
        """Return that `fit` and `score` take the lists and groups of rows beside X and y.

        scikit-learn keeps ``groups`` for its splitters, so that groups of items are called
        ``item_groups`` there.
        """
        from sklearn.utils.metadata_routing import (  # type: ignore[import-untyped]
            MetadataRequest,
        )

        request = MetadataRequest(owner=type(self).__name__)
        for method, names in {
            "fit": ("qid", "item_groups"),
            "score": ("qid",),
            "predict": ("qid",),
        }.items():
            for name in names:
                getattr(request, method).add_request(param=name, alias=True)
        return request
