"""Reads the spec of a model of transformers from its ``config.json``, or refuses it by name."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from turnout.core.errors import ModelError
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec, RopeSpec
from turnout.models.families.base import DTYPES
from turnout.models.transformers_adapter.building import model_class, parse_config
from turnout.models.transformers_adapter.rotation import fixed_positions
from turnout.models.transformers_adapter.rules import read_rules

logger = logging.getLogger(__name__)

__all__ = ["dtype_of", "inner_width_of", "longest_of", "needed_version", "read_spec", "token_ids_of"]

STATE = (
    "keeps a recurrent state (Mamba, a gated delta net or a short convolution), which is not served yet; "
    "choose a model whose layers all use attention"
)
CHUNKS = (
    "attends within chunks of the context, which is not served; choose a model with full attention or "
    "sliding windows"
)
SPARSE = (
    "attends to tokens that a part of it chooses (sparse attention), which is not served; choose a model "
    "with full attention or sliding windows"
)
REFUSED_LAYERS = {
    "linear_attention": STATE,
    "conv": STATE,
    "mamba": STATE,
    "recurrent": STATE,
    "hybrid": STATE,
    "hybrid_sliding": STATE,
    "chunked_attention": CHUNKS,
    "indexed_attention": SPARSE,
    "compressed_sparse_attention": SPARSE,
    "heavily_compressed_attention": SPARSE,
    "minimax_m3_sparse": SPARSE,
}
"""By the name that a config gives a type of layers."""
ATTENDING = ("full_attention", "sliding_attention", "attention")

UNKNOWN = 2048
"""Positions within which a model without a stated longest context is looked at."""

NEEDED = {
    "AfmoeForCausalLM": (5, 4),
    "AriaTextForCausalLM": (5, 18),
    "CTRLLMHeadModel": (5, 13),
    "CodeGenForCausalLM": (5, 24),
    "GPTJForCausalLM": (5, 24),
    "GraniteMoeForCausalLM": (5, 13),
    "GraniteMoeHybridForCausalLM": (5, 13),
    "GraniteMoeSharedForCausalLM": (5, 13),
    "MoshiForCausalLM": (5, 18),
    "NemotronForCausalLM": (5, 13),
    "OPTForCausalLM": (5, 2),
    "PersimmonForCausalLM": (5, 2),
    "StableLmForCausalLM": (5, 2),
}
"""The first version, major and minor, whose code calls the interfaces of attention and of masks, and knows
shapes without values, as ``scripts/transformers_grid.py`` found."""


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """Returns the spec, with each layer's attention. Raises ModelError that names the reason."""
    architecture: str = config["architectures"][0]
    parsed = parse_config(config)
    _check_decoder(architecture, parsed)
    _check_version(architecture)
    # A reason to refuse the model goes before a missing length, which a user would state in vain.
    rules = read_rules(parsed, getattr(parsed, "max_position_embeddings", None) or UNKNOWN)
    positions = longest_of(parsed)
    first = rules[0]
    return ModelSpec(
        architecture=architecture,
        vocab_size=parsed.vocab_size,
        hidden_size=parsed.hidden_size,
        intermediate_size=inner_width_of(parsed),
        layers=len(rules),
        heads=first.heads,
        kv_heads=first.kv_heads,
        head_dim=first.key_dim,
        max_positions=positions,
        norm_eps=0.0,
        rope=RopeSpec(),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        tied_embeddings=bool(getattr(parsed, "tie_word_embeddings", False)),
        dtype=dtype_of(config),
        eos_token_ids=token_ids_of(getattr(parsed, "eos_token_id", None)),
        attention=() if _are_plain(rules) else rules,
        config=config,
    )


def _check_decoder(architecture: str, config: PreTrainedConfig) -> None:
    """Refuses what is not a decoder of text alone, before anything is built."""
    made = model_class(config)
    if config.is_encoder_decoder:
        raise ModelError(
            f"{architecture} has an encoder and a decoder, and only decoders are served; take a causal model"
        )
    if config.get_text_config() is not config:
        raise ModelError(
            f"{architecture} reads images or sound beside text, and only decoders of text are served; take "
            "the checkpoint of its text model"
        )
    if made is not None and made.__name__ != architecture and _had_own_code(architecture):
        logger.info("%s runs as %s, by its model_type", architecture, made.__name__)
    elif made is None or made.__name__ != architecture:
        raise ModelError(
            f"config.json: {architecture} is not a causal language model of the installed transformers"
            + (f", which has {made.__name__} for model_type = {config.model_type!r}" if made else "")
            + "; only decoders of text are served"
        )
    _check_layers(architecture, config, made)


def _had_own_code(architecture: str) -> bool:
    """Says whether a causal model is named as its checkpoints' own code names it, and transformers does not.

    It tells such models by their model_type alone: EXAONE 3.5 is a Llama to it, with names of its own.
    """
    return architecture.endswith("ForCausalLM") and not hasattr(transformers, architecture)


def _check_layers(architecture: str, config: PreTrainedConfig, made: type[PreTrainedModel]) -> None:
    """Refuses what its config says of its layers, in words that code which fails would not find."""
    kinds = getattr(config, "layer_types", None) or ()
    if found := next((REFUSED_LAYERS[kind] for kind in kinds if kind in REFUSED_LAYERS), None):
        raise ModelError(f"{architecture} {found}")
    # Granite 4's class can have layers of Mamba, and its small models have none.
    if getattr(made, "_is_stateful", False) and not (kinds and all(kind in ATTENDING for kind in kinds)):
        raise ModelError(f"{architecture} {STATE}")
    if getattr(config, "index_topk", None):
        raise ModelError(f"{architecture} {SPARSE}")


def _check_version(architecture: str) -> None:
    """Raises ModelError where the installed transformers is too old for the architecture."""
    needed = needed_version(architecture)
    if needed is not None:
        raise ModelError(
            f"{architecture} is served from transformers {needed} on, and {transformers.__version__} is "
            "installed: pip install -U transformers"
        )


def needed_version(architecture: str) -> str | None:
    """Returns the version of transformers that the architecture needs; None: the installed one will do."""
    needed, (major, minor, *_) = NEEDED.get(architecture, (0, 0)), transformers.__version__.split(".")
    return ".".join(map(str, needed)) if (int(major), int(minor)) < needed else None


def longest_of(config: PreTrainedConfig) -> int:
    """Returns the longest context in which every token is rotated by its own position alone."""
    longest = getattr(config, "max_position_embeddings", None)
    if not isinstance(longest, int) or longest <= 0:
        raise ModelError(
            "config.json: 'max_position_embeddings' is missing, which bounds the context; state it by "
            "--hf-overrides"
        )
    return min(longest, fixed_positions(config) or longest)


def inner_width_of(config: PreTrainedConfig) -> int:
    """Returns the width inside an MLP, of the widest where a config has one for each layer, as Gemma 3n's."""
    width = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return max(width) if isinstance(width, list | tuple) else int(width)


def _are_plain(rules: Sequence[LayerAttention]) -> bool:
    """Says whether a spec's `heads`, `kv_heads` and `head_dim` tell all of it."""
    return not any(rule.features() for rule in rules) and len(set(rules)) == 1


def dtype_of(config: Mapping[str, Any]) -> str:
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in DTYPES:
        raise ModelError(f"config.json: dtype = {dtype!r} is not supported, only {', '.join(DTYPES)}")
    return dtype


def token_ids_of(value: object) -> tuple[int, ...]:
    ids = value if isinstance(value, list | tuple) else [value]
    return tuple(each for each in ids if isinstance(each, int))
