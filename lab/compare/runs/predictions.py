"""The options that decide what a model predicts, whatever else is served and when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.runner.policies import build_kv

__all__ = ["different_predictions", "predicting_options"]

DECIDING = ("model", "revision", "hf_overrides", "quantization", "dtype", "device")
KV = ("kv", "block_size", "kv_cache_dtype", "plugins_folder", "disable_plugin")
"""The KV backend, its options, and the plugins to find it among."""
BESIDE = (
    *KV,
    "cpu_kernels",
    "gpu_kernels",
    "gpu_memory_utilization",
    "memory_share",
    "model_impl",
    "strict_plugins",
    "trust_remote_code",
)
"""What else is needed to compute predictions as they are served."""


def different_predictions(one: EngineConfig, other: EngineConfig) -> list[str]:
    """The names of deciding options that differ; with none, both predict the same, up to rounding."""
    differing = _differing(DECIDING, one, other)
    if _differing(KV, one, other) and _approximation(one) != _approximation(other):
        differing.append("what is kept of keys and values")
    return differing


def predicting_options(config: EngineConfig) -> dict[str, Any]:
    """The options that are set and that an engine needs to predict as one of this configuration would."""
    return config.model_dump(mode="json", exclude_unset=True, include={*DECIDING, *BESIDE})


def _differing(fields: Iterable[str], one: EngineConfig, other: EngineConfig) -> list[str]:
    return [field for field in fields if getattr(one, field) != getattr(other, field)]


def _approximation(config: EngineConfig) -> str:
    """The approximation that the KV backend declares."""
    return build_kv(Registry.of(config), config).approximation
