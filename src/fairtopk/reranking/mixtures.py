"""The best mixture of rankings of one list whose groups get the same.

A doubly stochastic matrix is a mixture of rankings (Birkhoff and von Neumann), and few of them
matter. So instead of n^2 probabilities the program has the weight of each ranking found so far.
The dual prices of its solution say what an item's exposure is worth; sorting by that gives the
ranking that improves the solution most. When none does, the mixture is the optimum over all
matrices.

With two groups there is one price, and two rankings are enough: that needs no solver.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairtopk.reranking.solvers import scipy_solver

TOLERANCE = 1e-9
SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}

Floats = NDArray[np.float64]
Ranking = NDArray[np.int64]  # items from the first place to the last
Mixture = tuple[NDArray[np.int64], Floats]  # rankings ``[R, n]``, and their weights


class Program(NamedTuple):
    """The linear program of one list of n items.

    Attributes:
        utility: What exposure of each item is worth, 1 in size at most, ``[n]``.
        rates: What exposure of each item gives to each group, ``[G, n]``.
        discount: Exposure at the places of the top K, ``[K]``.
        slack: By how much two groups may differ.
    """

    utility: Floats
    rates: Floats
    discount: Floats
    slack: float


class Vertex(NamedTuple):
    """A ranking, its utility, and by how much the one group gets more than the other."""

    ranking: Ranking
    utility: float
    gap: float


def best_mixture(program: Program) -> Mixture | None:
    """Return the rankings, and their weights, of a solution; None if there is none."""
    if len(program.rates) < 2:
        return _sorted_by(program.utility)[None], np.ones(1)
    if len(program.rates) == 2:
        return _of_two_groups(program)
    return _of_several_groups(program)


def _of_two_groups(program: Program) -> Mixture | None:
    """Return the solution where one difference is limited, that of the two groups.

    Of the line through a ranking above the limit and one below it, the slope is a price of the
    difference. A ranking that is worth more at that price takes the place of one of the two;
    if there is none, no mixture is better than that of the two which is at the limit.
    """
    difference, slack = program.rates[0] - program.rates[1], program.slack
    best = _vertex(_sorted_by(program.utility), difference, program)
    if abs(best.gap) <= slack:
        return best.ranking[None], np.ones(1)
    if best.gap < 0:
        difference, best = -difference, best._replace(gap=-best.gap)
    above = best
    below = _vertex(np.lexsort((-program.utility, difference)), difference, program)
    if below.gap > slack + TOLERANCE:
        return None
    slack = max(slack, below.gap)
    while True:
        price = (above.utility - below.utility) / (above.gap - below.gap)
        found = _vertex(_sorted_by(program.utility - price * difference), difference, program)
        worth, most = (one.utility - price * one.gap for one in (found, above))
        if worth <= most + TOLERANCE:
            break
        if found.gap > slack:
            above = found
        else:
            below = found
    share = (slack - below.gap) / (above.gap - below.gap)
    weights = np.array([share, 1 - share])
    used = weights > TOLERANCE
    return np.stack([above.ranking, below.ranking])[used], weights[used] / weights[used].sum()


def _of_several_groups(program: Program) -> Mixture | None:
    linprog = scipy_solver("linprog", purpose="exposure-lp of three groups or more")
    rankings = [_sorted_by(price) for price in (program.utility, *program.rates)]
    lowest = _improve(rankings, program, linprog, allowed=None)
    if lowest.x[-1] > TOLERANCE:
        return None
    solved = _improve(rankings, program, linprog, allowed=lowest.x[-1])
    weights = solved.x[:-2]
    used = weights > TOLERANCE
    kept: Floats = weights[used] / weights[used].sum()
    return np.stack(rankings[: len(weights)])[used], kept


def _improve(
    rankings: list[Ranking], program: Program, linprog: Any, *, allowed: float | None
) -> Any:
    """Return the solver's result once no further ranking improves it; adds those that do.

    The unknowns are the rankings' weights, what each group gets at least, and by how much
    groups may differ beyond the slack. Without an `allowed` value of the last, it is what is
    minimised; else the utility is maximised.
    """
    utility = np.zeros_like(program.utility) if allowed is None else program.utility
    n_groups = len(program.rates)
    bounds_beyond = (0.0, allowed)
    limits = np.repeat([program.slack, 0.0], n_groups)
    ones = np.ones((n_groups, 1))
    while True:
        exposure = np.stack([_exposure(ranking, program) for ranking in rankings])
        gets = program.rates @ exposure.T
        solved = linprog(
            np.concatenate([-exposure @ utility, [0.0, float(allowed is None)]]),
            A_ub=np.block([[gets, -ones, -ones], [-gets, ones, -ones]]),
            b_ub=limits,
            A_eq=np.append(np.ones(len(rankings)), [0.0, 0.0])[None],
            b_eq=[1.0],
            bounds=[(0.0, None)] * len(rankings) + [(None, None), bounds_beyond],
            options=SOLVER,
        )
        if not solved.success:
            raise RuntimeError(f"the solver gave up on an exposure program: {solved.message}")
        upper, lower = np.split(solved.ineqlin.marginals, 2)
        price = utility + (upper - lower) @ program.rates
        ranking = _sorted_by(price)
        gain = price @ _exposure(ranking, program) + solved.eqlin.marginals[0]
        if gain <= TOLERANCE or (allowed is None and solved.x[-1] <= TOLERANCE):
            return solved
        # Where prices are large, what it seems to gain is rounding.
        if any(np.array_equal(ranking, known) for known in rankings):
            return solved
        rankings.append(ranking)


def _vertex(ranking: Ranking, difference: Floats, program: Program) -> Vertex:
    top = ranking[: len(program.discount)]
    utility, gap = (
        float(rate[top] @ program.discount) for rate in (program.utility, difference)
    )
    return Vertex(ranking, utility, gap)


def _sorted_by(price: Floats) -> Ranking:
    return (-price).argsort(kind="stable")


def _exposure(ranking: Ranking, program: Program) -> Floats:
    """Return the exposure of each item in a ranking, ``[n]``."""
    exposure = np.zeros(len(ranking))
    exposure[ranking[: len(program.discount)]] = program.discount
    return exposure
