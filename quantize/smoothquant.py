"""SmoothQuant (Xiao et al. 2023, arXiv 2211.10438): moves outliers of activations into weights.

A few inputs of a linear layer are a hundred times as large as the others, for every token. When the inputs of
a token share a scale of 8 bits, the others are left without any. Dividing what produces an input by a factor,
and multiplying the columns that read it by the same factor, changes nothing but how both are rounded. The
producers are norms, and up projections, whose output is multiplied elementwise on its way to the down
projection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from tqdm import tqdm

from turnout.core.errors import ConfigError
from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.dense import DenseAttention
from turnout.models.decoder.decoder import DecoderLayer
from turnout.models.decoder.layers import Attention, GatedMLP

__all__ = ["MAX_TOKENS", "Calibration", "Smoothing", "find_smoothing"]

MAX_TOKENS = 8192
"""Tokens of the calibration text that are read, at most."""
WINDOW = 512
"""Tokens of the calibration text that are read in one forward pass."""
MIN_TOKENS = 64
"""Tokens that a calibration text must have."""
MIN_MAGNITUDE = 1e-5
"""Smaller magnitudes count as this; inputs that are always 0 keep the factor 1."""


@dataclass(frozen=True)
class Calibration:
    """The texts and the strength that SmoothQuant is given."""

    texts: tuple[Path, ...]
    strength: float
    """The paper's alpha: 0 leaves all outliers to activations, 1 to weights."""

    @property
    def text(self) -> str:
        try:
            return "\n".join(path.read_text(encoding="utf-8") for path in self.texts)
        except UnicodeDecodeError as error:
            raise ConfigError(f"--smooth: a text is not UTF-8: {error}") from None

    @property
    def key(self) -> str:
        """Equal for calibrations that give the same factors."""
        return f"{self.strength} {hashlib.sha256(self.text.encode()).hexdigest()}"


class Link(NamedTuple):
    """The name of a layer, and the names of the linear layers that read its output."""

    producer: str
    readers: tuple[str, ...]


@dataclass(frozen=True)
class Smoothing:
    """By parameter, the factors that multiply its columns and those that divide its rows."""

    columns: Mapping[str, Tensor]
    rows: Mapping[str, Tensor]

    def apply(self, name: str, value: Tensor) -> Tensor:
        """The smoothed parameter in float32, or `value` where it has no factors; norms have rows only."""
        if name in self.columns:
            value = value.float() * self.columns[name]
        if name in self.rows:
            value = value.float() / self.rows[name].view(-1, *[1] * (value.dim() - 1))
        return value


@torch.inference_mode()
def find_smoothing(
    model: nn.Module, tokens: Sequence[int], strength: float, rules: Sequence[LayerAttention] = ()
) -> Smoothing:
    """Find the factors for a model by the activations that a text causes.

    model: unquantized, on the CPU, as its family builds it. tokens: of the calibration text; rules: how its
    layers attend; empty: plainly. Raises ConfigError for a model that does not consist of the shared layers,
    or a text that is too short.
    """
    if len(tokens) < MIN_TOKENS:
        raise ConfigError(f"--smooth: {len(tokens)} tokens of text are too few; give {MIN_TOKENS} or more")
    links = _links(model)
    readers = [reader for link in links for reader in link.readers]
    largest = _largest_inputs(model, readers, tokens, rules)
    columns, rows = dict[str, Tensor](), dict[str, Tensor]()
    for link in links:
        weights = [model.get_parameter(f"{reader}.weight").abs().amax(0).float() for reader in link.readers]
        factor = _factor(largest[link.readers[0]], torch.stack(weights).amax(0), strength)
        columns.update({f"{reader}.weight": factor for reader in link.readers})
        rows.update({f"{link.producer}.{part}": factor for part in ("weight", "bias")})
    return Smoothing(columns, rows)


def _factor(inputs: Tensor, weights: Tensor, strength: float) -> Tensor:
    """The factor of each input, float32 [in]: 1 where all inputs are alike."""
    factor = inputs.clamp(min=MIN_MAGNITUDE) ** strength / weights.clamp(min=MIN_MAGNITUDE) ** (1 - strength)
    factor = factor / factor.log().mean().exp()
    return torch.where(inputs > MIN_MAGNITUDE, factor, torch.ones_like(factor)).clamp_(min=MIN_MAGNITUDE)


def _links(model: nn.Module) -> list[Link]:
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, DecoderLayer)}
    if not layers:
        raise ConfigError(
            "--smooth works on the layers that Turnout's own model families share, and this model has none; "
            "leave it out"
        )
    for name, layer in layers.items():
        for part, kind in ((layer.self_attn, Attention), (layer.mlp, GatedMLP)):
            if not isinstance(part, kind):
                raise ConfigError(
                    f"--smooth works on layers of {Attention.__name__} and {GatedMLP.__name__}, and {name} "
                    f"has a {type(part).__name__}; leave it out"
                )
    return [link for name in layers for link in _links_of(name)]


def _links_of(layer: str) -> list[Link]:
    attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
    return [
        Link(f"{layer}.input_layernorm", tuple(f"{attention}.{part}_proj" for part in ("q", "k", "v"))),
        Link(f"{layer}.post_attention_layernorm", tuple(f"{mlp}.{part}_proj" for part in ("gate", "up"))),
        Link(f"{mlp}.up_proj", (f"{mlp}.down_proj",)),
    ]


def _largest_inputs(
    model: nn.Module, names: Sequence[str], tokens: Sequence[int], rules: Sequence[LayerAttention]
) -> dict[str, Tensor]:
    """By layer, the largest magnitude of each of its inputs: float32 [in]."""
    largest: dict[str, Tensor] = {}
    hooks = [
        model.get_submodule(name).register_forward_pre_hook(_keep_largest(name, largest)) for name in names
    ]
    try:
        for start in tqdm(range(0, len(tokens), WINDOW), desc="calibrating", unit="window", disable=None):
            ids = torch.tensor(tokens[start : start + WINDOW])
            model(ids, torch.arange(len(ids)), DenseAttention(rules))
    finally:
        for hook in hooks:
            hook.remove()
    return largest


def _keep_largest(name: str, largest: dict[str, Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found = inputs[0].abs().amax(0).float()
        largest[name] = torch.maximum(found, largest.get(name, found))

    return keep
