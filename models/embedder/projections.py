"""The linear layers that follow pooling in folders of sentence-transformers (``2_Dense``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.models.checkpoints.checkpoint import read_json
from turnout.models.config_reader import ConfigReader

__all__ = ["Projection", "load_projections"]

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    each.__name__: each for each in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid, nn.SiLU)
}
VECTOR = "sentence_embedding"
"""What the library calls the vector that pooling gives."""


class Projection(nn.Module):
    """A linear layer and an activation; what it reads may be added to the result."""

    def __init__(self, linear: nn.Linear, activation: nn.Module, residual: nn.Module | None) -> None:
        """residual: what its input goes through before it is added; None: it is not added."""
        super().__init__()
        self.linear, self.activation, self.residual = linear, activation, residual

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.activation(self.linear(x))
        return out if self.residual is None else out + self.residual(x)


def load_projections(
    folders: Sequence[Path], size: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> nn.Module | None:
    """Returns what vectors, [rows, size], go through in order; None: nothing.

    Raises ModelError for a layer that cannot be read, or that reads vectors of another size.
    """
    if not folders:
        return None
    layers = [_load(folder) for folder in folders]
    for folder, layer in zip(folders, layers, strict=True):
        if layer.linear.in_features != size:
            raise ModelError(
                f"{folder / 'config.json'}: in_features = {layer.linear.in_features:,} should be {size:,}, "
                "the size of the vectors that come there; fetch the folder again"
            )
        size = layer.linear.out_features
    return nn.Sequential(*layers).to(device, dtype).eval().requires_grad_(False)


def _load(folder: Path) -> Projection:
    reader = ConfigReader(read_json(folder / "config.json"), str(folder / "config.json"))
    for key in ("module_input_name", "module_output_name"):
        if reader.text(key, VECTOR) != VECTOR:
            raise reader.reject(key, f"it must be {VECTOR!r}")
    name = reader.text("activation_function", "torch.nn.modules.activation.Tanh").rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise reader.reject("activation_function", f"it must be one of {', '.join(ACTIVATIONS)}")
    inputs, outputs = reader.integer("in_features"), reader.integer("out_features")
    with torch.device("meta"):
        linear = nn.Linear(inputs, outputs, bias=reader.flag("bias", True))
        residual = None
        if reader.flag("use_residual", False):
            residual = nn.Identity() if inputs == outputs else nn.Linear(inputs, outputs, bias=False)
        made = Projection(linear, ACTIVATIONS[name](), residual)
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ModelError(f"{folder} holds no model.safetensors, the only format of weights that is read")
    try:
        made.load_state_dict(load_file(path), assign=True)
    except (SafetensorError, RuntimeError, OSError) as error:
        raise ModelError(f"{path} does not hold the layer that config.json describes: {error}") from error
    return made
