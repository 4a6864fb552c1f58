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
        return {"rope_type": "longrope", "rope_theta": theta, **_longrope(header)}
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


def _longrope(header: GGUFHeader) -> dict[str, Any]:
    said = {
        "original_max_position_embeddings": header.needed("rope.scaling.original_context_length"),
        "attention_factor": header.own("rope.scaling.attn_factor"),
        **{f"{kind}_factor": _numbers(header, f"rope_factors_{kind}.weight") for kind in ("short", "long")},
    }
    return {key: value for key, value in said.items() if value is not None}


def _llama3(header: GGUFHeader, theta: float) -> dict[str, float]:
    """Finds the parameters from which the file's factors follow."""
    factors = _numbers(header, FREQUENCIES)
    parameters = {"factor": max(factors), **LLAMA3}
    if not np.allclose(_factors(parameters, theta, len(factors)), factors, rtol=1e-3):
        raise ModelError(
            f"{header.path}: {FREQUENCIES} is not Llama 3.1's scaling; take the safetensors checkpoint"
        )
    return parameters


def _numbers(header: GGUFHeader, name: str) -> list[float]:
    """Returns the numbers of a small tensor. Raises ModelError where it is missing, or not in float32."""
    stored = header.tensors.get(name)
    if stored is None or stored.type != "f32":
        found = "missing" if stored is None else stored.type
        raise ModelError(
            f"{header.path}: {name} is {found}; f32 is expected; take the safetensors checkpoint"
        )
    with header.path.open("rb") as file:
        file.seek(stored.start)
        return [float(number) for number in np.frombuffer(file.read(stored.size), dtype="<f4")]


def _factors(parameters: dict[str, float], theta: float, count: int) -> np.ndarray[Any, Any]:
    """What Llama 3.1 divides its frequencies by, slow ones most."""
    low, high, original = (parameters[key] for key in LLAMA3)
    wavelengths = 2 * math.pi * theta ** (np.arange(count) / count)
    smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    blended: np.ndarray[Any, Any] = 1 / ((1 - smooth) / parameters["factor"] + smooth)
    return blended
