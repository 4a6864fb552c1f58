"""Which options decide what a model predicts, whoever asks and whenever."""

from __future__ import annotations

from typing import Any

from turnout.core.config import EngineConfig
from turnout.core.plugin_spec import PluginSpec

__all__ = ["different_predictions", "predicting_options"]

DECIDING = ("model", "revision", "quantization", "dtype", "device")
BESIDE = (
    "kv",
    "block_size",
    "cpu_kernels",
    "gpu_kernels",
    "gpu_memory_utilization",
    "memory_share",
    "plugins_folder",
    "disable_plugin",
    "strict_plugins",
)
"""What it takes to compute them as they are served."""


def different_predictions(one: EngineConfig, other: EngineConfig) -> list[str]:
    """The names of what differs that decides; none: they predict the same, up to rounding."""
    differing = [field for field in DECIDING if getattr(one, field) != getattr(other, field)]
    return [*differing, *(["kv dtype"] if _kv_dtype(one) != _kv_dtype(other) else [])]


def predicting_options(config: EngineConfig) -> dict[str, Any]:
    """All that is set of what an engine needs to predict as one of this configuration would."""
    return config.model_dump(mode="json", exclude_unset=True, include={*DECIDING, *BESIDE})


def _kv_dtype(config: EngineConfig) -> str:
    return PluginSpec.parse(config.kv).options.get("dtype", "auto")
