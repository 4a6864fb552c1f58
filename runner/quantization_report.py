"""Reports what quantization did to a model, in a few lines: bytes, and how long a layer takes now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.fused import JoiningLayer
from turnout.models.decoder.packed import PackedLinear, pack
from turnout.models.meta_model import linear_layers, meta_model
from turnout.runner.memory.budget import format_bytes, weight_bytes

__all__ = ["describe_quantization"]

COUNTS = (1, 8, 128)
"""Numbers of tokens in a step: one request that decodes, several, and part of a prompt."""
MIN_RUNS = 3
MEASURED_SECONDS = 0.1
"""For each number of tokens."""


@dataclass(frozen=True)
class _Layer:
    """A linear layer of the family's module, and what has taken its place."""

    name: str
    rows: int
    columns: int
    bias: bool
    module: nn.Module
    """The module that computes it now; several layers that became one share it."""

    @property
    def converted(self) -> bool:
        return not isinstance(self.module, (nn.Linear, PackedLinear))

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def plain_bytes(self, dtype: torch.dtype) -> int:
        return (self.size + self.bias * self.rows) * dtype.itemsize


def describe_quantization(
    model: nn.Module,
    family: ModelFamily,
    spec: ModelSpec,
    *,
    context: ComputeContext,
    options: Collection[str] = (),
) -> list[str]:
    """Returns the sums, and the times of the largest converted layer; no lines where none was converted.

    options: names of the quantizer's options, so that none is recommended that it would refuse.
    Times are measured, on this machine now, against the same layer unquantized, both computed as `context`
    says.
    """
    layers, dtype = _layers(model, family, spec), context.dtype
    converted = [layer for layer in layers if layer.converted]
    if not converted:
        return []
    inner = [layer for layer in converted if not layer.name.endswith("lm_head")] or converted
    largest = max(_joined(inner), key=lambda layer: layer.size)
    before = sum(layer.plain_bytes(dtype) for layer in converted)
    after = sum(weight_bytes(module) for module in {layer.module for layer in converted})
    kind = str(dtype).removeprefix("torch.")
    return [
        f"quantized {len(converted)} of {len(layers)} linear layers: {format_bytes(after)} instead of "
        f"{format_bytes(before)} in {kind} ({after / before:.2f} times)",
        *(_describe_tables(model, family, spec) if {"lm_head", "embeddings"} <= set(options) else []),
        _describe_times(largest, kind, _times(largest, context)),
    ]


def _layers(model: nn.Module, family: ModelFamily, spec: ModelSpec) -> list[_Layer]:
    return [
        _Layer(name, layer.out_features, layer.in_features, layer.bias is not None, _current(model, name))
        for name, layer in linear_layers(meta_model(family, spec)).items()
    ]


def _current(model: nn.Module, name: str) -> nn.Module:
    """Returns the module that computes the layer of that name now."""
    parent, _, own = name.rpartition(".")
    holder = model.get_submodule(parent)
    found: nn.Module | None = getattr(holder, own, None)
    if found is not None:
        return found
    assert isinstance(holder, JoiningLayer) and holder.joint is not None
    return holder.joint


def _joined(layers: Sequence[_Layer]) -> list[_Layer]:
    """Returns each module once; layers that became one are one."""
    modules = {layer.module: [each for each in layers if each.module is layer.module] for layer in layers}
    return [
        _Layer(
            parts[0].name, sum(p.rows for p in parts), parts[0].columns, any(p.bias for p in parts), module
        )
        for module, parts in modules.items()
    ]


def _describe_tables(model: nn.Module, family: ModelFamily, spec: ModelSpec) -> list[str]:
    """Says what head and embedding take, and would take in 8 bits; nothing where they have other names."""
    plain = dict(meta_model(family, spec).named_modules())
    embeddings = [name for name, layer in plain.items() if isinstance(layer, nn.Embedding)]
    heads = [name for name in plain if name.endswith("lm_head")]
    if len(embeddings) != 1 or len(heads) != 1:
        return []
    embedding, head = model.get_submodule(embeddings[0]), model.get_submodule(heads[0])
    now = weight_bytes(nn.ModuleList([embedding, head]))
    eight = spec.vocab_size * (spec.hidden_size + 4)
    both = eight if spec.tied_embeddings else 2 * eight
    return [
        f"embedding and head take {format_bytes(now)}; with lm_head=true "
        f"{format_bytes((weight_bytes(embedding) or now) + eight)}, with embeddings=true beside it "
        f"{format_bytes(both)}"
    ]


def _describe_times(layer: _Layer, kind: str, times: dict[int, float]) -> str:
    figures = ", ".join(f"{ratio:.2f} times for {_tokens(count)}" for count, ratio in times.items())
    slow = [_tokens(count) for count, ratio in times.items() if ratio > 1.05]
    note = f"; SLOWER than unquantized for {' and '.join(slow)}" if slow else ""
    return f"a layer of {layer.rows:,} x {layer.columns:,} takes, of its time in {kind}, {figures}{note}"


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def _plain(layer: _Layer, context: ComputeContext) -> Callable[[Tensor], Tensor]:
    """Builds the layer as it would be unquantized, with numbers such as checkpoints have: bfloat16's."""
    weight = torch.randn(layer.rows, layer.columns, dtype=torch.bfloat16, device=context.device)
    plain = nn.Linear(layer.columns, layer.rows, bias=False, device="meta")
    plain.weight = nn.Parameter(weight.to(context.dtype), requires_grad=False)
    return plain if context.kernels is None else pack([plain], context.kernels)


@torch.inference_mode()
def _times(layer: _Layer, context: ComputeContext) -> dict[int, float]:
    """Measures, for each number of tokens, the layer's time divided by the unquantized layer's."""
    plain, times = _plain(layer, context), {}
    for count in COUNTS:
        x = torch.randn(count, layer.columns, dtype=context.dtype, device=context.device)
        times[count] = _ratio(layer.module, plain, x)
    return times


def _ratio(one: Callable[[Tensor], object], other: Callable[[Tensor], object], x: Tensor) -> float:
    """Divides the shortest of some runs, taken in turns: other work of the machine only makes runs longer."""
    end, ones, others = perf_counter() + MEASURED_SECONDS, list[float](), list[float]()
    while len(ones) < MIN_RUNS or perf_counter() < end:
        ones.append(_seconds(one, x))
        others.append(_seconds(other, x))
    return min(ones) / min(others)


def _seconds(compute: Callable[[Tensor], object], x: Tensor) -> float:
    start = perf_counter()
    compute(x)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return perf_counter() - start
