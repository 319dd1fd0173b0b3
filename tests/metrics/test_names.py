import re
from pathlib import Path

from fairtopk import metrics

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
RESULTS = {"Floor", "Mean", "Overall", "PValue"}


def test_every_metric_has_a_row_in_the_table_of_the_page() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), re.M)
    named = set(re.findall(r"`(\w+)", " ".join(rows)))
    assert set(metrics.__all__) - RESULTS <= named


def test_every_name_that_is_offered_is_there_and_says_what_it_returns() -> None:
    for name in set(metrics.__all__) - RESULTS:
        assert getattr(metrics, name).__doc__.startswith("Return ")
