"""Reads the spec of an encoder of transformers from its ``config.json``, or refuses it by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from turnout.core.errors import ModelError
from turnout.core.types.model_spec import ModelSpec, RopeSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.score_head import read_head
from turnout.models.transformers_adapter.building import parse_config
from turnout.models.transformers_adapter.encoders.classes import EncoderClass, encoder_class
from turnout.models.transformers_adapter.encoders.rules import read_encoder_rules
from turnout.models.transformers_adapter.encoders.trial import Found, first_position_of, try_encoder
from turnout.models.transformers_adapter.reading import dtype_of, longest_of, token_ids_of
from turnout.models.transformers_adapter.trial import on_one_thread

__all__ = ["ReadEncoder", "read_encoder"]


class ReadEncoder(NamedTuple):
    """What the adapter knows of an encoder before it builds it."""

    spec: ModelSpec
    classes: EncoderClass
    found: Found


def read_encoder(config: Mapping[str, Any]) -> ReadEncoder:
    """Reads a ``config.json``, and tries a small model of its kind.

    Raises ModelError for an encoder that cannot be served, or that a small one of its kind shows to differ.
    """
    architecture, parsed = config["architectures"][0], parse_config(config)
    classes = encoder_class(parsed, architecture)
    if classes is None:
        raise ModelError(f"config.json: {architecture} is no encoder of the installed transformers")
    with on_one_thread():
        positions = longest_of(parsed)
        rules = read_encoder_rules(parsed, classes.built, positions)
        found = try_encoder(parsed, classes)
    first = rules[0]
    head = None if found.pooling is None else read_head(ConfigReader(config), found.pooling)
    spec = ModelSpec(
        architecture=architecture,
        vocab_size=parsed.vocab_size,
        hidden_size=parsed.hidden_size,
        intermediate_size=getattr(parsed, "intermediate_size", None) or 4 * parsed.hidden_size,
        layers=len(rules),
        heads=first.heads,
        kv_heads=first.kv_heads,
        head_dim=first.key_dim,
        max_positions=positions - first_position_of(parsed, skips_padding=found.skips_padding),
        norm_eps=0.0,
        rope=RopeSpec(),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        tied_embeddings=False,
        dtype=dtype_of(config),
        eos_token_ids=token_ids_of(getattr(parsed, "eos_token_id", None)),
        attention=rules,
        encoder=True,
        head=head,
        config=config,
    )
    return ReadEncoder(spec, classes, found)
