"""An encoder that compiled kernels compute in one native call, where they can compute all of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.kernels import CpuKernels
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.layers import attends_whole_texts
from turnout.kernels.threads import take_over_threads
from turnout.models.decoder.layers import Embedding
from turnout.models.decoder.packed import NarrowEmbedding, layer_capabilities
from turnout.models.encoder.encoder import Encoder, PostNormLayer, PreNormLayer
from turnout.models.encoder.fused import (
    FusedEncoderAttention,
    FusedEncoderMLP,
    FusedGeluGatedMLP,
    FusedLayerNorm,
)
from turnout.models.encoder.native_layers import (
    GATED,
    GELU,
    TANH_GELU,
    EmbeddingTables,
    EncoderLayerWeights,
    NativeEncoderLayers,
    NormWeights,
    StepInputs,
)

__all__ = ["NativeEncoder", "use_native_encoder"]


def use_native_encoder(module: nn.Module, kernels: CpuKernels) -> nn.Module:
    """Returns what computes `module` in one call, if it is the shared encoder; else `module` itself."""
    return NativeEncoder(module, kernels) if type(module) is Encoder else module


class NativeEncoder(Encoder):
    """Computes what `Encoder` does, whose modules it takes over.

    It computes layer by layer, as that does, where the kernels cannot compute all of it, as with other
    activations than GELU, and where attention declares no `whole_texts`. The numbers are the same either way.
    """

    def __init__(self, like: Encoder, kernels: CpuKernels) -> None:
        nn.Module.__init__(self)
        for name, child in like.named_children():
            self.add_module(name, child)
        self.capabilities, self.spec = like.capabilities, like.spec
        for name in ("rotary", "norm", "head"):
            if name not in self._modules:
                setattr(self, name, None)
        self._kernels = kernels
        self._joined: NativeEncoderLayers | None = None
        self._looked = False

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        attend: Attend,
        rows: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> Tensor:
        take_over_threads()
        layers = self._layers() if attends_whole_texts(attend) else None
        if layers is None or not attends_whole_texts(attend):
            return super().forward(tokens, positions, attend, rows, token_types)
        rotations = [] if self.rotary is None else self.rotary(positions, self._dtype)
        inputs = StepInputs(tokens.contiguous(), positions.contiguous(), token_types, attend.texts, rows)
        return layers(inputs, [(each.cos, each.sin) for each in rotations])

    @property
    def _dtype(self) -> torch.dtype:
        return _vectors(self.embeddings.norm).weight.dtype

    def _layers(self) -> NativeEncoderLayers | None:
        """Makes the table of layers in the first step: by then weights are where they stay."""
        if not self._looked:
            self._looked = True
            self._joined = self._join()
        return self._joined

    def _join(self) -> NativeEncoderLayers | None:
        tables = _tables(self)
        of_layer = [None] * len(self.layers) if self.rotary is None else self.rotary.of_layer
        found = [_weights(layer, which) for layer, which in zip(self.layers, of_layer, strict=True)]
        layers = [each for each in found if each is not None]
        last = None if self.norm is None else _vectors(self.norm)
        # What is still to be added behind the last layer, its norm adds.
        if tables is None or len(layers) < len(found) or not (layers[-1].post or last is not None):
            return None
        if any(layer.attention_norm is None for layer in layers[1:]):
            return None
        rules = [rule_of(rule) for rule in self.spec.layer_attention()]
        return NativeEncoderLayers(
            self._kernels, tables, layers, rules, last, self._dtype, self.spec.norm_eps
        )


def _vectors(norm: nn.Module) -> NormWeights:
    assert isinstance(norm, FusedLayerNorm)
    return NormWeights(norm.weight, norm.bias)


def _tables(encoder: Encoder) -> EmbeddingTables | None:
    """Returns the encoder's embeddings; None: one of them is no plain table, or more follows them."""
    embeddings = encoder.embeddings
    if embeddings.project is not None:
        return None
    tables: list[Tensor | None] = []
    for table in (embeddings.words, embeddings.types, embeddings.positions):
        if isinstance(table, NarrowEmbedding):
            tables.append(table.table)
        elif table is None or type(table) is Embedding:
            tables.append(None if table is None else table.weight)
        else:
            return None
    words, types, positions = tables
    assert words is not None
    return EmbeddingTables(words, types, positions, _vectors(embeddings.norm), embeddings.first_position)


def _weights(layer: nn.Module, rotation: int | None) -> EncoderLayerWeights | None:
    """Returns the weights of a layer, which has that rotation; None: the kernels cannot compute all of it."""
    if not isinstance(layer, (PostNormLayer, PreNormLayer)):
        return None
    attention, mlp = layer.attention, layer.mlp
    if not isinstance(attention, FusedEncoderAttention):
        return None
    if isinstance(mlp, FusedGeluGatedMLP):
        wide, activation = mlp.joint, GATED
    elif isinstance(mlp, FusedEncoderMLP):
        wide, activation = mlp.up_proj, TANH_GELU if mlp.by_tanh else GELU
    else:
        return None
    linears = (attention.joint, attention.o_proj, wide, mlp.down_proj)
    weights = [None if each is None else layer_capabilities(each).native_weights for each in linears]
    found = [each for each in weights if each is not None]
    if len(found) < len(linears):
        return None
    qkv, out, up, down = found
    before = None if layer.attention_norm is None else _vectors(layer.attention_norm)
    post = isinstance(layer, PostNormLayer)
    return EncoderLayerWeights(
        before, _vectors(layer.mlp_norm), qkv, out, up, down, activation, post, rotation
    )
