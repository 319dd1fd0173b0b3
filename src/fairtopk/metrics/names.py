"""What metrics and other terms are called on pages and in tables, and what they mean.

One table, `TERMS`, serves the command line, the pages, ``audit.json`` and the model card.
"""

from typing import Any, NamedTuple

MSE = "_mse"


class Term(NamedTuple):
    """A metric, or another word of a report."""

    label: str  # its name in tables and on pages
    definition: str = ""  # what it means, in sentences
    short: str = ""  # its name in narrow columns that compare gaps


TERMS = {
    "ndcg": Term(
        "NDCG",
        "Quality of the top K: the sum of (2^relevance - 1) / log2(1 + rank), divided by that "
        "of the best order of the same list. 1 is best; undefined for a list without a "
        "relevant item.",
    ),
    "exposure_gap": Term(
        "exposure gap (Eq. 9)",
        "Difference between groups in softmax exposure. An item's exposure is the softmax of "
        "the scores over the whole list; a group gets the sum over its items in the top K, "
        "divided by its number of items in the whole list. The gap shrinks when scores get "
        "flatter, even if the order stays the same: read it together with the gap by rank and "
        "the spread of scores.",
        "Eq. 9",
    ),
    "exposure_gap_released": Term(
        "exposure gap (released code)",
        "The same difference as the paper's released code computes it: softmax over the top K "
        "alone, mean over a group's items there, 0 for a group without any.",
        "as released",
    ),
    "rank_exposure_gap": Term(
        "exposure gap by rank",
        "Difference between groups in exposure by rank, which depends on the order alone. With "
        "three or more groups it is the largest difference between two that the list has.",
        "by rank",
    ),
    "representation_gap": Term(
        "selection-rate gap",
        "Difference between groups in selection rate. Neither scores nor the order within the "
        "top K count.",
        "selection rate",
    ),
    "rsp": Term(
        "statistical parity (RSP)",
        "Standard deviation over groups of the selection rate in all lists together, divided "
        "by its mean. One value for all lists: it has no sign, no square and no test over "
        "lists.",
    ),
    "reo": Term("equal opportunity (REO)", "RSP of the relevant items alone."),
    "rsp_split": Term("RSP, items in several groups"),
    "reo_split": Term("REO, items in several groups"),
    "impact_ratio": Term(
        "exposure ratio (impact_ratio)",
        "Mean exposure by rank of the group with the lowest, divided by that of the group with "
        "the highest, each over the lists that have the group. At most 1; the four-fifths rule "
        "demands 0.8. The interval belongs to these two groups, the same in all resamples: if "
        "it contains 1, the data do not show which of them is more exposed.",
    ),
    "ratio_to_most": Term(
        "exposure ratio to the highest",
        "Mean exposure by rank of a group divided by that of the group with the highest, the "
        "same in all resamples: an interval that contains 1 leaves open which is more exposed.",
    ),
    "rank_exposure": Term(
        "exposure",
        "Exposure by rank: the sum of 1 / log2(1 + rank) over a group's items in the top K, "
        "divided by its number of items in the whole list.",
    ),
    "representation": Term(
        "selection rate",
        "The share of a group's items that are in the top K.",
    ),
    "score_spread": Term(
        "spread of scores",
        "Standard deviation of the scores of a list, averaged over lists (over training lists "
        "at the epoch that was kept, if a run has not measured it). If it falls together with "
        "a softmax gap, part of that fall comes from flatter scores.",
    ),
    "group_auc": Term(
        "group AUC",
        "How well scores tell groups apart: the share of pairs of an item of the named group "
        "and another item in which the first has the higher score (ties count half), averaged "
        "over sampled lists with both. 0.5 is not at all. A model that takes no groups as "
        "input can still reveal them.",
    ),
    "signed": Term(
        "signed gap",
        "Named group minus the rest: negative means that the named group is under-exposed. "
        "The named group of an audit is the one with the fewest rows.",
    ),
    "averages": Term(
        "mean absolute, mean squared",
        "The absolute or squared gap of each list, averaged over the lists where it is "
        "defined: those with at least two groups.",
    ),
    "floor": Term(
        "chance level",
        "Mean gap that remains if the known labels of each list are shuffled. It is above 0 "
        "however fair the order, since tops are short. A gap at its chance level, or one whose "
        "signed mean is near 0, may be chance.",
    ),
    "p": Term(
        "p",
        "How often shuffled labels give a mean signed gap at least as far from its expectation "
        "(two-sided; the observed gap counts as one shuffle); never below 1 / (shuffles + 1).",
    ),
    "impact_ratio_p": Term(
        "p of the exposure ratio",
        "How often shuffled labels give an exposure ratio at least as low. Its chance level "
        "(expected) is their mean, which is below 1 as well, the more so the fewer the lists.",
    ),
    "ci95": Term("95 % interval", "By bootstrap over lists, 1,000 resamples."),
    "undefined": Term(
        "undefined",
        "Lists without a value of the metric, such as those with one group only; they are "
        "excluded from its mean.",
    ),
    "tied": Term(
        "tied",
        "Lists in which row order decides a metric: items of different groups (for ndcg: of "
        "different relevance) have equal scores or ranks, on both sides of the cut or, for "
        "metrics that weigh positions (ndcg, impact_ratio, rank_exposure_gap), anywhere in the "
        "top. Ties keep row order. tied_at_cut counts those with a tie across the cut.",
    ),
    "share_at_rank": Term(
        "share at rank", "Share of the lists with this position in which the group holds it."
    ),
    "exposure_to_rank": Term(
        "exposure up to rank",
        "The group's share of 1 / log2(1 + rank), summed over all lists up to this position.",
    ),
    "lists": Term(
        "sampled lists, full catalogue",
        "Sampled: a user's held-out items among items drawn from those the user never rated. "
        "Full: among all of them. The two can rank methods differently.",
    ),
    "colour_blind": Term(
        "colour-blind",
        "Trained without a fairness penalty. Other models are compared with the colour-blind "
        "model that has the highest NDCG at the first K.",
    ),
}
SOFTMAX_GAPS = ("exposure_gap", "exposure_gap_released")
GAPS = (*SOFTMAX_GAPS, "rank_exposure_gap", "representation_gap")
OVERALL = ("rsp", "reo", "rsp_split", "reo_split")  # one value for all lists together
AUDITED = (
    "ndcg", "score_spread", "rank_exposure", "representation", "impact_ratio", "ratio_to_most",
    "rank_exposure_gap", "representation_gap", "exposure_gap", "exposure_gap_released",
    "signed", "floor", "p", "impact_ratio_p", "ci95", "undefined", "tied", "share_at_rank",
    "exposure_to_rank",
)  # fmt: skip
ON_PAGES = (
    "ndcg", "exposure_gap", "exposure_gap_released", "rank_exposure_gap", "rank_exposure",
    "representation_gap", "representation", "rsp", "reo", "averages", "signed", "floor",
    "score_spread", "group_auc", "lists", "colour_blind",
)  # fmt: skip
TABLE_ROWS = {  # what a table of a run shows, in this order
    "ndcg": TERMS["ndcg"].label,
    **{
        f"{gap}{form}": label or TERMS[gap].label
        for gap in ("exposure_gap", "rank_exposure_gap", "representation_gap")
        for form, label in (("", ""), ("_signed", "  signed gap"), ("_floor", "  chance level"))
    },
    **{name: TERMS[name].label for name in OVERALL},
}
PROTOCOLS = {"full": "full catalogue", "sampled": "sampled lists", "whole": "whole lists"}
LOGGED = {  # numbers of the log of a run
    "loss": "Loss",
    "ranking": "Ranking loss",
    "penalty": "Penalty",
    "ranking_norm": "Gradient of the ranking loss (norm)",
    "penalty_norm": "Gradient of the penalty (norm)",
    "spread": "Spread of scores",
}


def label(metric: str) -> str:
    """Return the label of a metric, also of a squared gap; an unknown one keeps its name.

    Example:
        >>> label("rank_exposure_gap_mse")
        'exposure gap by rank, squared'
    """
    name = metric.removesuffix(MSE)
    text = TERMS[name].label if name in TERMS else name
    return text if name == metric else f"{text}, squared"


def heading(metric: str) -> str:
    """Return the label of a metric with a capital, as it starts a line of a page."""
    text = label(metric)
    return text[:1].upper() + text[1:]


# The definitions that pages of runs show, by label.
PAGE_DEFINITIONS = {heading(name): TERMS[name].definition for name in ON_PAGES}


def lists_label(lists: dict[str, Any]) -> str:
    """Return which lists were ranked: data, part of the data and protocol."""
    protocol = str(lists.get("protocol"))
    some = f" of {lists['users']}" if lists.get("users") else ""
    return (
        f"{lists.get('data')}, {lists.get('part')}, {PROTOCOLS.get(protocol, protocol)}{some}"
    )
