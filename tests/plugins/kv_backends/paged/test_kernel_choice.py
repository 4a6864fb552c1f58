"""Which attention a paged backend takes for a model, and what it says where that is not the fastest."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from steps import compute

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import PoolSize
from turnout.core.types.plan import Chunk, Plan
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.plugins.kv_backends.paged.device.kernel_attention import PagedKernels
from turnout.plugins.kv_backends.paged.host.window_tables import ABSENT
from turnout.testing.checks.attention_traffic import EXAMPLES, Rules, new_sequence, spec_of

pytest.importorskip("triton")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def built(backend: Paged, rules: Rules) -> object:
    cache = backend.cache(PoolSize(64), Lru())
    return backend.attention(spec_of(rules), cache, ComputeContext(CPU, torch.float32))


@pytest.mark.parametrize("name", ["plain", "window", "sinks", "softcap", "scale", "as Gemma 2", "as gpt-oss"])
def test_kernels_serve_what_they_follow(name: str) -> None:
    assert type(built(Paged(attention="triton"), EXAMPLES[name])).__name__ == "PagedKernels"


@pytest.mark.parametrize("name", ["value_dim", "layer_shapes", "kv_from", "values_in_keys"])
def test_kernels_that_are_asked_for_refuse_other_rules_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"triton cannot serve.*{name}.*use torch"):
        built(Paged(attention="triton"), EXAMPLES[name])


def test_on_a_gpu_plain_pytorch_takes_their_place_and_says_so() -> None:
    assert Paged()._by_kernels("cuda", spec_of(EXAMPLES["as gpt-oss"])) == (True, ())
    chosen, (line,) = Paged()._by_kernels("cuda", spec_of(EXAMPLES["value_dim"]))
    assert not chosen and line == "attention in plain PyTorch: Triton's kernels do not follow value_dim"
    assert Paged()._by_kernels("cpu", spec_of(EXAMPLES["value_dim"])) == (False, ())


def test_heads_of_an_odd_width_are_not_for_kernels() -> None:
    """They write keys and values as pairs: the last number of each head was lost."""
    spec = replace(spec_of(EXAMPLES["plain"]), head_dim=17)
    assert Paged()._by_kernels("cuda", spec) == (
        False,
        ["attention in plain PyTorch: Triton's kernels do not follow heads of an odd width, such as 17"],
    )
    with pytest.raises(
        ConfigError, match=r"triton cannot serve this model: .*odd width, such as 17; use torch"
    ):
        Paged(attention="triton")._by_kernels("cpu", spec)


def test_a_cascade_goes_with_models_without_windows_alone() -> None:
    built(Paged(attention="triton", cascade=1), EXAMPLES["sinks"])
    with pytest.raises(ConfigError, match=r"whole prefixes.*windows"):
        built(Paged(attention="triton", cascade=1), EXAMPLES["window"])


def test_a_step_to_capture_has_room_for_sequences_longer_than_the_pool() -> None:
    """Where all layers have windows, a sequence holds less than its length: its table did not fit."""
    rule = replace(EXAMPLES["plain"][0], window=64)
    spec = replace(spec_of([rule, rule]), max_positions=2048)
    backend = Paged(attention="triton").for_model(spec)
    cache = backend.cache(PoolSize(512, step=128), Lru())
    kernels = backend.attention(spec, cache, ComputeContext(CPU, torch.float32))
    assert isinstance(kernels, PagedKernels)
    sequence = new_sequence([1] * 1001)
    for upto in range(100, 1001, 100):
        compute(cache, sequence, upto=upto)
    compute(cache, sequence)
    plan = Plan([Chunk(sequence, 1000, [1], 1)], [])
    shape = kernels.shape(plan)
    assert shape is not None
    tiles = kernels.bind_to(plan, shape).launches[0][0]
    assert (tiles.tables[0, :63] == torch.tensor(cache.tables[sequence.id]) * cache.block_size).all()


def test_blocks_that_a_window_let_go_are_not_read() -> None:
    """Their entries name another sequence's block: a NaN there would be in the output, masked or not."""
    rule = replace(EXAMPLES["plain"][0], window=64)
    spec = replace(spec_of([rule]), max_positions=2048)
    backend = Paged(attention="triton", dtype="int8").for_model(spec)
    cache = backend.cache(PoolSize(2048, step=128), Lru())
    kernels = backend.attention(spec, cache, ComputeContext(CPU, torch.float32))
    assert isinstance(kernels, PagedKernels)
    other, sequence = new_sequence([2] * 16), new_sequence([1] * 1041)
    compute(cache, other)
    for upto in range(80, 1041, 80):
        compute(cache, sequence, upto=upto)
    compute(cache, sequence)
    (block,) = cache.tables[other.id]
    assert block == ABSENT not in cache.tables[sequence.id][60:]
    for tensor in kernels.storage.tensors:
        if tensor.dtype.is_floating_point:
            tensor[:, :16] = float("nan")
    kernels.bind(Plan([Chunk(sequence, 1040, [1], 1)], []))
    q, k, v = (torch.ones(1, heads, rule.key_dim) for heads in (rule.heads, rule.kv_heads, rule.kv_heads))
    assert kernels(0, q, k, v).isfinite().all()
