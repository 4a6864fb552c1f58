"""What the families read from config.json, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from turnout.core.errors import ModelError
from turnout.core.interfaces.models import ModelFamily
from turnout.models import families
from turnout.models.families import Llama, Qwen2
from turnout.models.families.encoders.family import EncoderFamily
from turnout.models.meta_model import count_parameters, meta_model

QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
"""As published for Qwen2.5-0.5B."""

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
"""As published for Llama 3.2 1B Instruct."""


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def test_published_qwen_config() -> None:
    spec = Qwen2().spec(QWEN)
    assert (spec.layers, spec.heads, spec.kv_heads, spec.head_dim) == (24, 14, 2, 64)
    assert (spec.qkv_bias, spec.output_bias, spec.mlp_bias) == (True, False, False)
    assert (spec.rope.kind, spec.rope.theta, spec.max_positions) == ("default", 1e6, 32768)
    assert (spec.tied_embeddings, spec.dtype, spec.eos_token_ids) == (True, "bfloat16", (151643,))


def test_published_llama_config() -> None:
    spec = Llama().spec(LLAMA)
    assert (spec.layers, spec.heads, spec.kv_heads, spec.head_dim) == (16, 32, 8, 64)
    assert (spec.qkv_bias, spec.output_bias, spec.mlp_bias) == (False, False, False)
    assert (spec.rope.kind, spec.rope.theta, spec.max_positions) == ("llama3", 500_000.0, 131072)
    assert spec.eos_token_ids == (128001, 128008, 128009)


def test_both_rope_layouts_read_the_same() -> None:
    new = without(LLAMA, "rope_scaling", "rope_theta")
    new["rope_parameters"] = {**LLAMA["rope_scaling"], "rope_theta": 500000.0}
    ours, theirs = Llama().spec(new).rope, Llama().spec(LLAMA).rope
    assert (ours.kind, ours.theta) == (theirs.kind, theirs.theta)
    assert without(dict(ours.parameters), "rope_theta") == theirs.parameters


def test_the_old_name_of_the_rope_type() -> None:
    config = {**QWEN, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert Qwen2().spec(config).rope.kind == "linear"


def test_the_new_name_of_the_dtype_wins() -> None:
    assert Qwen2().spec({**QWEN, "dtype": "float16"}).dtype == "float16"


def test_defaults_are_those_of_transformers() -> None:
    config = without(QWEN, "num_key_value_heads", "tie_word_embeddings", "torch_dtype", "rope_theta")
    spec = Qwen2().spec({**config, "head_dim": None, "eos_token_id": None})
    assert (spec.kv_heads, spec.head_dim, spec.tied_embeddings) == (14, 64, False)
    assert (spec.dtype, spec.rope.theta, spec.eos_token_ids) == ("float32", 10_000.0, ())


def test_llama_attention_bias_covers_the_output_projection() -> None:
    spec = Llama().spec({**LLAMA, "attention_bias": True, "mlp_bias": True})
    assert (spec.qkv_bias, spec.output_bias, spec.mlp_bias) == (True, True, True)


@pytest.mark.parametrize(
    ("scaling", "positions"),
    [
        ({"rope_type": "linear", "factor": 2.0}, 65536),
        ({"rope_type": "dynamic", "factor": 4.0}, 131072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, 32768),
        ({"rope_type": "default"}, 32768),
    ],
)
def test_scaling_extends_the_positions_a_model_can_serve(scaling: dict[str, Any], positions: int) -> None:
    assert Qwen2().spec({**QWEN, "rope_scaling": scaling}).max_positions == positions


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_sliding_window": True, "sliding_window": -1}, "sliding_window"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "short_factor"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor"),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}, "high_freq_factor"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": "32"}}, "beta_fast"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "attention_factor": "1"}}, "attention_factor"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": 1}}, "truncate"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "full_attention"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "896"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_key_value_heads": 4}, "num_key_value_heads"),
        ({"hidden_size": 900}, "hidden_size"),
        ({"head_dim": 65}, "head_dim"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"torch_dtype": "int8"}, "int8"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        Qwen2().spec({**QWEN, **change})


@pytest.mark.parametrize("change", [{"rope_theta": 1.0}, {"beta_slow": -1}])
def test_numbers_from_which_no_rotation_follows_are_refused(change: dict[str, Any]) -> None:
    scaling = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16384, **change}
    with pytest.raises(ModelError, match="no rotary embeddings of the kind 'yarn' follow from rope_theta"):
        meta_model(Qwen2(), Qwen2().spec({**QWEN, "rope_scaling": scaling}))


def test_a_window_of_null_is_none() -> None:
    assert not Qwen2().spec({**QWEN, "use_sliding_window": True, "sliding_window": None}).attention
    sliding = Qwen2().spec({**QWEN, "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0})
    assert {rule.window for rule in sliding.attention} == {64}


@pytest.mark.parametrize("share", [0.9, 0.001, 1.5])
def test_a_part_of_a_head_that_cannot_turn_is_refused(share: float) -> None:
    heads = {"num_attention_heads": 14, "num_key_value_heads": 14}
    with pytest.raises(ModelError, match=f"partial_rotary_factor = {share} is not supported"):
        families.Phi3().spec({**QWEN, **heads, "partial_rotary_factor": share})


@pytest.mark.parametrize(
    ("change", "named"),
    [({"n_group": 8}, "n_group = 8 groups are too few"), ({"n_group": 2, "topk_group": 4}, "topk_group = 4")],
)
def test_groups_that_no_expert_can_be_chosen_of_are_refused(change: dict[str, int], named: str) -> None:
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    with pytest.raises(ModelError, match=named):
        families.DeepseekV3().spec({**QWEN, **experts, **change})


def test_llama_refuses_split_pretraining_matrices() -> None:
    with pytest.raises(ModelError, match="pretraining_tp"):
        Llama().spec({**LLAMA, "pretraining_tp": 2})


def test_families_and_names_are_listed_without_the_heavy_libraries() -> None:
    code = (
        "import sys, turnout.models, turnout.models.families, turnout.models.hub.resolve\n"
        "heavy = {'torch', 'transformers', 'huggingface_hub', 'safetensors', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


TIED = {"tie_word_embeddings": True}


@pytest.mark.parametrize("family", [Qwen2(), Llama()], ids=["qwen2", "llama"])
@pytest.mark.parametrize(
    "changes", [{}, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}]
)
def test_parameters_are_added_up_without_building_the_model(
    family: ModelFamily, changes: dict[str, Any]
) -> None:
    published = QWEN if isinstance(family, Qwen2) else LLAMA
    spec = family.spec({**published, **changes})
    assert family.parameter_count(spec) == count_parameters(family, spec)


DECODERS = [name for name in families.__all__ if not issubclass(getattr(families, name), EncoderFamily)]
"""Encoders give no count."""


@pytest.mark.parametrize("name", DECODERS)
def test_parameters_of_every_family_are_added_up(name: str) -> None:
    """Or none is given, but never a wrong number: a checkpoint would be refused for being too small."""
    family = getattr(families, name)()
    config = {**LLAMA, "num_hidden_layers": 3, "vocab_size": 1000, "attention_bias": True, "head_dim": 64}
    config |= {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
    config |= {"n_group": 1, "topk_group": 1}
    spec = family.spec(config)
    assert family.parameter_count(spec) in (None, count_parameters(family, spec))
