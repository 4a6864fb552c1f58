"""How a GGUF file's model rotates positions, in the words of ``config.json``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from turnout.core.errors import ModelError
from turnout.models.gguf.header import GGUFHeader

__all__ = ["rope_parameters"]

FREQUENCIES = "rope_freqs.weight"
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What every Llama from 3.1 on has; the file says the factors of frequencies that follow from it."""


def rope_parameters(header: GGUFHeader) -> dict[str, Any]:
    """Returns ``rope_parameters``. Raises ModelError for a scaling that is not read."""
    theta = float(header.own("rope.freq_base", 10_000.0))
    if FREQUENCIES in header.tensors:
        return {"rope_type": "llama3", "rope_theta": theta, **_llama3(header, theta)}
    if any(name.startswith("rope_factors") for name in header.tensors):
        raise ModelError(
            f"{header.path}: factors of long contexts are not read; take the safetensors checkpoint"
        )
    kind = header.own("rope.scaling.type", "none")
    if kind == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if kind not in ("linear", "yarn"):
        raise ModelError(
            f"{header.path}: rope.scaling.type = {kind!r} is not read, only linear and yarn; take the "
            "safetensors checkpoint"
        )
    scaling = {"rope_type": kind, "rope_theta": theta, "factor": header.needed("rope.scaling.factor")}
    if kind == "yarn":
        original = header.own("rope.scaling.original_context_length", header.needed("context_length"))
        scaling["original_max_position_embeddings"] = original
    return scaling


def _llama3(header: GGUFHeader, theta: float) -> dict[str, float]:
    """Finds the parameters from which the file's factors follow."""
    stored = header.tensors[FREQUENCIES]
    if stored.type != "f32":
        raise ModelError(f"{header.path}: {FREQUENCIES} is {stored.type}; f32 is expected")
    with header.path.open("rb") as file:
        file.seek(stored.start)
        factors = np.frombuffer(file.read(stored.size), dtype="<f4")
    parameters = {"factor": float(factors.max()), **LLAMA3}
    if not np.allclose(_factors(parameters, theta, len(factors)), factors, rtol=1e-3):
        raise ModelError(
            f"{header.path}: {FREQUENCIES} is not Llama 3.1's scaling; take the safetensors checkpoint"
        )
    return parameters


def _factors(parameters: dict[str, float], theta: float, count: int) -> np.ndarray[Any, Any]:
    """What Llama 3.1 divides its frequencies by, slow ones most."""
    low, high, original = (parameters[key] for key in LLAMA3)
    wavelengths = 2 * math.pi * theta ** (np.arange(count) / count)
    smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    blended: np.ndarray[Any, Any] = 1 / ((1 - smooth) / parameters["factor"] + smooth)
    return blended
