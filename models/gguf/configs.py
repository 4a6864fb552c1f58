"""Writes ``config.json`` and ``generation_config.json`` for a GGUF file, whose metadata says the same."""

from __future__ import annotations

from typing import Any

from turnout.core.errors import ModelError
from turnout.models.gguf.architectures import architecture_of
from turnout.models.gguf.header import GGUFHeader
from turnout.models.gguf.rope import rope_parameters

__all__ = ["config_of", "generation_config_of"]

END_TEXTS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>")
"""Texts of tokens that end a turn, where the metadata names one end token alone."""
CONTROL = 3
"""The type of tokens that no text stands for."""


def config_of(header: GGUFHeader) -> dict[str, Any]:
    """Returns what ``config.json`` says of the model. Raises ModelError for what is not read."""
    kind = architecture_of(header)
    if header.metadata.get("split.count", 1) > 1:
        raise ModelError(f"{header.path} is one of several; join them with llama-gguf-split --merge")
    heads = header.needed("attention.head_count")
    width = header.needed("embedding_length")
    stored = {tensor.type for tensor in header.tensors.values()}
    config = {
        "architectures": [kind.name],
        "model_type": kind.model_type,
        "vocab_size": _vocabulary(header),
        "hidden_size": width,
        "intermediate_size": header.needed("feed_forward_length"),
        "num_hidden_layers": header.needed("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": header.own("attention.head_count_kv", heads),
        "head_dim": header.own("attention.key_length", width // heads if type(heads) is int else None),
        "max_position_embeddings": header.needed("context_length"),
        "rms_norm_eps": header.needed("attention.layer_norm_rms_epsilon"),
        "rope_parameters": rope_parameters(header),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "dtype": "bfloat16" if "bf16" in stored else "float16" if stored <= {"f16", "f32"} else "float32",
        "eos_token_id": header.metadata.get("tokenizer.ggml.eos_token_id"),
        "bos_token_id": header.metadata.get("tokenizer.ggml.bos_token_id"),
        **kind.config(header),
    }
    if not stored <= {"f32", "f16", "bf16", "f64"}:
        config["quantization_config"] = {"quant_method": "gguf"}
    return {key: value for key, value in config.items() if value is not None}


def generation_config_of(header: GGUFHeader) -> dict[str, Any]:
    """Returns which tokens end a text: those that the metadata names, and known texts that end a turn."""
    named = {header.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")}
    tokens, kinds = (header.metadata.get(f"tokenizer.ggml.{key}", []) for key in ("tokens", "token_type"))
    turns = {
        i
        for i, (text, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == CONTROL and text in END_TEXTS
    }
    return {"eos_token_id": sorted({token for token in named if token is not None} | turns)}


def _vocabulary(header: GGUFHeader) -> int:
    table = header.tensors.get("token_embd.weight")
    if table is None:
        raise ModelError(
            f"{header.path} lacks the tensor 'token_embd.weight'; is it a language model's file?"
        )
    return table.shape[0]
