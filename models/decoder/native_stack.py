"""A decoder whose layers compiled kernels compute in one native call, where they can compute all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.kernels import CpuKernels
from turnout.kernels.attention.stored import StoredVectors
from turnout.kernels.experts import MixtureWeights, NativeExperts
from turnout.kernels.layers import GatedWeights, InPlace, LayerWeights, NativeLayers, reads_in_place
from turnout.kernels.linears import LinearWeights
from turnout.kernels.threads import take_over_threads
from turnout.models.decoder.decoder import DecoderLayer, DecoderStack
from turnout.models.decoder.experts import JointExperts, SparseMLP
from turnout.models.decoder.fused import FusedAttention, FusedMLP, FusedRMSNorm
from turnout.models.decoder.gates import silu_gate
from turnout.models.decoder.layers import Sinks
from turnout.models.decoder.normed_attention import HeadNorms, WideNorms
from turnout.models.decoder.packed import layer_capabilities
from turnout.models.decoder.routers import SoftmaxRouter

__all__ = ["NativeStack", "use_native_stack"]

Part = TypeVar("Part", covariant=True)


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
        self._pools: Sequence[tuple[StoredVectors, StoredVectors]] | None = None
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
            alike = len({each.group for each in complete}) == 1 and _have_sinks(complete, in_place)
            if len(complete) == len(weights) and alike and in_place.computes_layers:
                self._joined = NativeLayers(
                    self._kernels, complete, in_place.pools, in_place.rules, in_place.table_of
                )
            else:
                self._joined = None
        return self._joined


def _have_sinks(weights: Sequence[LayerWeights], in_place: InPlace) -> bool:
    """Says whether the layers whose rules ask for sinks are those that have some."""
    asked = [rule.sinks for rule in in_place.rules] or [False] * len(weights)
    return asked == [each.sinks is not None for each in weights]


def _weights(layer: nn.Module, rotation: int) -> LayerWeights | None:
    """Returns the weights of a layer, which has that rotation; None: the kernels cannot compute all of it."""
    if type(layer) is not DecoderLayer:
        return None
    attention = layer.self_attn
    if not isinstance(attention, FusedAttention) or isinstance(attention, WideNorms):
        return None
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    if isinstance(attention, HeadNorms):
        norms += [attention.q_norm, attention.k_norm]
    fused = [norm for norm in norms if isinstance(norm, FusedRMSNorm)]
    heads, after = _linear(attention.joint), _linear(attention.o_proj)
    mlp = _mixture(layer.mlp) if type(layer.mlp) is SparseMLP else _gated(layer.mlp)
    if heads is None or after is None or mlp is None or len(fused) < len(norms):
        return None
    # Ranks add up what comes out of both halves of a layer, or of none.
    if heads.group is not None or after.group != mlp.group:
        return None
    sinks = attention.sinks.float() if isinstance(attention, Sinks) else None
    vectors = [norm.weight for norm in fused]
    return LayerWeights(
        *(vectors, heads.weights, after.weights, mlp.weights, attention.heads, fused[0].eps),
        *(rotation, after.group, sinks),
    )


class _Native(NamedTuple, Generic[Part]):
    """What kernels need to compute a part of a layer, and the group of ranks that add up what comes out."""

    weights: Part
    group: int | None


def _linear(layer: nn.Module | None) -> _Native[LinearWeights] | None:
    if layer is None or (found := layer_capabilities(layer)).native_weights is None:
        return None
    return _Native(found.native_weights, found.native_group)


def _gated(mlp: nn.Module) -> _Native[GatedWeights | MixtureWeights] | None:
    if not isinstance(mlp, FusedMLP) or mlp.gated is not silu_gate:
        return None
    gate_up, down = _linear(mlp.joint), _linear(mlp.down_proj)
    if gate_up is None or down is None or gate_up.group is not None:
        return None
    return _Native(GatedWeights(gate_up.weights, down.weights), down.group)


def _mixture(mlp: SparseMLP) -> _Native[GatedWeights | MixtureWeights] | None:
    """Returns those of experts that no other rank has a part of."""
    router, experts = mlp.gate, mlp.experts
    if type(router) is not SoftmaxRouter or not isinstance(experts, JointExperts):
        return None
    scores, together = router.native_weights, experts.together
    if scores is None or not isinstance(together, NativeExperts) or experts.behind or not together.alone:
        return None
    return _Native(MixtureWeights(scores, router.top, router.normalized, together), None)
