"""A decoder whose layers compiled kernels compute in one native call, where they can compute all of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.kernels import CpuKernels
from turnout.kernels.layers import InPlace, LayerWeights, NativeLayers, reads_in_place
from turnout.kernels.threads import take_over_threads
from turnout.models.decoder.decoder import DecoderLayer, DecoderStack
from turnout.models.decoder.fused import FusedAttention, FusedMLP, FusedRMSNorm
from turnout.models.decoder.packed import layer_capabilities

__all__ = ["NativeStack", "use_native_stack"]


def use_native_stack(module: nn.Module, kernels: CpuKernels) -> None:
    """Lets the decoder in `module`, if it is the shared one, compute its layers together."""
    for name, layer in list(module.named_modules()):
        if type(layer) is DecoderStack:
            module.set_submodule(name, NativeStack(layer, kernels))


class NativeStack(DecoderStack):
    """Computes what `DecoderStack` does, whose modules it takes over.

    It computes layer by layer, as that does, where a quantizer made linear layers that the kernels cannot
    compute, and where attention does not declare `in_place`. The numbers are the same either way.
    """

    def __init__(self, like: DecoderStack, kernels: CpuKernels) -> None:
        nn.Module.__init__(self)
        for name, child in like.named_children():
            self.add_module(name, child)
        self._kernels = kernels
        self._pools: Sequence[tuple[Tensor, Tensor]] | None = None
        self._joined: NativeLayers | None = None
        """All layers, over `_pools`; None: the kernels cannot compute all of them."""

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        in_place = attend.in_place if reads_in_place(attend) else None
        layers = None if in_place is None else self._layers(in_place)
        if in_place is None or layers is None:
            return super().forward(tokens, positions, attend, rows)
        take_over_threads()
        hidden = self.embed_tokens(tokens)
        rotation = self.rotary(positions, hidden.dtype)
        hidden, delta = layers(hidden, rotation.cos, rotation.sin, in_place, rows)
        normed: Tensor = self.norm.add(hidden, delta)[1]
        return normed

    def _layers(self, in_place: InPlace) -> NativeLayers | None:
        """Makes the table of layers in the first step: by then weights are where they stay."""
        if self._pools is not in_place.pools:
            self._pools = in_place.pools
            weights = [_weights(layer) for layer in self.layers]
            complete = [each for each in weights if each is not None]
            if len(complete) == len(weights) and in_place.computes_layers:
                self._joined = NativeLayers(self._kernels, complete, in_place.pools, in_place.rules)
            else:
                self._joined = None
        return self._joined


def _weights(layer: nn.Module) -> LayerWeights | None:
    """Returns the weights of a layer; None: the kernels cannot compute all of it."""
    if type(layer) is not DecoderLayer:
        return None
    before, after, attention, mlp = (
        layer.input_layernorm,
        layer.post_attention_layernorm,
        layer.self_attn,
        layer.mlp,
    )
    if not (isinstance(attention, FusedAttention) and isinstance(mlp, FusedMLP)):
        return None
    if not (isinstance(before, FusedRMSNorm) and isinstance(after, FusedRMSNorm)):
        return None
    linears = (attention.joint, attention.o_proj, mlp.joint, mlp.down_proj)
    weights = [None if each is None else layer_capabilities(each).native_weights for each in linears]
    found = [each for each in weights if each is not None]
    if len(found) < len(linears):
        return None
    qkv, out, gate_up, down = found
    return LayerWeights(before.weight, after.weight, qkv, out, gate_up, down, attention.heads, before.eps)
