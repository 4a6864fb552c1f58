"""Fused layers: the shared layers, computed by kernels.

They are a transform of the module that a family built, as quantization is. Before the weights are there,
`fuse_layers` exchanges layers, whose parameters keep their names. While they come, `pack_complete` packs the
linear layers that a parameter completed, joining those that read the same input. In the end, `pack_rest`
packs those that were left. For a CPU weights are packed; for a GPU they are only joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend, rotates
from turnout.core.interfaces.compute import FusedKernels
from turnout.kernels import CpuKernels, cpu_kernels
from turnout.kernels.layers import Heads
from turnout.models.decoder.gates import Gate, gelu_gate, silu_gate
from turnout.models.decoder.latent_attention import HeadExpansion
from turnout.models.decoder.layers import (
    Attention,
    Embedding,
    GatedMLP,
    Norm,
    PlainMLP,
    RMSNorm,
    SinkAttention,
    Sinks,
)
from turnout.models.decoder.normed_attention import (
    HeadNormedAttention,
    HeadNorms,
    WideNormedAttention,
    WideNorms,
)
from turnout.models.decoder.packed import (
    NarrowEmbedding,
    PackedEmbedding,
    PackedLinear,
    layer_capabilities,
    pack,
    packs,
)
from turnout.models.decoder.rope import Rotation
from turnout.models.decoder.routers import Router

__all__ = [
    "FusedAttention",
    "FusedMLP",
    "FusedRMSNorm",
    "JoiningLayer",
    "fuse_layers",
    "pack_complete",
    "pack_rest",
]


def fuse_layers(module: nn.Module, kernels: FusedKernels) -> None:
    """Exchanges the shared layers of `module`, wherever they are; other layers stay."""
    for name, layer in list(module.named_modules()):
        if type(layer) is RMSNorm:
            module.set_submodule(name, FusedRMSNorm(layer, kernels))
        elif type(layer) is GatedMLP:
            module.set_submodule(name, FusedMLP(layer, kernels))
        elif type(layer) is PlainMLP and (compiled := cpu_kernels(kernels)) is not None:
            module.set_submodule(name, FusedPlainMLP(layer, compiled))
        elif fused := FUSED_ATTENTION.get(type(layer)):
            module.set_submodule(name, fused(layer, kernels))


def pack_complete(module: nn.Module, names: Sequence[str], kernels: FusedKernels) -> None:
    """Packs what is complete now that the parameter of the layers `names`, which may be tied, is there."""
    tables = [name for name in names if type(module.get_submodule(name)) is Embedding]
    for name in names:
        parent = module.get_submodule(name.rpartition(".")[0])
        if isinstance(parent, JoiningLayer) and name.rpartition(".")[2] in parent.parts:
            parent.join_complete()
        else:
            _pack_alone(module, name, kernels)
    compiled = cpu_kernels(kernels)
    if tables and compiled is not None:
        _pack_tables(module, tables, names, compiled)


def pack_rest(module: nn.Module, kernels: FusedKernels) -> None:
    """Packs the layers that were to be joined with others, where a quantizer took those."""
    compiled = cpu_kernels(kernels)
    for name, layer in list(module.named_modules()):
        _pack_alone(module, name, kernels)
        if isinstance(layer, (Router, HeadExpansion)) and compiled is not None:
            layer.pack(compiled)


def _pack_tables(module: nn.Module, tables: Sequence[str], tied: Sequence[str], kernels: CpuKernels) -> None:
    """Lets embeddings read the packed weights of the head that they are tied to.

    An embedding that is not tied is kept in bfloat16 where that holds its float32 numbers exactly.
    """
    layers = (module.get_submodule(name) for name in tied)
    head = next((layer for layer in layers if isinstance(layer, PackedLinear)), None)
    for name in tables:
        weight = module.get_parameter(f"{name}.weight")
        if head is not None:
            module.set_submodule(name, PackedEmbedding(head.rows, weight.dtype))
        elif weight.dtype == torch.float32 and kernels.is_bfloat16(weight):
            module.set_submodule(name, NarrowEmbedding(weight))


def _pack_alone(module: nn.Module, name: str, kernels: FusedKernels) -> None:
    layer = module.get_submodule(name)
    if isinstance(layer, nn.Linear) and packs(layer):
        module.set_submodule(name, pack([layer], kernels))


class FusedRMSNorm(Norm):
    """Computes what `RMSNorm` does; adds in place."""

    def __init__(self, like: RMSNorm, kernels: FusedKernels) -> None:
        super().__init__()
        self.weight, self.eps = like.weight, like.eps
        self.kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        return self.add(x.contiguous(), None)[1]

    def add(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        return x, self.kernels.norm(x, delta, self.weight, self.eps)


class JoiningLayer(nn.Module):
    """A layer some of whose linear layers read the same input, and become one when all are there."""

    parts: ClassVar[tuple[str, ...]]
    """The names of those linear layers."""

    def __init__(self, kernels: FusedKernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.joint: nn.Module | None = None

    def join_complete(self) -> None:
        """Joins the parts, once all of them have their weights, where they go together."""
        linears = [getattr(self, part) for part in self.parts]
        if all(packs(linear) for linear in linears):
            self.joint = pack(linears, self.kernels)
        elif (join := layer_capabilities(linears[0]).join) is not None:
            self.joint = join(linears[1:])
        if self.joint is not None:
            for part in self.parts:
                delattr(self, part)


class FusedMLP(JoiningLayer):
    """Computes what `GatedMLP` does."""

    parts = ("gate_proj", "up_proj")

    def __init__(self, like: GatedMLP, kernels: FusedKernels) -> None:
        super().__init__(kernels)
        self.gate_proj, self.up_proj, self.down_proj = like.gate_proj, like.up_proj, like.down_proj
        self.gated = like.gated
        compiled = cpu_kernels(kernels)
        if self.gated is gelu_gate and compiled is not None:
            self.gated = _batch_free_gelu_gate(compiled)

    def forward(self, x: Tensor) -> Tensor:
        if self.gated is silu_gate:
            gated = self.kernels.gate(self._both(x))
        elif self.joint is None:
            gated = self.gated(self.gate_proj(x), self.up_proj(x))
        else:
            gated = self.gated(*self.joint(x).chunk(2, dim=-1))
        out: Tensor = self.down_proj(gated)
        return out

    def _both(self, x: Tensor) -> Tensor:
        """What the gate is made of, and what is gated behind it: of layers that are not joined, too.

        PyTorch rounds a gate in another way than the kernel, and a number by where it lies in the batch.
        """
        if self.joint is None:
            return torch.cat((self.gate_proj(x), self.up_proj(x)), dim=-1)
        both: Tensor = self.joint(x)
        return both


def _batch_free_gelu_gate(kernels: CpuKernels) -> Gate:
    """Returns what computes `gelu_gate` row by row: PyTorch rounds a number by where it lies in the batch."""
    return lambda gate, up: kernels.gelu(gate.contiguous(), by_tanh=True).mul_(up)


class FusedPlainMLP(nn.Module):
    """Computes what `PlainMLP` does, row by row, as `_batch_free_gelu_gate`."""

    def __init__(self, like: PlainMLP, kernels: CpuKernels) -> None:
        super().__init__()
        self.up_proj, self.down_proj = like.up_proj, like.down_proj
        self.kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.kernels.gelu(self.up_proj(x), by_tanh=True))
        return out


class FusedAttention(JoiningLayer):
    """Computes what `Attention` does."""

    parts = ("q_proj", "k_proj", "v_proj")

    def __init__(self, like: Attention, kernels: FusedKernels) -> None:
        super().__init__(kernels)
        self.layer, self.head_dim = like.layer, like.head_dim
        self.q_proj, self.k_proj, self.v_proj = like.q_proj, like.k_proj, like.v_proj
        self.o_proj = like.o_proj
        queries, keys = like.q_proj.out_features, like.k_proj.out_features
        self.heads = Heads(queries // self.head_dim, keys // self.head_dim, self.head_dim)

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend, rows: Tensor | None = None) -> Tensor:
        if rotates(attend):
            q, k, v = self._parts(x)
            q, k = self.prepared(q, k)
            mixed = attend.rotating(self.layer, q, k, v, rotation.cos, rotation.sin, *self.passed())
        else:
            mixed = attend(self.layer, *self._rotated(x, rotation), *self.passed())
        mixed = mixed if rows is None else mixed[rows]
        out: Tensor = self.o_proj(mixed.flatten(1))
        return out

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        """Returns queries, keys and values, not rotated."""
        if self.joint is None:
            return [self._heads(part(x)) for part in (self.q_proj, self.k_proj, self.v_proj)]
        return self._split(self._heads(self.joint(x)))

    def prepared(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Returns queries and keys as they are to be rotated, as `Attention.prepared` does."""
        return q, k

    def passed(self) -> tuple[Tensor, ...]:
        """Returns what attention is given beside queries, keys and values, as `Attention.passed` does."""
        return ()

    def _rotated(self, x: Tensor, rotation: Rotation) -> Sequence[Tensor]:
        """Returns queries, keys and values, rotated."""
        q, k, v = self._parts(x)
        q, k = self.prepared(q, k)
        for heads in (q, k):
            self.kernels.rotate(heads, *rotation)
        return q, k, v

    def _split(self, heads: Tensor) -> Sequence[Tensor]:
        return torch.split(heads, [self.heads.queries, self.heads.keys, self.heads.keys], dim=1)

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1] // self.head_dim, self.head_dim)


class FusedHeadNormedAttention(HeadNorms, FusedAttention):
    """Computes what `HeadNormedAttention` does."""

    def __init__(self, like: HeadNormedAttention, kernels: FusedKernels) -> None:
        FusedAttention.__init__(self, like, kernels)
        self.q_norm, self.k_norm = like.q_norm, like.k_norm


class FusedWideNormedAttention(WideNorms, FusedAttention):
    """Computes what `WideNormedAttention` does."""

    def __init__(self, like: WideNormedAttention, kernels: FusedKernels) -> None:
        FusedAttention.__init__(self, like, kernels)
        self.q_norm, self.k_norm = like.q_norm, like.k_norm


class FusedSinkAttention(Sinks, FusedAttention):
    """Computes what `SinkAttention` does."""

    def __init__(self, like: SinkAttention, kernels: FusedKernels) -> None:
        FusedAttention.__init__(self, like, kernels)
        self.sinks = like.sinks


FUSED_ATTENTION: Mapping[type[nn.Module], Callable[..., nn.Module]] = {
    Attention: FusedAttention,
    HeadNormedAttention: FusedHeadNormedAttention,
    SinkAttention: FusedSinkAttention,
    WideNormedAttention: FusedWideNormedAttention,
}
