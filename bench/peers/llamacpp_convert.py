"""A Qwen2 or Llama checkpoint to GGUF. Arguments: checkpoint, file to write, bf16, q8_0 or q4_0.

Without a vocabulary: the bench gives token ids.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

source, target, weights = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
config = json.loads((source / "config.json").read_text())
heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
kind = gguf.GGMLQuantizationType[weights.upper()]

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYERS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def renamed(name: str) -> str:
    layer, _, part = name.rpartition(".")
    if layer in NAMES:
        return f"{NAMES[layer]}.{part}"
    number, _, inner = layer.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{LAYERS[inner]}.{part}"


def llama_order(weight: np.ndarray, count: int) -> np.ndarray:
    """Llama's queries and keys are rotated in pairs of neighbours there, instead of halves."""
    halves = weight.reshape(count, 2, weight.shape[0] // count // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def tensors_of(file: Path) -> Iterator[tuple[str, np.ndarray]]:
    """In float32. The format by hand: numpy, which safetensors would read into, has no bfloat16."""
    raw = np.memmap(file, np.uint8, mode="r")
    start = 8 + int(raw[:8].view(np.uint64)[0])
    for name, tensor in json.loads(raw[8:start].tobytes()).items():
        if name != "__metadata__":
            begin, end = (start + offset for offset in tensor["data_offsets"])
            yield name, widened(raw[begin:end], tensor["dtype"]).reshape(tensor["shape"])


def widened(raw: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.view({"F16": np.float16, "F32": np.float32}[dtype]).astype(np.float32)


def put(writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
    if values.ndim == 1:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)


def main() -> None:
    architecture = config["model_type"]
    if architecture not in ("qwen2", "llama"):
        sys.exit(f"{source}: model_type {architecture!r}; only qwen2 and llama can be converted")
    writer = gguf.GGUFWriter(target.with_suffix(".partial"), architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config.get("rope_parameters") or config  # transformers 5, and 4
    writer.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{weights.upper()}"])
    for file in sorted(source.glob("*.safetensors")):
        for key, values in tensors_of(file):
            if architecture == "llama" and ("q_proj" in key or "k_proj" in key):
                values = llama_order(values, heads if "q_proj" in key else kv_heads)
            put(writer, renamed(key), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    target.with_suffix(".partial").replace(target)


main()
