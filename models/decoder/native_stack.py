"""A decoder whose layers compiled kernels compute in one native call, where they can compute all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.kernels import CpuKernels
from turnout.kernels.layers import InPlace, LayerWeights, NativeLayers, reads_in_place
from turnout.kernels.threads import take_over_threads
from turnout.models.decoder.decoder import DecoderLayer, DecoderStack
from turnout.models.decoder.fused import FusedAttention, FusedMLP, FusedRMSNorm
from turnout.models.decoder.gates import silu_gate
from turnout.models.decoder.normed_attention import HeadNorms, WideNorms
from turnout.models.decoder.packed import LayerCapabilities, layer_capabilities

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
        self.before = like.before
        self._kernels = kernels
        self._pools: Sequence[tuple[Tensor, Tensor]] | None = None
        self._joined: NativeLayers | None = None
        """All layers, over `_pools`; None: the kernels cannot compute all of them."""
        self._packed: bool | None = None

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        computes = self._begin(attend)  # before PyTorch embeds
        if computes is None:
            return super().forward(tokens, positions, attend, rows)
        hidden = self.embed(tokens, positions)
        in_place, layers = computes
        rotations, norm = self.rotary(positions, hidden.dtype), self.norm
        if isinstance(norm, FusedRMSNorm) and norm.eps == layers.eps:
            return layers(hidden, rotations, in_place, rows, norm.weight)[1]
        return norm.add(*layers(hidden, rotations, in_place, rows))[1]

    def through(
        self, hidden: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        computes = self._begin(attend)
        if computes is None:
            return super().through(hidden, positions, attend, rows)
        in_place, layers = computes
        return layers(hidden, self.rotary(positions, hidden.dtype), in_place, rows)

    def _begin(self, attend: Attend) -> tuple[InPlace, NativeLayers] | None:
        """Returns what computes all layers; None: they are computed one by one.

        Takes threads over from PyTorch, also where kernels multiply and attend in each layer by itself.
        """
        if not reads_in_place(attend):
            return None
        in_place = attend.in_place
        layers = self._layers(in_place)
        if layers is not None or self._are_packed():
            take_over_threads()
        return None if layers is None else (in_place, layers)

    def _are_packed(self) -> bool:
        """Says whether kernels have the weights of all layers, so that PyTorch only computes between them."""
        if self._packed is None:  # in the first step: by then weights are where they stay
            tensors = chain(self.layers.parameters(), self.layers.buffers())
            self._packed = not any(tensor.dim() > 1 for tensor in tensors)
        return self._packed

    def _layers(self, in_place: InPlace) -> NativeLayers | None:
        """Makes the table of layers in the first step: by then weights are where they stay."""
        if self._pools is not in_place.pools:
            self._pools = in_place.pools
            weights = [
                _weights(layer, which) for layer, which in zip(self.layers, self.rotary.of_layer, strict=True)
            ]
            complete = [each for each in weights if each is not None]
            alike = len({each.group for each in complete}) == 1
            if len(complete) == len(weights) and alike and in_place.computes_layers:
                self._joined = NativeLayers(
                    self._kernels, complete, in_place.pools, in_place.rules, in_place.table_of
                )
            else:
                self._joined = None
        return self._joined


def _weights(layer: nn.Module, rotation: int) -> LayerWeights | None:
    """Returns the weights of a layer, which has that rotation; None: the kernels cannot compute all of it."""
    if type(layer) is not DecoderLayer:
        return None
    attention, mlp = layer.self_attn, layer.mlp
    if not isinstance(attention, FusedAttention) or isinstance(attention, WideNorms):
        return None
    if not isinstance(mlp, FusedMLP) or mlp.gated is not silu_gate:
        return None
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    if isinstance(attention, HeadNorms):
        norms += [attention.q_norm, attention.k_norm]
    fused = [norm for norm in norms if isinstance(norm, FusedRMSNorm)]
    linears = (attention.joint, attention.o_proj, mlp.joint, mlp.down_proj)
    abilities = [LayerCapabilities() if each is None else layer_capabilities(each) for each in linears]
    found = [each.native_weights for each in abilities if each.native_weights is not None]
    groups = [each.native_group for each in abilities]
    # Ranks add up what comes out of both halves of a layer, or of none.
    if len(found) < len(linears) or len(fused) < len(norms) or groups != [None, groups[1]] * 2:
        return None
    qkv, out, gate_up, down = found
    vectors = [norm.weight for norm in fused]
    return LayerWeights(vectors, qkv, out, gate_up, down, attention.heads, fused[0].eps, rotation, groups[1])
