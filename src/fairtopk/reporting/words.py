"""What things are called on a page, and what they mean."""

from typing import Any

MSE = "_mse"
GAPS = {
    "exposure_gap": "Exposure (Eq. 9)",
    "exposure_gap_released": "Exposure, as released",
    "rank_exposure_gap": "Exposure by rank",
    "representation_gap": "Share of the top",
    "rsp": "Parity (RSP)",
    "reo": "Opportunity (REO)",
    "rsp_split": "Parity (RSP), items in several groups",
    "reo_split": "Opportunity (REO), items in several groups",
}
MEANINGS = {
    "NDCG@K": "How good the top K of a list is: gain 2^rating - 1, divided by log2(1 + rank), "
    "over that of the best possible order. 1 is best.",
    "Exposure (Eq. 9)": "Attention is the softmax of the scores over the whole list. A group "
    "gets that of its items in the top K, divided by its number of items in the whole list. "
    "The gap is the difference between groups. It shrinks when scores get flatter, even if the "
    "order stays: look at the gap by rank and at the spread of scores too.",
    "Exposure, as released": "What the paper's released code computes: softmax over the top K "
    "alone, mean over a group's items there, 0 for a group without any.",
    "Exposure by rank": "Attention is 1 / log2(1 + rank) in the top K, added up for a group "
    "and divided by its number of items in the whole list. Only the order counts.",
    "Share of the top": "A group's items in the top K divided by its items in the whole list. "
    "Neither scores nor order within the top count.",
    "Parity (RSP), opportunity (REO)": "The chance of a group is its number of items in the "
    "top K of all lists over its number of items in all lists. RSP is the standard deviation "
    "of the groups' chances over their mean, REO the same of relevant items alone: one value "
    "of all lists together, so there is no sign, no square and no test over lists.",
    "Mean absolute, mean squared": "The gap of each list without its sign, or its square, "
    "averaged over the lists where it is defined: those with two groups. With three groups or "
    "more it is the largest difference between two.",
    "Signed": "Named group minus the rest: below 0, the named group gets less than the rest.",
    "By chance": "Even an order that knows nothing of groups has a gap above 0 in most lists, "
    "since tops are short: the mean gap that is left when labels are shuffled within each "
    "list. A gap no larger than that, or one whose signed mean is near 0, may be chance.",
    "Spread of scores": "Standard deviation of the scores in a list, averaged over lists "
    "(where a run has not measured that, over training lists at the epoch that was kept). If "
    "it falls together with a softmax gap, part of the fall is flattening.",
    "Group AUC": "How well the scores of a list tell its groups apart: the share of pairs of "
    "an item of the named group and one of the rest in which the first has the higher score, "
    "equal scores counting half; the mean over sampled lists that have both. 0.5 is not at "
    "all. A model that takes no groups can still give them away.",
    "Sampled lists, full catalogue": "Sampled: a user's held-out items among items drawn from "
    "those the user never rated. Full: among all of them. The two can rank methods "
    "differently.",
    "Colour-blind": "Trained without a fairness penalty. Of several such models, others are "
    "compared with the one that has the highest NDCG at the first K.",
}
CURVES = {
    "loss": "Loss",
    "ranking": "Ranking loss",
    "penalty": "Penalty",
    "ranking_norm": "Gradient of the ranking loss (norm)",
    "penalty_norm": "Gradient of the penalty (norm)",
    "spread": "Spread of scores",
}

KINDS = {"full": "full catalogue", "sampled": "sampled lists", "whole": "whole lists"}


def gap_words(name: str) -> str:
    """Return what a gap is called; one that this page does not know keeps its name."""
    return GAPS.get(name, name)


def logged_words(name: str) -> str:
    """Return what a number of the log is called."""
    if not name.startswith("valid_"):
        return CURVES.get(name, name)
    metric, _, k = name.removeprefix("valid_").partition("@")
    gap = f"{gap_words(metric)} gap" if metric != "ndcg" else "NDCG"
    return f"Validation: {gap}, K = {k}"


def lists_words(lists: dict[str, Any]) -> str:
    """Return which lists were ranked, in a few words."""
    protocol = lists.get("protocol")
    kind = KINDS.get(str(protocol), protocol)
    some = f" of {lists['users']}" if lists.get("users") else ""
    return f"{lists.get('data')}, {lists.get('part')}, {kind}{some}"


def number(value: float | None) -> str:
    """Return a number as a table shows it."""
    return "\u2013" if value is None or value != value else f"{value:.4g}"
