"""The card of an exported model: what it is for, how it was measured, and its limits.

Data is named by name and checksum, never by path.
"""

from dataclasses import asdict
from typing import Any, NamedTuple

from fairtopk import __version__
from fairtopk.lists.queries import AnyLists, QueryLists
from fairtopk.metrics.names import TABLE_ROWS
from fairtopk.runs.config import Config, ModelConfig
from fairtopk.terminal import UNDEFINED, markdown, number

USER_LIMITS = (
    "Users and items that came after the training data have no number and no score. `fairtopk "
    "recommend` gives unknown users the most rated items, an order that ignores fairness.",
    "The figures are means over test lists of past ratings. Ratings are not missing at random, "
    "and sampled lists and the full catalogue can rank models differently: do not compare "
    "figures of two protocols.",
)
HISTORY_LIMITS = (
    "Items that came after the training data have no number and no score. A user without an "
    "item of this catalogue cannot be told from another: `fairtopk recommend` gives such users "
    "the most rated items, an order that ignores fairness.",
    "The figures are of users whose histories the model was fitted to; new users are ranked by "
    "the same formula, and were not measured.",
    USER_LIMITS[1],
)
DOCUMENT_LIMITS = (
    "Features must mean what they meant in the training data; the model itself brings them to "
    "one scale. A feature that tells groups apart is used like any other.",
    "The figures are means over whole test lists of the same data, whose grades may be biased "
    "themselves.",
)
LIMITS = (
    "Fairness was measured for the groups above and in exposure alone: not for other groups, "
    "for groups of users, or for what exposure leads to. Measure again in use: `fairtopk "
    "audit` takes rankings from anywhere.",
    "The gap of Eq. 9 also shrinks when scores merely get flatter; the gap by rank does not. "
    "A gap at its chance level, or with a signed gap near 0, may be chance.",
    "The model takes no groups, yet its scores may still reveal them: see the group AUC above, "
    "if it was measured.",
)


class Subject(NamedTuple):
    """The parts of a card in which users and documents differ."""

    use: str  # what the model is for
    inputs: tuple[str, ...]  # rows of the table of inputs and outputs
    numbering: str  # which file says what the numbers of the input stand for
    checksum_of: str  # what the checksum of the data covers
    size: str  # how much data there is
    model: str  # the model and its size
    limits: tuple[str, ...]  # that hold for this kind of model alone


def model_card(
    name: str, config: Config, lists: AnyLists, result: dict[str, Any] | None, *, off: float
) -> str:
    """Return the card of a model as Markdown.

    Args:
        name: The model file's name, without its ending.
        config: What was run.
        lists: The data.
        result: The run's metrics; None if it was stopped before they were measured.
        off: Largest difference of the file's scores from the original's, as a share of the
            largest score.
    """
    data, title = lists.data, markdown(name)
    about, method = _subject(title, lists, config.model), config.method
    if not method.row.is_fair:
        weight = "without a fairness penalty: groups played no part"
    else:
        if method.c is not None:
            weight = f"{method.row.weight_label} = {method.c:g} ({method.row.weight_meaning})"
        else:
            weight = f"C / n² = {method.c_relative:g}"
        weight += "; groups of items were used in training"
    sections = {
        "Intended use": [about.use],
        "What it takes and gives": [
            "| | | type and shape | |",
            "| --- | --- | --- | --- |",
            *about.inputs,
            "",
            "**It takes no group input**: that was checked when the file was written. "
            f"{about.numbering} On random inputs in ONNX Runtime, scores are off by at most "
            f"{off:.1g} of the largest.",
        ],
        "Data": [
            f"- name: {markdown(data.name)}",
            f"- SHA-256 of {about.checksum_of} and groups: `{data.checksum}`",
            f"- {about.size}",
            f"- split: {lists.rule}",
        ],
        "Groups": _groups(config, lists),
        "Training": [
            f"- method: {method.name}, {weight}",
            f"- top K: {', '.join(map(str, method.ks))}",
            f"- model: {about.model}",
            f"- seed: {config.seed}",
            f"- exported by fairtopk {__version__}",
        ],
        "Measured": ["Nothing: the run was stopped before its model was measured."]
        if result is None
        else _measured(result, unrated=config.evaluation.unrated),
        "Limits": [f"- {limit}" for limit in (*about.limits, *LIMITS)],
    }
    parts = [f"# {title}: {method.name} on {markdown(data.name)}"]
    parts += [f"## {section}\n\n" + "\n".join(lines) for section, lines in sections.items()]
    return "\n\n".join(parts) + "\n"


def _subject(title: str, lists: AnyLists, model: ModelConfig) -> Subject:
    if isinstance(lists, QueryLists):
        documents, n_features = lists.data, len(lists.data.feature_names)
        scored = "each scored by itself"
        if model.name == "attention":
            scored = "of one list, which are scored together"
        size = ""
        if model.name != "linear":
            size = f", hidden layers of {', '.join(map(str, model.hidden))}"
        return Subject(
            use="To order the documents of a list by the score, highest first. Serving needs "
            "their features,\nas in the training data, and no groups.",
            inputs=(
                f"| input | `features` | float32, [documents, {n_features}] | documents "
                f"{scored} |",
                "| output | `score` | float32, [documents] | higher is better |",
            ),
            numbering=f"The feature in each column is named in {title}.features.parquet.",
            checksum_of="documents",
            size=f"{documents.n_rows:,} documents in {documents.n_queries:,} queries, "
            f"{n_features:,} features",
            model=f"{model.name}{size}",
            limits=DOCUMENT_LIMITS,
        )
    data = lists.data
    size = f"{data.n_ratings:,} ratings by {data.n_users:,} users of {data.n_items:,} items"
    if model.is_fitted:
        counts = "1" if model.input == "binary" else "2^rating - 1"
        return Subject(
            use="To order items of this catalogue for anyone with a history of them, known to "
            "the data or new, by\nthe score, highest first. Serving needs the history and "
            "neither the groups of items nor who the user is.",
            inputs=(
                "| input | `history` | int64, [users, length] | items of each user: numbers "
                f"from 0 to {data.n_items - 1}, each once, -1 past the end |",
                f"| input | `value` | float32, [users, length] | {counts} for each item |",
                f"| output | `score` | float32, [users, {data.n_items}] | of every item, also "
                "of those in the history; higher is better |",
            ),
            numbering=f"The id of each number is in {title}.items.parquet.",
            checksum_of="ratings",
            size=size,
            model=f"{model.name}, {model.input} histories",
            limits=HISTORY_LIMITS,
        )
    return Subject(
        use="To order items of this catalogue for users of this data, by the score, highest "
        "first. Serving\nneeds neither the groups of items nor anything about users but their "
        "number.",
        inputs=(
            f"| input | `user` | int64, [queries] | numbers from 0 to {data.n_users - 1} |",
            "| input | `item` | int64, [queries, items] | numbers from 0 to "
            f"{data.n_items - 1} |",
            "| output | `score` | float32, [queries, items] | higher is better |",
        ),
        numbering=f"The id of each number is in {title}.users.parquet and "
        f"{title}.items.parquet.",
        checksum_of="ratings",
        size=size,
        model=f"{model.name}, width {model.width}",
        limits=USER_LIMITS,
    )


def _groups(config: Config, lists: AnyLists) -> list[str]:
    data, rule = lists.data, config.data.groups
    if not data.group_names:
        return ["The data has none: nothing is known about fairness."]
    given = {} if rule is None else {key: value for key, value in asdict(rule).items() if value}
    given.pop("separator", None)
    rule_line = ", ".join(f"{key} {markdown(value)}" for key, value in given.items())
    return [
        *([f"By the rule: {rule_line}.", ""] if given else []),
        "| group | items |",
        "| --- | --- |",
        *(f"| {markdown(name)} | {count:,} |" for name, count in data.group_counts.items()),
        f"| (unknown) | {data.n_unknown:,} |",
        "",
        f"Signed gaps are {markdown(data.group_names[0])} minus the rest.",
    ]


def _measured(result: dict[str, Any], *, unrated: int) -> list[str]:
    """Return the metrics of a run with their intervals, its other protocol and its warnings."""
    labels, gap = {}, ""
    for name, text in TABLE_ROWS.items():  # "  signed gap" stands below the gap it belongs to
        gap = gap if text.startswith(" ") else text
        labels[name] = f"{gap}, {text.strip()}" if text.startswith(" ") else text
    metrics, part, protocol = result["metrics"], result["part"], result["protocol"]
    ks = [name.removeprefix("ndcg@") for name in metrics if name.startswith("ndcg@")]
    own = f"each user's {part} items among "
    ranked = {
        "sampled": f"{own}{unrated} items drawn from those the user never rated",
        "full": f"{own}all items that the user never rated",
        "whole": f"all documents of each {part} query",
    }
    undefined = max(cell["undefined"] for cell in metrics.values())
    lines = [
        f"Protocol {protocol}: {ranked[protocol]}. Mean and 95 % interval over "
        f"{'queries' if protocol == 'whole' else 'users'}"
        f"{f', up to {undefined:,} excluded where undefined' if undefined else ''}.",
        "",
        f"| | {' | '.join(f'K = {k}' for k in ks)} |",
        f"| --- |{' --- |' * len(ks)}",
    ]
    for name, text in labels.items():
        if f"{name}@{ks[0]}" in metrics:
            cells = (_figure(metrics[f"{name}@{k}"]) for k in ks)
            lines.append(f"| {text} | {' | '.join(cells)} |")
    of_lists = {
        "how well scores tell groups apart, AUC (0.5: not at all)": metrics.get("group_auc"),
        "spread of scores": result.get("score_spread"),
    }
    notes = [f"- {text}: {_figure(cell)}" for text, cell in of_lists.items() if cell]
    lines += ["", *notes] if notes else []
    other = result.get("other_protocol") or {}
    notes = [f"- warning: {markdown(warning)}" for warning in result.get("warnings", [])]
    if "protocol" in other:
        users, means = other["users"], other["metrics"]
        ks = [name.removeprefix("ndcg@") for name in means if name.startswith("ndcg@")]
        figures = (
            f"{text} {', '.join(number(means[f'{name}@{k}']) for k in ks)}"
            for name, text in labels.items()
            if f"{name}@{ks[0]}" in means
        )
        notes.insert(
            0,
            f"- protocol {other['protocol']}, {users['measured']:,} of {users['of']:,} users, "
            f"K = {', '.join(ks)}: {'; '.join(figures)}",
        )
    return [*lines, "", *notes] if notes else lines


def _figure(cell: dict[str, Any]) -> str:
    if cell["mean"] is None:
        return UNDEFINED
    low, high = cell["ci95"]
    return f"{cell['mean']:.4g} ({low:.4g} to {high:.4g})"
