"""Methods that are no penalty on exposure, on documents: DPR and robust."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fairtopk as ft
from fairtopk.data.synthetic import Documents, make_documents
from fairtopk.rankers.fair_ranker import FairRanker

DPR = {"dpr": {"batches": 2, "samples": 300}}
GAME = {"robust": {"rounds": 2, "iterations": 8}}


@pytest.fixture(scope="module")
def train() -> Documents:
    return make_documents(30, 20, seed=0)


@pytest.fixture(scope="module")
def test() -> Documents:
    return make_documents(100, 20, seed=1)


def fitted(
    documents: Documents, method: str, model: str = "linear", **params: object
) -> FairRanker:
    x, y, qid, groups = documents
    options = GAME if method == "robust" else DPR
    usual = {"k": 5, "epochs": 20, "batch_size": 10, "options": options}
    usual["rate"] = 0.03 if model == "linear" else 0.01
    ranker = FairRanker(method, model, **(usual | params))  # type: ignore[arg-type]
    return ranker.fit(x, y, qid=qid, groups=groups)


def chances(ranker: FairRanker, documents: Documents, *, relevant: bool) -> float:
    """RSP at 5, or REO: standard deviation over mean of the groups' chances of a place."""
    top = np.zeros(len(documents.y), bool)
    top[ranker.rank(documents.x, documents.qid, k=5)["row"].to_numpy()] = True
    counts = documents.y > 0 if relevant else np.ones(len(top), bool)
    found = [top[counts & (documents.groups == name)].mean() for name in ("minor", "major")]
    return float(np.std(found) / np.mean(found))


def measured(ranker: FairRanker, documents: Documents, *ks: int) -> dict[str, float]:
    x, y, qid, groups = documents
    found = ranker.evaluate(x, y, qid=qid, groups=groups, k=ks or None)
    return dict(zip(found["metric"], found["mean"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize(("method", "relevant"), [("dpr-rsp", False), ("dpr-reo", True)])
def test_the_adversary_evens_out_the_chances_that_it_hears_of(
    train: Documents, test: Documents, method: str, relevant: bool, model: str
) -> None:
    """With it off they are as uneven as the grades."""
    blind, fair = (fitted(train, method, model, c=c, epochs=30) for c in (0.0, 1.0))
    uneven = [chances(one, test, relevant=relevant) for one in (blind, fair)]
    assert uneven[0] > 0.4
    assert uneven[1] < 0.5 * uneven[0]
    assert measured(fair, test)["ndcg@5"] > 0.8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:at K = 20 all items are in the top")
@pytest.mark.parametrize("model", ["linear", "mlp", "attention"])
def test_robust_takes_the_gap_of_whole_lists_away(
    train: Documents, test: Documents, model: str
) -> None:
    blind, fair = (measured(fitted(train, "robust", model, c=c), test, 5, 20) for c in (0, 1))
    gap = "rank_exposure_gap_signed@20"
    assert blind[gap] < -0.05
    assert abs(fair[gap]) < 0.4 * abs(blind[gap])
    assert fair["ndcg@5"] > 0.7


@pytest.mark.parametrize("method", ["dpr-rsp", "dpr-reo", "robust"])
def test_one_seed_gives_the_same_bits_and_so_does_a_saved_ranker(
    train: Documents, test: Documents, method: str, tmp_path: Path
) -> None:
    def order(ranker: FairRanker) -> pl.DataFrame:
        if method != "robust":
            return ranker.rank(test.x, test.qid)
        return ranker.rank_with_groups(test.x, test.qid, groups=test.groups)

    first, again = (fitted(train, method, "mlp", epochs=3) for _ in range(2))
    first.save(tmp_path / "ranker.safetensors")
    loaded = FairRanker.load(tmp_path / "ranker.safetensors")
    assert order(first).equals(order(again))
    assert order(first).equals(order(loaded))
    for one, other in zip(
        first.scorer_.state_dict().items(), again.scorer_.state_dict().items(), strict=True
    ):
        assert one[0] == other[0]
        assert one[1].numpy().tobytes() == other[1].numpy().tobytes()


def test_robust_refuses_to_rank_without_groups_and_others_to_rank_with_them(
    train: Documents,
) -> None:
    x, y, qid, groups = train
    game, other = fitted(train, "robust", epochs=2), fitted(train, "dpr-rsp", epochs=2)
    for call in (lambda: game.predict(x), lambda: game.rank(x, qid)):
        with pytest.raises(ft.InputError, match=r"call rank_with_groups\(X, qid, groups\)"):
            call()
    with pytest.raises(ft.InputError, match="robust needs the groups of items when it ranks"):
        game.evaluate(x, y, qid=qid)
    with pytest.raises(ft.InputError, match="only robust needs groups to rank by; call rank"):
        other.rank_with_groups(x, qid, groups=groups)
    with pytest.raises(ft.InputError, match="groups has 'odd', which the ranker was not"):
        game.rank_with_groups(x, qid, groups=np.where(groups == "minor", "odd", groups))


@pytest.mark.filterwarnings("ignore:at K = 20 all items are in the top")
def test_robust_knows_the_groups_of_training_whichever_is_the_smaller_later(
    train: Documents, test: Documents
) -> None:
    """Lists of mostly minor documents, and of no other, are ranked by the same multiplier."""
    ranker = fitted(train, "robust")
    few = (test.groups == "minor") | (np.arange(len(test.y)) % 10 == 0)
    assert (test.groups[few] == "minor").mean() > 0.6
    chosen = Documents(test.x[few], test.y[few], test.qid[few], test.groups[few])
    blind = fitted(train, "robust", c=0.0)
    gaps = [measured(one, chosen, 20)["rank_exposure_gap_signed@20"] for one in (blind, ranker)]
    assert gaps[0] < gaps[1]
    minor = chosen.groups == "minor"
    alone = ranker.rank_with_groups(
        chosen.x[minor], chosen.qid[minor], groups=chosen.groups[minor], k=3
    )
    plain = blind.rank_with_groups(
        chosen.x[minor], chosen.qid[minor], groups=chosen.groups[minor], k=3
    )
    assert alone["rank"].max() == 3
    assert plain["rank"].to_list() == alone["rank"].to_list()


@pytest.mark.parametrize("method", ["dpr-rsp", "robust"])
def test_odd_lists_and_unknown_groups_give_finite_scores(method: str) -> None:
    x, y, qid, groups = make_documents(10, 6)
    x = np.vstack([x, x[:4], x[:2]])
    y = np.concatenate([y, [2, 0, 0, 0, 1, 0]])
    qid = np.concatenate([qid, [100, 101, 101, 101, 102, 102]])
    x[-2:] = x[-1]  # two documents that cannot be told apart
    labels = [*groups[:-3], None, None, None, *groups[:6]]
    ranker = fitted(Documents(x, y, qid, labels), method, epochs=4)  # type: ignore[arg-type]
    if method == "robust":
        found = ranker.rank_with_groups(x, qid, groups=labels)
    else:
        found = ranker.rank(x, qid)
    assert np.isfinite(found["score"].to_numpy()).all()
    with pytest.raises(ft.InputError, match="needs documents in at least two groups"):
        FairRanker(method, k=5).fit(x, y, qid=qid)
    if method == "robust":
        with pytest.raises(ft.InputError, match="none has a grade above 0"):
            FairRanker(method, k=5).fit(x, 0 * y, qid=qid, groups=labels)


def test_signed_gaps_are_about_the_group_of_training_and_other_groups_may_be_measured(
    train: Documents, test: Documents
) -> None:
    ranker = fitted(train, "dpr-rsp", epochs=3)
    name = "representation_gap_signed@5"
    usual = measured(ranker, test)[name]
    few = (test.groups == "minor") | (np.arange(len(test.y)) % 10 == 0)  # the larger group now
    chosen = Documents(test.x[few], test.y[few], test.qid[few], test.groups[few])
    assert measured(ranker, chosen)[name] * usual > 0
    renamed = np.where(test.groups == "minor", "first", "second")
    other = measured(ranker, test._replace(groups=renamed))
    assert other[name] == usual
