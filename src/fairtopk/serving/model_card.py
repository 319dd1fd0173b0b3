"""What the card of an exported scorer of documents says otherwise than that of users and items.

Data is named by name and checksum, never by path.

The card of an exported model: what it is for, what it was measured to do, and its limits.

Data is named by name and checksum, never by path.
"""

from dataclasses import asdict, dataclass
from typing import Any

from fairtopk import __version__
from fairtopk.data.features import Features
from fairtopk.lists.queries import AnyLists, QueryLists
from fairtopk.metrics.names import TABLE_ROWS
from fairtopk.runs.config import Config, ModelConfig
from fairtopk.serving import model_card as document_card
from fairtopk.terminal import markdown, number

DOCUMENT_USE = """\
To order the documents of a list by the score, highest first. Whoever serves it needs their
features, as the training data has them, and no groups."""

DOCUMENT_LIMITS = (
    "Features must mean what they meant in the training data; the model itself brings them to "
    "one scale. A feature that tells groups apart is used like any other.",
    "The figures are means over whole test lists of the same data, whose grades may be biased "
    "themselves.",
)
RANKED = "all documents of each {part} query"


def interface(name: str, data: Features, off: float, *, sees_list: bool) -> list[str]:
    """Return what the model takes and gives, in Markdown.

    Args:
        name: Of the model file, without its ending, in Markdown.
        data: What it was trained on.
        off: Largest difference of the file's scores, as a share of the largest score.
        sees_list: Whether a document's score depends on the others.
    """
    count = len(data.feature_names)
    one = "of one list, which are seen together" if sees_list else "each scored by itself"
    return [
        "| | | type and shape | |",
        "| --- | --- | --- | --- |",
        f"| input | `features` | float32, [documents, {count}] | documents {one} |",
        "| output | `score` | float32, [documents] | higher is better |",
        "",
        "**It takes no group input**: that was checked when the file was written. Which "
        f"feature each column is, is in {name}.features.parquet. On random inputs in ONNX "
        f"Runtime, scores are off by at most {off:.1g} of the largest.",
    ]


def about_data(data: Features, rule: str) -> list[str]:
    """Return the data of a run, in Markdown."""
    return [
        f"- name: {markdown(data.name)}",
        f"- SHA-256 of documents and groups: `{data.checksum}`",
        f"- {data.n_rows:,} documents in {data.n_queries:,} queries, "
        f"{len(data.feature_names):,} features",
        f"- split: {rule}",
    ]


USE = """\
To order items of this catalogue for users of this data, by the score, highest first. Whoever
serves it needs neither the groups of items nor anything about users but their number."""

LIMITS = (
    "Users and items that came after the training data have no number, and no score. `fairtopk "
    "recommend` gives unknown users the most rated items, an order that knows no fairness.",
    "The figures are means over test lists of past ratings. Ratings are not missing at random, "
    "and sampled lists and the whole catalogue can rank models differently: do not compare "
    "figures of two protocols.",
    "Fairness was measured for the groups above and in exposure alone: not for other groups, "
    "for groups of users, or for what exposure leads to. Measure again in use: `fairtopk "
    "audit` takes rankings from anywhere.",
    "The gap of Eq. 9 also shrinks where scores merely get flatter; the gap by rank does not. "
    "A gap no larger than by chance, or with a signed gap near 0, may be chance.",
    "The model takes no groups, yet its scores may still give them away: see how well groups "
    "can be told from scores, where that was measured.",
)


@dataclass(frozen=True)
class Card:
    """What a card is made from.

    Attributes:
        name: Of the model file, without its ending.
        config: What was run.
        lists: The data.
        result: What the run's metrics file holds; None if there is none.
        off: Largest difference of the file's scores from the original's, as a share of the
            largest score.
    """

    name: str
    config: Config
    lists: AnyLists
    result: dict[str, Any] | None
    off: float


def model_card(card: Card) -> str:
    """Return the card as Markdown."""
    config, data = card.config, card.lists.data
    of_documents = isinstance(card.lists, QueryLists)
    limits = (*document_card.LIMITS, *LIMITS[2:]) if of_documents else LIMITS
    sections = {
        "Intended use": [document_card.USE if of_documents else USE],
        "What it takes and gives": _interface(card),
        "Data": _data(card),
        "Groups": _groups(card),
        "Training": [
            f"- method: {config.method.name}, {_weight(config)}",
            f"- top K: {', '.join(map(str, config.method.ks))}",
            f"- model: {_model(config.model, of_documents=of_documents)}",
            f"- seed: {config.seed}",
            f"- exported by fairtopk {__version__}",
        ],
        "Measured": _measured(card),
        "Limits": [f"- {limit}" for limit in limits],
    }
    parts = [f"# {markdown(card.name)}: {config.method.name} on {markdown(data.name)}"]
    parts += [f"## {title}\n\n" + "\n".join(lines) for title, lines in sections.items()]
    return "\n\n".join(parts) + "\n"


def _model(model: ModelConfig, *, of_documents: bool) -> str:
    if not of_documents:
        return f"{model.name}, width {model.width}"
    if model.name == "linear":
        return model.name
    return f"{model.name}, hidden layers of {', '.join(map(str, model.hidden))}"


def _data(card: Card) -> list[str]:
    lists = card.lists
    if isinstance(lists, QueryLists):
        return document_card.about_data(lists.data, lists.rule)
    data = lists.data
    return [
        f"- name: {markdown(data.name)}",
        f"- SHA-256 of ratings and groups: `{data.checksum}`",
        f"- {data.n_ratings:,} ratings by {data.n_users:,} users of {data.n_items:,} items",
        f"- split: {lists.rule}",
    ]


def _interface(card: Card) -> list[str]:
    name, lists = markdown(card.name), card.lists
    if isinstance(lists, QueryLists):
        sees_list = card.config.model.name == "attention"
        return document_card.interface(name, lists.data, card.off, sees_list=sees_list)
    data = lists.data
    return [
        "| | | type and shape | |",
        "| --- | --- | --- | --- |",
        f"| input | `user` | int64, [queries] | numbers from 0 to {data.n_users - 1} |",
        f"| input | `item` | int64, [queries, items] | numbers from 0 to {data.n_items - 1} |",
        "| output | `score` | float32, [queries, items] | higher is better |",
        "",
        "**It takes no group input**: that was checked when the file was written. The id of "
        f"each number is in {name}.users.parquet and {name}.items.parquet. On random "
        f"inputs in ONNX Runtime, scores are off by at most {card.off:.1g} of the largest.",
    ]


def _groups(card: Card) -> list[str]:
    rule, data = card.config.data.groups, card.lists.data
    if not data.group_names:
        return ["The data has none: nothing is known of fairness."]
    said = {} if rule is None else {key: value for key, value in asdict(rule).items() if value}
    words = ", ".join(
        f"{key} {markdown(value)}" for key, value in said.items() if key != "separator"
    )
    return [
        *([f"By the rule: {words}.", ""] if words else []),
        "| group | items |",
        "| --- | --- |",
        *(f"| {markdown(name)} | {count:,} |" for name, count in data.group_counts.items()),
        f"| (unknown) | {data.n_unknown:,} |",
        "",
        f"Signed gaps are {markdown(data.group_names[0])} minus the rest.",
    ]


def _weight(config: Config) -> str:
    method = config.method
    if not method.row.is_fair:
        return "without a fairness penalty: groups played no part"
    if method.c is None:
        weight = f"C / n² = {method.c_relative:g}"
    else:
        weight = f"{method.row.weight_label} = {method.c:g} ({method.row.weight_meaning})"
    return f"{weight}; groups of items were used in training"


def _measured(card: Card) -> list[str]:
    """Return the metrics of a run, with their intervals."""
    result, evaluation = card.result, card.config.evaluation
    if result is None:
        return ["Nothing: the run was stopped before its model was measured."]
    metrics = result["metrics"]
    ks = [name.removeprefix("ndcg@") for name in metrics if name.startswith("ndcg@")]
    rows = [
        f"| {words} | {' | '.join(_figure(metrics[f'{name}@{k}']) for k in ks)} |"
        for name, words in _row_words().items()
        if f"{name}@{ks[0]}" in metrics
    ]
    part, protocol = result["part"], result["protocol"]
    mine = f"each user's {part} items among "
    ranked = {
        "sampled": f"{mine}{evaluation.unrated} items drawn from those the user never rated",
        "full": f"{mine}all items that the user never rated",
        "whole": document_card.RANKED.format(part=part),
    }
    whose = "queries" if protocol == "whole" else "users"
    undefined = max(cell["undefined"] for cell in metrics.values())
    left_out = f", up to {undefined:,} excluded where undefined" if undefined else ""
    return [
        f"Protocol {protocol}: {ranked[protocol]}. Mean and 95 % interval over "
        f"{whose}{left_out}.",
        "",
        f"| | {' | '.join(f'K = {k}' for k in ks)} |",
        f"| --- |{' --- |' * len(ks)}",
        *rows,
        *_beside(result),
        *_by_other(result),
    ]


def _by_other(result: dict[str, Any]) -> list[str]:
    """Return what the other protocol gave, and the warnings of the run."""
    told, lines = result.get("other_protocol") or {}, []
    if "protocol" in told:
        users, means = told["users"], told["metrics"]
        ks = [name.removeprefix("ndcg@") for name in means if name.startswith("ndcg@")]
        figures = [
            f"{words} {', '.join(number(means[f'{name}@{k}']) for k in ks)}"
            for name, words in _row_words().items()
            if f"{name}@{ks[0]}" in means
        ]
        lines = [
            f"- protocol {told['protocol']}, {users['measured']:,} of {users['of']:,} users, "
            f"K = {', '.join(ks)}: {'; '.join(figures)}"
        ]
    lines += [f"- warning: {markdown(warning)}" for warning in result.get("warnings", [])]
    return ["", *lines] if lines else []


def _beside(result: dict[str, Any]) -> list[str]:
    """Return what is told of whole lists."""
    auc, spread = result["metrics"].get("group_auc"), result.get("score_spread")
    told = {
        "how well groups can be told from scores, AUC (0.5: not at all)": auc,
        "spread of scores": spread,
    }
    lines = [f"- {words}: {_figure(cell)}" for words, cell in told.items() if cell]
    return ["", *lines] if lines else []


def _row_words() -> dict[str, str]:
    """Return what each metric is called on a line of its own."""
    found, gap = {}, ""
    for name, words in TABLE_ROWS.items():
        gap = gap if words.startswith(" ") else words
        found[name] = f"{gap}, {words.strip()}" if words.startswith(" ") else words
    return found


def _figure(cell: dict[str, Any]) -> str:
    if cell["mean"] is None:
        return "undefined"
    low, high = cell["ci95"]
    return f"{cell['mean']:.4g} ({low:.4g} to {high:.4g})"
