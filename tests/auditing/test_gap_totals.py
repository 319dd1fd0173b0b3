"""Totals of signed gaps and shares against the metrics themselves."""

import numpy as np
import pytest
import torch

from fairtopk.auditing.measures import gap_totals
from fairtopk.metrics.gaps import NOTIONS, Tops, named_and_rest, named_gap, rank_exposure

pytestmark = pytest.mark.kernel

Q, KS = 30, [2, 4]


@pytest.mark.parametrize("groups", [2, 4])
def test_totals_are_those_of_the_metrics_and_what_is_undefined_adds_nothing(
    groups: int,
) -> None:
    rng = np.random.default_rng(groups)
    shape = (Q, groups, len(KS))
    size = rng.integers(0, 4, (Q, groups))
    members = np.minimum(rng.integers(0, 3, shape), size[..., None])
    exposure, discount = rng.random(shape) * (members > 0), rng.random(shape) * (members > 0)
    everyone = 1 + rng.random((Q, len(KS)))
    tops = Tops(
        *(torch.tensor(one).double() for one in (exposure, discount, members)),
        torch.tensor(everyone)[:, None],
        torch.tensor(size)[..., None],
        torch.zeros(Q, len(KS)),
        torch.zeros(Q, len(KS)),
    )
    gaps = [named_gap(notion(named_and_rest(tops))).nansum(0) for notion in NOTIONS.values()]
    expected = torch.cat([*gaps, rank_exposure(tops).nansum(0).flatten()])
    assert (size[:, 0] == 0).any()
    np.testing.assert_allclose(gap_totals(tops)[0], expected, rtol=1e-12, atol=1e-12)


def test_versions_of_lists_are_added_up_apart() -> None:
    rng = np.random.default_rng(0)
    parts = [torch.from_numpy(rng.random((Q, 3, 2, 1))) for _ in range(3)]
    everyone, size = torch.ones(Q, 1, 1), torch.full((Q, 2, 1), 2)
    unread = torch.zeros(Q, 1)
    whole = gap_totals(Tops(*parts, everyone, size, unread, unread))
    for version in range(3):
        alone = (part[:, version].contiguous() for part in parts)
        found = gap_totals(Tops(*alone, everyone, size, unread, unread))
        assert torch.equal(found[0], whole[version])
