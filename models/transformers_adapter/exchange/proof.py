"""Tries on random numbers which modules of a small model layers of ours compute equally."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from turnout.models.transformers_adapter.exchange.forms import FORMS, Form
from turnout.models.transformers_adapter.exchange.layers import Exchanges
from turnout.models.transformers_adapter.exchange.places import Place, place_of

__all__ = ["largest_difference", "prove"]

MOST = 1e-5
"""The largest difference that rounding makes in one layer, relative to the largest number: GELU and its
approximation by tanh differ by more."""
SCALES = (1e-3, 1.0, 30.0)
"""Of inputs. Among small numbers a norm's epsilon shows, among large ones how an MLP is bounded."""
ROWS = 7


@torch.no_grad()
def prove(
    model: nn.Module, kept: Collection[str], wide: Collection[str], siblings: Mapping[str, tuple[str, ...]]
) -> Exchanges:
    """Returns which modules of `model`, which has random weights, layers of ours may take the place of.

    kept, siblings: as `Exchanges` has them; wide: names of parameters that stay in float32 in a narrower
    model.
    """
    places: dict[Place, list[nn.Module]] = {}
    held: dict[Place, str] = {}
    for name, module in model.named_modules():
        place = place_of(name, module)
        places.setdefault(place, []).append(module)
        if any(f"{place.name}.{part}" in kept for part, _ in module.named_children()):
            held[place] = "other modules compute by its weights"
        elif any(f"{name}.{own}" in wide for own, _ in module.named_parameters()):
            held[place] = "it stays in float32"
    forms: dict[Place, Form] = {}
    others: dict[Place, str] = {}
    for place, modules in places.items():
        found = held.get(place) or _form_of(modules)
        if isinstance(found, Form):
            forms[place] = found
        elif found is not None and (_fitting(modules) or _has_weights(modules[0])):
            others[place] = found
    exchanged = {place.name for place in forms}
    joined = {name: group for name, group in siblings.items() if name not in exchanged}
    return Exchanges(kept, forms, others, joined)


def _form_of(modules: Sequence[nn.Module]) -> Form | str:
    """Returns the layer that computes what each of the modules does, or why there is none."""
    least = float("inf")
    for form in _fitting(modules):
        difference = max(_difference(module, form) for module in modules)
        if difference <= MOST:
            return form
        least = min(least, difference)
    if not _fitting(modules):
        return "no layer has its form"
    return f"differs by {least:.0e} of the largest number"


def _fitting(modules: Sequence[nn.Module]) -> list[Form]:
    return [form for form in FORMS if all(form.make(module) is not None for module in modules)]


def _has_weights(module: nn.Module) -> bool:
    """Says whether it computes by weights of its own, and is none of the layers that are ours in any case."""
    return not isinstance(module, nn.Linear | nn.Embedding) and any(
        True for _ in module.named_parameters(recurse=False)
    )


def _difference(module: nn.Module, form: Form) -> float:
    """Returns how much `module` and the layer in its place differ; infinite: it takes other inputs."""
    made = form.make(module)
    assert made is not None
    width = next(made.parameters()).shape[-1]
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(1, ROWS, width, generator=generator, dtype=torch.float32)
    try:
        return max(largest_difference(made(numbers * scale), module(numbers * scale)) for scale in SCALES)
    except Exception:  # modules raise what they like
        return float("inf")


def largest_difference(found: Tensor, expected: Tensor) -> float:
    """Returns the largest difference, relative to the largest number; infinite where numbers are none."""
    difference = float((found - expected).abs().max() / expected.abs().max())
    return difference if difference == difference else float("inf")
