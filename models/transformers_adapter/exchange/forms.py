"""The layers of ours whose form a module may have. Whether it computes the same, numbers tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from turnout.models.decoder.gates import Gate, gelu_gate, silu_gate
from turnout.models.decoder.layers import GatedMLP, RMSNorm

__all__ = ["FORMS", "Form"]


@dataclass(frozen=True)
class Form:
    """A layer of ours."""

    title: str
    make: Callable[[nn.Module], nn.Module | None]
    """Returns the layer on the parameters of a module; None: the module has another form. The last dimension
    of the first parameter is as wide as the layer's input."""


def _rms_norm(like: nn.Module) -> RMSNorm | None:
    """Makes one of a module that has an epsilon and one weight for each number."""
    weight = _parameters(like).get("weight")
    eps = getattr(like, "variance_epsilon", getattr(like, "eps", None))
    if len(_parameters(like)) != 1 or weight is None or weight.dim() != 1 or not isinstance(eps, float):
        return None
    if any(True for _ in like.children()) or any(True for _ in like.buffers()):
        return None
    with torch.device("meta"):
        made = RMSNorm(weight.shape[0], eps)
    made.weight = weight
    return made


def _gated_mlp(gated: Gate, like: nn.Module) -> GatedMLP | None:
    """Makes one of a module of three linear layers, and what activates."""
    parts = dict(like.named_children())
    linears = [parts.pop(name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if _parameters(like) or list(like.buffers()) or any(list(part.parameters()) for part in parts.values()):
        return None
    match [linear for linear in linears if type(linear) is nn.Linear]:
        case [gate_proj, up_proj, down_proj]:
            return GatedMLP.of(gate_proj, up_proj, down_proj, gated)
    return None


def _parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return dict(module.named_parameters(recurse=False))


FORMS: Sequence[Form] = (
    Form("RMSNorm", _rms_norm),
    Form("gated MLP with SiLU", partial(_gated_mlp, silu_gate)),
    Form("gated MLP with GELU", partial(_gated_mlp, gelu_gate)),
)
