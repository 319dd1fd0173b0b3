"""Rules that fail an audit."""

import pytest

from fairtopk.auditing.rules import applied, parsed_rule
from fairtopk.errors import InputError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("impact_ratio@10 < 0.8", (None, "impact_ratio@10", "<", 0.8)),
        ("sex:ndcg@5>=1e-3", ("sex", "ndcg@5", ">=", 0.001)),
        (" a: b c : ndcg@5 <= -.5 ", ("a: b c", "ndcg@5", "<=", -0.5)),
        ("sex x age:rsp_p@100 > 5.", ("sex x age", "rsp_p@100", ">", 5)),
    ],
)
def test_a_rule_is_a_column_a_metric_a_comparison_and_a_number(
    text: str, parts: tuple[str | None, str, str, float]
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
    assert applied([rule], {"a@1": {"mean": 0.5}}, {})[0]["fired"] is fired


def test_a_rule_without_a_column_is_on_every_column() -> None:
    columns = {"sex": {"a@1": {"value": 1.0}}, "age": {"a@1": {"value": None}}}
    found = applied([parsed_rule("a@1 < 2"), parsed_rule("sex:a@1 < 1")], {}, columns)
    assert [(one["column"], one["fired"]) for one in found] == [
        ("sex", True),
        ("age", None),
        ("sex", False),
    ]
