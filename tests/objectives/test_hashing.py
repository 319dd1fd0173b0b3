import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtopk.objectives.averages import hash_texts

pytestmark = pytest.mark.kernel

MASK = 2**64 - 1


def plain_hash(text: str) -> int:
    """Splitmix64 of each character with all before it, in whole numbers without end."""
    word = 0x9E3779B97F4A7C15
    for letter in text:
        word ^= ord(letter)
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        word = ((word ^ (word >> 31)) + 0x9E3779B97F4A7C15) & MASK
    return word


def codes_of(texts: list[str], width: int) -> np.ndarray:
    codes = np.zeros((len(texts), width), np.uint32)
    for row, text in enumerate(texts):
        codes[row, : len(text)] = [ord(letter) for letter in text]
    return codes


@given(st.lists(st.text(max_size=6)), st.integers(6, 9))
def test_a_text_has_one_word_whatever_stands_beside_it(texts: list[str], width: int) -> None:
    found = hash_texts(codes_of(texts, width)).tolist()
    assert found == [plain_hash(text.rstrip("\0")) for text in texts]


def test_texts_that_differ_a_little_have_different_words() -> None:
    texts = [
        "",
        "a",
        "b",
        "aa",
        "ab",
        "ba",
        "a\0b",
        "a\0a",
        *(f"user-{n}" for n in range(5_000)),
    ]
    words = hash_texts(codes_of(texts, 9))
    assert len(np.unique(words)) == len(texts)
    # Every bit of a word is one in half of them.
    share = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).mean(0)
    assert abs(share - 0.5).max() < 0.04
