import pytest
import torch

from fairtopk.objectives.dpr import split_labels


def test_without_a_separator_each_label_is_a_group() -> None:
    found = split_labels(["b|a", "a", "c"], None)
    assert found.names == ("b|a", "a", "c")
    assert torch.equal(found.member, torch.eye(3))


@pytest.mark.parametrize(
    ("labels", "separator", "names", "member"),
    [
        (["War|Horror", "Horror", "War"], "|", ("War", "Horror"), [[1, 1], [0, 1], [1, 0]]),
        (["a, b", "c"], ",", ("a", "b", "c"), [[1, 1, 0], [0, 0, 1]]),
        (["a||a", "|", "b"], "|", ("a", "b"), [[1, 0], [0, 0], [0, 1]]),
    ],
)
def test_a_label_names_the_groups_between_separators(
    labels: list[str], separator: str, names: tuple[str, ...], member: list[list[int]]
) -> None:
    """Blanks around a name are no part of it, and nothing is no name."""
    found = split_labels(labels, separator)
    assert found.names == names
    assert found.member.tolist() == member
