import numpy as np
import pytest
import torch

from fairtopk.kernels import threads as memory
from fairtopk.kernels.threads import ALIGNMENT, KEPT, LARGE, recycled

SHAPE = (LARGE // 4, 2)


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_kept", [])


def test_memory_is_used_again_once_its_array_is_gone() -> None:
    array = recycled(SHAPE, np.float32)
    address = array.ctypes.data
    del array
    assert recycled(SHAPE, np.float32).ctypes.data == address


def test_memory_that_a_tensor_lives_in_is_left_alone() -> None:
    tensor = torch.from_numpy(recycled(SHAPE, np.float32))
    row = tensor[3]
    assert recycled(SHAPE, np.float32).ctypes.data != tensor.data_ptr()
    address = tensor.data_ptr()
    del tensor
    others = [recycled(SHAPE, np.float32) for _ in range(3)]
    assert address not in [other.ctypes.data for other in others]
    del row
    others.append(recycled(SHAPE, np.float32))
    assert others[-1].ctypes.data == address


def test_only_memory_of_the_same_shape_and_type_is_used_again() -> None:
    recycled(SHAPE, np.float32)
    assert recycled(SHAPE[::-1], np.float32).shape == SHAPE[::-1]
    assert recycled(SHAPE, np.float64).dtype == np.float64


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), SHAPE])
def test_memory_is_aligned_as_that_of_torch(shape: tuple[int, int]) -> None:
    array = recycled(shape, np.float32)
    assert array.shape == shape
    assert array.flags.c_contiguous
    assert array.ctypes.data % ALIGNMENT == 0


def test_no_more_than_a_few_arrays_are_kept_and_no_small_ones() -> None:
    recycled((3, 4), np.float32)
    assert memory._kept == []
    for count in range(2 * KEPT):
        recycled((LARGE + count,), np.uint8)
    assert [len(array) - LARGE for array, _ in memory._kept] == [*range(KEPT, 2 * KEPT)]
