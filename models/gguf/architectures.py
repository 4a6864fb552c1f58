"""The architectures of GGUF files: Hugging Face's names of them and of their tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from turnout.core.errors import ModelError
from turnout.models.gguf.header import GGUFHeader
from turnout.models.gguf.rope import rope_parameters

__all__ = ["ARCHITECTURES", "TOP", "WIDTHS", "Architecture", "architecture_of"]

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
ORIGINAL_LENGTH = "original_max_position_embeddings"
MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
NORMS_BEHIND = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
NORMS_AROUND = {**NORMS, **NORMS_BEHIND, "ffn_norm": "pre_feedforward_layernorm"}
EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.*.gate_proj",
    "ffn_up_exps": "mlp.experts.*.up_proj",
    "ffn_down_exps": "mlp.experts.*.down_proj",
}
"""A tensor of all experts: the star stands for the expert's number."""
SINKS = {
    "attn_norm": "input_layernorm",
    "attn_sinks": "self_attn.sinks",
    "post_attention_norm": "post_attention_layernorm",
}
LATENT = {
    "attn_q": "self_attn.q_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.kv_b_proj",
    "attn_v_b": "",
    "attn_output": "self_attn.o_proj",
}
"""Newer files have two tensors for the one that expands keys and values; `tensors` joins them."""
SHARED_EXPERTS = {
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
    "exp_probs_b": "mlp.gate.e_score_correction_bias",
}
SHARED_EXPERT = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
JOINED = {
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
LLAMA = NORMS | ATTENTION | MLP
DEEPSEEK = NORMS | LATENT | MLP | EXPERTS | SHARED_EXPERTS
ROTATED, VALUES = "rope.dimension_count", "attention.value_length"
WIDTHS = (ROTATED, VALUES)
"""Widths of parts of heads, where they may differ from a whole head's."""
SIGMOID = 2
"""What ``expert_gating_func`` says where scores of experts are no likelihoods."""


@dataclass(frozen=True)
class Architecture:
    """What files of an architecture hold."""

    name: str
    """What ``architectures`` says in Hugging Face's configuration."""
    model_type: str
    layer: Mapping[str, str]
    """The tensors of a layer: Hugging Face's names by llama.cpp's."""
    config: Callable[[GGUFHeader], Mapping[str, Any]]
    """Returns what the configuration says beside what all have."""
    paired: bool = False
    """Rows of queries and keys lie in llama.cpp's order: what turns together lies side by side."""
    norms_plus: float = 0.0
    """Weights of norms are so much more than Hugging Face's."""
    widths: Collection[str] = ()
    """Widths of parts of heads that `config` reads; elsewhere they are those of whole heads."""


def architecture_of(header: GGUFHeader) -> Architecture:
    """Raises ModelError for an architecture that is not read."""
    name = header.architecture
    if name == "llama" and header.own.integer("expert_count", 0, least=0) > 0:
        name = "mixtral"
    if name == "deepseek2" and header.own.integer("expert_gating_func", 0, least=0) == SIGMOID:
        name = "deepseek3"
    if name not in ARCHITECTURES:
        raise ModelError(
            f"{header.path}: GGUF files of the architecture {header.architecture!r:.80} are not read, only "
            f"{', '.join(sorted(ARCHITECTURES))}; take the safetensors checkpoint"
        )
    return ARCHITECTURES[name]


def _llama(header: GGUFHeader) -> dict[str, Any]:
    bias = "blk.0.attn_q.bias" in header.tensors
    return {"attention_bias": bias, "mlp_bias": "blk.0.ffn_up.bias" in header.tensors, "hidden_act": "silu"}


def _silu(header: GGUFHeader) -> dict[str, Any]:
    return {"hidden_act": "silu"}


def _gemma2(header: GGUFHeader) -> dict[str, Any]:
    keys = ("attn_logit_softcapping", "final_logit_softcapping")
    caps = {key: header.own.number(key, None) for key in keys}
    return {
        **{key: value for key, value in caps.items() if value is not None},
        **_gemma(header, large=46),
    }


def _gemma3(header: GGUFHeader) -> dict[str, Any]:
    """Layers that slide have a rotation of their own, which older files do not say."""
    local = {"rope_type": "default", "rope_theta": float(header.own.number("rope.freq_base_swa", 10_000.0))}
    ropes = {"full_attention": rope_parameters(header), "sliding_attention": local}
    return {**_gemma(header, large=62), "rope_parameters": ropes}


def _gemma(header: GGUFHeader, *, large: int) -> dict[str, Any]:
    """large: the layers of the model whose scores are scaled by another width than the heads'.

    Files do not say it; llama.cpp knows that model by its layers, too.
    """
    by_width = header.own.integer("block_count") == large
    width = header.own.integer("embedding_length") // header.own.integer("attention.head_count")
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": header.own.integer("attention.sliding_window"),
        "query_pre_attn_scalar": width if by_width else header.own.integer("attention.key_length"),
    }


def _experts(header: GGUFHeader) -> dict[str, Any]:
    return {
        "num_experts": header.own.integer("expert_count"),
        "num_experts_per_tok": header.own.integer("expert_used_count"),
        "moe_intermediate_size": header.own.integer("expert_feed_forward_length"),
        "hidden_act": "silu",
    }


def _qwen2_moe(header: GGUFHeader) -> dict[str, Any]:
    shared = header.own.integer("expert_shared_feed_forward_length")
    return {**_experts(header), "shared_expert_intermediate_size": shared, "norm_topk_prob": False}


def _qwen3_moe(header: GGUFHeader) -> dict[str, Any]:
    return {**_experts(header), "norm_topk_prob": True}


def _mixtral(header: GGUFHeader) -> dict[str, Any]:
    counts = ("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")
    return {theirs: header.own.integer(own) for own, theirs in counts} | {"hidden_act": "silu"}


def _granite(header: GGUFHeader) -> dict[str, Any]:
    return {
        **_llama(header),
        "attention_multiplier": header.own.number("attention.scale"),
        "embedding_multiplier": header.own.number("embedding_scale", 1.0),
        "residual_multiplier": header.own.number("residual_scale", 1.0),
        "logits_scaling": header.own.number("logit_scale", 1.0),
    }


def _phi3(header: GGUFHeader) -> dict[str, Any]:
    head = header.own.integer("embedding_length") // header.own.integer("attention.head_count")
    turned = header.own.integer("rope.dimension_count", head)
    if turned > head:
        raise header.own.wrong("rope.dimension_count", f"should be at most {head}, a head's width")
    rope = rope_parameters(header) | ({"partial_rotary_factor": turned / head} if turned < head else {})
    window = header.own.integer("attention.sliding_window", 0, least=0)
    # Beside the scaling, too: there it has a default, which would go before what the scaling says.
    length = {ORIGINAL_LENGTH: rope[ORIGINAL_LENGTH]} if ORIGINAL_LENGTH in rope else {}
    return {"sliding_window": window or None, "rope_parameters": rope, "hidden_act": "silu", **length}


def _smollm3(header: GGUFHeader) -> dict[str, Any]:
    """Every fourth layer rotates nothing; files do not say it, and llama.cpp has it built in, too."""
    return {**_llama(header), "no_rope_layer_interval": 4}


def _gpt_oss(header: GGUFHeader) -> dict[str, Any]:
    """Older files do not say how far YaRN's ends are apart, and none that they are not rounded."""
    rope = rope_parameters(header)
    ends = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False} if rope["rope_type"] == "yarn" else {}
    return {
        "num_local_experts": header.own.integer("expert_count"),
        "num_experts_per_tok": header.own.integer("expert_used_count"),
        "intermediate_size": header.own.integer("expert_feed_forward_length"),
        "sliding_window": header.own.integer("attention.sliding_window"),
        "rope_parameters": {**ends, **rope},
        "attention_bias": True,
    }


def _deepseek(header: GGUFHeader) -> dict[str, Any]:
    """Older files have the widths of whole heads where newer ones have those of compressed keys."""
    own, rope = header.own, rope_parameters(header, weighs=True)
    turned, group_count = own.integer("rope.dimension_count"), own.integer("expert_group_count", 1, least=0)
    lengths = [f"attention.{of}_length" for of in ("key", "value")]
    key, value = (own.integer(f"{name}_mla" if own.has(f"{name}_mla") else name) for name in lengths)
    if key <= turned:
        raise own.wrong("rope.dimension_count", f"should be less than a key's width, {key}")
    weight = own.number("rope.scaling.yarn_log_multiplier", 0.0, signed=True)
    scaled = {"mscale": weight * 10, "mscale_all_dim": weight * 10} if weight else {}
    said = {
        "q_lora_rank": "attention.q_lora_rank",
        "first_k_dense_replace": "leading_dense_block_count",
    }
    return {
        **{name: own.integer(key, None, least=0) for name, key in said.items()},
        "n_group": group_count,
        "topk_group": own.integer("expert_group_used_count", 1, least=0),
        "topk_method": "group_limited_greedy" if group_count > 1 else "greedy",
        "n_routed_experts": own.integer("expert_count"),
        "num_experts_per_tok": own.integer("expert_used_count"),
        "n_shared_experts": own.integer("expert_shared_count", least=0),
        "moe_intermediate_size": own.integer("expert_feed_forward_length"),
        "routed_scaling_factor": own.number("expert_weights_scale", 1.0),
        "norm_topk_prob": own.flag("expert_weights_norm", False),
        "kv_lora_rank": own.integer("attention.kv_lora_rank"),
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": key - turned,
        "v_head_dim": value,
        "head_dim": turned,
        "num_key_value_heads": own.integer("attention.head_count"),
        "rope_parameters": {**rope, **scaled},
        "hidden_act": "silu",
    }


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("LlamaForCausalLM", "llama", LLAMA, _llama, paired=True),
    "mixtral": Architecture(
        "MixtralForCausalLM", "mixtral", NORMS | ATTENTION | EXPERTS, _mixtral, paired=True
    ),
    "qwen2": Architecture("Qwen2ForCausalLM", "qwen2", LLAMA, _silu),
    "qwen2moe": Architecture(
        "Qwen2MoeForCausalLM", "qwen2_moe", NORMS | ATTENTION | EXPERTS | SHARED_EXPERT, _qwen2_moe
    ),
    "qwen3": Architecture("Qwen3ForCausalLM", "qwen3", LLAMA | HEAD_NORMS, _silu),
    "qwen3moe": Architecture(
        "Qwen3MoeForCausalLM", "qwen3_moe", NORMS | ATTENTION | HEAD_NORMS | EXPERTS, _qwen3_moe
    ),
    "gemma2": Architecture(
        "Gemma2ForCausalLM", "gemma2", NORMS_AROUND | ATTENTION | MLP, _gemma2, norms_plus=1.0
    ),
    "gemma3": Architecture(
        "Gemma3ForCausalLM",
        "gemma3_text",
        NORMS_AROUND | ATTENTION | HEAD_NORMS | MLP,
        _gemma3,
        norms_plus=1.0,
    ),
    "phi3": Architecture("Phi3ForCausalLM", "phi3", NORMS | JOINED, _phi3, widths=[ROTATED]),
    "granite": Architecture("GraniteForCausalLM", "granite", LLAMA, _granite, paired=True),
    "olmo2": Architecture("Olmo2ForCausalLM", "olmo2", NORMS_BEHIND | ATTENTION | HEAD_NORMS | MLP, _silu),
    "gpt-oss": Architecture("GptOssForCausalLM", "gpt_oss", SINKS | ATTENTION | EXPERTS, _gpt_oss),
    "deepseek2": Architecture("DeepseekV2ForCausalLM", "deepseek_v2", DEEPSEEK, _deepseek, widths=WIDTHS),
    "deepseek3": Architecture("DeepseekV3ForCausalLM", "deepseek_v3", DEEPSEEK, _deepseek, widths=WIDTHS),
    "smollm3": Architecture("SmolLM3ForCausalLM", "smollm3", LLAMA, _smollm3, paired=True),
}
"""By ``general.architecture``; files of Mistral say llama, and Mixtral's too; DeepSeek V3's say deepseek2."""
