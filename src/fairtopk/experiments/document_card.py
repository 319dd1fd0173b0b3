"""What the card of an exported scorer of documents says otherwise than that of users and items.

Data is named by name and checksum, never by path.
"""

from fairtopk.data.features import Features
from fairtopk.escaping import markdown

USE = """\
To order the documents of a list by the score, highest first. Whoever serves it needs their
features, as the training data has them, and no groups."""

LIMITS = (
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
