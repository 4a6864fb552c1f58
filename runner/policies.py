"""The chosen plugins, built from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnout.core.config import EngineConfig
from turnout.core.interfaces import Decoding, KVBackend, Quantizer, SchedulingPolicy
from turnout.core.plugins import Registry

__all__ = ["Policies", "build_policies"]


@dataclass(frozen=True)
class Policies:
    """One object for each axis, but for decoding: all strategies, the default one first."""

    scheduler: SchedulingPolicy
    kv: KVBackend
    quantizer: Quantizer
    decodings: tuple[Decoding, ...]

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Sampling parameters that the default decoding gives to requests that set none."""
        return self.decodings[0].defaults


def build_policies(registry: Registry, config: EngineConfig) -> Policies:
    """Raises ConfigError or PluginError, naming plugin and option."""
    return Policies(
        registry.create("scheduler", config.scheduler),
        registry.create("kv", config.kv, block_size=config.block_size),
        registry.create("quantization", config.quantization),
        _decodings(registry, config.decoding),
    )


def _decodings(registry: Registry, default: str) -> tuple[Decoding, ...]:
    """The default one with its options, then every other as it comes: a request may ask for any."""
    first = default.partition(":")[0].strip()
    others = [name for name in registry.names("decoding") if name != first]
    return (registry.create("decoding", default), *(registry.create("decoding", name) for name in others))
