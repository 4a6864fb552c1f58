"""How a GGUF file's model rotates positions, in the words of ``config.json``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from turnout.core.errors import ModelError
from turnout.models.gguf.header import GGUFHeader
from turnout.models.gguf.metadata import Metadata

__all__ = ["rope_parameters"]

FREQUENCIES = "rope_freqs.weight"
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What every Llama from 3.1 on has; the file says the factors of frequencies that follow from it."""


def rope_parameters(header: GGUFHeader, *, weighs: bool = False) -> dict[str, Any]:
    """Returns ``rope_parameters``. Raises ModelError for a scaling that is not read.

    weighs: whether the architecture reads ``yarn_log_multiplier``, which is about YaRN's amplitude.
    """
    own = header.own
    theta = {"rope_theta": float(own.number("rope.freq_base", 10_000.0))}
    kind, factor = _scaling(header)
    yarn = kind == "yarn"
    own.check_is("rope.scaling.alpha", 0.0)
    own.check_is("rope.scaling.yarn_attn_factor", 1.0)
    own.check_is("rope.scaling.yarn_ext_factor", 1.0 if yarn else 0.0, -1.0)
    if weighs:
        own.check_is("rope.scaling.attn_factor", 1.0)
    else:
        own.check_is("rope.scaling.yarn_log_multiplier", 0.0)
    if kind == "longrope":
        return {"rope_type": kind, **theta, **_longrope(header)}
    if yarn:
        return {"rope_type": kind, **theta, "factor": factor, **_yarn(own, factor)}
    own.check_is("rope.scaling.attn_factor", 1.0)
    if kind == "llama3":
        return {"rope_type": kind, **theta, **_llama3(header, theta["rope_theta"])}
    return {"rope_type": kind, **theta, **({"factor": factor} if kind == "linear" else {})}


def _scaling(header: GGUFHeader) -> tuple[str, float]:
    """Returns the kind of scaling and its factor, which is 1 where a factor is given for each frequency."""
    own, given = header.own, _given_frequencies(header)
    said = own.text("rope.scaling.type", "linear")  # as llama.cpp takes it
    if said not in ("none", "linear", given or "yarn"):
        known = f"{given}, by the file's tensors" if given else "linear and yarn"
        raise own.wrong("rope.scaling.type", f"is not read, only {known}; take the safetensors checkpoint")
    if said == "none":
        return given or "default", 1.0
    newer, older = "rope.scaling.factor", "rope.scale_linear"
    key = older if own.has(older) and not own.has(newer) else newer
    is_needed = own.has("rope.scaling.type") and not given
    factor = float(own.number(key) if is_needed else own.number(key, 1.0))
    if given:
        own.check_is(key, 1.0)
    return given or ("default" if (said, factor) == ("linear", 1.0) else said), factor


def _given_frequencies(header: GGUFHeader) -> str:
    """Returns the kind of scaling that tensors of the file describe; empty: there are none."""
    if FREQUENCIES in header.tensors:
        return "llama3"
    return "longrope" if any(name.startswith("rope_factors") for name in header.tensors) else ""


def _yarn(own: Metadata, factor: float) -> dict[str, Any]:
    """The amplitude is YaRN's own, times the file's factor."""
    length = own.integer("context_length")
    said = {
        "original_max_position_embeddings": own.integer("rope.scaling.original_context_length", length),
        "beta_fast": own.number("rope.scaling.yarn_beta_fast", None),
        "beta_slow": own.number("rope.scaling.yarn_beta_slow", None),
    }
    times = own.number("rope.scaling.attn_factor", 1.0)
    if times != 1.0:
        said["attention_factor"] = times * (0.1 * math.log(max(factor, 1.0)) + 1.0)
    return {key: value for key, value in said.items() if value is not None}


def _longrope(header: GGUFHeader) -> dict[str, Any]:
    said = {
        "original_max_position_embeddings": header.own.integer("rope.scaling.original_context_length"),
        "attention_factor": header.own.number("rope.scaling.attn_factor", None),
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
