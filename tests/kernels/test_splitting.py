import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.kernels.csr import TEST, TRAIN, VALIDATION, hold_out_last, hold_out_random

times_of = st.lists(
    st.lists(st.integers(0, 6), min_size=1, max_size=12), min_size=1, max_size=4
)


@given(times_of, st.integers(1, 4), st.integers(0, 4), st.integers(0, 10))
def test_the_last_by_time_are_held_out_and_ties_go_by_order(
    users: list[list[int]], test: int, validation: int, least: int
) -> None:
    offsets = np.concatenate([[0], np.cumsum([len(times) for times in users])])
    least = max(least, test + validation + 1)
    part = hold_out_last(offsets, np.concatenate(users), test, validation, least)
    for user, times in enumerate(users):
        got = part[offsets[user] : offsets[user + 1]].tolist()
        expected = [TRAIN] * len(times)
        if len(times) >= least:
            by_time = sorted(range(len(times)), key=lambda slot: (times[slot], slot))[::-1]
            for slot in by_time[:test]:
                expected[slot] = TEST
            for slot in by_time[test : test + validation]:
                expected[slot] = VALIDATION
        assert got == expected


def test_a_random_split_holds_out_each_rating_equally_often() -> None:
    offsets = np.array([0, 8, 10])
    parts = np.array([hold_out_random(offsets, 2, 1, 4, seed) for seed in range(4_000)])
    assert ((parts[:, :8] == TEST).sum(1) == 2).all()
    assert ((parts[:, :8] == VALIDATION).sum(1) == 1).all()
    assert (parts[:, 8:] == TRAIN).all()
    # A share p over n draws strays from p by four standard errors once in 15,000.
    for code, share in ((TEST, 2 / 8), (VALIDATION, 1 / 8)):
        error = 4 * np.sqrt(share * (1 - share) / len(parts))
        assert np.abs((parts[:, :8] == code).mean(0) - share).max() < error
