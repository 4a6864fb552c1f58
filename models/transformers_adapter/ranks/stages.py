"""Leaves one stage's part of a model of transformers, so that its own code runs it."""

from __future__ import annotations

from torch import Tensor, nn
from transformers import PreTrainedModel

from turnout.core.errors import ConfigError
from turnout.models.transformers_adapter.ranks.plans import StageNames, stage_names

__all__ = ["keep_stage"]


def keep_stage(causal: PreTrainedModel, layers: range, count: int, *, first: bool, last: bool) -> None:
    """Puts what hands hidden states through in the places of other stages' layers. count: all layers."""
    names = stage_names(causal, count)
    if names is None:
        raise ConfigError(f"transformers has no plan of stages for {type(causal).__name__}")
    stack = causal.get_submodule(names.parts.layers)
    for number, layer in enumerate(stack.children()):
        if number not in layers:
            stack.set_submodule(str(number), _Elsewhere(layer))
    tied = _tied(causal, names)
    gone = [name for name in names.before if not (first or (last and name == tied))]
    gone += [] if last else names.after
    gone += [] if last or (first and tied) else [names.parts.head]
    for name in gone:
        causal.set_submodule(name, nn.Identity())


def _tied(causal: PreTrainedModel, names: StageNames) -> str | None:
    """Returns the name of the embedding whose weight the head has, if one has."""
    head = getattr(causal.get_submodule(names.parts.head), "weight", None)
    for name in names.before:
        if head is not None and getattr(causal.get_submodule(name), "weight", None) is head:
            return name
    return None


class _Elsewhere(nn.Module):
    """A layer of another stage. It says of itself what its model asks layers."""

    def __init__(self, like: nn.Module) -> None:
        super().__init__()
        for name, value in vars(like).items():
            if isinstance(value, str | int | bool) and not name.startswith("_") and name != "training":
                setattr(self, name, value)

    def forward(self, hidden_states: Tensor, *_: object, **__: object) -> Tensor:
        return hidden_states
