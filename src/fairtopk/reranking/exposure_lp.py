"""Fair exposure in expectation (Singh and Joachims, 2018): the best random ranking of a list.

A doubly stochastic P has the probability of each item to be at each place. With relevance u and
v_j = 1 / log2(1 + j) for the places of the top K, else 0, it maximises u^T P v such that what
the groups get differs by no more than the slack. What a group gets is, for

* parity: the mean exposure of its items, (P v)_i;
* treatment: that, over the mean relevance of the group;
* impact: the mean of u_i (P v)_i, over the mean relevance of the group.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.functional.ranking import order
from fairtopk.kernels.draws import draws
from fairtopk.reranking.lists import Candidates, Outcome, Policy
from fairtopk.reranking.mixtures import Floats, Mixture, Program, best_mixture
from fairtopk.reranking.settings import ExposureProgram

RANKING = 2**36  # first key of the streams that choose a ranking


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
        policy = _policy(slot, mixture or (np.arange(len(items))[None], np.ones(1)), k)
        ranking = (policy.probability.cumsum(0)[:-1] <= chance[query]).sum()
        drawn[query] = policy.slot[ranking]
        policies.append(policy)

    def why(query: int) -> str:
        return (
            f"has no random ranking whose groups get the same by {settings.notion}, within "
            f"{settings.slack:g}; raise the slack or choose another notion"
        )

    return Outcome(drawn, met, why, tuple(policies))


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


def _policy(slot: Tensor, mixture: Mixture, k: int) -> Policy:
    """Return the policy over the slots of a list whose items are ranked, the likeliest first.

    Behind the top, where nothing is gained or lost, items are in the order of their scores.
    """
    rankings, weights = mixture
    rankings[:, k:].sort(axis=-1)
    falling = (-weights).argsort(kind="stable")
    order = torch.arange(len(slot)).repeat(len(weights), 1)
    order[:, : rankings.shape[1]] = torch.from_numpy(rankings[falling])
    return Policy(slot[order], torch.from_numpy(weights[falling]))
