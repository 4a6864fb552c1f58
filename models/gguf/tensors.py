"""Which tensors of a GGUF file are which of a Hugging Face checkpoint, and how they differ.

llama.cpp stores the rows of Llama's queries and keys in another order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from turnout.core.errors import ModelError
from turnout.models.gguf.header import GGUFHeader, GGUFTensor

__all__ = ["ARCHITECTURES", "StoredTensor", "stored_tensors"]

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
ARCHITECTURES: Mapping[str, Mapping[str, str]] = {
    "llama": LAYER,
    "qwen2": LAYER,
    "qwen3": LAYER | QK_NORMS,
}
"""The tensors of a layer, for each architecture that is read."""
SKIPPED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""They say how positions are rotated, which the configuration says too."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file, under the name of a Hugging Face checkpoint."""

    name: str
    stored: GGUFTensor
    heads: int = 0
    """Heads whose rows are in llama.cpp's order; 0: rows are in their own order."""

    def in_order(self, rows: Tensor) -> Tensor:
        """Returns rows, or what stands for each row, in the order of a Hugging Face checkpoint."""
        if not self.heads:
            return rows
        return rows.view(self.heads, -1, 2, *rows.shape[1:]).transpose(1, 2).flatten(0, 2)


def stored_tensors(header: GGUFHeader) -> list[StoredTensor]:
    """Lists the tensors of a model. Raises ModelError for one that is not known, or an architecture."""
    if header.architecture not in ARCHITECTURES:
        raise ModelError(
            f"{header.path}: GGUF files of the architecture {header.architecture!r} are not read, only "
            f"{', '.join(ARCHITECTURES)}; take the safetensors checkpoint"
        )
    return [_named(header, tensor) for name, tensor in header.tensors.items() if name not in SKIPPED]


def _named(header: GGUFHeader, tensor: GGUFTensor) -> StoredTensor:
    whole, _, part = tensor.name.rpartition(".")
    in_layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", whole)
    names = ARCHITECTURES[header.architecture] if in_layer else TOP
    known = names.get(in_layer[2] if in_layer else whole)
    if known is None:
        raise ModelError(
            f"{header.path} holds the tensor {tensor.name!r}, which is not known of the architecture "
            f"{header.architecture}; take the safetensors checkpoint"
        )
    name = f"model.layers.{in_layer[1]}.{known}.{part}" if in_layer else f"{known}.{part}"
    return StoredTensor(name, tensor, _heads(header, known))


def _heads(header: GGUFHeader, known: str) -> int:
    if header.architecture != "llama" or known not in ("self_attn.q_proj", "self_attn.k_proj"):
        return 0
    heads = header.needed("attention.head_count")
    count = heads if known.endswith("q_proj") else header.own("attention.head_count_kv", heads)
    if type(count) is not int or count < 1:
        raise ModelError(f"{header.path}: head counts that differ by layer are not read; take safetensors")
    return count
