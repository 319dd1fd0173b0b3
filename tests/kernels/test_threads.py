import threading
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch

from fairtopk.kernels import threads as memory
from fairtopk.kernels.threads import (
    ALIGNMENT,
    KEPT,
    LARGE,
    recycled,
    run_all,
    torch_on_one_thread,
)

HANGS = 600.0  # seconds, on any machine


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_are_in_the_order_of_the_pieces(threads: int) -> None:
    torch.set_num_threads(threads)
    squares: list[Callable[[], int]] = [partial(pow, place, 2) for place in range(20)]
    assert run_all(squares) == [place * place for place in range(20)]
    assert run_all([]) == []


def test_pieces_run_at_the_same_time_each_on_one_thread_without_gradients() -> None:
    torch.set_num_threads(2)
    together = threading.Barrier(2, timeout=HANGS)

    def piece() -> tuple[int, bool]:
        together.wait()
        return torch.get_num_threads(), torch.is_grad_enabled()

    assert run_all([piece, piece]) == [(1, False), (1, False)]
    assert torch.get_num_threads() == 2


def test_with_one_thread_pieces_run_on_that_of_the_caller() -> None:
    torch.set_num_threads(1)
    pieces = [threading.get_ident, torch.is_grad_enabled]
    assert run_all(pieces) == [threading.get_ident(), False]


def test_threads_born_later_use_as_many_as_before() -> None:
    torch.set_num_threads(3)
    run_all([int, int])
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [3]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_error_of_a_piece_reaches_the_caller(threads: int) -> None:
    torch.set_num_threads(threads)
    with pytest.raises(ZeroDivisionError):
        run_all([partial(divmod, 1, 0), partial(divmod, 1, 1)])


def test_torch_can_lend_its_threads_and_gets_them_back() -> None:
    torch.set_num_threads(2)
    together = threading.Barrier(2, timeout=HANGS)
    with torch_on_one_thread(), torch_on_one_thread():
        assert torch.get_num_threads() == 1
        run_all([together.wait, together.wait])  # at the same time all the same
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), torch_on_one_thread():
        run_all([partial(divmod, 1, 0)])
    assert torch.get_num_threads() == 2


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
