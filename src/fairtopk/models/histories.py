"""Models that read a user's history, so that known and new users are ranked by one formula.

With x the user's history (1 for each rated item, or 2^rating - 1), scores of all items are

    ease         x B, with B = I - P diag(P)^-1 and P = (X'X + ridge I)^-1 (Steck 2019)
    ials         Y p, with p = (Y'Y + Y'(C - 1)Y + ridge I)^-1 Y'C 1 (Hu et al. 2008)
    item-knn     x S, with S the similarities of each item's nearest neighbours
    popularity   the number of training ratings of each item

where X has all training histories as rows, and C = 1 + confidence x / (largest x) is taken over
the items of the history. The factors Y and the similarities S come from the package `implicit`.

A model keeps the training histories beside its weights, not among them. Scores of a user are
summed item by item, items rising, on one thread: a user has the same bits in any company.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairtopk.errors import InputError
from fairtopk.kernels.compiled import compiled
from fairtopk.kernels.threads import run_all
from fairtopk.lists.batch import Batch
from fairtopk.lists.users import Ratings, kept_ratings
from fairtopk.models.gram import invert_in_place

BLOCK = 512  # users whose scores of all items are held at once
PIECE = 32  # users of a piece of work; products of fewer rows may end in other bits
IMPLICIT = "implicit"  # the package

Similarity = Literal["cosine", "tfidf", "bm25"]


class HistoryScorer(nn.Module):
    """Base class of models that score all items by a user's history.

    A subclass scores histories in `score_values`; its buffers are its weights.

    Args:
        n_items: Number of items.
        graded: Whether an item of a history counts 2^rating - 1, not 1. One rated 0 counts 0.

    Attributes:
        history: What the histories of the training users hold, as `values_of` gives it.
        unit: The largest value in them; ridges and confidence are relative to it.
    """

    history_offsets: Tensor
    history_item: Tensor
    history_value: Tensor

    def __init__(self, n_items: int, *, graded: bool = False) -> None:
        super().__init__()
        self.n_items, self.graded, self.unit = n_items, graded, 1.0
        # Buffers outside the state are shared by copies of a model.
        self.register_buffer("history_offsets", torch.zeros(1).long(), persistent=False)
        self.register_buffer("history_item", torch.empty(0).int(), persistent=False)
        self.register_buffer("history_value", torch.empty(0), persistent=False)

    def score_values(self, values: Ratings) -> Tensor:
        """Return the scores of all items for histories as `values_of` gives them."""
        raise NotImplementedError

    def remember(self, ratings: Ratings) -> None:
        """Keep the training histories, by which `score_all` and `forward` know the users."""
        values = self.values_of(ratings)
        self.history_offsets = torch.from_numpy(values.offsets)
        self.history_item = torch.from_numpy(values.item)
        self.history_value = torch.from_numpy(values.rating)
        self.unit = float(values.rating.max(initial=0)) or 1.0

    @property
    def history(self) -> Ratings:
        """What the histories of the training users hold."""
        return Ratings(
            self.history_offsets.numpy(), self.history_item.numpy(), self.history_value.numpy()
        )

    def values_of(self, ratings: Ratings) -> Ratings:
        """Return ratings as values x, float32, with the items of each user rising."""
        user = np.repeat(np.arange(len(ratings.offsets) - 1), np.diff(ratings.offsets))
        order = np.argsort(user * np.int64(self.n_items) + ratings.item)
        rating = ratings.rating[order].astype(np.float64)
        value = np.exp2(rating) - 1 if self.graded else rating > 0
        return Ratings(ratings.offsets, ratings.item[order], value.astype(np.float32))

    @torch.no_grad()
    def score_histories(self, histories: Ratings) -> Tensor:
        """Return the scores of all items for some histories, ``[H, n_items]``."""
        return self.score_values(self.values_of(histories))

    @torch.no_grad()
    def score_all(self, users: Tensor) -> Tensor:
        """Return the scores of all items for some training users, ``[Q, n_items]``."""
        return self.score_values(some_of(self.history, users.cpu().numpy()))

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        """Return the scores of a batch, ``[Q, L]``, to the bit those of `score_all`."""
        users, place = torch.unique(batch.query, return_inverse=True)
        scores = torch.empty(batch.item.shape)
        for start in range(0, len(users), BLOCK):
            some = users[start : start + BLOCK]
            row = ((place >= start) & (place < start + len(some))).nonzero()[:, 0]
            found = self.score_all(some)[place[row] - start]
            scores[row] = found.gather(1, batch.item[row].long())
        return scores

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load weights as any module does, then refuse those that cannot be scored with."""
        found = super().load_state_dict(*args, **kwargs)
        self.check_weights()
        return found

    def check_weights(self) -> None:
        """Refuse weights that would be read outside of a table."""


def some_of(ratings: Ratings, users: NDArray[np.integer]) -> Ratings:
    """Return the ratings of some users, in the order of `users`."""
    count = np.diff(ratings.offsets)[users]
    offsets = np.concatenate([[0], np.cumsum(count)])
    slot = np.arange(offsets[-1]) + np.repeat(ratings.offsets[users] - offsets[:-1], count)
    return Ratings(offsets, ratings.item[slot], ratings.rating[slot])


def pieces_of(values: Ratings) -> Iterator[tuple[int, Ratings]]:
    """Yield the first user of each piece of work, and the histories of the piece."""
    for start in range(0, len(values.offsets) - 1, PIECE):
        offsets = values.offsets[start : start + PIECE + 1]
        slots = slice(offsets[0], offsets[-1])
        own = Ratings(offsets - offsets[0], values.item[slots], values.rating[slots])
        yield start, own


class Ease(HistoryScorer):
    """EASE: a linear model from items to items that never predicts an item from itself."""

    weight: Tensor

    def __init__(self, n_items: int, *, graded: bool = False) -> None:
        super().__init__(n_items, graded=graded)
        # numpy's zeros take no memory before they are written to
        empty = torch.from_numpy(np.zeros((n_items, n_items), np.float32))
        self.register_buffer("weight", empty)

    def score_values(self, values: Ratings) -> Tensor:
        """Return x B."""
        scores = torch.empty(len(values.offsets) - 1, self.n_items)
        out, weight = scores.numpy(), self.weight.numpy()
        run_all(
            [
                partial(
                    _add_rows,
                    own.offsets,
                    own.item,
                    own.rating,
                    weight,
                    out[start : start + PIECE],
                )
                for start, own in pieces_of(values)
            ]
        )
        return scores


@torch.no_grad()
def fit_ease(scorer: Ease, gram: Tensor, ridge: float) -> None:
    """Fit EASE to the Gram matrix of the training histories, which is left as it is.

    B minimises |X - X B|^2 + ridge |B|^2 among matrices with a diagonal of zeros.
    """
    weight = scorer.weight
    weight.copy_(gram)
    weight.diagonal().add_(ridge)
    invert_in_place(weight)  # P
    weight /= -weight.diagonal().clone()  # column j by -P_jj
    weight.fill_diagonal_(0)


@compiled
def _add_rows(
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    value: NDArray[np.float32],
    weight: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Fill each row of `out` with the sum of a history's rows of `weight`, four at a time."""
    for row in range(len(out)):
        total = out[row]
        for column in range(len(total)):
            total[column] = 0
        slot, stop = offsets[row], offsets[row + 1]
        while slot + 4 <= stop:
            a, b = weight[item[slot]], weight[item[slot + 1]]
            c, d = weight[item[slot + 2]], weight[item[slot + 3]]
            v, w, x, y = value[slot], value[slot + 1], value[slot + 2], value[slot + 3]
            for column in range(len(total)):
                total[column] += v * a[column] + w * b[column] + x * c[column] + y * d[column]
            slot += 4
        while slot < stop:
            a, v = weight[item[slot]], value[slot]
            for column in range(len(total)):
                total[column] += v * a[column]
            slot += 1


class Ials(HistoryScorer):
    """Implicit ALS: a vector per item, and a user's vector solved from the history.

    Args:
        n_items: Number of items.
        width: Length of the vectors.
        ridge: Weight of the squared length of a vector.
        confidence: In an item whose value is the largest, beyond the 1 that all items have.
        graded: As in `HistoryScorer`.
    """

    factors: Tensor

    def __init__(
        self, n_items: int, *, width: int, ridge: float, confidence: float, graded: bool = False
    ) -> None:
        super().__init__(n_items, graded=graded)
        self.ridge, self.confidence = ridge, confidence
        self.register_buffer("factors", torch.zeros(n_items, width))

    def score_values(self, values: Ratings) -> Tensor:
        """Return Y p, solved in float64."""
        factors = self.factors.double()

        def ridged() -> Tensor:
            return factors.T @ factors + self.ridge * torch.eye(factors.shape[1])

        def scores(own: Ratings, gram: Tensor) -> Tensor:
            # A piece that is not full has users without a history at its end.
            count = len(own.offsets) - 1
            matrix = gram.repeat(PIECE, 1, 1)
            right = torch.zeros(PIECE, factors.shape[1], 1, dtype=torch.float64)
            confidence = self.confidence / self.unit * own.rating.astype(np.float64)
            _add_equations(
                own.offsets,
                own.item,
                confidence,
                factors.numpy(),
                matrix.numpy(),
                right.numpy(),
            )
            user = torch.cholesky_solve(right, torch.linalg.cholesky(matrix))[..., 0]
            return (user @ factors.T)[:count].float()

        (gram,) = run_all([ridged])
        return torch.cat(run_all([partial(scores, own, gram) for _, own in pieces_of(values)]))


@compiled
def _add_equations(
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    confidence: NDArray[np.float64],
    factors: NDArray[np.float64],
    matrix: NDArray[np.float64],
    right: NDArray[np.float64],
) -> None:
    """Add Y'(C - 1)Y and Y'C 1 of each user; items of no confidence add nothing."""
    width = factors.shape[1]
    for row in range(len(offsets) - 1):
        for slot in range(offsets[row], offsets[row + 1]):
            more, vector = confidence[slot], factors[item[slot]]
            if more > 0:
                for one in range(width):
                    scaled = more * vector[one]
                    right[row, one, 0] += vector[one] + scaled
                    for other in range(width):
                        matrix[row, one, other] += scaled * vector[other]


def als_steps(scorer: Ials, *, iterations: int, done: int, seed: int) -> Iterator[None]:
    """Fit the vectors of items by `implicit`; yield after each iteration that is not done yet.

    An iteration depends on the vectors of items alone, which the scorer has.
    """
    als = implicit_module("cpu.als")
    with _quiet_on_one_thread():
        model = als.AlternatingLeastSquares(
            factors=scorer.factors.shape[1],
            regularization=scorer.ridge,
            use_cg=False,  # exact, so that nothing is remembered of the users' vectors
            iterations=1,
            num_threads=1,
            random_state=seed,
        )
    matrix = _sparse(scorer, lambda value: 1 + scorer.confidence / scorer.unit * value)
    if done:
        model.item_factors = scorer.factors.numpy().copy()
    for _ in range(done, iterations):
        with _quiet_on_one_thread():
            model.fit(matrix, show_progress=False)
        scorer.factors.copy_(torch.from_numpy(model.item_factors))
        yield


class ItemKnn(HistoryScorer):
    """Nearest neighbours of items: a history's similarities to each item, added up.

    Args:
        n_items: Number of items.
        neighbours: Of each item, at most.
        graded: As in `HistoryScorer`.
    """

    neighbour: Tensor
    similarity: Tensor

    def __init__(self, n_items: int, *, neighbours: int, graded: bool = False) -> None:
        super().__init__(n_items, graded=graded)
        shape = (n_items, min(neighbours, max(n_items - 1, 1)))
        self.register_buffer("neighbour", torch.zeros(shape, dtype=torch.int32))
        self.register_buffer("similarity", torch.zeros(shape))  # 0 past the last neighbour

    def score_values(self, values: Ratings) -> Tensor:
        """Return x S."""
        scores = torch.zeros(len(values.offsets) - 1, self.n_items)
        out, tables = scores.numpy(), (self.neighbour.numpy(), self.similarity.numpy())
        run_all(
            [
                partial(_add_neighbours, own.offsets, own.item, own.rating, tables, out[start:])
                for start, own in pieces_of(values)
            ]
        )
        return scores

    def check_weights(self) -> None:
        """Refuse neighbours that are no items."""
        if ((self.neighbour < 0) | (self.neighbour >= self.n_items)).any():
            raise InputError("'neighbour' has numbers of items that do not exist")


@compiled
def _add_neighbours(
    offsets: NDArray[np.int64],
    item: NDArray[np.int32],
    value: NDArray[np.float32],
    tables: tuple[NDArray[np.int32], NDArray[np.float32]],
    out: NDArray[np.float32],
) -> None:
    """Add the similarities of each history's neighbours to a row of zeros."""
    neighbour, similarity = tables
    for row in range(len(offsets) - 1):
        for slot in range(offsets[row], offsets[row + 1]):
            for place in range(neighbour.shape[1]):
                other = neighbour[item[slot], place]
                out[row, other] += value[slot] * similarity[item[slot], place]


def fit_item_knn(scorer: ItemKnn, similarity: Similarity) -> None:
    """Fill in the nearest neighbours of each item, found by `implicit`.

    Args:
        scorer: The model.
        similarity: Of two items: the cosine of their ratings, also with ratings weighted by
            TF-IDF or BM25.
    """
    names = {
        "cosine": "CosineRecommender",
        "tfidf": "TFIDFRecommender",
        "bm25": "BM25Recommender",
    }
    width = scorer.neighbour.shape[1]
    neighbours = implicit_module("nearest_neighbours")
    with _quiet_on_one_thread():
        # One more, since an item is its own neighbour there.
        model = getattr(neighbours, names[similarity])(K=width + 1, num_threads=1)
        model.fit(_sparse(scorer, lambda value: value), show_progress=False)
    found = model.similarity.tocoo()
    apart = (found.row != found.col) & (found.data > 0)
    row, column, value = found.row[apart], found.col[apart], found.data[apart]
    order = np.lexsort((column, -value, row))  # of equal similarities the lower item first
    row = row[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = place < width
    slot = (torch.from_numpy(row[kept]).long(), torch.from_numpy(place[kept]))
    scorer.neighbour.zero_()
    scorer.similarity.zero_()
    scorer.neighbour[slot] = torch.from_numpy(column[order][kept]).int()
    scorer.similarity[slot] = torch.from_numpy(value[order][kept]).float()


class Popularity(HistoryScorer):
    """The number of training ratings of each item, for whatever history."""

    count: Tensor

    def __init__(self, n_items: int) -> None:
        super().__init__(n_items)
        self.register_buffer("count", torch.zeros(n_items))

    def score_values(self, values: Ratings) -> Tensor:
        """Return the same scores for each history."""
        return self.count.expand(len(values.offsets) - 1, -1)


def fit_popularity(scorer: Popularity) -> None:
    """Count the training ratings of each item."""
    count = np.bincount(scorer.history.item, minlength=scorer.n_items)
    scorer.count.copy_(torch.from_numpy(count))


def implicit_module(name: str) -> ModuleType:
    """Return a module of the package `implicit`, refused in a sentence where it is missing."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return import_module(f"{IMPLICIT}.{name}")
    except ImportError as error:
        raise InputError(
            "ials and item-knn are fitted by the package implicit; install it with: pip "
            "install fairtopk[models]"
        ) from error


@contextmanager
def _quiet_on_one_thread() -> Iterator[None]:
    """Silence advice of `implicit`, and give BLAS one thread: its sums depend on the number."""
    with (
        warnings.catch_warnings(action="ignore"),
        import_module("threadpoolctl").threadpool_limits(1, "blas"),
    ):
        yield


def _sparse(scorer: HistoryScorer, change: Any) -> Any:
    """Return the training histories as a sparse matrix, with values changed."""
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

    history = scorer.history
    kept = kept_ratings(history, history.rating > 0)
    shape = (len(kept.offsets) - 1, scorer.n_items)
    return csr_matrix((change(kept.rating), kept.item, kept.offsets), shape=shape)
