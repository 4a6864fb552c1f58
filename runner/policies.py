"""The chosen plugins, built from the configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnout.core.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.eviction import EvictionPolicy
from turnout.core.interfaces import Decoding, KVBackend, Quantizer
from turnout.core.plugins import Registry
from turnout.core.policy import LengthPredictor, SchedulingPolicy
from turnout.core.processors import Processors

logger = logging.getLogger(__name__)

__all__ = ["Policies", "build_eviction", "build_policies"]


@dataclass(frozen=True)
class Policies:
    """One object for each axis, but all decoding strategies, the default one first, and all processors."""

    scheduler: SchedulingPolicy
    predictor: LengthPredictor
    kv: KVBackend
    eviction: EvictionPolicy
    quantizer: Quantizer
    decodings: tuple[Decoding, ...]
    processors: Processors

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Sampling parameters that the default decoding gives to requests that set none."""
        return self.decodings[0].defaults


def build_policies(registry: Registry, config: EngineConfig) -> Policies:
    """Raises ConfigError or PluginError, naming plugin and option."""
    kv = registry.create("kv", config.kv, block_size=config.block_size)
    return Policies(
        registry.create("scheduler", config.scheduler),
        registry.create("length_predictor", config.length_predictor),
        kv,
        build_eviction(registry, config, kv),
        registry.create("quantization", config.quantization),
        _decodings(registry, config.decoding),
        registry.processors(),
    )


def build_eviction(registry: Registry, config: EngineConfig, kv: KVBackend) -> EvictionPolicy:
    """One for each KV cache: it remembers that cache's blocks."""
    if config.kv_eviction is not None and not kv.evicts:
        raise ConfigError(
            f"kv_eviction={config.kv_eviction!r} has nothing to choose from: kv backend {config.kv!r} "
            "keeps no memory that nobody holds; leave it out or choose another backend, such as paged"
        )
    return registry.create("kv_eviction", config.kv_eviction or "lru")


def _decodings(registry: Registry, default: str) -> tuple[Decoding, ...]:
    """The default one with its options, then every other as it comes: a request may ask for any."""
    first = default.partition(":")[0].strip()
    decodings = [registry.create("decoding", default)]
    for name in registry.names("decoding"):
        if name != first:
            try:
                decodings.append(registry.create("decoding", name))
            except ConfigError as error:  # nobody asked for it by name
                logger.warning("decoding %s is not on offer: %s", name, error)
    return tuple(decodings)
