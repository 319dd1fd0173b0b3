"""What things are called on a page, and what they mean.

What the names in an audit mean, in words.
"""

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


SHOWN = {
    "ndcg": "NDCG",
    "exposure_gap": "exposure gap (Eq. 9)",
    "exposure_gap_signed": "  signed",
    "exposure_gap_floor": "  by chance",
    "rank_exposure_gap": "exposure gap by rank",
    "rank_exposure_gap_signed": "  signed",
    "rank_exposure_gap_floor": "  by chance",
    "representation_gap": "gap in share of the top",
    "representation_gap_signed": "  signed",
    "representation_gap_floor": "  by chance",
    "rsp": "statistical parity (RSP)",
    "reo": "equal opportunity (REO)",
    "rsp_split": "RSP of the groups in labels",
    "reo_split": "REO of the groups in labels",
}


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


DEFINITIONS = {
    "ndcg": "sum of (2^relevance - 1) / log2(1 + rank) over the top K, over that of the best "
    "order of the same list; undefined for a list without a relevant item",
    "score_spread": "population standard deviation of the scores of a list: softmax exposure "
    "shrinks with it although the order stays the same",
    "rank_exposure": "what a group gets: sum of 1 / log2(1 + rank) over its items in the top "
    "K, over the number of its items in the whole list",
    "representation": "number of a group's items in the top K, over the number of its items in "
    "the whole list",
    "impact_ratio": "mean rank exposure of the group that gets least over that of the group "
    "that gets most, each over the lists that have it; at most 1; its interval is that of "
    "these two groups, the same in all resamples: one that holds 1 leaves open who gets more; "
    "the four-fifths rule asks for 0.8",
    "ratio_to_most": "mean rank exposure of a group over that of the group that gets most, "
    "which is the same group in all resamples: an interval that holds 1 leaves open who gets "
    "more",
    "rank_exposure_gap": "difference between groups in rank exposure, per list; with three or "
    "more groups the largest between two that the list has",
    "representation_gap": "the same difference in representation",
    "exposure_gap": "the same difference in softmax exposure (Eq. 9): softmax of the scores "
    "over the whole list, summed over a group's items in the top K, over the number of its "
    "items in the whole list",
    "exposure_gap_released": "the same difference as the authors' code computes it: softmax "
    "over the top K alone, mean over a group's items there, 0 without one",
    "signed": "named group less all other known groups taken together: above 0 it is favoured; "
    "the named group is the one with the fewest rows",
    "floor": "mean gap that is left if the known labels of each list are shuffled: what chance "
    "alone does, however fair the order",
    "p": "how often such shuffles give a mean signed gap at least as far from what is expected "
    "of them, the observed one counted as one (two-sided); never below 1 / (shuffles + 1)",
    "impact_ratio_p": "how often such shuffles give an impact ratio as low or lower; "
    "expected is their mean, which is below 1 too, the more so the fewer the lists",
    "ci95": "95 % interval by bootstrap over lists, 1,000 resamples",
    "undefined": "lists for which a metric is undefined, such as those that lack two groups; "
    "they are left out of its mean",
    "tied": "lists in which the order of rows decides a metric: items that differ in group "
    "(for ndcg in relevance) have equal scores or ranks, on both sides of the cut, or for "
    "metrics that weigh places (ndcg, impact_ratio, rank_exposure_gap) anywhere in the top; of "
    "equals the earlier row is first; tied_at_cut are those with equals on both sides of it",
    "share_at_rank": "share of the lists that have this place in which the group holds it",
    "exposure_to_rank": "the group's share of 1 / log2(1 + rank) summed over the places up to "
    "this one of all lists",
}
SOFTMAX = ("score_spread", "exposure_gap", "exposure_gap_released")
