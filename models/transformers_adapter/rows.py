"""Lets layers that compute over rows stand where transformers' layers are, which have a batch dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from turnout.models.checkpoints.siblings import JointPart
from turnout.models.decoder.fused import FusedMLP, FusedRMSNorm
from turnout.models.decoder.layers import GatedMLP, RMSNorm
from turnout.models.sharding.layers import Joined

__all__ = ["flatten_inputs", "flatten_shared"]


def flatten_inputs(
    module: nn.Module, linears: Iterable[str], embeddings: Iterable[str], dtype: torch.dtype
) -> None:
    """Lets what was put in place of transformers' layers take [batch, tokens, …] as they did.

    Packed and quantized layers map [rows, inputs] to [rows, outputs]; what looks up packed weights maps
    tokens to rows. linears, embeddings: the names of these layers; dtype: of activations.
    """
    for name in linears:
        layer = module.get_submodule(name)
        if type(layer).forward is not nn.Linear.forward:
            inner = layer.layer if isinstance(layer, Joined) else layer
            if not isinstance(inner, JointPart):
                layer.forward = _flattened(layer.forward, inputs=1)
            if not hasattr(layer, "weight"):
                # Some code reads the dtype of a layer's weight; to compute with this one is an error.
                layer.weight = torch.empty(0, dtype=dtype)
    for name in embeddings:
        layer = module.get_submodule(name)
        if not isinstance(layer, nn.Embedding):
            layer.forward = _flattened(layer.forward, inputs=0)


def flatten_shared(module: nn.Module, names: Iterable[str]) -> None:
    """Does the same for norms and MLPs of ours. Some models keep a wider dtype between layers."""
    for name in names:
        layer = module.get_submodule(name)
        if isinstance(layer, FusedRMSNorm):
            layer.__dict__["forward"] = _in_own_dtype(_flattened(layer.forward, inputs=1), layer)
        elif isinstance(layer, FusedMLP | GatedMLP):
            layer.__dict__["forward"] = _flattened(layer.forward, inputs=1)


def _in_own_dtype(forward: Callable[[Tensor], Tensor], norm: FusedRMSNorm) -> Callable[[Tensor], Tensor]:
    """The kernels read inputs and weights of one dtype; others, PyTorch's operators compute."""
    plain = RMSNorm.forward

    def fitting(x: Tensor) -> Tensor:
        if x.dtype == norm.weight.dtype:
            return forward(x)
        return plain(norm, x)  # type: ignore[arg-type]  # it has the same attributes

    return fitting


def _flattened(forward: Callable[[Tensor], Tensor], inputs: int) -> Callable[[Tensor], Tensor]:
    """inputs: how many of the last dimensions are not rows."""

    def on_rows(x: Tensor) -> Tensor:
        rows = x.shape[: x.dim() - inputs]
        out = forward(x.reshape(rows.numel(), *x.shape[len(rows) :]))
        if not len(out):  # ranks that get no logits
            return out.view(*rows[:-1], 0, out.shape[-1])
        return out.view(*rows, out.shape[-1])

    return on_rows
