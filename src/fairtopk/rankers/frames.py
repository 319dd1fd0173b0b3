"""What enters and leaves a ranker: arrays, or frames of any kind."""

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.checks import LARGEST_RELEVANCE
from fairtopk.data.columns import FRAME_ERRORS, first_line
from fairtopk.data.features import Features
from fairtopk.errors import InputError, KindError
from fairtopk.tensors import tensor_fault

# How the arguments of `fit` are called where they stand beside features in one table.
QID, RELEVANCE, GROUPS = "qid", "y", "groups"
USER = "user"  # the column of ids in a frame of users

AnyFrame = nw.DataFrame[Any] | nw.Series[Any]


class Table(NamedTuple):
    """Features as rows."""

    values: NDArray[np.float32]  # [n, F]
    names: tuple[str, ...]  # of each feature
    frame: nw.DataFrame[Any] | None  # that they came in; None for an array


def table_of(x: Any, *, names: tuple[str, ...] | None = None) -> Table:
    """Return the features of an array or frame, all finite.

    Args:
        x: Rows of documents, columns of features.
        names: The wanted features, by name in a frame, by number in an array.
    """
    frame = frame_of(x)
    if frame is not None:
        wanted = list(names) if names is not None else frame.columns
        if not wanted or not len(frame):
            what = "feature" if not wanted else "sample"
            raise InputError(f"X has 0 {what}(s) while a minimum of 1 is required")
        if absent := [name for name in wanted if name not in frame.columns]:
            raise InputError(
                f"X has no column {absent[0]!r}, a feature that the ranker was fitted on"
            )
        for name in wanted:
            if not frame.schema[name].is_numeric() and frame.schema[name] != nw.Boolean:
                raise InputError(
                    f"X: column {name!r} holds {frame.schema[name]}, not numbers; encode it, "
                    f"or leave it out"
                )
        columns = [frame[name].cast(nw.Float64).to_numpy() for name in wanted]
        values, found = np.column_stack(columns), tuple(wanted)
    else:
        values = _array(x)
        found = tuple(f"feature {place}" for place in range(values.shape[1]))
        if names is not None and len(found) != len(names):
            raise InputError(
                f"X has {len(found)} features, but FairRanker is expecting {len(names)} "
                f"features as input, those it was fitted on"
            )
    with np.errstate(over="ignore"):  # what becomes infinite is refused below
        narrow = values.astype(np.float32)
    if not np.isfinite(narrow).all():
        row, column = np.argwhere(~np.isfinite(narrow))[0]
        value = values[row, column]
        place = f"{'NaN' if np.isnan(value) else f'{value:g}'} in row {row}, {found[column]}"
        if np.isfinite(value):
            raise InputError(
                f"X must fit float32, got {place}; bring the feature to another scale"
            )
        raise InputError(f"X must be finite, got {place}; fill it in, or leave the row out")
    return Table(narrow, found if names is None else names, frame)


def features_of(table: Table, y: Any, qid: Any, groups: Any) -> Features:
    """Return rows with relevance, query and group as lists; without `qid` they are one list."""
    n_rows = len(table.values)
    given = {RELEVANCE: y, QID: np.zeros(n_rows, np.int64) if qid is None else qid}
    if groups is not None:
        given[GROUPS] = groups
    columns = {name: column_of(name, values, n_rows) for name, values in given.items()}
    if clash := [name for name in table.names if name in columns]:
        raise InputError(f"a feature is called {clash[0]!r} like an argument of fit; rename it")
    grades = columns[RELEVANCE]
    if grades.dtype.is_numeric() and (grades < 0).any():
        raise InputError(
            f"y must not be below 0, got {grades.min()!s}; shift it, as by y - y.min()"
        )
    finite = grades.filter(grades.is_finite()) if grades.dtype.is_numeric() else grades[:0]
    if (finite > LARGEST_RELEVANCE).any():
        raise InputError(
            f"y must be at most {LARGEST_RELEVANCE:g}, since NDCG's gain is 2^y - 1, got "
            f"{finite.max()!s}; give grades, such as 0 to 4"
        )
    if groups is not None and (found := columns[GROUPS].drop_nulls().unique()).len() < 2:
        got = f"only {found[0]!r}" if len(found) else "none"
        raise InputError(
            f"groups must tell at least two groups apart, got {got}; leave groups out for a "
            f"method that needs none"
        )
    values = {name: table.values[:, place] for place, name in enumerate(table.names)}
    return Features.from_frame(
        pl.DataFrame(values | columns),
        query=QID,
        relevance=RELEVANCE,
        features=table.names,
        group=GROUPS if groups is not None else None,
        name="features",
    )


def column_of(name: str, values: Any, n_rows: int) -> pl.Series:
    """Return one value for each row, from an array, a list or a series of any kind."""
    native = nw.from_native(values, series_only=True, pass_through=True)
    try:
        if isinstance(native, nw.Series):
            values = native.to_list() if native.dtype == nw.Object else native.to_arrow()
        else:
            values = np.asarray(values)
            if values.ndim == 2 and values.shape[1] == 1:
                values = values[:, 0]
            values = values.tolist() if values.dtype == object else values
            if np.iscomplexobj(values):
                raise InputError(f"Complex data not supported; {name} must hold real numbers")
        column = pl.Series(name, values, nan_to_null=name == GROUPS)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"{name} must hold one number or text for each row: {first_line(error)}"
        ) from error
    if len(column) != n_rows or column.dtype.is_nested():
        raise InputError(
            f"{name} must have a value for each of the {n_rows:,} rows of X, got "
            f"{len(column):,}"
        )
    return column


def ids_of(users: Any) -> tuple[Any, AnyFrame | None]:
    """Return ids, from a frame's column ``user`` or a series, and the frame or series itself.

    What is neither is returned as it is, with None.
    """
    given = nw.from_native(users, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(given, nw.DataFrame):
        if USER not in given.columns:
            raise InputError(
                f"users has no column {USER!r}; it has {', '.join(given.columns) or 'none'}"
            )
        column = given[USER]
    elif isinstance(given, nw.Series):
        column = given
    else:
        return users, None
    return column.to_list() if column.dtype == nw.Object else column.to_arrow(), given


def frame_of(x: Any) -> nw.DataFrame[Any] | None:
    """Return what `x` is as a frame; None for anything else."""
    try:
        frame = nw.from_native(x, eager_only=True, pass_through=True)
    except FRAME_ERRORS as error:  # such as two columns of one name
        raise InputError(f"X cannot be read: {first_line(error)}") from error
    return frame if isinstance(frame, nw.DataFrame) else None


def frame_like(table: pl.DataFrame, frame: AnyFrame | None) -> Any:
    """Return a table as a frame of the kind of `frame`; polars where there is none."""
    if frame is None or frame.implementation.is_polars():
        return table
    # Arrays keep the width of numbers, which lists do not; text has no array of its own.
    columns = {
        column.name: column.to_numpy() if column.dtype.is_numeric() else column.to_list()
        for column in table
    }
    return nw.from_dict(columns, backend=frame.implementation).to_native()


def _array(x: Any) -> NDArray[np.float64]:
    """Return an array of rows and columns; its complaints are worded as scikit-learn's are."""
    if isinstance(x, Tensor) and (fault := tensor_fault(x)):
        raise KindError(f"X must be a table of numbers, got {fault}")
    if hasattr(x, "toarray"):
        raise InputError("sparse data is not supported; give X.toarray()")
    try:
        if np.iscomplexobj(x):
            raise InputError("Complex data not supported; X must hold real numbers")
        if np.asarray(x).dtype.kind in "mMV":
            raise KindError(f"X must be a table of numbers, got {np.asarray(x).dtype}")
        values = np.asarray(x, dtype=np.float64)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(f"X must be a table of numbers: {first_line(error)}") from error
    if values.ndim != 2:
        raise InputError(
            f"X must have rows and columns, got shape {list(values.shape)}. Reshape your data: "
            f"X.reshape(-1, 1) if it is one feature, X.reshape(1, -1) if it is one document"
        )
    if 0 in values.shape:
        what = "feature" if values.shape[1] == 0 else "sample"
        raise InputError(
            f"X has 0 {what}(s) (shape={values.shape}) while a minimum of 1 is required."
        )
    return values
