"""Which cores several models of a CPU have by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turnout.config import ModelConfig
from turnout.config.models import engines_at_once
from turnout.server.fleet.models.encoders import is_encoder

__all__ = ["with_cores_of_generators"]

PARTS_OF_SENTENCE_TRANSFORMERS = "modules.json"


def with_cores_of_generators(models: Sequence[ModelConfig], folders: Sequence[Path]) -> list[ModelConfig]:
    """The models; those that generate divide all cores among themselves, and the others keep their parts.

    The others give way to them (`EngineConfig.nice`), and rest for most of the time: streams are faster than
    on cores of their own. Models that were given cores keep these, and so do all others then.
    """
    generators = [model for model, folder in zip(models, folders, strict=True) if not _pools(folder)]
    parts = [model.engine.cpu_engines for model in models if model.engine.cpu_share is None]
    if len(generators) in (0, len(models)) or len(parts) < len(models) or len(set(parts)) > 1:
        return list(models)
    own = {"cpu_engines": max(1, engines_at_once(generators))}
    return [
        replace(model, engine=model.engine.model_copy(update=own)) if model in generators else model
        for model in models
    ]


def _pools(folder: Path) -> bool:
    """Says whether a model surely generates nothing, by the files of its folder."""
    return is_encoder(folder) or (folder / PARTS_OF_SENTENCE_TRANSFORMERS).is_file()
