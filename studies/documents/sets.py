"""Published data with features and groups, as `run` trains on them.

Rows are shuffled by seed, for some files stand in order of relevance, and equal scores are
ranked by row. A seed also says which lists are for training, for validation and for testing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

LIST = 50  # people of a dealt list
TRAINING, VALIDATION, TEST = 0, 1, 2
FIFTH = 0.2


class Rows(NamedTuple):
    """Documents of a set.

    Attributes:
        x: Features, ``[n, F]``.
        y: Grades, ``[n]``.
        qid: Lists, ``[n]``.
        group: 0 is the protected group, 1 the others, -1 unknown, ``[n]``.
        part: Training, validation or test, ``[n]``.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    qid: NDArray[np.int64]
    group: NDArray[np.int64]
    part: NDArray[np.int64]


Reader = Callable[[Path, int], Rows]


def students(file: str, features: tuple[str, ...]) -> Reader:
    """Return the reader of law or engineering students.

    Engineers of a year are a list, and one year each is for validation and for testing. Law
    students are one list to train on and one to test on, as published; a quarter of the former
    is drawn for validation.
    """

    def read(folder: Path, seed: int) -> Rows:
        frame = _shuffled(folder / f"{file}.parquet", seed)
        query = frame["query_id"].to_numpy()
        if "split" in frame.columns:
            draw = np.random.default_rng([seed, 1]).random(len(frame))
            part = np.where(draw < 0.25, VALIDATION, TRAINING)
            part[(frame["split"] == "test").to_numpy()] = TEST
        else:
            part = _folds(query - query.min(), seed, 5)
        return Rows(
            x=frame.select(features).to_numpy(),
            y=_graded(frame["relevance"]),
            qid=query * 3 + part,
            group=_group(frame["protected"] == 1),
            part=part,
        )

    return read


def experts(folder: Path, seed: int) -> Rows:
    """Return experts and others of each topic, in six folds.

    Features are put on one scale within each list: over all lists some have hardly any spread.
    """
    frame = _shuffled(folder / "w3c-experts.gender.parquet", seed)
    of_list = pl.col("^f[0-9]+$")
    centred = of_list - of_list.mean().over("query_id")
    spread = of_list.std().over("query_id") + 1e-12
    return Rows(
        x=frame.select((centred / spread).clip(-10, 10)).to_numpy(),
        y=_graded(frame["relevance"]),
        qid=frame["query_id"].to_numpy(),
        group=_group(frame["protected"] == 1),
        part=_folds(frame["test_fold"].to_numpy() - 1, seed, 6),
    )


def papers(folder: Path, seed: int) -> Rows:
    """Return papers of each search; protected are those all of whose authors are low in h."""
    frame = _shuffled(folder / "trec-fair-2020.features.parquet", seed)
    return Rows(
        x=np.log1p(frame.select(pl.col("^f[0-9]+$")).to_numpy().clip(0)),
        y=frame["relevance"].cast(pl.Float64).to_numpy(),
        qid=frame["query_id"].to_numpy(),
        group=_group(frame["frac_low_h"] >= 1),
        part=_parts(frame["query_id"].to_numpy(), seed),
    )


def letor(folder: Path, seed: int) -> Rows:
    """Return MQ2008 in its five folds: training on three subsets, then one each."""
    frame = _shuffled(folder / "mq2008.parquet", seed)
    return Rows(
        x=frame.select(pl.col("^f[0-9]+$")).to_numpy().astype(np.float64),
        y=frame["relevance"].cast(pl.Float64).to_numpy(),
        qid=frame["query_id"].to_numpy(),
        group=np.full(len(frame), -1),
        part=_folds(frame["subset"].to_numpy() - 1, seed, 5),
    )


def people(file: str, protected: pl.Expr, good: pl.Expr, unseen: tuple[str, ...]) -> Reader:
    """Return the reader of a table of people, who are dealt into lists of 50.

    Args:
        file: Its name.
        protected: Who is in the protected group.
        good: Who is relevant.
        unseen: Columns that are no features.
    """

    def read(folder: Path, seed: int) -> Rows:
        frame = _shuffled(folder / f"{file}.parquet", seed)
        frame = frame.head(len(frame) // LIST * LIST)
        seen = frame.drop(unseen)
        text = [name for name, kind in seen.schema.items() if kind == pl.String]
        qid = np.arange(len(frame)) // LIST
        return Rows(
            x=seen.to_dummies(text).fill_null(0).to_numpy().astype(np.float64),
            y=frame.select(good.cast(pl.Float64)).to_series().to_numpy(),
            qid=qid,
            group=_group(frame.select(protected).to_series()),
            part=_parts(qid, seed),
        )

    return read


def _shuffled(path: Path, seed: int) -> pl.DataFrame:
    frame = pl.read_parquet(path)
    return frame[np.random.default_rng(seed).permutation(len(frame))]


def _graded(relevance: pl.Series) -> NDArray[np.float64]:
    """Return relevance on a scale from 0 to 4; its own may be any."""
    values = relevance.to_numpy()
    return (values - values.min()) / np.ptp(values) * 4


def _group(protected: pl.Series) -> NDArray[np.int64]:
    return 1 - protected.cast(pl.Int64).fill_null(2).to_numpy()


def _folds(fold: NDArray[np.integer], seed: int, n_folds: int) -> NDArray[np.int64]:
    """Return parts: a fold for testing that the seed says, the one before for validation."""
    behind = (seed - fold) % n_folds
    return np.where(behind == 0, TEST, np.where(behind == 1, VALIDATION, TRAINING))


def _parts(qid: NDArray[np.integer], seed: int) -> NDArray[np.int64]:
    """Return parts: a fifth of the lists each for validation and testing, drawn."""
    lists = np.unique(qid)
    few = round(FIFTH * len(lists))
    drawn = np.random.default_rng([seed, 1]).permutation(lists)
    part = np.full(len(qid), TRAINING)
    part[np.isin(qid, drawn[:few])] = TEST
    part[np.isin(qid, drawn[few : 2 * few])] = VALIDATION
    return part


LAW, ENGINEERING = ("lsat", "ugpa"), ("psu_math", "psu_lang", "psu_science", "hs_gpa")
CREDIT = ("risk", "sex", "age")
# The score and what it is to predict, who somebody is, and what tells the age once more.
COMPAS = (
    "id", "sex", "race", "age_cat", "decile_score", "score_text", "is_recid", "two_year_recid"
)  # fmt: skip
GOOD, STAYED = pl.col("risk") == "good", pl.col("two_year_recid") == 0
BLACK, FEMALE = pl.col("race") == "African-American", pl.col("sex") == "Female"
SETS: dict[str, Reader] = {
    "law, gender": students("law-students.gender", LAW),
    "law, race": students("law-students.race_black", LAW),
    "engineering, gender": students("engineering-students.gender", ENGINEERING),
    "engineering, school": students("engineering-students.highschool", ENGINEERING),
    "experts, gender": experts,
    "papers, h-index": papers,
    "credit, sex": people("german-credit", pl.col("sex") == "female", GOOD, CREDIT),
    "credit, age": people("german-credit", pl.col("age") < 25, GOOD, CREDIT),
    "compas, race": people("compas-two-years", BLACK, STAYED, COMPAS),
    "compas, sex": people("compas-two-years", FEMALE, STAYED, COMPAS),
    "mq2008": letor,
}
