"""Swap memory is what was asked for, or the start is refused with the sums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import KV_BYTES_PER_TOKEN

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.errors import ConfigError
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.scheduling.preemption import Auto, Preemption, Recompute, Swap
from turnout.core.types.plan import Move, Plan
from turnout.plugins.kv_backends.contiguous.backend import Contiguous
from turnout.runner.assembly import AssembledEngine, build_engine
from turnout.runner.memory.budget import Budget
from turnout.runner.memory.swap_memory import SwapMemory

EngineMaker = Callable[..., Engine]


@pytest.fixture
def assemble(random_model: Path) -> Callable[..., AssembledEngine]:
    def assemble(**options: Any) -> AssembledEngine:
        defaults = {"max_model_len": 100, "kv_memory": "1MiB", "device": "cpu", "dtype": "float32"}
        return build_engine(EngineConfig(model=str(random_model), **{**defaults, **options}))

    return assemble


Assemble = Callable[..., AssembledEngine]


def preemption(assembled: AssembledEngine) -> Preemption:
    return assembled.engine.scheduler._preemption


# ------------------------------------------------------------------ what there is


def test_without_swap_memory_all_is_computed_again(assemble: Assemble) -> None:
    """The default on CPU, where the KV pool is host memory already."""
    assembled = assemble()
    assert isinstance(preemption(assembled), Recompute)
    assert assembled.engine.scheduler.kv.snapshot().swap == 0
    assert assembled.ready.summary[-1] == "preemption recompute"


@pytest.mark.parametrize(
    ("kv", "positions", "size"),
    [("contiguous", 500, "250 KiB"), ("paged", 496, "248 KiB"), ("paged:block_size=32", 480, "240 KiB")],
)
def test_swap_memory_holds_whole_blocks(assemble: Assemble, kv: str, positions: int, size: str) -> None:
    assembled = assemble(kv=kv, swap_memory=500 * KV_BYTES_PER_TOKEN, preemption="swap")
    assert isinstance(preemption(assembled), Swap)
    assert assembled.engine.scheduler.kv.snapshot().swap == positions
    assert assembled.ready.summary[-1] == f"preemption swap, swap memory {size} = {positions} tokens"


def test_swap_memory_is_counted_in_what_kv_is_stored_as(assemble: Assemble) -> None:
    assembled = assemble(kv="contiguous:dtype=int8", swap_memory="144KiB", preemption="swap")
    assert assembled.engine.scheduler.kv.snapshot().swap == 144 * 1024 // (2 * 2 * 2 * (16 + 2))


def test_auto_measures(assemble: Assemble) -> None:
    assembled = assemble(swap_memory="1MiB")
    chosen = preemption(assembled)
    assert isinstance(chosen, Auto)
    assert 0 < chosen.costs.moved_token < 1e-3 and 0 < chosen.costs.computed_token < 1e-1
    assert "preemption auto, swap memory 1.0 MiB = 2,048 tokens: swap costs " in assembled.ready.summary[-1]
    assert assembled.ready.summary[-1].endswith(" us")


@pytest.mark.parametrize("kv", ["paged", "contiguous", "paged:dtype=fp8"])
def test_measuring_leaves_the_pool_as_it_was(assemble: Assemble, kv: str) -> None:
    untouched, measured = assemble(kv=kv), assemble(kv=kv, swap_memory="1MiB")
    before, after = (assembled.engine.scheduler.kv.snapshot() for assembled in (untouched, measured))
    assert after.swap > 0 == after.swapped
    for name in ("capacity", "free", "held", "cached", "lookups", "evictions", "states"):
        assert getattr(after, name) == getattr(before, name)
    storage = measured.engine.runner.attention.storage  # type: ignore[attr-defined]
    assert not any(tensor.view(torch.int8).any() for tensor in storage.tensors)


def test_recompute_takes_no_swap_memory_even_by_default(assemble: Assemble) -> None:
    assembled = assemble(preemption="recompute")
    assert isinstance(preemption(assembled), Recompute)


def test_a_step_may_do_nothing_but_swap_out(make_engine: EngineMaker) -> None:
    """When the policy preempts a request, and none is served after that."""
    engine = make_engine(swap_memory="1MiB")
    storage = engine.runner.attention.storage  # type: ignore[attr-defined]
    for tensor in storage.tensors:
        tensor[:, 32:48] = 1
    logits = engine.runner.run(Plan([], [Move(32, 0, 16, "swap_out"), Move(0, 64, 16, "swap_in")]))
    assert len(logits.values) == 0 and not logits.rows
    assert all((tensor[:, 64:80] == 1).all() for tensor in storage.tensors)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("given", [{}, {"swap_memory": 0}])
def test_swap_without_swap_memory(assemble: Assemble, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"swap_memory is 0, the default on CPU; give some, such as --swap"):
        assemble(preemption="swap", **given)


def test_swap_memory_for_nothing(assemble: Assemble) -> None:
    with pytest.raises(ConfigError, match=r"swap_memory=1.0 MiB is of no use with preemption=recompute"):
        assemble(preemption="recompute", swap_memory="1MiB")


def test_too_small_for_one_request(assemble: Assemble) -> None:
    """A request of 100 tokens has 7 blocks of 16: 112 tokens."""
    with pytest.raises(ConfigError) as error:
        assemble(swap_memory=111 * KV_BYTES_PER_TOKEN)
    assert str(error.value) == (
        "swap_memory=55.5 KiB holds 111 tokens, but one request of max_model_len=100 = 7 blocks of 16 "
        "needs 56.0 KiB (512 bytes a token); raise --swap-memory or lower --max-model-len"
    )
    assert assemble(swap_memory=112 * KV_BYTES_PER_TOKEN).engine.scheduler.kv.snapshot().swap == 112


def test_more_than_the_host_has(assemble: Assemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CPU the KV pool takes from the same memory."""
    free = 3 * 2**20
    monkeypatch.setattr("turnout.runner.memory.swap_memory.free_host_memory", lambda: free)
    assemble(swap_memory="2MiB")
    with pytest.raises(ConfigError) as error:
        assemble(swap_memory="2.5MiB")
    assert str(error.value) == (
        "swap_memory asks for 2.5 MiB beside a KV pool of 1.0 MiB, but the host has 3.0 MiB free; "
        "ask for less"
    )


def test_a_backend_that_swaps_out_nothing(assemble: Assemble, tmp_path: Path) -> None:
    (tmp_path / "turnout_plugins.py").write_text(
        "from test_swap_memory import Forgetful\n"
        "from turnout.core.registry.hookspecs import hookimpl\n"
        "@hookimpl\n"
        "def register_kv_backends(register):\n"
        "    register('forgetful', Forgetful)\n"
    )
    with pytest.raises(ConfigError, match="kv backend 'forgetful' swaps nothing out to host memory; leave"):
        assemble(kv="forgetful", swap_memory="1MiB", plugins_folder=str(tmp_path))
    assert isinstance(preemption(assemble(kv="forgetful", plugins_folder=str(tmp_path))), Recompute)


class Forgetful(Contiguous):
    """As one written before there was swapping."""

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        return super().cache(PoolSize(size.tokens), eviction)


# ------------------------------------------------------------------ beside a GPU


@pytest.mark.parametrize(
    ("free", "options", "expected"),
    [
        (64 * 2**30, {}, 4 * 2**30),
        (6 * 2**30, {}, 3 * 2**30),
        (64 * 2**30, {"preemption": "recompute"}, 0),
        (64 * 2**30, {"preemption": "swap"}, 4 * 2**30),
        (64 * 2**30, {"swap_memory": 0}, 0),
        (64 * 2**30, {"swap_memory": "60GiB"}, 60 * 2**30),
    ],
)
def test_the_default_beside_a_gpu(
    free: int, options: dict[str, Any], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 GiB, but no more than half of the free host memory; the pool is elsewhere."""
    monkeypatch.setattr("turnout.runner.memory.swap_memory.free_host_memory", lambda: free)
    budget = Budget(
        config=EngineConfig(**options),
        spec=None,  # type: ignore[arg-type]  # not asked
        device=torch.device("cuda"),
        bytes_per_token=1024,
        unit=16,
        request_tokens=2048,
        max_model_len=2048,
        rows=64,
        max_batched_tokens=8192,
    )
    assert SwapMemory(budget).positions(2**30) == expected // 1024


# ------------------------------------------------------------------ the pool beside it


def test_the_pool_is_sized_in_whole_blocks(assemble: Assemble) -> None:
    """The most that one request of 100 tokens can use is 7 blocks, not 6 and a quarter."""
    assembled = assemble(kv_memory=None, max_num_seqs=1)
    assert assembled.engine.scheduler.kv.capacity == 112
    assert "= 112 tokens = 1 requests of 100 tokens" in assembled.ready.summary[-2]


def test_a_pool_that_is_part_of_a_block_short(assemble: Assemble) -> None:
    with pytest.raises(ConfigError) as error:
        assemble(kv_memory=111 * KV_BYTES_PER_TOKEN)
    assert str(error.value) == (
        "the KV pool of 48.0 KiB holds 96 tokens, but one request of max_model_len=100 = 7 blocks of 16 "
        "needs 56.0 KiB (512 bytes a token); raise --kv-memory or lower --max-model-len"
    )
