"""Exchanges a whole model of transformers by Turnout's own decoder, where it has Llama's shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from turnout.core.errors import ModelError
from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.decoder.decoder import Decoder
from turnout.models.rope_spec import read_rope

__all__ = ["as_decoder", "decoder_spec", "has_llama_shape"]


def has_llama_shape(model: PreTrainedModel, spec: ModelSpec) -> bool:
    """Says whether Turnout's decoder has parameters of the same names and shapes as `model`.

    Whether it computes the same is another question, which numbers answer.
    """
    try:
        made = as_decoder(model, spec)
    except (ModelError, ValueError):  # rotations or sizes that the decoder does not have
        return False
    return _shapes(made) == _shapes(model)


def as_decoder(model: PreTrainedModel, spec: ModelSpec) -> Decoder:
    """Returns Turnout's decoder, without values, as Llama's family would build it from this config.

    Raises ModelError for a rotation that it does not have.
    """
    with torch.device("meta"):
        return Decoder(decoder_spec(model, spec))


def decoder_spec(model: PreTrainedModel, spec: ModelSpec) -> ModelSpec:
    """Returns what the decoder is built from. Raises ModelError as `as_decoder`."""
    config: Mapping[str, Any] = model.config.to_dict()
    names = _shapes(model)
    return replace(
        spec,
        norm_eps=float(config.get("rms_norm_eps") or 0.0),
        rope=read_rope(ConfigReader(config)),
        qkv_bias="model.layers.0.self_attn.q_proj.bias" in names,
        output_bias="model.layers.0.self_attn.o_proj.bias" in names,
        mlp_bias="model.layers.0.mlp.up_proj.bias" in names,
    )


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in module.named_parameters(remove_duplicate=False)}
