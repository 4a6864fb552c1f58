"""Moves in long runs give what moves one after the other give, bit for bit, inside the pool and beyond."""

from __future__ import annotations

import random
from typing import get_args

import pytest
import torch
from torch import Tensor

from turnout.core.types.plan import Move, Way
from turnout.plugins.kv_backends.storage.block_copies import BlockCopier, SliceCopier, StagedCopier
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.merged_moves import batched, merged
from turnout.plugins.kv_backends.storage.pool import make_storage
from turnout.plugins.kv_backends.storage.tensors import PoolShape

SLOTS, SWAP = 60, 40


def random_moves(rng: random.Random) -> list[Move]:
    """Some go on where the last ended; no copy overlaps itself."""
    moves: list[Move] = []
    while len(moves) < 30:
        way: Way = rng.choice(("copy", "copy", "swap_out", "swap_in"))
        room = {"copy": (SLOTS, SLOTS), "swap_out": (SLOTS, SWAP), "swap_in": (SWAP, SLOTS)}[way]
        length = rng.randrange(6)
        source, target = (rng.randrange(size - length) for size in room)
        if moves and moves[-1].way == way and rng.random() < 0.5:
            source, target = moves[-1].source + moves[-1].length, moves[-1].target + moves[-1].length
        overlaps = way == "copy" and abs(source - target) < length
        if source + length <= room[0] and target + length <= room[1] and not overlaps:
            moves.append(Move(source, target, length, way))
    return moves


def one_after_the_other(moves: list[Move], pool: Tensor, host: Tensor) -> None:
    for source, target, length, way in moves:
        origin = host if way == "swap_in" else pool
        goal = host if way == "swap_out" else pool
        goal[:, target : target + length] = origin[:, source : source + length].clone()


def tensors() -> list[Tensor]:
    """Two of a pool, of different rows and dtypes, every position another number."""
    keys = torch.arange(2.0 * SLOTS * 6).view(2, SLOTS, 3, 2)
    return [keys, keys[..., 0].to(torch.int16) + 7]


@pytest.mark.parametrize("limit", [1, 4, 1000])
@pytest.mark.parametrize("kind", [SliceCopier, StagedCopier])
def test_as_one_after_the_other(kind: type[BlockCopier], limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    position = tensors()[0][:, :1].nbytes
    monkeypatch.setattr("turnout.plugins.kv_backends.storage.block_copies.STAGE_BYTES", limit * position)
    for seed in range(60):
        rng = random.Random(seed)
        pool, expected = tensors(), tensors()
        hosts = [tensor.new_zeros(2, SWAP, *tensor.shape[2:]) for tensor in pool]
        copier = kind(pool, SWAP)
        for _ in range(3):  # what is swapped out stays swapped out between steps
            moves = random_moves(rng)
            copier.carry_out(moves)
            for tensor, host in zip(expected, hosts, strict=True):
                one_after_the_other(moves, tensor, host)
            for moved, wanted in zip(pool, expected, strict=True):
                assert torch.equal(moved, wanted), (seed, moves)


def test_moves_that_go_on_are_one() -> None:
    blocks = [Move(16 * i, 320 + 16 * i, 16, "swap_out") for i in range(9)]
    assert list(merged(blocks)) == [Move(0, 320, 144, "swap_out")]
    assert list(merged([*blocks[:2], blocks[3]])) == [Move(0, 320, 32, "swap_out"), blocks[3]]
    assert list(merged([Move(3, 9, 0), Move(0, 8, 4), Move(1, 1, 0)])) == [Move(0, 8, 4)]
    both_ways = [Move(0, 8, 4, "swap_out"), Move(4, 12, 4, "swap_in")]
    assert list(merged(both_ways)) == both_ways


def test_a_copy_of_a_copy_comes_after_it() -> None:
    """Joined, they would be one copy onto itself."""
    chain = [Move(0, 4, 4), Move(4, 8, 4)]
    assert list(merged(chain)) == chain
    assert [len(run) for run in batched(chain, 100)] == [1, 1]


def test_a_run_ends_where_order_matters() -> None:
    first = Move(0, 10, 4)
    for then, together in (
        (Move(20, 30, 4), True),
        (Move(20, 12, 4), False),  # writes there too
        (Move(12, 30, 4), False),  # reads what was written
        (Move(20, 0, 4), True),  # writes where was read: all is read before
        (Move(20, 30, 4, "swap_out"), False),  # another way
    ):
        assert (len(list(batched([first, then], 100))) == 1) == together, then
    swaps_out = [Move(4 * i, 4 * i + 4, 4, "swap_out") for i in range(5)]
    assert list(batched(swaps_out, 100)) == [swaps_out], "memory on the two sides is numbered apart"
    assert [sum(move.length for move in run) for run in batched([Move(0, 0, 25, "swap_out")], 10)] == [
        10,
        10,
        5,
    ]


@pytest.mark.parametrize("stored", get_args(KVDtype))
@pytest.mark.parametrize("kind", [SliceCopier, StagedCopier])
def test_what_comes_back_is_what_was_swapped_out(stored: KVDtype, kind: type[BlockCopier]) -> None:
    shape = PoolShape(layers=2, slots=64, kv_heads=2, key_dim=8, value_dim=8, unit=4)
    storage = make_storage(stored, shape, torch.device("cpu"), torch.float32)
    copier = kind(storage.tensors, 20)
    for layer in range(shape.layers):
        storage.write(layer, torch.arange(64), torch.randn(64, 2, 8), torch.randn(64, 2, 8))
    before = [tensor.clone() for tensor in storage.tensors]
    copier.carry_out([Move(8, 0, 8, "swap_out"), Move(40, 12, 4, "swap_out")])
    for layer in range(shape.layers):
        storage.write(layer, torch.arange(64), torch.randn(64, 2, 8), torch.randn(64, 2, 8))
    copier.carry_out([Move(12, 60, 4, "swap_in"), Move(0, 16, 8, "swap_in"), Move(16, 32, 8, "copy")])
    for tensor, old in zip(storage.tensors, before, strict=True):
        assert torch.equal(tensor[:, 60:], old[:, 40:44])
        assert torch.equal(tensor[:, 16:24], old[:, 8:16])
        assert torch.equal(tensor[:, 32:40], old[:, 8:16])
