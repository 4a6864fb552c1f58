"""Which options decide what a model predicts, whoever asks and whenever."""

from __future__ import annotations

from typing import Any

from turnout.core.config import EngineConfig
from turnout.core.plugins import Registry
from turnout.runner.policies import build_kv

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
    approximate = _approximation(one) != _approximation(other)
    return [*differing, *(["what is kept of keys and values"] if approximate else [])]


def predicting_options(config: EngineConfig) -> dict[str, Any]:
    """All that is set of what an engine needs to predict as one of this configuration would."""
    return config.model_dump(mode="json", exclude_unset=True, include={*DECIDING, *BESIDE})


def _approximation(config: EngineConfig) -> str:
    """As the KV backend says it, ours or a third party's."""
    return build_kv(Registry.of(config), config).approximation
