"""Opens checkpoints: finds them and reads their configuration, but not yet their weights."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnout.core.errors import ModelError, TurnoutError, Unsupported, as_plugin_errors
from turnout.core.interfaces.models import ModelFamily
from turnout.core.plugin_faults import title_of
from turnout.core.registry.registry import Registry
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.pooling import EmbedderConfig
from turnout.models.checkpoints.checkpoint import check_weights_suffice, read_config, read_generation_config
from turnout.models.checkpoints.own_head import has_own_head
from turnout.models.embedder.folder import read_embedder
from turnout.models.gguf.given import naming_given
from turnout.models.hub.resolve import resolve_model
from turnout.runner.generation_config import end_tokens
from turnout.runner.model_family import ADAPTER, FoundModel, model_family
from turnout.runner.pooling.score_tokens import as_reranker

__all__ = ["Checkpoint", "open_checkpoint", "read_by"]

logger = logging.getLogger(__name__)

TIED = "tie_word_embeddings"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose configuration was read."""

    folder: Path
    family: ModelFamily
    spec: ModelSpec
    generation: Mapping[str, Any]
    quantization: Mapping[str, Any] | None = None
    """Its ``quantization_config``; None: its weights are not quantized."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its ``config.json``, with what overrides it."""
    embedder: EmbedderConfig | None = None
    """What its folder says of embeddings or of pairs; None: it is no folder of sentence-transformers."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Its end tokens that the model can produce: some name -1, or tokens beyond their vocabulary."""
        stated = {*self.spec.eos_token_ids, *end_tokens(self.generation)}
        return frozenset(stated.intersection(range(self.spec.vocab_size)))

    @property
    def longest_text(self) -> int | None:
        """The most tokens of a text as the folder of a model that generates nothing says; None: it does not,
        or the model generates."""
        generates = self.spec.generates and not self.spec.encoder
        return None if generates or self.embedder is None else self.embedder.max_length


def open_checkpoint(
    registry: Registry,
    model: str,
    revision: str | None = None,
    implementation: str = "auto",
    *,
    trust_remote_code: bool = False,
    overrides: str | None = None,
) -> Checkpoint:
    """Finds the checkpoint of `model`. Raises ModelError where it is not there or not supported.

    implementation: as ``--model-impl`` has it; trust_remote_code: whether code that it brings may be run;
    overrides: a JSON object that is merged into its ``config.json``.
    """
    folder = resolve_model(model, revision=revision)
    given = json.loads(overrides) if overrides else {}
    raw = _merged(read_config(folder), given)
    architectures = raw.get("architectures")
    if not (isinstance(architectures, list) and architectures and isinstance(architectures[0], str)):
        raise ModelError(
            f"{folder / 'config.json'} names no architecture; expected a list of names under 'architectures'"
        )
    raw, embedder = as_reranker(folder, raw, read_embedder(folder))

    def read(config: Mapping[str, Any]) -> tuple[ModelFamily, ModelSpec]:
        found = FoundModel(folder, config, config["architectures"][0], embedder)
        try:
            return read_by(registry, found, implementation, trust_remote_code=trust_remote_code)
        except Unsupported as error:
            try:
                read_by(registry, found, ADAPTER, trust_remote_code=trust_remote_code)
            except TurnoutError:
                raise error from None
            raise ModelError(f"{error}; --model-impl {ADAPTER} runs it by transformers' code") from error

    family, spec = read(raw)
    if TIED not in given and _has_own_head(folder, spec):
        raw = {**raw, TIED: False}
        family, spec = read(raw)
    with naming_given(folder), as_plugin_errors(f"{title_of(family, 'model')}: spec"):
        parameters = family.parameter_count(spec)
    if parameters is not None:
        check_weights_suffice(folder, parameters)
    quantization = raw.get("quantization_config")
    if quantization is not None and not isinstance(quantization, dict):
        raise ModelError(f"{folder / 'config.json'}: quantization_config should be an object")
    return Checkpoint(folder, family, spec, read_generation_config(folder), quantization, raw, embedder)


def read_by(
    registry: Registry, found: FoundModel, implementation: str, *, trust_remote_code: bool
) -> tuple[ModelFamily, ModelSpec]:
    """Returns what builds a model, and what it builds. Raises ModelError where nothing does.

    implementation, trust_remote_code: as of `open_checkpoint`.
    """
    family = model_family(registry, found, implementation, trust_remote_code=trust_remote_code)
    with naming_given(found.folder), as_plugin_errors(f"{title_of(family, 'model')}: spec"):
        spec = family.spec(found.config)
    return family, spec if spec.config else replace(spec, config=found.config)


def _has_own_head(folder: Path, spec: ModelSpec) -> bool:
    """Says whether a head that is to be tied has its own numbers, and warns where it does."""
    found = spec.tied_embeddings and spec.generates and has_own_head(folder, spec.vocab_size)
    if found:
        logger.warning(
            "%s has a head with other numbers than its embedding, though config.json ties them (%s); both "
            "are used, as transformers does; to tie them all the same, give --hf-overrides '{\"%s\": true}'",
            *(folder, TIED, TIED),
        )
    return found


def _merged(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration with other values in place of its own; objects are merged."""
    merged = dict(config)
    for key, value in overrides.items():
        own = merged.get(key)
        merged[key] = _merged(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
    return merged
