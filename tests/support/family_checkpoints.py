"""Random checkpoints of the native families, written by transformers itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from mxfp4 import encode_experts
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

__all__ = ["FAMILIES", "VOCABULARY", "draw", "small_config", "write_checkpoint", "write_model"]

VOCABULARY = 160
SMALL: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
TIED = {"tie_word_embeddings": True}

LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
}

FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    # name: model_type, what differs from SMALL
    "qwen3": ("qwen3", {"head_dim": 24}),
    "qwen2-windows": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 13, "max_window_layers": 2},
    ),
    "qwen3-biased": ("qwen3", {"head_dim": 16, "attention_bias": True, "num_key_value_heads": 1, **TIED}),
    "mistral": ("mistral", {"sliding_window": None, "head_dim": 32}),
    "mistral-window": ("mistral", {"sliding_window": 20, "head_dim": 32}),
    "ministral": (
        "ministral",
        {
            "sliding_window": 16,
            "head_dim": 16,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "gemma2": (
        "gemma2",
        {"head_dim": 24, "query_pre_attn_scalar": 20, "sliding_window": 17, "tie_word_embeddings": False},
    ),
    "gemma3": (
        "gemma3_text",
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 20,
            "sliding_window": 17,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            **TIED,
        },
    ),
    "gpt2": (
        "gpt2",
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 192, "n_inner": 104},
    ),
    "gpt-oss": (
        "gpt_oss",
        {
            "head_dim": 16,
            "sliding_window": 17,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150_000.0,
                "factor": 8.0,
                "truncate": False,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "gpt-oss-mxfp4": (
        "gpt_oss",
        {"head_dim": 16, "sliding_window": 30, "num_local_experts": 5, "num_experts_per_tok": 3, **TIED},
    ),
    "phi3": ("phi3", {"sliding_window": 60}),
    "phi4-mini": (
        "phi3",
        {
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 256,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                "long_factor": [2.0, 2.1, 2.2, 2.3, 2.4, 2.5],
            },
            **TIED,
        },
    ),
    "deepseek-v2": (
        "deepseek_v2",
        {
            **LATENT,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 40,
            "first_k_dense_replace": 1,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 1.5,
        },
    ),
    "deepseek-v3": (
        "deepseek_v3",
        {
            **LATENT,
            "q_lora_rank": None,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "first_k_dense_replace": 1,
            "n_group": 2,
            "topk_group": 1,
            "norm_topk_prob": True,
        },
    ),
    "granite": (
        "granite",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.4,
            "residual_multiplier": 0.7,
            "logits_scaling": 2.5,
        },
    ),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2, **TIED}),
    "olmo2": ("olmo2", {}),
    "mixtral": ("mixtral", {"num_local_experts": 6, "num_experts_per_tok": 2}),
    "qwen2-moe": (
        "qwen2_moe",
        {
            "num_experts": 7,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "shared_expert_intermediate_size": 72,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3-moe": (
        "qwen3_moe",
        {
            "head_dim": 16,
            "num_experts": 9,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 48,
            "norm_topk_prob": True,
            "decoder_sparse_step": 2,
        },
    ),
}
"""The shapes that are tested of each family."""


def write_checkpoint(name: str, folder: Path, **changes: object) -> None:
    """Writes the model of that name, or type. changes: what its config is to say otherwise."""
    kind, more = FAMILIES.get(name, (name, {}))
    write_model(kind, {**more, **changes}, folder, seed=len(name))
    if name.endswith("mxfp4"):
        encode_experts(folder)


def write_model(kind: str, more: Mapping[str, Any], folder: Path, seed: int) -> None:
    """Writes a small model of transformers' type `kind`, with weights with which greedy text varies."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(_config(kind, more), dtype=torch.float32)
    draw(model)
    model.save_pretrained(folder)


def small_config(name: str, **changes: object) -> PreTrainedConfig:
    """The config of the model of that name, or type. changes: what it is to say otherwise."""
    kind, more = FAMILIES.get(name, (name, {}))
    return _config(kind, {**more, **changes})


def draw(model: nn.Module) -> None:
    """Draws weights with which texts differ."""
    for key, parameter in model.named_parameters():
        _draw(key, parameter.data)


def _config(kind: str, more: Mapping[str, Any]) -> PreTrainedConfig:
    from transformers import AutoConfig

    shared = {} if "n_embd" in more else SMALL  # GPT-2 has names of its own
    return AutoConfig.for_model(kind, **{**shared, "vocab_size": VOCABULARY, **more})


def _draw(name: str, out: Tensor) -> None:
    if "norm" in name or ".ln_" in name:
        out.add_(torch.randn_like(out) * 0.1)
    elif name.endswith("sinks"):
        out.normal_()
    elif out.dim() == 1:
        out.normal_(std=0.1)
    else:
        gain = 2.0 if ".q_proj." in name or ".k_proj." in name else 1.0
        out.normal_(std=gain * out.shape[-1] ** -0.5)
