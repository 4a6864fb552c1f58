"""A config with few and narrow layers of the same kinds: its model is built and run in no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig

from turnout.models.transformers_adapter.building import with_padding

__all__ = ["shrunk"]

HEADS = 4
MOST_LAYERS = 8
PART_LAYERS = 2
"""Some parts take what their last layer but one gives."""

SIZES: Mapping[str, int] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": HEADS,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "sliding_window": 8,
    "attention_chunk_size": 8,
    "floor_scale": 4,
    "original_max_position_embeddings": 16,
    "word_embed_proj_dim": 64,
    "ffn_dim": 96,
    "ffn_hidden_size": 96,
    "embedding_size": 64,
    "vocab_size_per_layer_input": 300,
    "hidden_size_per_layer_input": 16,
    "laurel_rank": 16,
    "rotary_dim": 8,
    # layers of Mamba, whose sizes Granite 4 checks where it has none
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # mixtures of experts
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48,
    "first_k_dense_replace": 1,
    # multi-head latent attention
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
"""What is set where a config has a number; None and what it lacks stay."""

LATENT_HEADS = {"head_dim": 8, "qk_head_dim": 24}

SHARING = "num_kv_shared_layers"
"""The config's name of how many of its last layers read the keys and values of others."""
OWN = "per_layer_config"
"""The config's name of what single layers have otherwise, by their numbers."""


def shrunk(config: PreTrainedConfig, **sizes: object) -> PreTrainedConfig:
    """Returns a small config of the same class. sizes: what to set beside `SIZES`, or instead.

    The ratio of heads and key heads stays, and each kind of layer is there. What the class derives from sizes
    may not fit together: building the model then fails.
    """
    values = config.to_dict()
    names = {config.attribute_map.get(name, name): size for name, size in SIZES.items()}
    kept: dict[str, object] = {
        name: size
        for name, size in names.items()
        if _is_size(values.get(name)) and (values[name] or "expert" not in name)  # none stay none
    }
    if "qk_rope_head_dim" in kept:  # the heads of latent attention are as wide as their parts
        kept |= {name: value for name, value in LATENT_HEADS.items() if name in values}
    kept |= _key_heads(config, values)
    kept |= {name: value for name, value in sizes.items() if name in values or name in config.attribute_map}
    kept = {config.attribute_map.get(name, name): value for name, value in kept.items()}
    layers = _layers(values, config, kept)
    if values.get(SHARING) and "num_hidden_layers" not in sizes:
        kept[SHARING] = layers // 2
    made = {**values, **_parts(values), **_per_layer(values, config, layers, names), **kept, **_ropes(values)}
    return with_padding(type(config).from_dict(made))


def _parts(values: Mapping[str, Any]) -> dict[str, object]:
    """Returns the parts for images and sound with few layers: text never passes through them."""
    return {
        key: {**value, **{name: PART_LAYERS for name in ("num_hidden_layers", "num_blocks") if name in value}}
        for key, value in values.items()
        if key in ("vision_config", "audio_config") and isinstance(value, dict)
    }


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _key_heads(config: PreTrainedConfig, values: Mapping[str, Any]) -> dict[str, object]:
    heads, key_heads = getattr(config, "num_attention_heads", None), values.get("num_key_value_heads")
    if not (_is_size(heads) and _is_size(key_heads)):
        return {}
    return {"num_key_value_heads": max(1, HEADS * int(str(key_heads)) // int(str(heads)))}


def _layers(values: Mapping[str, Any], config: PreTrainedConfig, given: Mapping[str, object]) -> int:
    """Returns how many layers show each kind of layer, 3 at least."""
    name = config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    total = values.get(name)
    if _is_size(given.get(name)):
        return int(str(given[name]))
    lists = [value for value in values.values() if isinstance(value, list) and len(value) == total]
    kinds = [str(each) for each in zip(*lists, strict=True)]
    count = max((kinds.index(kind) + 1 for kind in set(kinds)), default=3)
    count = min(max(count, 3), MOST_LAYERS, total if isinstance(total, int) else 3)
    return 2 * count if values.get(SHARING) else count  # each kind once more, with the keys of another layer


def _per_layer(
    values: Mapping[str, Any], config: PreTrainedConfig, layers: int, sizes: Mapping[str, int]
) -> dict[str, object]:
    """Returns the number of layers, and all that has an item for each, cut to so many.

    sizes: by the name that they have in the config.
    """
    name = config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    total = values.get(name)
    cut: dict[str, object] = {
        key: [_scaled(each, value, sizes.get(key)) for each in value[:layers]]
        for key, value in values.items()
        if isinstance(value, list) and len(value) == total
    }
    own = values.get(OWN) or {}
    if own:  # their heads are twice as wide as those of the others
        cut[OWN] = {
            int(layer): {key: 2 * sizes[key] if key == "head_dim" else value for key, value in each.items()}
            for layer, each in own.items()
            if int(layer) < layers
        }
    return {**cut, name: layers}


def _scaled(item: object, items: list[Any], size: int | None) -> object:
    """Returns an item of a list whose largest becomes `size`; itself, if it is none or has none."""
    return item if size is None or not _is_size(item) else max(1, size * int(str(item)) // max(items))


def _ropes(values: Mapping[str, Any]) -> dict[str, object]:
    """Returns the rotations without the kinds whose factors fit only the original width of heads."""
    ropes = values.get("rope_parameters")
    if not isinstance(ropes, dict):
        return {}
    return {"rope_parameters": {key: _plain(value) for key, value in _plain(ropes).items()}}


def _plain(rope: Any) -> Any:
    if not isinstance(rope, dict):
        return rope
    if "original_max_position_embeddings" in rope:
        rope = {**rope, "original_max_position_embeddings": SIZES["original_max_position_embeddings"]}
    if rope.get("rope_type") not in ("longrope", "dynamic"):
        return rope
    dropped = ("long_factor", "short_factor", "factor", "attention_factor")
    return {**{key: value for key, value in rope.items() if key not in dropped}, "rope_type": "default"}
