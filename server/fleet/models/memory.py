"""Checks that a machine has the memory for several models: before any starts, and once all are ready."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnout.config import EngineConfig, ModelConfig
from turnout.core.errors import ConfigError
from turnout.core.types.messages import ModelFacts
from turnout.plugins.defaults import UNQUANTIZED
from turnout.server.fleet.replica_memory import gib

__all__ = ["check_given_memory", "check_pools", "given_memory", "known_facts", "least_weights"]

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
NARROWEST = 8
"""At most so many times smaller is a quantized checkpoint than its files: float32 in 4 bits."""


def check_given_memory(models: Sequence[tuple[ModelConfig, Path]], free: int) -> None:
    """Raise ConfigError, with the sums, where the models surely do not fit into host memory.

    Each with its folder. To be called before any starts: it counts the weights in their files, and the KV and
    swap memory that is asked for by size. Other pools are fitted to the memory that is free.
    """
    parts, total = [], 0
    for model, folder in models:
        if not _on_cpu(model.engine):
            continue
        engines = max(1, model.server.replicas)
        weights = engines * least_weights(folder, model.engine)
        pools = (model.engine.kv_memory or 0) + (model.engine.swap_memory or 0)
        total += weights + engines * pools
        many = f"{engines} x " if engines > 1 else ""
        parts.append(f"{model.name} {gib(weights)} of weights + {many}{gib(pools)} of KV and swap memory")
    if total > free:
        raise ConfigError(
            f"the models ask for at least {'; '.join(parts)}; = {gib(total)} of host memory, but {gib(free)} "
            f"is free, {gib(total - free)} too little; lower kv-memory, or serve fewer models"
        )


def given_memory(model: ModelConfig, folder: Path) -> int:
    """The bytes of host memory that a model surely takes: its weights, and the pools that have a size."""
    if not _on_cpu(model.engine):
        return 0
    pools = (model.engine.kv_memory or 0) + (model.engine.swap_memory or 0)
    return max(1, model.server.replicas) * (least_weights(folder, model.engine) + pools)


def least_weights(folder: Path, engine: EngineConfig) -> int:
    """The bytes that a checkpoint's weights take in memory at least."""
    size = sum(file.stat().st_size for kind in ("safetensors", "gguf") for file in folder.glob(f"*.{kind}"))
    if engine.quantization != UNQUANTIZED:
        return size // NARROWEST
    stored = WIDTHS.get(_stored_dtype(folder), 4)
    return size * min(stored, WIDTHS.get(engine.dtype, stored)) // stored


def known_facts(folder: Path, engine: EngineConfig) -> ModelFacts:
    """What a model's files tell of it before an engine has read them."""
    match _config(folder).get("architectures"):
        case [str(name), *_]:
            architecture = name
        case _:
            architecture = ""
    return ModelFacts(
        architecture=architecture,
        weight_bytes=least_weights(folder, engine),
        weights=engine.quantization if engine.quantization != UNQUANTIZED else _stored_dtype(folder),
    )


def _stored_dtype(folder: Path) -> str:
    config = _config(folder)
    return str(config.get("dtype") or config.get("torch_dtype") or "")


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # the engine says what is wrong with it
    return config if isinstance(config, dict) else {}


def _on_cpu(engine: EngineConfig) -> bool:
    return engine.device == "cpu" or (engine.device == "auto" and not os.path.exists("/dev/nvidiactl"))


def check_pools(asked: Mapping[str, int], free: int) -> None:
    """Raise ConfigError, with the sums, where the KV pools do not fit into host memory together.

    asked: host memory of each model's pools, by name. To be called when the engines are ready: their weights
    are in memory then, and their pools are not yet.
    """
    total = sum(asked.values())
    if total > free:
        sums = " + ".join(f"{name} {gib(size)}" for name, size in asked.items())
        raise ConfigError(
            f"the models' KV pools ask for {sums} = {gib(total)} of host memory, but {gib(free)} is free "
            "with the weights loaded; lower their kv-memory or memory-share"
        )
