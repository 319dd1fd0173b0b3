"""From the parameters of a ranker to what its training takes."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from fairtopk.arguments import (
    checked_number,
    checked_text,
    checked_whole,
    one_or_several_ks,
    shown,
)
from fairtopk.errors import InputError, KindError
from fairtopk.estimators.methods import ADVERSARIAL, DISTILL, METHODS, ROBUST, is_fair
from fairtopk.experiments.config import Config, MethodConfig
from fairtopk.experiments.config_file import check_config
from fairtopk.experiments.faults import first_fault
from fairtopk.rankers.feature_fit import BATCH_SIZE, DROPOUT, FeatureSettings
from fairtopk.scorers.features import FEATURE_MODELS, FeatureModel

ID_MODELS = ("neumf", "mf")
NAMES = (*METHODS, *ADVERSARIAL, ROBUST, DISTILL)
MOST_WIDTH = 2**16  # of a hidden layer
C_RELATIVE = 0.5  # what MovieLens 1M, horror, is best served by; see docs/results/
TABLES = ("data", "model", "training", "evaluation")  # of a config, beside "method"


def id_config(params: Mapping[str, Any]) -> Config:
    """Return the config of a ranker of users and items."""
    params = _checked(params)
    model = params["model"] or ID_MODELS[0]
    if model not in ID_MODELS:
        raise InputError(
            f"users and items are ranked by {' or '.join(ID_MODELS)}, got "
            f"model={shown(model)}; the others need features, fit(X, y, qid=...)"
        )
    options = _options(params)
    tables = {name: dict(options.pop(name, {})) for name in TABLES}
    tables["model"] |= _given(name=model, hidden=params["hidden"], dropout=params["dropout"])
    tables["training"] |= _given(
        epochs=params["epochs"], rate=params["rate"], batch_size=params["batch_size"]
    )
    values = {"seed": params["seed"], "method": _method(params, options)} | tables
    return check_config(values, "FairRanker")


def feature_settings(params: Mapping[str, Any]) -> FeatureSettings:
    """Return how a ranker of features is trained."""
    params = _checked(params)
    model = params["model"] or FEATURE_MODELS[0]
    if model not in FEATURE_MODELS:
        raise InputError(
            f"features are ranked by {', '.join(FEATURE_MODELS)}, got model={shown(model)}; "
            f"{' and '.join(ID_MODELS)} need users and items, fit(ft.split(data))"
        )
    options = _options(params)
    if table := next((name for name in TABLES if name in options), None):
        raise InputError(
            f"options of a ranker of features are those of method, got {table!r}; epochs, "
            f"rate, batch_size, hidden and dropout are parameters"
        )
    values = _method(params, options)
    if values["name"] not in NAMES:
        raise InputError(
            f"features are ranked by the methods {', '.join(NAMES)}, got "
            f"method={shown(values['name'])}"
        )
    try:
        method = MethodConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(f"FairRanker: {first_fault(error, values)}") from error
    dropout, rate = params["dropout"], params["rate"]
    if dropout is None:
        dropout = DROPOUT
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be from 0 to below 1, got {dropout:g}")
    if rate is not None and rate <= 0:
        raise InputError(f"rate must be above 0, got {rate:g}")
    return FeatureSettings(
        method=method,
        model=cast(FeatureModel, model),
        hidden=params["hidden"],
        dropout=dropout,
        epochs=params["epochs"],
        rate=rate,
        batch_size=params["batch_size"] or BATCH_SIZE,
        seed=params["seed"],
    )


def _checked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters as Python's own numbers and tuples, refusing wrong kinds."""
    values = dict(params)
    checked_text("method", params["method"])
    if params["model"] is not None:
        checked_text("model", params["model"])
    ks = one_or_several_ks(params["k"])
    values["k"] = ks if len(ks) > 1 else ks[0]
    for name in ("c", "c_relative", "rate", "dropout"):
        if params[name] is not None:
            values[name] = checked_number(name, params[name])
    for name in ("epochs", "batch_size"):
        if params[name] is not None:
            values[name] = checked_whole(name, params[name], least=1)
    hidden = params["hidden"]
    if isinstance(hidden, str | bytes) or not isinstance(hidden, Sequence) or not hidden:
        raise KindError(f"hidden must be a list of widths, like (64,), got {shown(hidden)}")
    values["hidden"] = tuple(
        checked_whole("each of hidden", width, least=1, most=MOST_WIDTH) for width in hidden
    )
    values["seed"] = checked_whole("seed", params["seed"], least=0)
    return values


def _options(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, refusing what is a parameter of its own and would be passed over."""
    options = {} if params["options"] is None else params["options"]
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise KindError(f"options must be names with values, {{...}}, got {shown(options)}")
    if given := next((name for name in ("name", "k") if name in options), None):
        own = "method" if given == "name" else given
        raise InputError(f"options has {given!r}; give it as the parameter {own}")
    return dict(options)


def _method(params: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    weights = _given(c=params["c"], c_relative=params["c_relative"])
    name = params["method"]
    if not weights and name in METHODS and is_fair(name):
        weights = {"c_relative": C_RELATIVE}
    return options | {"name": name, "k": params["k"]} | weights


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
