"""Writes checkpoints as GGUF files, as llama.cpp's converter does, by the library's own writer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

__all__ = ["write_gguf"]

TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
CONTROL, NORMAL = 3, 1


def write_gguf(
    folder: Path,
    file: Path,
    kind: str = "Q8_0",
    *,
    tokenizer: bool = False,
    pre: str = "qwen2",
    widened: Path | None = None,
) -> Path:
    """Writes the checkpoint in `folder`; matrices in blocks of `kind`, where their width allows it.

    widened: where to write the safetensors checkpoint of the numbers that the file stands for.
    """
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(file, config["model_type"])
    _describe(writer, config)
    if tokenizer:
        _tokenizer(writer, folder, pre)
    else:
        writer.add_tokenizer_model("none")
    meant = {name: _put(writer, config, name, value, kind) for name, value in _tensors(folder)}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if widened is not None:
        shutil.copytree(folder, widened)
        save_file(meant, widened / "model.safetensors")
    return file


def _describe(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    rope = config.get("rope_parameters") or config
    writer.add_vocab_size(config["vocab_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope.get("rope_theta", 10_000.0))
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3(rope, config))


def _llama3(rope: Mapping[str, Any], config: Mapping[str, Any]) -> np.ndarray:
    """As convert_hf_to_gguf.py has it."""
    dim = config["hidden_size"] // config["num_attention_heads"]
    low, high, old = (
        rope["low_freq_factor"],
        rope["high_freq_factor"],
        rope["original_max_position_embeddings"],
    )
    factors = []
    for frequency in 1.0 / (rope["rope_theta"] ** (torch.arange(0, dim, 2) / dim)):
        wavelength = 2 * np.pi / float(frequency)
        if wavelength < old / high:
            factors.append(1.0)
        elif wavelength > old / low:
            factors.append(rope["factor"])
        else:
            smooth = (old / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def _tokenizer(writer: gguf.GGUFWriter, folder: Path, pre: str) -> None:
    """A byte-level vocabulary. The embedded model's splits text as Qwen2's."""
    stored = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    vocabulary = {
        **stored["model"]["vocab"],
        **{each["content"]: each["id"] for each in stored["added_tokens"]},
    }
    special = {each["content"] for each in stored["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in special else NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in stored["model"]["merges"]])
    writer.add_eos_token_id(vocabulary[config["eos_token"]])
    writer.add_pad_token_id(vocabulary[config["pad_token"]])
    writer.add_add_bos_token(False)
    if (folder / "chat_template.jinja").is_file():
        writer.add_chat_template((folder / "chat_template.jinja").read_text())


def _tensors(folder: Path) -> list[tuple[str, torch.Tensor]]:
    return [
        (name, value.float())
        for file in sorted(folder.glob("*.safetensors"))
        for name, value in load_file(file).items()
    ]


def _put(
    writer: gguf.GGUFWriter, config: Mapping[str, Any], name: str, value: torch.Tensor, kind: str
) -> torch.Tensor:
    """Adds a tensor; returns the numbers that it stands for, in the checkpoint's own order."""
    order = torch.arange(len(value))
    if config["model_type"] == "llama" and name.rpartition(".")[0].endswith(("q_proj", "k_proj")):
        heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        order = order.view(heads, 2, -1).transpose(1, 2).flatten()
    numbers = value[order].numpy()
    type_ = gguf.GGMLQuantizationType[kind]
    if numbers.ndim == 1 or numbers.shape[-1] % gguf.GGML_QUANT_SIZES[type_][0]:
        writer.add_tensor(_name(name), numbers.astype(np.float32))
        return value
    blocks = _quantized(numbers, type_)
    writer.add_tensor(_name(name), blocks, raw_dtype=type_)
    meant = torch.empty_like(value)
    meant[order] = torch.from_numpy(gguf.dequantize(blocks, type_))
    return meant


def _quantized(numbers: np.ndarray, type_: gguf.GGMLQuantizationType) -> np.ndarray:
    """In blocks. Those that the library cannot write are random, with the scales of such weights."""
    try:
        return gguf.quantize(numbers, type_)
    except NotImplementedError:
        block, size = gguf.GGML_QUANT_SIZES[type_]
        rows = np.random.default_rng(len(numbers)).integers(
            0, 256, (len(numbers), numbers.shape[1] // block, size), np.uint8
        )
        scales = {"Q4_K": slice(0, 4), "Q6_K": slice(208, 210)}[type_.name]
        count = (scales.stop - scales.start) // 2
        rows[..., scales] = np.full((*rows.shape[:2], count), 1 / 4096, np.float16).view(np.uint8)
        return rows.reshape(len(numbers), -1)


def _name(name: str) -> str:
    layer, _, part = name.rpartition(".")
    if layer in TOP:
        return f"{TOP[layer]}.{part}"
    number, _, inner = layer.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{LAYER[inner]}.{part}"
