"""Shapes of models by name, and the ``config.json`` of such a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ARCHITECTURES", "ROPES", "SHAPES", "Shape", "config_of"]

ARCHITECTURES = {
    "qwen2": "Qwen2ForCausalLM",
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
"""By ``model_type``."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    max_positions: int = 32_768
    theta: float = 1_000_000.0
    tied: bool = True
    experts: int = 0
    """Of a layer; 0: it has an MLP instead."""
    top: int = 0
    """How many experts a token goes to."""
    expert_size: int = 0
    """The width inside an expert."""


SHAPES = {
    "qwen2.5-0.5b": Shape(hidden=896, layers=24, heads=14, kv_heads=2, intermediate=4864, vocab=151_936),
    "m2": Shape(hidden=384, layers=8, heads=6, kv_heads=2, intermediate=1024, vocab=8192),
    "1b": Shape(hidden=2048, layers=16, heads=32, kv_heads=8, intermediate=8192, vocab=128_256),
    "moe-1b": Shape(*(1024, 12, 16, 4, 3072, 32_768), max_positions=4096, experts=64, top=8, expert_size=384),
    "8b": Shape(hidden=4096, layers=32, heads=32, kv_heads=8, intermediate=14_336, vocab=128_256, tied=False),
}

ROPES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
"""Kinds of rope scaling, with the numbers that published models use."""


def config_of(shape: Shape, family: str, *, rope: str = "default", dtype: str = "bfloat16") -> dict[str, Any]:
    """A config that both Turnout and transformers read. `family` is a key of ARCHITECTURES."""
    scaling = {**ROPES[rope], "rope_type": rope, "rope_theta": shape.theta}
    if rope in ("yarn", "llama3"):
        scaling["original_max_position_embeddings"] = int(shape.max_positions / scaling["factor"])
    mixture = {
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.top,
        "moe_intermediate_size": shape.expert_size,
        "norm_topk_prob": True,
    }
    return {
        "architectures": [ARCHITECTURES[family]],
        "model_type": family,
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.hidden // shape.heads,
        "max_position_embeddings": shape.max_positions,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": scaling,
        "tie_word_embeddings": shape.tied,
        "dtype": dtype,
        **(mixture if shape.experts else {}),
    }
