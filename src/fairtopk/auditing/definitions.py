"""What the names in an audit mean, in words."""

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
