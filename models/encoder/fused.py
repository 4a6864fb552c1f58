"""An encoder's layers, computed by the compiled kernels of a CPU: in one pass between two products.

As `models/decoder/fused.py` does with a decoder's, `fuse_encoder` exchanges layers before their weights are
there. Parameters keep their names.
"""

from __future__ import annotations

from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.core.interfaces.compute import FusedKernels
from turnout.kernels import CpuKernels, cpu_kernels
from turnout.models.decoder.fused import FusedAttention, FusedMLP
from turnout.models.decoder.layers import Norm
from turnout.models.decoder.rope import Rotation
from turnout.models.encoder.layers import (
    FUNCTIONS,
    EncoderAttention,
    EncoderMLP,
    GeluGatedMLP,
    LayerNorm,
)

__all__ = ["fuse_encoder"]


def fuse_encoder(module: nn.Module, kernels: FusedKernels) -> None:
    """Exchanges the encoders' layers of `module`, wherever they are; on a GPU attention alone."""
    compiled = cpu_kernels(kernels)
    for name, layer in list(module.named_modules()):
        if type(layer) is EncoderAttention:
            module.set_submodule(name, FusedEncoderAttention(layer, kernels))
        elif compiled is None:
            continue
        elif type(layer) is LayerNorm:
            module.set_submodule(name, FusedLayerNorm(layer, compiled))
        elif type(layer) is EncoderMLP and layer.activation in _GELUS:
            module.set_submodule(name, FusedEncoderMLP(layer, compiled))
        elif type(layer) is GeluGatedMLP:
            module.set_submodule(name, FusedGeluGatedMLP(layer, compiled))


_GELUS = {name: function is not FUNCTIONS["gelu"] for name, function in FUNCTIONS.items() if "gelu" in name}
"""For each name of a GELU, whether it is the approximation by tanh."""


class FusedLayerNorm(Norm):
    """Computes what `LayerNorm` does; adds in place."""

    def __init__(self, like: LayerNorm, kernels: CpuKernels) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = like.weight, like.bias, like.eps
        self.kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        return self.add(x.contiguous(), None)[1]

    def add(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        out = x.new_empty(x.shape)
        return x, self.kernels.layer_norm(x, delta, self.weight, self.bias, self.eps, out)


class FusedEncoderMLP(nn.Module):
    """Computes what `EncoderMLP` does with GELU."""

    def __init__(self, like: EncoderMLP, kernels: CpuKernels) -> None:
        super().__init__()
        self.up_proj, self.down_proj = like.up_proj, like.down_proj
        self.kernels = kernels
        self.by_tanh = _GELUS[like.activation]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.kernels.gelu(self.up_proj(x), by_tanh=self.by_tanh))
        return out


class FusedGeluGatedMLP(FusedMLP):
    """Computes what `GeluGatedMLP` does."""

    def __init__(self, like: GeluGatedMLP, kernels: CpuKernels) -> None:
        super().__init__(like, kernels)
        self._gelus = kernels

    def forward(self, x: Tensor) -> Tensor:
        if self.joint is None:
            return super().forward(x)
        out: Tensor = self.down_proj(self._gelus.gelu_gate(self.joint(x)))
        return out


class FusedEncoderAttention(FusedAttention):
    """Computes what `EncoderAttention` does."""

    def forward(
        self, x: Tensor, rotation: Rotation | None, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        if rotation is not None:
            return super().forward(x, rotation, attend, rows)
        mixed = attend(self.layer, *self._parts(x))
        mixed = mixed if rows is None else mixed[rows]
        out: Tensor = self.o_proj(mixed.flatten(1))
        return out
