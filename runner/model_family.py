"""Which family builds a checkpoint: one that claims it, one that has its layers, or the adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.core.interfaces.models import ModelFamily
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.registry.registry import Registry
from turnout.core.types.pooling import EmbedderConfig
from turnout.models.bodies.body import DecoderBody
from turnout.models.bodies.naming import body_named, may_encode, refuse_encoder, refuse_other_tasks
from turnout.models.bodies.text_part import TextPart
from turnout.models.checkpoints.checkpoint import weight_files
from turnout.models.checkpoints.readers.formats import open_weights
from turnout.models.text_parts import has_other_text
from turnout.models.transformers_adapter import EncoderAdapter, TransformersAdapter

__all__ = ["ADAPTER", "FoundModel", "model_family"]

ADAPTER = "transformers"
"""The family of all models of transformers, by its name among the plugins and of ``--model-impl``."""
RENAMED = frozenset(["exaone"])
"""Types of models that transformers saves under the architecture of a family, with other names of tensors."""


@dataclass(frozen=True)
class FoundModel:
    """A folder whose configuration was read."""

    folder: Path
    config: Mapping[str, Any]
    architecture: str
    embedder: EmbedderConfig | None


def model_family(
    registry: Registry, found: FoundModel, implementation: str, *, trust_remote_code: bool
) -> ModelFamily:
    """Returns what builds a model. Raises ModelError where nothing does.

    implementation, trust_remote_code: as of `open_checkpoint`.
    """
    name = found.architecture
    native = implementation != ADAPTER
    claimed = registry.builds(name) and found.config.get("model_type") not in RENAMED
    if native and claimed and not has_other_text(found.config):
        return _of_embedder(registry.family(name), found)
    refuse_other_tasks(name)
    body = body_named(name)
    if native and body is not None and registry.builds(body.causal):
        family = registry.family(body.causal)
        return DecoderBody(family, body.causal, "scores" if body.scores else "none")
    if implementation == "native":
        return registry.family(name)  # which says what there is
    adapter = registry.create("model", ADAPTER)
    if isinstance(adapter, TransformersAdapter):
        adapter.may_run(found.folder, trust_remote_code)
        if (text := adapter.text_config(found.config)) is not None:
            causal = text["architectures"][0]
            builds = native and registry.builds(causal)
            return TextPart(registry.family(causal) if builds else adapter, text)
        if body is not None and adapter.has_causal(found.config, body.causal):
            return DecoderBody(adapter, body.causal, "scores" if body.scores else "none")
        refuse_encoder(name)
        encoders = EncoderAdapter()
        if may_encode(name) and encoders.builds(found.config, name):
            name_plugin(encoders, title_of(adapter, "model"))
            return encoders
    return _of_embedder(adapter, found)


def _of_embedder(family: ModelFamily, found: FoundModel) -> ModelFamily:
    """Returns the family of a causal model as its folder says that it is used."""
    tokens = () if found.embedder is None else found.embedder.score_tokens
    if body_named(found.architecture) is not None:
        return family
    if found.config.get("is_causal") is False:
        return DecoderBody(family, found.architecture, "none")
    if tokens:
        return DecoderBody(family, found.architecture, "language", tokens)
    if found.embedder is None or found.embedder.pooling is None:
        return family
    # Embedders are published as causal models with or without the head, by any of the two names of tensors.
    whole = found.config.get("tie_word_embeddings") is not False or _has_head(found.folder)
    return DecoderBody(family, found.architecture, "language" if whole else "none")


def _has_head(folder: Path) -> bool:
    return any("lm_head" in key for file in open_weights(weight_files(folder)) for key in file.names())
