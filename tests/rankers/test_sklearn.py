"""The ranker among scikit-learn's estimators."""

from collections.abc import Iterator

import numpy as np
import pytest

from fairtopk.data.synthetic import make_documents
from fairtopk.rankers.fair_ranker import FairRanker

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, GroupKFold  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

# What check_estimator asks of classifiers, regressors and the like, and why a ranker differs.
NOT_FOR_RANKERS = {
    "check_estimators_unfitted": "asks for an exception class of scikit-learn's own",
}


@pytest.fixture
def routed() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_parameters_are_stored_as_given_and_cloned() -> None:
    hidden = [8]
    ranker = FairRanker("deltr", k=10, hidden=hidden)
    assert ranker.hidden is hidden
    copy = clone(ranker)
    assert copy is not ranker
    assert copy.get_params() == ranker.get_params()
    assert copy.set_params(k=3).k == 3
    assert repr(copy) == "FairRanker(hidden=[8], k=3, method='deltr')"


@pytest.mark.usefixtures("routed")
def test_a_grid_is_searched_with_lists_kept_whole() -> None:
    x, y, qid, group = make_documents(20, 10)
    search = GridSearchCV(
        FairRanker(k=5, epochs=4),
        {"c_relative": [0.0, 1.0]},
        cv=GroupKFold(3),
        error_score="raise",
    )
    search.fit(x, y, groups=qid, qid=qid, item_groups=group)
    assert search.best_params_["c_relative"] in (0.0, 1.0)
    assert search.best_estimator_.group_names_ == ("minor", "major")
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert scores[0] != scores[1]


@pytest.mark.filterwarnings("ignore")  # of checks about checks
def test_the_checks_that_apply_to_rankers_pass() -> None:
    ranker = FairRanker("listnet", k=5, epochs=2)
    found = check_estimator(ranker, on_fail=None)
    failed = {
        one["check_name"]: str(one["exception"])[:200]
        for one in found
        if one["status"] == "failed"
    }
    assert set(failed) == set(NOT_FOR_RANKERS), failed
