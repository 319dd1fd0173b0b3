"""What a config of documents with features has in place of the usual defaults, and cannot have.

Documents come in lists of their own: a list is ranked and measured whole, and queries, not
ratings of a user, are held out.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairtopk.experiments.config import Config

MODELS = ("linear", "mlp", "attention")
RATES = {"linear": 1e-2, "mlp": 1e-3, "attention": 1e-3}
SHARE = 0.2  # of the queries, for test and for validation
USUAL: dict[str, dict[str, Any]] = {
    "data": {"split": "random", "test": SHARE, "validation": SHARE},
    "model": {"name": MODELS[0], "dropout": 0.1},
    "method": {"k": 10},
    "training": {"batch_size": 32, "weight_decay": 1e-4},
    "evaluation": {"protocol": "whole"},
}
KS = {5, 10, 20}  # where lists are measured, beside the method's own K


def of_documents(data: Any) -> bool:
    """Return whether a config's ``data`` table is of documents with features."""
    if not isinstance(data, Mapping):
        return False
    options = data.get("options")
    return data.get("source") == "letor" or (
        isinstance(options, Mapping) and "query" in options
    )


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a config of documents, with what was left out filled in."""
    model = values.get("model")
    name = model.get("name", MODELS[0]) if isinstance(model, Mapping) else MODELS[0]
    rate = RATES.get(str(name), RATES["mlp"])
    usual = USUAL | {"training": {"rate": rate, "warmup_rate": rate} | USUAL["training"]}
    filled = dict(values)
    for table, defaults in usual.items():
        given = values.get(table, {})
        if isinstance(given, Mapping):
            filled[table] = defaults | dict(given)
    evaluation, method = filled["evaluation"], filled["method"]
    if isinstance(evaluation, dict) and isinstance(method, dict):
        k = method["k"]
        own = k if isinstance(k, list | tuple) else [k]
        whole = {one for one in own if isinstance(one, int)}  # what is none is refused later
        filled["evaluation"] = {"k": sorted(KS | whole)} | evaluation
    return filled


def misfit(config: "Config") -> str | None:
    """Return what of a config does not go with its data, in a sentence; None if all does."""
    data, model = config.data, config.model.name
    shares = [name for name in ("test", "validation") if getattr(data, name) < 1]
    whole = config.evaluation.protocol == "whole"
    if not data.of_documents:
        if model in MODELS:
            return (
                f"model.name = {model!r} scores documents with features, and {data.source} "
                f"holds users and items; set it to neumf or mf"
            )
        if shares:
            return f"data.{shares[0]} is a number of ratings of each user, at least 1"
        if whole:
            return "evaluation.protocol of users and items is sampled or full, got 'whole'"
        return None
    if model not in MODELS:
        return (
            f"model.name = {model!r} scores users and items, and {data.source} holds documents "
            f"with features; set it to linear, mlp or attention"
        )
    if len(shares) < 2:
        return "data.test and data.validation are shares of the queries, above 0 and below 1"
    if data.split != "random" or data.min_ratings is not None:
        return "queries are held out at random; leave out data.split and data.min_ratings"
    if not whole:
        return (
            f"documents are ranked in whole lists; leave out evaluation.protocol, got "
            f"{config.evaluation.protocol!r}"
        )
    if config.training.lists.top:
        return "documents are trained on in whole lists; leave out training.lists.top"
    if config.method.penalty_of == "unrated":
        return (
            "a list of documents has no items that were rated before; set method.penalty_of to "
            "list"
        )
    return None
