"""Packed weights lie side by side in large pages, and what goes makes room for others."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from turnout.kernels.memory.packed import LARGE_PAGE, SHELF, SMALL, PackedMemory

Range = tuple[int, int]


@pytest.fixture
def enlarged() -> list[Range]:
    """What large pages were asked for: addresses and bytes."""
    return []


@pytest.fixture
def room(enlarged: list[Range]) -> Callable[..., Tensor]:
    memory = PackedMemory(lambda address, size: enlarged.append((address, size)))

    def given(size: int) -> Tensor:
        return memory.room(size, dtype=torch.uint8)

    return given


def test_small_layers_lie_side_by_side_in_large_pages(
    room: Callable[..., Tensor], enlarged: list[Range]
) -> None:
    layers = [room(600_000) for _ in range(10)]
    places = [layer.data_ptr() for layer in layers]
    assert places == sorted(places) and places[-1] - places[0] < 10 * 610_000
    ((address, size),) = enlarged
    assert address % LARGE_PAGE == 0 and size == SHELF
    assert all(address <= place and place + 600_000 <= address + size for place in places)


def test_a_large_layer_begins_with_a_large_page(room: Callable[..., Tensor], enlarged: list[Range]) -> None:
    layer = room(SMALL + 1)
    assert layer.data_ptr() % LARGE_PAGE == 0
    assert enlarged == [(layer.data_ptr(), SMALL)]  # its last byte is in small pages


def test_layers_have_the_shape_and_the_dtype_that_are_asked_for() -> None:
    memory = PackedMemory(lambda *_: None)
    layers = [memory.room(3, 5, 7, dtype=torch.bfloat16), memory.room(0, 4, dtype=torch.int32)]
    assert [(layer.shape, layer.dtype) for layer in layers] == [
        ((3, 5, 7), torch.bfloat16),
        ((0, 4), torch.int32),
    ]


def test_what_goes_makes_room_for_others_though_its_neighbours_stay(room: Callable[..., Tensor]) -> None:
    first, second, third, last = (room(SMALL) for _ in range(4))  # a shelf is full
    place = second.data_ptr()
    kept, view = first.fill_(1), third[5:].view(-1)
    del second, third
    assert room(SMALL // 2).data_ptr() == place  # gone again at once
    again = room(SMALL)
    assert again.data_ptr() == place
    again.fill_(7)
    other = room(SMALL)
    assert not place <= other.data_ptr() < place + 2 * SMALL  # a view keeps the third
    assert kept.unique().tolist() == [1] and last.numel() == view.numel() + 5


def test_neighbours_that_go_make_one_gap(room: Callable[..., Tensor]) -> None:
    layers = [room(SMALL // 2) for _ in range(8)]
    place = layers[2].data_ptr()
    del layers[2:4]
    assert room(SMALL).data_ptr() == place


def test_a_shelf_goes_with_the_last_layer_on_it() -> None:
    memory = PackedMemory(lambda *_: None)
    layers = [memory.room(SMALL, dtype=torch.uint8) for _ in range(6)]
    shelves = list(memory._shelves)
    assert len(shelves) == 2 and all(shelf() is not None for shelf in shelves)
    del layers[:4]
    gc.collect()
    assert [shelf() is None for shelf in shelves] == [True, False]


def test_threads_never_get_the_same_place(room: Callable[..., Tensor]) -> None:
    def fill(number: int) -> bool:
        for turn in range(40):
            layer = room(50_000 + 1000 * turn).fill_(number)
            if layer.unique().tolist() != [number]:
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fill, range(8)))
