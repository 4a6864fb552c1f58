"""Computes a model in float64, where modules ask for float32 too: what differs then is no rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["Float64", "widen"]


class Float64(TorchFunctionMode):
    """Operators inside the block that ask for float32, as norms and softmax do, compute in float64."""

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.float:
            func = Tensor.double
        return func(*map(_wide, args), **{name: _wide(value) for name, value in (kwargs or {}).items()})


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def widen(model: nn.Module) -> None:
    """Changes the numbers of a model to float64, and experts to what multiplies such."""
    model.double()
    if choose := getattr(model, "set_experts_implementation", None):  # grouped products know no float64
        choose("eager")
