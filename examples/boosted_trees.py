"""Boosted trees that rank fairly, by LightGBM: ``python examples/boosted_trees.py``.

LightGBM asks an objective for its gradient and the diagonal of its Hessian with respect to the
scores. KSO-RED gives the first in closed form; the second only has to be positive, and a
constant makes each tree a step of plain gradient boosting. Groups are needed to train, never to
rank. Needs ``pip install "fairtopk[lightgbm]"``.
"""

import lightgbm
import numpy as np
import torch
from numpy.typing import NDArray

import fairtopk as ft

LENGTH, K = 30, 10  # candidates of a query, of whom the first K are seen
HESSIAN = 0.1  # the smaller, the longer the steps
Array = NDArray[np.float64]


def candidates(n_queries: int, seed: int) -> tuple[Array, torch.Tensor, torch.Tensor, Array]:
    """Return features, grades, groups and merit; group 0 is graded one lower than it merits."""
    rng = np.random.default_rng(seed)
    group = rng.random((n_queries, LENGTH)) > 0.3
    merit, *noise = rng.normal(size=(4, n_queries, LENGTH))
    # One feature tells of merit, one tells the groups apart, one tells nothing.
    features = np.stack([merit + 0.3 * noise[0], group + 0.5 * noise[1], noise[2]], axis=-1)
    grade = np.clip(np.round(merit + group), 0, 3)
    fair = np.clip(np.round(merit + 1), 0, 3)
    return features.reshape(-1, 3), torch.tensor(grade), torch.tensor(group).long(), fair


def train(c_relative: float) -> lightgbm.Booster:
    """Return trees that were trained with this weight of the penalty."""
    features, relevance, groups, _ = candidates(300, seed=0)
    # Each round sees every list, so that nothing has to be remembered: no ids.
    loss = ft.losses.KsoRed(k=K, c_relative=c_relative)

    def objective(scores: Array, _: lightgbm.Dataset) -> tuple[Array, Array]:
        given = torch.tensor(scores).reshape(-1, LENGTH).requires_grad_()
        loss(given, relevance, groups).backward()
        gradient = len(given) * given.grad.numpy().ravel()  # of the sum over lists
        return gradient, np.full_like(gradient, HESSIAN)

    settings = {"objective": objective, "num_leaves": 15, "verbose": -1, "seed": 0}
    return lightgbm.train(settings, lightgbm.Dataset(features), num_boost_round=60)


def main() -> None:
    """Print what trees make of new lists, without and with the penalty."""
    features, relevance, groups, fair = candidates(300, seed=1)
    for c_relative in (0.0, 1.0):
        scores = train(c_relative).predict(features).reshape(-1, LENGTH)
        ndcg, merit = (ft.metrics.ndcg(scores, one, k=K).nanmean() for one in (relevance, fair))
        gap = ft.metrics.rank_exposure_gap(scores, groups, k=K, signed=True).nanmean()
        print(f"c_relative {c_relative}: ndcg {ndcg:.3f}, by merit {merit:.3f}, gap {gap:+.3f}")


if __name__ == "__main__":
    main()
