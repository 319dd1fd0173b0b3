"""Fair exposure in expectation (Singh and Joachims, 2018): the best random ranking.

A doubly stochastic P has the probability of each item to be at each place. With relevance u and
v_j = 1 / log2(1 + j) for the places of the top K, else 0, it maximises u^T P v such that what
the groups get differs by no more than the slack. What a group gets is, for

* parity: the mean exposure of its items, (P v)_i;
* treatment: that, over the mean relevance of the group;
* impact: the mean of u_i (P v)_i, over the mean relevance of the group.

P is a mixture of rankings (Birkhoff and von Neumann), and few of them matter. So instead of n^2
probabilities the program has the weight of each ranking found so far. The dual prices of its
solution say what an item's exposure is worth; sorting by that gives the ranking that improves
the solution most. When none does, the mixture is the optimum over all matrices. With two groups
there is one price, and two rankings are enough: that needs no solver.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.kernels.random import draws
from fairtopk.lists.batch import order
from fairtopk.reranking.lists import Candidates, ExposureProgram, Outcome, Policy

TOLERANCE = 1e-9
SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
Floats = NDArray[np.float64]
Ranking = NDArray[np.int64]  # items from the first place to the last
Mixture = tuple[NDArray[np.int64], Floats]  # rankings ``[R, n]``, and their weights
RANKING = 2**36  # first key of the streams that choose a ranking
DUST = 1e-9  # an entry below this is rounding
SUM_TOLERANCE = 1e-5


class Program(NamedTuple):
    """The linear program of one list of n items."""

    utility: Floats  # worth of each item's exposure, 1 in size at most, [n]
    rates: Floats  # what each item's exposure gives to each group, [G, n]
    discount: Floats  # exposure at the places of the top K, [K]
    slack: float  # by how much two groups may differ


class Vertex(NamedTuple):
    """A ranking, its utility, and by how much the one group gets more than the other."""

    ranking: Ranking
    utility: float
    gap: float


def best_mixture(program: Program) -> Mixture | None:
    """Return the rankings, and their weights, of a solution; None if there is none.

    With two groups one difference is limited. Of the line through a ranking above the limit and
    one below it, the slope is a price of the difference. A ranking that is worth more at that
    price takes the place of one of the two; if there is none, no mixture is better than that of
    the two which is at the limit.
    """
    by_utility = (-program.utility).argsort(kind="stable")
    if len(program.rates) < 2:
        return by_utility[None], np.ones(1)
    if len(program.rates) > 2:
        return _of_several_groups(program)
    difference, slack = program.rates[0] - program.rates[1], program.slack
    best = _vertex(by_utility, difference, program)
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
        worth = program.utility - price * difference
        found = _vertex((-worth).argsort(kind="stable"), difference, program)
        gained, most = (one.utility - price * one.gap for one in (found, above))
        if gained <= most + TOLERANCE:
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
    prices = (program.utility, *program.rates)
    rankings = [(-price).argsort(kind="stable") for price in prices]
    lowest = _improve(rankings, program, allowed=None)
    if lowest.x[-1] > TOLERANCE:
        return None
    solved = _improve(rankings, program, allowed=lowest.x[-1])
    weights = solved.x[:-2]
    used = weights > TOLERANCE
    kept: Floats = weights[used] / weights[used].sum()
    return np.stack(rankings[: len(weights)])[used], kept


def _improve(rankings: list[Ranking], program: Program, *, allowed: float | None) -> Any:
    """Return the solver's result once no further ranking improves it; adds those that do.

    The unknowns are the rankings' weights, what each group gets at least, and by how much
    groups may differ beyond the slack. Without an `allowed` value of the last, it is minimised;
    else the utility is maximised.
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    utility = np.zeros_like(program.utility) if allowed is None else program.utility
    limits = np.repeat([program.slack, 0.0], len(program.rates))
    ones = np.ones((len(program.rates), 1))
    while True:
        exposure = np.stack([_exposure(ranking, program) for ranking in rankings])
        gets = program.rates @ exposure.T
        solved = linprog(
            np.concatenate([-exposure @ utility, [0.0, float(allowed is None)]]),
            A_ub=np.block([[gets, -ones, -ones], [-gets, ones, -ones]]),
            b_ub=limits,
            A_eq=np.append(np.ones(len(rankings)), [0.0, 0.0])[None],
            b_eq=[1.0],
            bounds=[(0.0, None)] * len(rankings) + [(None, None), (0.0, allowed)],
            options=SOLVER,
        )
        if not solved.success:
            raise RuntimeError(f"the solver gave up on an exposure program: {solved.message}")
        upper, lower = np.split(solved.ineqlin.marginals, 2)
        price = utility + (upper - lower) @ program.rates
        ranking = (-price).argsort(kind="stable")
        gain = price @ _exposure(ranking, program) + solved.eqlin.marginals[0]
        if gain <= TOLERANCE or (allowed is None and solved.x[-1] <= TOLERANCE):
            return solved
        # With large prices a known ranking may seem to gain; that is rounding.
        if any(np.array_equal(ranking, known) for known in rankings):
            return solved
        rankings.append(ranking)


def _vertex(ranking: Ranking, difference: Floats, program: Program) -> Vertex:
    top = ranking[: len(program.discount)]
    utility, gap = (
        float(rate[top] @ program.discount) for rate in (program.utility, difference)
    )
    return Vertex(ranking, utility, gap)


def _exposure(ranking: Ranking, program: Program) -> Floats:
    """Return the exposure of each item in a ranking, ``[n]``."""
    exposure = np.zeros(len(ranking))
    exposure[ranking[: len(program.discount)]] = program.discount
    return exposure


def exposure_lp(lists: Candidates, k: int, settings: ExposureProgram) -> Outcome:
    """Return lists drawn from the best random rankings whose groups get the same.

    A list without such a ranking stays in the order of its scores.
    """
    negative = (lists.relevance < 0) & lists.mask
    if settings.notion != "parity" and negative.any():
        query, slot = negative.nonzero()[0].tolist()
        raise InputError(
            f"{settings.notion} divides by relevance, which must not be negative, got "
            f"{lists.relevance[query, slot]:g} in list {query}, slot {slot}; pass relevance "
            f"if scores are none"
        )
    slots = order(lists.scores, lists.mask)
    chance = torch.from_numpy(draws(settings.seed, RANKING, lists.query.numpy()))
    drawn, policies = torch.empty_like(slots), []
    met = torch.ones(len(slots), dtype=torch.bool)
    for query, slot in enumerate(slots):
        items = slot[: int(lists.mask[query].sum())]
        merit = lists.relevance[query, items].double().numpy()
        program = _program(merit, lists.group[query, items].numpy(), k, settings)
        mixture = None if program is None else best_mixture(program)
        met[query] = mixture is not None
        rankings, weights = mixture or (np.arange(len(items))[None], np.ones(1))
        # Behind the top, where nothing is gained or lost, items keep the order of their scores.
        rankings[:, k:].sort(axis=-1)
        likeliest = (-weights).argsort(kind="stable")
        place = torch.arange(len(slot)).repeat(len(weights), 1)  # padding stays last
        place[:, : rankings.shape[1]] = torch.from_numpy(rankings[likeliest])
        policy = Policy(slot[place], torch.from_numpy(weights[likeliest]))
        ranking = (policy.probability.cumsum(0)[:-1] <= chance[query]).sum()
        drawn[query] = policy.slot[ranking]
        policies.append(policy)
    why = (
        f"has no random ranking whose groups get the same by {settings.notion}, within "
        f"{settings.slack:g}; raise the slack or choose another notion"
    )
    return Outcome(drawn, met, lambda _: why, tuple(policies))


def _program(
    relevance: Floats, group: NDArray[np.int16], k: int, settings: ExposureProgram
) -> Program | None:
    """Return the program of a list; None where a group has no relevance to divide by."""
    discount = 1 / np.log2(2 + np.arange(min(k, len(group))))
    # Exposure adds up to the same in every ranking, so that a shift changes no optimum.
    utility = relevance - relevance.mean() if len(relevance) else relevance
    utility = utility / max(np.abs(utility).max(initial=0.0), np.finfo(np.float64).tiny)
    present = np.unique(group[group >= 0])
    rates = (group == present[:, None]).astype(np.float64)
    if len(present) < 2:
        return Program(utility, rates[:0], discount, settings.slack)
    if settings.notion == "parity":
        rates /= rates.sum(-1, keepdims=True)
        return Program(utility, rates, discount, settings.slack)
    merit = rates @ relevance
    if merit.min() <= 0:
        return None
    if settings.notion == "impact":
        rates *= relevance
    # In units of the list's mean relevance: the solver's tolerances are absolute.
    unit = relevance.mean()
    return Program(utility, rates * unit / merit[:, None], discount, settings.slack * unit)


def birkhoff(matrix: Tensor | NDArray[np.floating]) -> Policy:
    """Return rankings with probabilities whose `Policy.matrix` is `matrix`, but for rounding.

    A matrix of n slots has at most (n - 1)^2 + 1 rankings.

    Args:
        matrix: The probability of each slot to be at each place, ``[n, n]``.

    Example:
        >>> policy = birkhoff(torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
        >>> policy.slot.tolist(), policy.probability.tolist()
        ([[0, 1], [1, 0]], [0.75, 0.25])
    """
    from scipy.optimize import linear_sum_assignment

    try:
        left = torch.as_tensor(matrix).detach().cpu().double().numpy().copy()
    except (TypeError, ValueError, RuntimeError):
        raise InputError("matrix must be a square tensor or array of numbers") from None
    if left.ndim != 2 or left.shape[0] != left.shape[1] or left.size == 0:
        raise InputError(
            f"matrix must have as many rows as columns, got shape {list(left.shape)}"
        )
    sums = np.concatenate([left.sum(0), left.sum(1)])
    if not (np.abs(sums - 1) < SUM_TOLERANCE).all() or left.min() < -SUM_TOLERANCE:
        raise InputError(
            f"matrix must have rows and columns of probabilities that add up to 1, got sums "
            f"from {sums.min():g} to {sums.max():g} and entries from {left.min():g}"
        )
    rankings, weights = [], []
    while True:
        # The best assignment avoids what is used up if that is possible at all; its entries are
        # large, so that it takes much away.
        slot, place = linear_sum_assignment(
            np.where(left > DUST, left, -len(left)), maximize=True
        )
        entries = left[slot, place]
        weight = entries.min()
        if weight <= DUST:
            break
        rankings.append(slot[place.argsort()])
        weights.append(weight)
        left[slot, place] = entries - weight
    probability = torch.tensor(weights, dtype=torch.float64)
    return Policy(torch.from_numpy(np.stack(rankings)), probability / probability.sum())
