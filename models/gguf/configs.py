"""Writes ``config.json`` and ``generation_config.json`` for a GGUF file, whose metadata says the same."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from turnout.core.errors import ModelError
from turnout.models.gguf.architectures import WIDTHS, Architecture, architecture_of
from turnout.models.gguf.header import GGUFHeader
from turnout.models.gguf.rope import rope_parameters

__all__ = ["config_of", "generation_config_of", "token_id"]

END_TEXTS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>")
"""Texts of tokens that end a turn, where the metadata names one end token alone."""
MISSING = -1
"""An id that says that there is no such token."""
CONTROL = 3
"""The type of tokens that no text stands for."""


def config_of(header: GGUFHeader) -> dict[str, Any]:
    """Returns what ``config.json`` says of the model. Raises ModelError for what is not read."""
    if header.whole.integer("split.count", 1, least=0) > 1:
        raise ModelError(f"{header.path} is one of several; join them with llama-gguf-split --merge")
    kind, own = architecture_of(header), header.own
    heads, width = own.integer("attention.head_count"), own.integer("embedding_length")
    if width % heads and not own.has("attention.key_length"):
        raise own.wrong("attention.head_count", f"should divide {own.prefix}embedding_length = {width}")
    if heads % (groups := own.integer("attention.head_count_kv", heads)):
        raise own.wrong(
            "attention.head_count", f"should be a multiple of {own.prefix}attention.head_count_kv = {groups}"
        )
    head = own.integer("attention.key_length", width // heads)
    stored = {tensor.type for tensor in header.tensors.values()}
    _check_attention(header, kind, head)
    special = kind.config(header)
    config = {
        "architectures": [kind.name],
        "model_type": kind.model_type,
        "vocab_size": _vocabulary(header),
        "hidden_size": width,
        "intermediate_size": own.integer("feed_forward_length"),
        "num_hidden_layers": own.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": head,
        "max_position_embeddings": own.integer("context_length"),
        "rms_norm_eps": own.number("attention.layer_norm_rms_epsilon"),
        "rope_parameters": special.get("rope_parameters") or rope_parameters(header),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "dtype": _dtype(stored),
        "eos_token_id": token_id(header, "eos"),
        "bos_token_id": token_id(header, "bos"),
        **special,
    }
    if not own.flag("attention.causal", True):
        config["is_causal"] = False
    if not stored <= {"f32", "f16", "bf16", "f64"}:
        config["quantization_config"] = {"quant_method": "gguf"}
    return {key: value for key, value in config.items() if value is not None}


def generation_config_of(header: GGUFHeader) -> dict[str, Any]:
    """Returns which tokens end a text: those that the metadata names, and known texts that end a turn."""
    named = {token_id(header, name) for name in ("eos", "eot", "eom")} - {None}
    tokens, kinds = header.tokenizer.texts("tokens"), header.tokenizer.integers("token_type")
    turns = {
        i
        for i, (text, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == CONTROL and text in END_TEXTS
    }
    return {"eos_token_id": sorted(named | turns)}


def _dtype(stored: Collection[str]) -> str:
    """Of numbers. All files have some in float32, such as the weights of norms."""
    if "bf16" in stored:
        return "bfloat16"
    return "float16" if {"f16"} <= set(stored) <= {"f16", "f32"} else "float32"


def token_id(header: GGUFHeader, name: str) -> int | None:
    """Returns the special token of that name; None: there is none, or an id that is no token's says so."""
    id = header.tokenizer.integer(f"{name}_token_id", None, least=MISSING)
    return id if id is not None and 0 <= id < _vocabulary(header) else None


def _check_attention(header: GGUFHeader, kind: Architecture, head: int) -> None:
    """Raises ModelError for what changes attention, and what the architecture's configuration cannot say."""
    header.own.check_is("attention.clamp_kqv", 0.0)
    header.own.check_is("attention.max_alibi_bias", 0.0)
    for key in WIDTHS:
        if key not in kind.widths:
            header.own.check_is(key, head)


def _vocabulary(header: GGUFHeader) -> int:
    table = header.tensors.get("token_embd.weight")
    if table is None:
        raise ModelError(
            f"{header.path} lacks the tensor 'token_embd.weight'; is it a language model's file?"
        )
    return table.shape[0]
