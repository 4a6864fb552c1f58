"""Exchanges modules of transformers by our layers of the same shape, wherever these compute the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from turnout.models.decoder.layers import Embedding
from turnout.models.transformers_adapter.exchange.forms import Form
from turnout.models.transformers_adapter.exchange.places import Place, place_of, without_numbers

__all__ = ["Exchanges", "exchange_layers", "siblings_in"]


@dataclass(frozen=True)
class Exchanges:
    """What a trial found out about the modules of a model."""

    kept: Collection[str] = ()
    """Names, `without_numbers`, of linear layers by whose weights other modules compute."""
    forms: Mapping[Place, Form] = field(default_factory=dict)
    """The modules that layers of ours compute equally, and which layers."""
    others: Mapping[Place, str] = field(default_factory=dict)
    """Other modules that have weights of their own, and why they stay."""

    siblings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name of a module, `without_numbers`: its linear layers that read the same input."""

    def without_forms(self) -> Exchanges:
        """Returns the same, with every norm and MLP as transformers has it."""
        return Exchanges(self.kept)

    def told(self) -> str:
        """Says in words which modules are exchanged, and which are not, and why."""
        ours = [
            *("linear layers", "embeddings"),
            *(f"{'+'.join(names)} as one ({place})" for place, names in self.siblings.items()),
            *_grouped((form.title, place.name) for place, form in self.forms.items()),
        ]
        stays = _grouped((f"{place.kind.__name__}: {why}", place.name) for place, why in self.others.items())
        told = f"of which Turnout computes {', '.join(ours)}"
        return told + (f"; it does not compute {', '.join(stays)}" if stays else "")


def _grouped(named: Iterable[tuple[str, str]]) -> list[str]:
    """Returns each title with the names that it has."""
    groups: dict[str, set[str]] = {}
    for title, name in named:
        groups.setdefault(title, set()).add(name)
    return [f"{title} ({', '.join(sorted(names))})" for title, names in groups.items()]


def exchange_layers(model: nn.Module, exchanges: Exchanges) -> None:
    """Puts our layers in place, on the same parameters."""
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Embedding and layer.max_norm is None:
            model.set_submodule(name, _embedding(layer))
        elif type(layer) is nn.Linear and without_numbers(name) in exchanges.kept:
            model.set_submodule(name, _KeptLinear(layer))
        elif form := exchanges.forms.get(place_of(name, layer)):
            made = form.make(layer)
            if made is not None:
                model.set_submodule(name, made)


def siblings_in(model: nn.Module, exchanges: Exchanges) -> list[tuple[str, ...]]:
    """Returns the names of linear layers that read the same input, of a model with our layers in place."""
    return [
        tuple(f"{name}.{part}" for part in parts)
        for name, module in model.named_modules()
        if (parts := exchanges.siblings.get(without_numbers(name))) is not None
        and all(type(getattr(module, part, None)) is nn.Linear for part in parts)
    ]


class _KeptLinear(nn.Module):
    """A linear layer that is neither packed nor quantized, so that its weight is where others look for it."""

    def __init__(self, like: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = like.weight, like.bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


def _embedding(like: nn.Embedding) -> Embedding:
    made = Embedding(like.num_embeddings, like.embedding_dim, device="meta")
    made.weight = like.weight
    return made
