"""LETOR / SVMrank text, dense or sparse: ``2 qid:10 1:0.03 5:-1e-3 # docid = GX008-86``.

A feature that a line leaves out is 0. Features keep the numbers of the file: f1, f2, ...
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairtopk.data import _letor_kernels as letor_text
from fairtopk.data.archive import Archive
from fairtopk.data.columns import Origin, number_ids
from fairtopk.data.features import (
    FeatureRows,
    Features,
    Labels,
    features_from,
    label_rows,
)
from fairtopk.data.groups import GroupRule, Groups
from fairtopk.errors import InputError
from fairtopk.storage import MOST_FEATURE, refuse_large

LIMIT_BYTES = 8_000_000_000
SHOWN = 60  # characters of a bad line
BOM = b"\xef\xbb\xbf"
FIRST_LINE = re.compile(rb"(?:[ \t\r]*(?:#[^\n]*)?\n)*[ \t]*[^\s#]+[ \t]+qid:")
FAULTS = {
    letor_text.BAD_LABEL: "a line must start with its relevance, a finite number",
    letor_text.BAD_QUERY: "the relevance must be followed by qid: and a whole number",
    letor_text.BAD_PAIR: "the qid must be followed by pairs like 3:0.25",
    letor_text.BAD_VALUE: "the value of a feature must be a finite number within float32",
    letor_text.NOT_RISING: "the numbers of the features must rise within a line",
}


@dataclass(frozen=True)
class Text:
    """One file: what errors call it, its bytes, and what measuring them found."""

    where: str
    content: bytes
    n_rows: int
    smallest: int
    largest: int

    def place(self, byte: int) -> str:
        """Return the place of a byte in words: the file and the line."""
        line = self.content.count(b"\n", 0, byte) + 1
        return f"{self.where}, line {line}"


@dataclass(frozen=True)
class Parsed:
    """The rows of all files, one file after the other.

    The rows of file i are ``bounds[i] : bounds[i + 1]``; feature `low` is column 0 of `values`;
    `spans` are those of `read_rows`.
    """

    texts: list[Text]
    bounds: NDArray[np.int64]
    low: int
    values: NDArray[np.float32]
    relevance: NDArray[np.float32]
    query: NDArray[np.int64]
    spans: NDArray[np.int64]

    def parts(self) -> list[slice]:
        """Return the rows of each file."""
        return [slice(first, last) for first, last in pairwise(self.bounds.tolist())]

    def place(self, row: int) -> str:
        """Return the place of a row in words: its file and line."""
        text = self.texts[int(np.searchsorted(self.bounds, row, side="right")) - 1]
        return text.place(int(self.spans[row, 0]))

    def feature_names(self) -> tuple[str, ...]:
        """Return the names of the features, after their numbers in the files."""
        return tuple(f"f{number + self.low}" for number in range(self.values.shape[1]))


def read_letor(path: str | Path, *, groups: Groups | GroupRule | None = None) -> Features:
    """Return the documents of a LETOR / SVMrank file, or of all such files of a zip or folder.

    A document's id is X of the comment ``# docid = X`` if every line has one, else its row.

    Args:
        path: A text file (``.gz`` too), or a zip or folder, whose files are joined in the order
            of their names.
        groups: A rule on a feature (column "f5"), which stays a feature, or labels by document
            id made by `groups_from`; left out, every document's group is unknown.

    Raises:
        InputError: A line is not of this format, files share a query, a document is twice in a
            query, the matrix would be past 8 GB, or the groups fit no document.
    """
    archive = Archive(path)
    files = _letor_files(archive)
    parsed = _parse([_measure(archive, file) for file in files], archive.path.name)
    _refuse_shared_queries(parsed)
    origin = Origin(archive.path.name)
    items, n_named = _document_ids(parsed)
    group, group_names = _labels(parsed, items, groups, origin)
    query, query_ids = number_ids(pl.Series("query", parsed.query), origin)
    item, item_ids = number_ids(items, origin)
    rows = FeatureRows(
        values=parsed.values,
        relevance=parsed.relevance,
        query=query,
        query_ids=query_ids,
        item=item,
        item_ids=item_ids,
        group=group,
        group_names=group_names,
        feature_names=parsed.feature_names(),
        place=parsed.place,
    )
    name = Path(archive.path.resolve().name.removesuffix(".gz")).stem
    return features_from(rows, name=name, notes=_notes(archive, files, len(items), n_named))


def _letor_files(archive: Archive) -> list[str]:
    names = archive.names()
    if len(names) == 1:  # whatever it is, the parser can say what is wrong with it
        return names
    names = [name for name in names if FIRST_LINE.match(archive.head(name))]
    if not names:
        raise InputError(
            f"{archive.path} holds no LETOR text: none of its files starts with a line "
            f"like '2 qid:10 1:0.03 2:0.5'"
        )
    return names


def _measure(archive: Archive, name: str) -> Text:
    content = archive.read(name).removeprefix(BOM)
    n_rows, smallest, largest, fault, place = letor_text.read_rows(
        np.frombuffer(content, np.uint8),
        0,
        np.empty((0, 0), np.float32),
        np.empty(0, np.float32),
        np.empty(0, np.int64),
        np.empty((0, 3), np.int64),
    )
    text = Text(archive.where(name), content, n_rows, smallest, largest)
    if fault != letor_text.FINE:
        raise InputError(f"{text.place(place)}: {FAULTS[fault]}, got {_shown(content, place)}")
    if n_rows == 0:
        raise InputError(f"{text.where} holds no documents, only comments")
    return text


def _shown(content: bytes, place: int) -> str:
    """Return the word at a byte and the beginning of its line, in quotes."""
    # A line may be as long as the file: little of it is looked at.
    start = content.rfind(b"\n", 0, place) + 1
    before = content[start : min(place, start + 4 * SHOWN)]
    after = content[place : place + 4 * SHOWN].partition(b"\n")[0]
    word = re.split(rb"[\s#]", after, maxsplit=1)[0]
    texts = (part.decode("utf-8", "replace").strip() for part in (word, before + after))
    return " in ".join(repr(text[:SHOWN]) for text in texts)


def _parse(texts: list[Text], name: str) -> Parsed:
    bounds = np.cumsum([0, *(text.n_rows for text in texts)])
    n_rows = int(bounds[-1])
    low = 0 if any(text.smallest == 0 for text in texts) else 1
    largest = max(text.largest for text in texts)
    n_features = largest - low + 1
    if n_features < 1:
        raise InputError(f"{name} holds no features, only relevance and queries")
    if largest > MOST_FEATURE:
        raise InputError(
            f"{name} has a feature with the number {largest:,}; numbers go up to "
            f"{MOST_FEATURE:,}, so number the features anew"
        )
    n_bytes = 4 * n_rows * n_features
    dense = f"{name} as a dense matrix of {n_rows:,} documents by {n_features:,} features"
    refuse_large(n_bytes, dense)
    if n_bytes > LIMIT_BYTES:
        raise InputError(
            f"{dense} would take {n_bytes / 1e9:,.1f} GB, past the limit of "
            f"{LIMIT_BYTES / 1e9:g} GB; keep fewer features"
        )
    parsed = Parsed(
        texts=texts,
        bounds=bounds,
        low=low,
        values=np.zeros((n_rows, n_features), np.float32),
        relevance=np.empty(n_rows, np.float32),
        query=np.empty(n_rows, np.int64),
        spans=np.empty((n_rows, 3), np.int64),
    )
    for text, part in zip(texts, parsed.parts(), strict=True):
        letor_text.read_rows(
            np.frombuffer(text.content, np.uint8),
            low,
            parsed.values[part],
            parsed.relevance[part],
            parsed.query[part],
            parsed.spans[part],
        )
    return parsed


def _refuse_shared_queries(parsed: Parsed) -> None:
    home: dict[int, str] = {}
    for text, part in zip(parsed.texts, parsed.parts(), strict=True):
        for query in np.unique(parsed.query[part]).tolist():
            if query in home:
                raise InputError(
                    f"query {query} is in {home[query]} and in {text.where}; read the files of "
                    f"one fold, or a single file (other files may number their queries alike)"
                )
            home[query] = text.where


def _document_ids(parsed: Parsed) -> tuple[pl.Series, int]:
    """Return the id of each row's document, and how many lines have one."""
    n_rows = len(parsed.relevance)
    n_named = int((parsed.spans[:, 2] > parsed.spans[:, 1]).sum())
    if n_named < n_rows:
        return pl.Series("item", np.arange(n_rows)), n_named
    ids = [
        text.content[start:end].decode("utf-8", "backslashreplace")
        for text, part in zip(parsed.texts, parsed.parts(), strict=True)
        for _, start, end in parsed.spans[part].tolist()
    ]
    return pl.Series("item", ids), n_named


def _labels(
    parsed: Parsed, items: pl.Series, groups: Groups | GroupRule | None, origin: Origin
) -> Labels:
    if not isinstance(groups, GroupRule):
        return label_rows(items, groups, origin)
    names = parsed.feature_names()
    if groups.column not in names:
        raise InputError(
            f"{origin.name} has no feature {groups.column!r}: its features are {names[0]} "
            f"to {names[-1]}"
        )
    values = pl.Series(parsed.values[:, names.index(groups.column)])
    return label_rows(values, groups, origin)


def _notes(archive: Archive, files: list[str], n_rows: int, n_named: int) -> tuple[str, ...]:
    notes = [f"read {', '.join(files)}"]
    left_out = [name for name in archive.names() if name not in files]
    if left_out:
        notes.append(f"left out what is no LETOR text: {', '.join(left_out)}")
    if 0 < n_named < n_rows:
        notes.append(
            f"only {n_named:,} of {n_rows:,} lines name a document, so documents are called "
            f"by their row"
        )
    return tuple(notes)
