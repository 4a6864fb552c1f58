"""A model with compiled kernels computes the same, holds its weights once, and quantizers keep theirs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from turnout.core.interfaces.attention import AttentionCapabilities
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Quantizer
from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels import CpuKernels, choose_kernels, variants
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.attention.stored import StoredVectors
from turnout.kernels.build import compiled_library
from turnout.kernels.compiled import BlockTables
from turnout.kernels.layers import InPlace
from turnout.models.decoder.fused import FusedAttention
from turnout.models.decoder.packed import PackedEmbedding, PackedLinear
from turnout.models.random.shapes import Shape, config_of
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.pool import make_storage
from turnout.plugins.kv_backends.storage.tensors import PoolShape
from turnout.plugins.quantization.layers.native import NativeLinear
from turnout.plugins.quantization.schemes.int4 import Int4WeightOnly
from turnout.plugins.quantization.schemes.int8 import Int8, Int8WeightOnly

PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 33]
VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("qwen2", "default", {"tie_word_embeddings": True}),
    ("qwen2", "yarn", {}),
    ("llama", "llama3", {"attention_bias": True, "mlp_bias": True}),
    ("llama", "dynamic", {"num_key_value_heads": 1}),
    ("qwen3", "default", {"head_dim": 24}),
    ("olmo2", "default", {}),
    ("smollm3", "default", {"no_rope_layers": [1, 0]}),
]


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    made, note = choose_kernels("auto", torch.device("cpu"), torch.float32)
    if made is None:
        pytest.skip(note)
    return made


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize(("family", "rope", "more"), VARIANTS)
def test_logits_are_the_same(
    family, rope, more, stored, kernels, tiny_config, checkpoint, load, served
) -> None:
    folder = checkpoint(tiny_config(family, rope, **more), dtype=stored)
    plain, native = served(load(folder)), served(load(folder, kernels=kernels))
    for chunk in (None, 1, 3):
        torch.testing.assert_close(
            native.logits(PROMPT, chunk), plain.logits(PROMPT, chunk), rtol=1e-4, atol=1e-4
        )


def test_logits_in_bfloat16(kernels, tiny_config, checkpoint, load, served) -> None:
    folder = checkpoint(tiny_config("qwen2"), dtype="bfloat16")
    exact = served(load(folder)).logits(PROMPT)
    plain = served(load(folder, dtype=torch.bfloat16)).logits(PROMPT).float()
    native = served(load(folder, dtype=torch.bfloat16, kernels=kernels)).logits(PROMPT).float()
    assert (native - exact).abs().mean() < 1.2 * (plain - exact).abs().mean()


def test_a_row_does_not_depend_on_the_chunk_it_is_in(kernels, tiny_config, checkpoint, load) -> None:
    """To the last bit, but for attention, which looks at other rows' products only."""
    module = load(checkpoint(tiny_config("qwen2")), kernels=kernels)
    hidden = torch.randn(40, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        together = module.model.layers[0].mlp(hidden)
        alone = torch.cat([module.model.layers[0].mlp(row[None]) for row in hidden])
    assert torch.equal(together, alone)


def test_layers_of_one_input_are_one(kernels, tiny_config, checkpoint, load) -> None:
    module = load(checkpoint(tiny_config("llama")), kernels=kernels)
    packed = [name for name, layer in module.named_modules() if isinstance(layer, PackedLinear)]
    parts = ("self_attn.o_proj", "self_attn.joint", "mlp.down_proj", "mlp.joint")
    assert {*packed} == {"lm_head", *(f"model.layers.{n}.{part}" for n in (0, 1) for part in parts)}
    assert not any(isinstance(layer, nn.Linear) for layer in module.modules())


@pytest.mark.parametrize(("stored", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_weights_that_bfloat16_holds_take_half_the_memory(
    stored, itemsize, kernels, tiny_config, checkpoint, load
) -> None:
    folder = checkpoint(tiny_config("qwen2", tie_word_embeddings=True), dtype=stored)
    module = load(folder, kernels=kernels)
    assert isinstance(module.model.embed_tokens, PackedEmbedding)
    matrices = sum(value.numel() for value in load(folder).parameters() if value.dim() == 2)
    held = sum(value.nbytes for name, value in module.named_buffers() if name.endswith("numbers"))
    assert held == matrices * itemsize


class Takes(Quantizer):
    """Replaces the layers of some names by others that compute the same."""

    def __init__(self, ending: str) -> None:
        self.ending = ending

    def wants(self, name: str, linear: nn.Linear) -> bool:
        return name.endswith(self.ending)

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        return nn.Sequential(nn.Identity(), linear)


@pytest.mark.parametrize("ending", ["q_proj", "v_proj", "up_proj", "down_proj", "lm_head", "proj", ""])
def test_quantizers_have_the_layers_they_want(ending, kernels, tiny_config, checkpoint, load, served) -> None:
    folder = checkpoint(tiny_config("qwen2", tie_word_embeddings=True))
    module = load(folder, quantizer=Takes(ending), kernels=kernels)
    taken = [name for name, layer in module.named_modules() if isinstance(layer, nn.Sequential)]
    plain = [name for name, layer in load(folder).named_modules() if isinstance(layer, nn.Linear)]
    assert taken == [name for name in plain if name.endswith(ending)]
    attention = module.model.layers[0].self_attn
    assert isinstance(attention, FusedAttention)
    assert (attention.joint is None) == (ending in ("q_proj", "v_proj", "proj", ""))
    torch.testing.assert_close(
        served(module).logits(PROMPT), served(load(folder)).logits(PROMPT), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "smollm3"])
def test_layers_in_one_call_compute_the_same(family, dtype, kernels, tiny_config, checkpoint, load) -> None:
    """To the last bit what they compute one by one, which is what happens where one of them is not native."""
    config = tiny_config(family, tie_word_embeddings=True, no_rope_layers=[0, 1])
    folder = checkpoint(config, dtype="bfloat16")
    hidden = []
    for ending in (None, "down_proj"):
        module = load(folder, dtype=dtype, quantizer=Takes(ending) if ending else None, kernels=kernels)
        hidden.append(over_a_pool(module, kernels))
        assert (module.model._joined is None) == bool(ending)
    module = load(folder, dtype=dtype, kernels=kernels)
    module.model._layers = lambda place: None
    assert torch.equal(over_a_pool(module, kernels), hidden[0])
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(*hidden, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("together", [True, False], ids=["in one call", "one by one"])
@pytest.mark.parametrize("picked", [[0], [4, 7], [2, 3, 5, 6, 7]], ids=str)
def test_rows_that_are_picked(picked, together, dtype, kernels, tiny_config, checkpoint, load) -> None:
    """They are the bits that they are among all others, and the keys and values of all are written."""
    module = load(checkpoint(tiny_config("qwen2"), dtype="bfloat16"), dtype=dtype, kernels=kernels)
    if not together:
        module.model._layers = lambda place: None
    whole, some = pool_of(module, kernels), pool_of(module, kernels)
    with torch.inference_mode():
        first = whole.forward(module, [PROMPT[:5], PROMPT[2:5]], starts=[0, 0])
        assert torch.equal(
            some.forward(module, [PROMPT[:5], PROMPT[2:5]], [0, 0], torch.tensor(picked)), first[picked]
        )
        following = ([PROMPT[5:], PROMPT[7:8]], [5, 3])
        assert torch.equal(some.forward(module, *following), whole.forward(module, *following))


FEW_BITS = {"int8": Int8(), "int8wo": Int8WeightOnly(), "int4wo": Int4WeightOnly()}


@pytest.mark.parametrize("scheme", FEW_BITS)
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
def test_layers_of_few_bits_are_in_that_call_too(
    scheme, bias, kernels, tiny_config, checkpoint, load
) -> None:
    """As for the others, what comes out are the bits that they give one by one."""
    config = tiny_config("llama", attention_bias=bias, mlp_bias=bias)
    module = load(checkpoint(config, dtype="bfloat16"), quantizer=FEW_BITS[scheme], kernels=kernels)
    assert isinstance(module.model.layers[0].mlp.down_proj, NativeLinear)
    together = over_a_pool(module, kernels)
    assert module.model._joined is not None
    module.model._layers = lambda place: None
    assert torch.equal(over_a_pool(module, kernels), together)


@pytest.mark.parametrize("scheme", [None, "int8"])
def test_the_gate_is_part_of_a_product_by_tiles(scheme, tiny_config, checkpoint, load) -> None:
    """In one call, and to the bits of a product and the gate behind it; by emulated tiles, on any machine."""
    variant = next(each for each in variants.VARIANTS if each.name == "amx-emulated")
    if why := variants.obstacle(variant):
        pytest.skip(why)
    tiles = CpuKernels(compiled_library(variant))
    folder = checkpoint(tiny_config("llama", mlp_bias=scheme is None), dtype="bfloat16")
    module = load(folder, dtype=torch.bfloat16, quantizer=scheme and FEW_BITS[scheme], kernels=tiles)
    together = over_a_pool(module, tiles)
    assert module.model._joined is not None
    module.model._layers = lambda place: None
    assert torch.equal(over_a_pool(module, tiles), together)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_with_rules_are_in_that_call_too(dtype, kernels, tiny_config, checkpoint, load) -> None:
    """To the last bit; layers without keys and values of their own, or without the sinks that their rules ask
    for, come one by one."""
    module = load(checkpoint(tiny_config("qwen2"), dtype="bfloat16"), dtype=dtype, kernels=kernels)
    plain = over_a_pool(module, kernels)
    rules = LayerAttention(4, 2, 16, 16, window=3, scale=0.4), LayerAttention(4, 2, 16, 16, softcap=1.5)
    together = over_a_pool(module, kernels, rules)
    assert module.model._joined is not None and not torch.equal(together, plain)
    for refused in ({"kv_from": 0}, {"values_in_keys": True}):
        pool = pool_of(module, kernels, (rules[0], replace(rules[1], **refused)))
        assert not InPlace(pool.pools, None, None, pool.rules).computes_layers
    over_a_pool(module, kernels, (rules[0], replace(rules[1], sinks=True)))
    assert module.model._joined is None
    module.model._layers = lambda place: None
    assert torch.equal(over_a_pool(module, kernels, rules), together)


@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_over_kv_in_8_bits_are_in_that_call_too(
    dtype, kind, kernels, tiny_config, checkpoint, load
) -> None:
    """To the last bit."""
    module = load(checkpoint(tiny_config("qwen2"), dtype="bfloat16"), dtype=dtype, kernels=kernels)
    together = over_a_pool(module, kernels, kind=kind)
    assert module.model._joined is not None and not torch.equal(together, over_a_pool(module, kernels))
    module.model._layers = lambda place: None
    assert torch.equal(over_a_pool(module, kernels, kind=kind), together)


@torch.inference_mode()
def over_a_pool(
    module: nn.Module, kernels: CpuKernels, rules: Sequence[LayerAttention] = (), kind: KVDtype = "auto"
) -> torch.Tensor:
    """The hidden states of a prompt in two chunks, the second among those of another sequence."""
    pool = pool_of(module, kernels, rules, kind)
    first = pool.forward(module, [PROMPT[:9]], starts=[0])
    both = pool.forward(module, [PROMPT[9:], PROMPT[:3]], starts=[9, 0])
    return torch.cat((first, both))


def pool_of(
    module: nn.Module, kernels: CpuKernels, rules: Sequence[LayerAttention] = (), kind: KVDtype = "auto"
) -> PoolOfBlocks:
    shape = PoolShape.of(LayerAttention(2, 2, 16, 16), layers=2, slots=128)
    storage = make_storage(kind, shape, torch.device("cpu"), module.model.norm.weight.dtype)
    return PoolOfBlocks(kernels, rules, [storage.stored(layer) for layer in range(2)])


class PoolOfBlocks:
    """Sequence n has its blocks of 4 positions in the slots from 64 * n on."""

    capabilities = AttentionCapabilities(in_place=True)

    def __init__(
        self,
        kernels: CpuKernels,
        rules: Sequence[LayerAttention],
        pools: Sequence[tuple[StoredVectors, StoredVectors]],
    ) -> None:
        self.kernels, self.rules, self.pools = kernels, rules, pools

    def forward(
        self,
        module: nn.Module,
        chunks: list[list[int]],
        starts: list[int],
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        lengths = torch.tensor([len(chunk) for chunk in chunks])
        positions = [
            torch.arange(start, start + len(chunk)) for start, chunk in zip(starts, chunks, strict=True)
        ]
        written = torch.cat([each + 64 * number for number, each in enumerate(positions)])
        slots = torch.arange(0, 64, 4) + 64 * torch.arange(len(chunks))[:, None]
        tables = BlockTables(4, lengths.cumsum(0) - lengths, lengths, torch.tensor(starts), slots)
        self.bound = InPlace(self.pools, [written], [tables], self.rules)
        tokens = torch.tensor([token for chunk in chunks for token in chunk])
        return module(tokens, torch.cat(positions), self, rows)

    @property
    def in_place(self) -> InPlace:
        return self.bound

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        keys, values = self.pools[layer]
        self.kernels.write(k, keys, self.bound.written[0])
        self.kernels.write(v, values, self.bound.written[0])
        rule = rule_of(self.rules[layer]) if self.rules else None
        return self.kernels.attend(q, keys, values, self.bound.tables[0], rule)


MEASURE = """
import sys, torch
from pathlib import Path
from turnout.core.interfaces.compute import ComputeContext
from turnout.kernels import choose_kernels
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.families import Qwen2
from turnout.models.checkpoints.loading import load_model
from turnout.runner.memory.budget import weight_bytes

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))

folder, family, cpu = Path(sys.argv[1]), Qwen2(), torch.device("cpu")
kernels = choose_kernels("native", cpu, torch.float32).kernels
spec = family.spec(read_config(folder))
Path("/proc/self/clear_refs").write_text("5")  # forget the peak of importing
before = status("VmRSS")
module = load_model(folder, family, spec, ComputeContext(cpu, torch.float32, kernels))
print(status("VmHWM") - before, weight_bytes(module))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.slow
def test_peak_memory_is_the_packed_weights_and_those_being_packed(kernels, checkpoint) -> None:
    shape = Shape(hidden=1024, layers=5, heads=16, kv_heads=4, intermediate=2816, vocab=16_384, tied=True)
    folder = checkpoint(config_of(shape, "qwen2"), dtype="bfloat16")
    run = subprocess.run([sys.executable, "-c", MEASURE, folder], capture_output=True, text=True, check=True)
    peak, weights = map(int, run.stdout.split())
    assert weights < 160e6
    assert peak <= weights + 4 * shape.vocab * shape.hidden + 60e6
