"""Encoders among several models: options of KV memory and of speculation that all share are not theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turnout.config import EngineConfig, ModelConfig
from turnout.runner.attention_features import OF_DECODERS

__all__ = ["is_encoder", "without_options_of_decoders"]

_ENCODERS = """
albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie
ernie_m esm esmc eurobert flaubert fnet funnel gte ibert jina_embeddings_v3 layoutlm longformer luke
megatron-bert mobilebert modernbert mpnet mra
new nomic_bert nystromformer rembert roberta roberta-prelayernorm roc_bert roformer
splinter squeezebert ultrabert xlm xlm-roberta xlm-roberta-xl xmod yoso
"""
ENCODERS = frozenset(_ENCODERS.split())
"""By ``model_type``: the server asks no library of models, whose import takes longer than its start."""
OF_GENERATORS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of architectures that generate, whatever their type: ``BertLMHeadModel``."""


def is_encoder(folder: Path) -> bool:
    """Returns whether a model surely is an encoder, by its ``config.json``."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # the engine says what is wrong with it
    if not isinstance(config, dict) or str(config.get("model_type")) not in ENCODERS:
        return False
    named = config.get("architectures")
    generates = isinstance(named, list) and any(str(name).endswith(OF_GENERATORS) for name in named)
    return not (generates or config.get("is_decoder"))


def without_options_of_decoders(models: Sequence[ModelConfig], folders: Sequence[Path]) -> list[ModelConfig]:
    """The models; encoders without those of the common options that are for models that generate.

    What an encoder's own section gives stays, and its engine refuses it.
    """
    return [
        replace(model, engine=_reduced(model)) if is_encoder(folder) else model
        for model, folder in zip(models, folders, strict=True)
    ]


def _reduced(model: ModelConfig) -> EngineConfig:
    fields = EngineConfig.model_fields
    common = [name for name in OF_DECODERS if name not in model.own]
    return model.engine.model_copy(update={name: fields[name].default for name in common})
