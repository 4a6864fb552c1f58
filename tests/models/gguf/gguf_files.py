"""Writes checkpoints as GGUF files, as llama.cpp's converter does, by the library's own writer."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from gguf_parts import put_together, taken_apart
from safetensors.torch import load_file, save_file

__all__ = ["write_gguf"]

ARCHITECTURES = {
    "mixtral": "llama",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
}
"""llama.cpp's names of model types, where they are not the same."""
PAIRED = ("llama", "mixtral", "granite", "smollm3")
"""Models whose queries and keys llama.cpp rotates in pairs of neighbours."""
CONTROL, NORMAL = 3, 1


def write_gguf(
    folder: Path,
    file: Path,
    kind: str | Callable[[str], str] = "Q8_0",
    *,
    tokenizer: bool = False,
    pre: str = "qwen2",
    widened: Path | None = None,
    latent: bool = True,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the checkpoint in `folder`; matrices in blocks of `kind`, where their width allows it.

    kind: of all, or a function of their names, which gives all experts of a layer the same.
    changes: values of metadata by key; a function makes one of the file's own, and None is left out.
    latent: DeepSeek's keys and values are expanded by two tensors, as in newer files.
    widened: where to write the safetensors checkpoint of the numbers that the file stands for.
    """
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(file, ARCHITECTURES.get(config["model_type"], config["model_type"]))
    _describe(writer, config)
    if "kv_lora_rank" in config:
        _describe_latent(writer, config, latent)
    if tokenizer:
        _tokenizer(writer, folder, pre)
    else:
        writer.add_tokenizer_model("none")
    tensors = taken_apart(config, dict(_tensors(folder)), latent=latent)
    kind_of = kind if callable(kind) else lambda _: kind
    meant = {name: _converted(config, name, value, kind_of(name)) for name, value in tensors.items()}
    for name, values in _joined({name: each.stored for name, each in meant.items()}).items():
        writer.add_tensor(_name(writer, config, name), *values)
    _change(writer, changes or {})
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if widened is not None:
        shutil.copytree(folder, widened)
        for shard in widened.glob("*.safetensors*"):
            shard.unlink()
        save_file(
            put_together(config, {name: each.meant for name, each in meant.items()}),
            widened / "model.safetensors",
            metadata={"format": "pt"},
        )
    return file


def _change(writer: gguf.GGUFWriter, changes: Mapping[str, Any]) -> None:
    """Keys of the architecture begin with a dot."""
    for key, change in changes.items():
        whole = f"{writer.arch}{key}" if key.startswith(".") else key
        old = writer.kv_data[0].pop(whole, None)
        value = change(old.value) if callable(change) and old is not None else change
        if value is not None:
            writer.add_key_value(whole, value, gguf.GGUFValueType.get_type(value))


def _describe(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    rope = config.get("rope_parameters") or config
    rope = rope.get("full_attention", rope)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if config.get("head_dim") and "kv_lora_rank" not in config:
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
    if rope.get("rope_type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
        for kind in ("short", "long"):
            factors = np.array(rope[f"{kind}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{kind}.weight", factors)
    _describe_more(writer, config)


def _describe_more(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    """What some architectures have beyond the others, by the config's key."""
    head = config["hidden_size"] // config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    known = {
        "sliding_window": writer.add_sliding_window,
        "attn_logit_softcapping": writer.add_attn_logit_softcapping,
        "final_logit_softcapping": writer.add_final_logit_softcapping,
        "num_experts": writer.add_expert_count,
        "num_local_experts": writer.add_expert_count,
        "num_experts_per_tok": writer.add_expert_used_count,
        "moe_intermediate_size": writer.add_expert_feed_forward_length,
        "shared_expert_intermediate_size": writer.add_expert_shared_feed_forward_length,
        "attention_multiplier": writer.add_attention_scale,
        "embedding_multiplier": writer.add_embedding_scale,
        "residual_multiplier": writer.add_residual_scale,
        "logits_scaling": writer.add_logit_scale,
    }
    for key, add in known.items():
        if config.get(key) is not None:
            add(config[key])
    if config["model_type"] == "gpt_oss":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if rope.get("partial_rotary_factor", 1.0) < 1:
        writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * head))


def _describe_latent(writer: gguf.GGUFWriter, config: Mapping[str, Any], latent: bool) -> None:
    """As files of DeepSeek have it; those for latent attention tell the widths of what is kept."""
    turned, plain, rank = (config[key] for key in ("qk_rope_head_dim", "qk_nope_head_dim", "kv_lora_rank"))
    lengths = [(writer.add_key_length, plain + turned), (writer.add_value_length, config["v_head_dim"])]
    if latent:
        lengths = [
            (writer.add_key_length, rank + turned),
            (writer.add_value_length, rank),
            (writer.add_key_length_mla, plain + turned),
            (writer.add_value_length_mla, config["v_head_dim"]),
        ]
    for add, length in lengths:
        add(length)
    writer.add_kv_lora_rank(rank)
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_rope_dimension_count(turned)
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_shared_count(config.get("n_shared_experts") or 1)
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(bool(config.get("norm_topk_prob")))
    sigmoid = config["model_type"] == "deepseek_v3"
    writer.add_expert_gating_func(
        gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX
    )
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])


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


class Converted(NamedTuple):
    """A tensor as a file stores it, with its type, and the numbers that it stands for, in its own order."""

    stored: tuple[np.ndarray, None, gguf.GGMLQuantizationType | None]
    meant: torch.Tensor


def _converted(config: Mapping[str, Any], name: str, value: torch.Tensor, kind: str) -> Converted:
    order, more = torch.arange(len(value)), 0.0
    if config["model_type"] in PAIRED and name.rpartition(".")[0].endswith(("q_proj", "k_proj")):
        heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        order = order.view(heads, 2, -1).transpose(1, 2).flatten()
    if config["model_type"].startswith("gemma") and name.endswith("norm.weight"):
        more = 1.0
    numbers = (value[order] + more).numpy()
    if config["model_type"] == "gpt_oss" and ".experts." in name:
        kind = "MXFP4"
    type_ = gguf.GGMLQuantizationType[kind]
    plain = numbers.ndim == 1 or any(
        part in name for part in (".mlp.gate.", ".router.", "shared_expert_gate")
    )
    if plain or numbers.shape[-1] % gguf.GGML_QUANT_SIZES[type_][0]:
        stored = numbers.astype(np.float32)
        return Converted((stored.squeeze(0) if len(stored) == 1 else stored, None, None), value + more - more)
    blocks = _quantized(numbers, type_)
    meant = torch.empty_like(value)
    meant[order] = torch.from_numpy(gguf.dequantize(blocks, type_))
    return Converted((blocks, None, type_), meant)


def _joined(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of all experts as one, under a name without the expert's number."""
    joined: dict[str, Any] = {}
    for name, values in sorted(
        tensors.items(), key=lambda each: [int(n) for n in re.findall(r"\d+", each[0])]
    ):
        joined.setdefault(re.sub(r"\.experts\.\d+\.", ".experts.", name), []).append(values)
    return {
        name: each[0] if ".experts." not in name else (np.stack([part[0] for part in each]), *each[0][1:])
        for name, each in joined.items()
    }


def _quantized(numbers: np.ndarray, type_: gguf.GGMLQuantizationType) -> np.ndarray:
    """In blocks. Those that the library cannot write are random, with the scales of such weights."""
    try:
        return gguf.quantize(numbers, type_)
    except NotImplementedError:
        block, size = gguf.GGML_QUANT_SIZES[type_]
        rows = np.random.default_rng(len(numbers)).integers(
            0, 256, (len(numbers), numbers.shape[1] // block, size), np.uint8
        )
        scales = {"Q4_K": slice(0, 4), "Q5_K": slice(0, 4), "Q6_K": slice(208, 210)}[type_.name]
        count = (scales.stop - scales.start) // 2
        rows[..., scales] = np.full((*rows.shape[:2], count), 1 / 4096, np.float16).view(np.uint8)
        return rows.reshape(len(numbers), -1)


def _name(writer: gguf.GGUFWriter, config: Mapping[str, Any], name: str) -> str:
    """As the library maps names."""
    kinds = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[writer.arch], config["num_hidden_layers"])
    for ending, made in (("e_score_correction_bias", "e_score_correction.bias"), ("sinks", "sinks.weight")):
        name = name.replace(ending, made)  # as the converter does
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return found
