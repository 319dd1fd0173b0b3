"""By which lists a run is measured beside its own, and on which its epochs are chosen.

A user sees the top of the whole catalogue. What looks fair on sampled lists can be less fair
there, so each run is measured by both protocols, and what was trained for the catalogue is
chosen on it.
"""

from typing import TYPE_CHECKING

from fairtopk.estimators.methods import DISTILL, ROBUST

if TYPE_CHECKING:
    from fairtopk.experiments.config import Config, EvaluationConfig

OTHER = {"sampled": "full", "full": "sampled"}
# By which gap epochs are chosen. On the catalogue Eq. 9 can fall while a group leaves the top.
GAPS = {"sampled": "exposure_gap", "full": "rank_exposure_gap"}


def other_protocol(config: "Config") -> str | None:
    """Return the protocol that is not the run's own; None where there is none."""
    return None if why_no_other(config) else OTHER[config.evaluation.protocol]


def why_no_other(config: "Config") -> str | None:
    """Return why a run can be measured by one protocol alone, in words; None if it cannot."""
    if config.method.name == ROBUST:
        return "robust ranks a list as a whole, and the catalogue is too long for that"
    if config.data.of_documents:
        return "documents are ranked in whole lists: there is no other protocol"
    return None


def trains_on_catalogue(config: "Config") -> bool:
    """Return whether a method learns the order of the catalogue, not of sampled lists."""
    return config.method.name == DISTILL or config.training.lists.top > 0


def with_choice(config: "Config") -> "EvaluationConfig":
    """Return how a run is measured, with on which lists, and by which gap, epochs are chosen.

    Of documents there is one kind of list.
    """
    evaluation, ranks_lists = config.evaluation, why_no_other(config) is not None
    catalogue = trains_on_catalogue(config) and not ranks_lists
    usual = None if config.data.of_documents else "full" if catalogue else "sampled"
    chosen = evaluation.select_on or usual
    gap = evaluation.select_gap or GAPS[chosen or "sampled"]
    return evaluation.model_copy(update={"select_on": chosen, "select_gap": gap})


def misplaced_choice(config: "Config") -> str | None:
    """Return why epochs cannot be chosen on the lists asked for; None if they can."""
    asked = config.evaluation.select_on
    if asked is None or (asked == "sampled" and not config.data.of_documents):
        return None
    why = why_no_other(config)
    return f"{why}; leave out evaluation.select_on" if why else None
