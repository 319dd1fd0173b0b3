from typing import Any

import numpy as np
import pytest
import torch

from fairtopk.checks import (
    checked_choice,
    checked_flag,
    checked_ks,
    checked_number,
    checked_path,
    checked_whole,
    one_or_several_ks,
)
from fairtopk.errors import InputError, KindError
from fairtopk.terminal import shown


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r"'a\nb'"),
        (10**5000, "a number of 16,610 bits"),
        (Unshowable(), "<Unshowable instance at"),
        (np.arange(3)[:, None], "array([[0], [1], [2]])"),
    ],
    ids=["lines", "digits", "unshowable", "array"],
)
def test_any_value_is_shown_on_one_short_line(value: Any, text: str) -> None:
    assert shown(value).startswith(text)
    assert len(shown(["x" * 1_000] * 1_000)) <= 160
    assert "\n" not in shown(value)


@pytest.mark.parametrize(
    "value", [2, np.int64(2), np.array(2), torch.tensor(2), np.uint8(2)], ids=repr
)
def test_a_whole_number_may_be_of_any_type(value: Any) -> None:
    assert checked_whole("k", value, least=1) == 2
    assert one_or_several_ks(value) == (2,)


@pytest.mark.parametrize("value", [True, 2.0, "2", None, np.array([2]), torch.tensor([2])])
def test_what_is_no_whole_number_is_of_a_wrong_kind(value: Any) -> None:
    with pytest.raises(KindError, match=r"^k must be a whole number, got "):
        checked_whole("k", value, least=1)
    with pytest.raises(TypeError):
        checked_whole("k", value, least=1)


@pytest.mark.parametrize("ks", [[3, 1], (3, 1), {1, 3}, np.array([3, 1]), torch.tensor([1, 3])])
def test_lengths_may_be_given_in_any_collection(ks: Any) -> None:
    assert checked_ks(ks) == one_or_several_ks(ks) == (1, 3)


def test_a_flag_a_number_and_a_path_are_what_they_are_called() -> None:
    assert checked_flag("signed", np.True_) is True
    with pytest.raises(KindError, match=r"^signed must be True or False, got 1$"):
        checked_flag("signed", 1)
    assert checked_number("p", np.float32(0.5)) == 0.5
    for wrong in (True, "0.5", None, np.ones(1)):
        with pytest.raises(KindError, match=r"^p must be a finite number, got "):
            checked_number("p", wrong)
    with pytest.raises(InputError, match=r"^p must be a finite number, got nan$"):
        checked_number("p", np.nan)
    for wrong, error in (("x", InputError), (3, KindError), (None, KindError)):
        with pytest.raises(error, match=r"^way must be one of sampled, full, got ") as raised:
            checked_choice("way", wrong, ("sampled", "full"))
        assert raised.type is error
    with pytest.raises(InputError, match=r"^out must be a path, got 'a\\x00b'$"):
        checked_path("out", "a\0b")
