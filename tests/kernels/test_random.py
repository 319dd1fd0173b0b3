import numpy as np

from fairtopk.kernels.random import advance, below, mix, stream, uniform

WORD = 2**64


def plain_mix(word: int) -> int:
    """Splitmix64's finaliser in Python's own integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)


def test_the_stream_is_splitmix64() -> None:
    # The first outputs of the reference generator from state 1234567.
    state, outputs = np.uint64(1234567), []
    for _ in range(3):
        state = np.uint64(advance(state))
        outputs.append(int(mix(state)))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert outputs == [plain_mix((1234567 + n * 0x9E3779B97F4A7C15) % WORD) for n in (1, 2, 3)]


def test_keys_that_differ_in_one_place_give_other_streams() -> None:
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (-1, 0, 0)]
    assert len({int(stream(*key)) for key in keys}) == len(keys)


def test_draws_are_uniform() -> None:
    state, counts, total = np.uint64(stream(1, 2, 3)), np.zeros(7), 0.0
    for _ in range(70_000):
        state = np.uint64(advance(state))
        counts[below(state, 7)] += 1
        total += uniform(state)
    assert abs(total / 70_000 - 0.5) < 5 / np.sqrt(12 * 70_000)
    chi_square = ((counts - 10_000) ** 2 / 10_000).sum()
    assert chi_square < 22.5  # 0.1 % of a chi-square with 6 degrees of freedom
