"""From the parameters of a ranker to how it is trained."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from fairtopk import checks
from fairtopk.errors import InputError, KindError
from fairtopk.models.features import FeatureModel
from fairtopk.models.registry import find_model, models_of
from fairtopk.objectives.methods import METHODS, find_method
from fairtopk.runs.config import Config, MethodConfig
from fairtopk.runs.config_file import check_config
from fairtopk.terminal import shown

BATCH_SIZE, DROPOUT = 32, 0.1
MOST_WIDTH = 2**16  # of a hidden layer
METHOD = "kso-red"  # of a model that an objective trains
C_RELATIVE = 0.5  # what MovieLens 1M, horror, is best served by; see docs/results/
TABLES = ("data", "model", "training", "evaluation")  # of a config, besides "method"


class FeatureSettings(NamedTuple):
    """How a scorer of features is made and trained; None is for what fits the data."""

    method: MethodConfig
    model: FeatureModel
    hidden: tuple[int, ...]
    dropout: float
    epochs: int | None
    rate: float | None
    batch_size: int
    seed: int


def id_config(params: Mapping[str, Any]) -> Config:
    """Return the config of a ranker of users and items."""
    params = _checked(params)
    model = params["model"] or models_of("ids")[0]
    row = find_model(model)
    if row is None or row.scores != "ids":
        raise InputError(
            f"users and items are ranked by {' or '.join(models_of('ids'))}, got "
            f"model={shown(model)}; the others need features, fit(X, y, qid=...)"
        )
    own = {"model": ("hidden", "dropout"), "training": ("epochs", "rate", "batch_size")}
    tables: dict[str, dict[str, Any]] = {}
    for table in TABLES:
        given = params["method"].pop(table, {})
        if not isinstance(given, Mapping):
            raise KindError(f"options: {table} must be a table, {{...}}, got {shown(given)}")
        tables[table] = dict(given) | {
            name: params[name] for name in own.get(table, ()) if params[name] is not None
        }
    tables["model"]["name"] = model
    values = {"seed": params["seed"], "method": params["method"]} | tables
    return check_config(values, "FairRanker")


def feature_settings(params: Mapping[str, Any]) -> FeatureSettings:
    """Return how a ranker of features is trained."""
    params = _checked(params)
    model = params["model"] or models_of("features")[0]
    if model not in models_of("features"):
        raise InputError(
            f"features are ranked by {', '.join(models_of('features'))}, got "
            f"model={shown(model)}; {' and '.join(models_of('ids'))} need users and items, "
            f"fit(ft.split(data))"
        )
    values = params["method"]
    if table := next((name for name in TABLES if name in values), None):
        raise InputError(
            f"options of a ranker of features are those of method, got {table!r}; epochs, "
            f"rate, batch_size, hidden and dropout are parameters"
        )
    if find_method(values["name"]) is None:
        raise InputError(
            f"features are ranked by the methods {', '.join(METHODS)}, got "
            f"method={shown(values['name'])}"
        )
    try:
        method = MethodConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(f"FairRanker: {checks.first_fault(error, values)}") from error
    dropout = DROPOUT if params["dropout"] is None else params["dropout"]
    rate = params["rate"]
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
    """Return the parameters as Python's own numbers and tuples, refusing wrong kinds.

    `method` is then the config's table of the method, with its options.
    """
    values = dict(params)
    if params["model"] is not None:
        checks.checked_text("model", params["model"])
    if (method := params["method"]) is None:
        model = find_model(params["model"] or models_of("ids")[0])
        method = model.methods[0] if model is not None and model.methods else METHOD
    checks.checked_text("method", method)
    ks = checks.one_or_several_ks(params["k"])
    values["k"] = ks if len(ks) > 1 else ks[0]
    for name in ("c", "c_relative", "rate", "dropout"):
        if params[name] is not None:
            values[name] = checks.checked_number(name, params[name])
    for name in ("epochs", "batch_size"):
        if params[name] is not None:
            values[name] = checks.checked_whole(name, params[name], least=1)
    hidden = params["hidden"]
    if isinstance(hidden, str | bytes) or not isinstance(hidden, Sequence) or not hidden:
        raise KindError(f"hidden must be a list of widths, like (64,), got {shown(hidden)}")
    values["hidden"] = tuple(
        checks.checked_whole("each of hidden", width, least=1, most=MOST_WIDTH)
        for width in hidden
    )
    values["seed"] = checks.checked_whole("seed", params["seed"], least=0)
    options = {} if params["options"] is None else params["options"]
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise KindError(f"options must be names with values, {{...}}, got {shown(options)}")
    # What is a parameter of its own would be passed over.
    if given := next((name for name in ("name", "k") if name in options), None):
        own = "method" if given == "name" else given
        raise InputError(f"options has {given!r}; give it as the parameter {own}")
    weights = {name: values[name] for name in ("c", "c_relative") if values[name] is not None}
    row = find_method(method)
    if not weights and row is not None and row.is_fair and row.default_weight is None:
        weights = {"c_relative": C_RELATIVE}
    values["method"] = {**options, "name": method, "k": values["k"], **weights}
    return values
