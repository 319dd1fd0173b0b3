"""Rules that fail an audit."""

import pytest

from fairtopk.auditing.audit import AuditRequest, checks_record, parsed_rule
from fairtopk.auditing.rankings import Columns
from fairtopk.errors import InputError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("impact_ratio@10 < 0.8", (None, "impact_ratio", 10, "<", 0.8)),
        ("sex:ndcg@5>=1e-3", ("sex", "ndcg", 5, ">=", 0.001)),
        (" a: b c : ndcg@05 <= -.5 ", ("a: b c", "ndcg", 5, "<=", -0.5)),
        ("sex x age:rsp_p@100 > 5.", ("sex x age", "rsp_p", 100, ">", 5)),
    ],
)
def test_a_rule_is_a_column_a_metric_a_comparison_and_a_number(
    text: str, parts: tuple[str | None, str, int, str, float]
) -> None:
    assert parsed_rule(text)[1:] == parts


@pytest.mark.parametrize(
    "text",
    ["", "impact_ratio < 0.8", "impact_ratio@10 == 0.8", "impact_ratio@10 < nan", "@10 < 1",
     "impact_ratio@10 < 0.8 or 1", "1 < impact_ratio@10", "impact_ratio@10 < 0x1"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a rule is a metric"):
        parsed_rule(text)


@pytest.mark.parametrize(
    ("comparison", "fired"), [("<", False), ("<=", True), (">", False), (">=", True)]
)
def test_a_rule_fires_where_its_comparison_holds(comparison: str, fired: bool) -> None:
    rule = parsed_rule(f"a@1 {comparison} 0.5")
    metrics = {"a@1": {"mean": 0.5, "tied": 0, "tied_at_cut": 0}}
    (check,) = checks_record([rule], {"metrics": metrics, "columns": []})
    assert check["fired"] is fired


def test_a_rule_without_a_column_is_on_every_column() -> None:
    columns = {
        "sex": {"a@1": {"value": 1.0, "tied": 3, "tied_at_cut": 1}},
        "age": {"a@1": {"value": None, "tied": 0, "tied_at_cut": 0}},
    }
    record = {
        "data": {"queries": 4, "ranked_by": "score"},
        "metrics": {},
        "columns": [{"name": name, "metrics": metrics} for name, metrics in columns.items()],
    }
    found = checks_record([parsed_rule("a@1 < 2"), parsed_rule("sex:a@1 < 1")], record)
    assert [(one["column"], one["fired"]) for one in found] == [
        ("sex", True),
        ("age", None),
        ("sex", False),
    ]
    assert [(one["tied"], one["tied_at_cut"]) for one in found] == [(3, 1), (0, 0), (3, 1)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("impact_ratio@20 < 1", "K is 5, 10, no @20; add 20 to --k"),
        ("exposure_gap@5 > 1", "exposure_gap needs scores (--score)"),
        ("impct_ratio@5 < 1", "no metric is called 'impct_ratio'; there is impact_ratio"),
        ("NDGC@5 < 1", "there is ndcg"),
        ("xyz@5 < 1", "there is ndcg, impact_ratio, rank_exposure_gap, repr"),
        ("sex:ndcg@5 < 1", "ndcg is of whole lists, whatever their groups; leave out 'sex:'"),
        ("age:impact_ratio@5 < 1", "names column 'age': the columns are sex"),
    ],
)
def test_a_rule_on_what_is_not_measured_is_told_what_it_needs(text: str, words: str) -> None:
    request = AuditRequest(
        columns=Columns("q", "i", rank="r", relevance="y"),
        groups=["sex"],
        items=None,
        items_item="i",
        local_items=False,
        intersections=False,
        ks=(5, 10),
        separator=",",
        seed=0,
    )
    with pytest.raises(InputError) as error:
        request.check_rules([parsed_rule(text)])
    assert words in str(error.value)
    request.check_rules([parsed_rule("sex:impact_ratio@10 < 1"), parsed_rule("ndcg@5 < 1")])
