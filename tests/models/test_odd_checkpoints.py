"""Checkpoints as users bring them: shards that don't match their index, keys that configs leave out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from family_checkpoints import write_checkpoint, write_model
from safetensors.torch import load_file, save_file
from torch import nn

from turnout import LLM, SamplingParams
from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import choose_kernels
from turnout.kernels.attention.dense import DenseAttention
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.checkpoints.loading import load_model
from turnout.models.hub.resolve import resolve_model
from turnout.scripts.make_model import copy_tokenizer

INDEX = "model.safetensors.index.json"


@pytest.fixture
def shards(tiny_config, checkpoint) -> Path:
    """A checkpoint of Llama in three shards."""
    return checkpoint(tiny_config("llama"), seed=5, shards=3)


def index_of(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
    return found


def rewrite_index(folder: Path, weight_map: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def same(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = dict(one.named_parameters()), dict(other.named_parameters())
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


class TestShards:
    def test_a_missing_one_is_named(self, shards: Path, load) -> None:
        name = sorted(set(index_of(shards).values()))[1]
        (shards / name).unlink()
        with pytest.raises(ModelError, match=f"{name} is missing; the index names 3 shards; fetch"):
            load(shards)

    @pytest.mark.parametrize("shards_stay", [True, False])
    def test_an_index_that_stayed_behind_is_not_followed(
        self, shards: Path, tiny_config, checkpoint, load, shards_stay: bool
    ) -> None:
        """transformers leaves it when it saves a model anew as one file, and removes the shards."""
        single = checkpoint(tiny_config("llama"), seed=6)
        for name in () if shards_stay else set(index_of(shards).values()):
            (shards / name).unlink()
        shutil.copy(single / "model.safetensors", shards)
        assert same(load(shards), load(single))

    def test_files_that_the_index_does_not_name_are_left_alone(self, shards: Path, load) -> None:
        before = load(shards)
        save_file({"lm_head.weight": torch.zeros(3)}, shards / "consolidated.safetensors")
        assert same(load(shards), before)

    def test_of_two_copies_that_counts_which_the_index_names(self, shards: Path, load) -> None:
        before, (key, home) = load(shards), next(iter(index_of(shards).items()))
        other = next(name for name in index_of(shards).values() if name != home)
        tensors = load_file(shards / other)
        save_file({**tensors, key: torch.zeros_like(load_file(shards / home)[key])}, shards / other)
        assert same(load(shards), before)

    def test_two_copies_that_the_index_does_not_name_are_refused(self, shards: Path, load) -> None:
        key, home = next(iter(index_of(shards).items()))
        other = next(name for name in index_of(shards).values() if name != home)
        save_file({**load_file(shards / other), key: load_file(shards / home)[key]}, shards / other)
        rewrite_index(shards, {name: file for name, file in index_of(shards).items() if name != key})
        with pytest.raises(ModelError, match=f"holds the tensor '{key}' a second time"):
            load(shards)

    def test_a_tensor_that_the_index_does_not_name_is_read_all_the_same(self, shards: Path, load) -> None:
        before = load(shards)
        rewrite_index(shards, dict(list(index_of(shards).items())[1:]))
        assert same(load(shards), before)

    def test_a_tensor_that_lies_in_no_shard_is_named(self, shards: Path, load) -> None:
        key, home = next(iter(index_of(shards).items()))
        save_file({k: v for k, v in load_file(shards / home).items() if k != key}, shards / home)
        with pytest.raises(ModelError, match=f"lacks the tensor '{key}'"):
            load(shards)


PROMPT = [5, 9, 140, 33]


def generated(folder: Path, **options: Any) -> list[int]:
    llm = LLM(str(folder), max_model_len=64, kv_memory=2**22, **options)
    params = SamplingParams(temperature=0, max_tokens=16)
    answer = llm.generate([PROMPT], params, progress=False)[0].outputs[0]
    return list(answer.token_ids)


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_float16_is_served(key: str, tiny_config, checkpoint) -> None:
    """On a CPU in float32, with the tokens of the same numbers stored in float32."""
    config = {**tiny_config("qwen2"), "max_position_embeddings": 128}
    del config["dtype"]
    folder = checkpoint({**config, key: "float16"}, dtype="float16")
    copy_tokenizer(resolve_model("turnout-tiny"), folder)
    half = generated(folder)
    tensors = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    save_file({name: value.float() for name, value in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**config, key: "float32"}))
    assert generated(folder) == half and len(set(half)) > 3


def test_each_of_a_list_of_end_tokens_ends_the_text(tiny_config, checkpoint) -> None:
    config = {**tiny_config("qwen2"), "max_position_embeddings": 128, "eos_token_id": [1, 2]}
    folder = checkpoint(config)
    copy_tokenizer(resolve_model("turnout-tiny"), folder)
    whole = generated(folder)
    for ends in ([whole[4], 0], [0, whole[2]]):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        first = min(whole.index(token) for token in ends if token in whole)
        assert generated(folder) == whole[: first + 1]


TIED = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "llama": "LlamaForCausalLM",
    "ministral": "MinistralForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}


@pytest.mark.parametrize("kind", TIED)
def test_a_head_is_tied_by_default_where_it_is_for_transformers(kind: str) -> None:
    from transformers import CONFIG_MAPPING

    theirs = CONFIG_MAPPING[kind]()
    config = {**theirs.to_dict(), "architectures": [TIED[kind]], "dtype": "float32"}
    config.pop("tie_word_embeddings")
    family = Registry.load().family(TIED[kind])
    assert family.spec(config).tied_embeddings == theirs.tie_word_embeddings


@pytest.mark.parametrize(
    ("kind", "implementation"), [("qwen3", "auto"), ("gpt2", "auto"), ("qwen3", "transformers")]
)
def test_a_head_with_numbers_of_its_own_is_not_tied(
    kind: str, implementation: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """transformers compares them, whatever config.json says, and so a head was left out that it uses."""
    from transformers import AutoModelForCausalLM

    write_model(kind, {"tie_word_embeddings": True}, tmp_path, seed=3)
    copy_tokenizer(resolve_model("turnout-tiny"), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    embedding = next(tensor for name, tensor in tensors.items() if "embed_tokens" in name or "wte" in name)
    options = {"dtype": "float32", "model_impl": implementation}
    alone = generated(tmp_path, **options)
    save = partial(save_file, filename=tmp_path / "model.safetensors", metadata={"format": "pt"})
    save({**tensors, "lm_head.weight": embedding.clone()})
    assert generated(tmp_path, **options) == alone and "other numbers" not in caplog.text
    save({**tensors, "lm_head.weight": torch.randn(embedding.shape) * 0.2})
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    found = generated(tmp_path, **options)
    assert "other numbers" in caplog.text and found != alone
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, *found[:-1]]])).logits[0, len(PROMPT) - 1 :]
    assert logits.argmax(-1).tolist() == found
    assert generated(tmp_path, hf_overrides='{"tie_word_embeddings": true}', **options) == alone


@pytest.mark.parametrize("key", ["routed_scaling_factor", "n_group", "topk_group", "norm_topk_prob"])
def test_what_deepseek_v3_leaves_out_is_what_transformers_takes(key: str) -> None:
    """Shapes of tensors do not tell it: other experts would be chosen, or weigh otherwise."""
    from transformers import CONFIG_MAPPING

    theirs = CONFIG_MAPPING["deepseek_v3"]()
    config = {**theirs.to_dict(), "architectures": ["DeepseekV3ForCausalLM"], "dtype": "float32"}
    family = Registry.load().family("DeepseekV3ForCausalLM")
    whole = family.spec(config)
    left = family.spec({name: value for name, value in config.items() if name != key})
    assert replace(left, config={}) == replace(whole, config={})


def test_what_must_stay_in_float32_does(tmp_path: Path) -> None:
    """The correction of a router's scores, as transformers keeps it, natively and by the adapter."""
    from transformers import AutoConfig, AutoModelForCausalLM

    small = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    latent = {"kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    config = AutoConfig.for_model(
        "deepseek_v3",
        **{**small, **latent, **experts, "v_head_dim": 8, "first_k_dense_replace": 0},
        num_attention_heads=2,
        num_key_value_heads=2,
        moe_intermediate_size=16,
        max_position_embeddings=64,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, value in model.state_dict().items():
        if "correction" in name:
            value.copy_(torch.tensor([1.0001, 0.9999, 1.00001, 1.0002]))
    model.save_pretrained(tmp_path)
    for implementation in ("deepseek-v3", "transformers"):
        family = Registry.load().create("model", implementation)
        context = ComputeContext(torch.device("cpu"), torch.bfloat16)
        loaded = load_model(tmp_path, family, family.spec(read_config(tmp_path)), context, progress=False)
        found = {value.dtype for name, value in loaded.named_parameters() if "correction" in name}
        assert found == {torch.float32}
        others = {name: value.dtype for name, value in loaded.named_parameters() if "correction" not in name}
        gate = others.pop("model.layers.0.mlp.gate.weight")
        later = "gate.weight" in (model._keep_in_fp32_modules_strict or ())  # versions of transformers
        assert gate == (torch.float32 if later or implementation == "deepseek-v3" else torch.bfloat16)
        assert {*others.values()} == {torch.bfloat16}


@pytest.mark.parametrize(("kind", "name"), [("DeepseekV2", "deepseek-v2"), ("DeepseekV3", "deepseek-v3")])
def test_a_router_in_float32_chooses_as_that_of_transformers(kind: str, name: str, tmp_path: Path) -> None:
    """A checkpoint in float32, computed in bfloat16: routers with rounded weights chose other experts."""
    import transformers

    theirs = getattr(transformers, f"{kind}ForCausalLM")
    if "gate.weight" not in (theirs._keep_in_fp32_modules_strict or ()):
        pytest.skip("this version of transformers rounds the weights of routers")
    write_checkpoint(name, tmp_path)
    family = Registry.load().create("model", name)
    context = ComputeContext(torch.device("cpu"), torch.bfloat16)
    ours = load_model(tmp_path, family, family.spec(read_config(tmp_path)), context, progress=False)
    model = theirs.from_pretrained(tmp_path, dtype=torch.bfloat16)
    for layer, like in zip(ours.model.layers, model.model.layers, strict=True):
        if not hasattr(layer.mlp, "gate"):
            continue
        x = torch.randn(40, like.mlp.gate.weight.shape[1]).bfloat16()
        with torch.inference_mode():
            chosen, weights = layer.mlp.gate(x)
            _, *expected = like.mlp.gate(x)
        found, wanted = (
            torch.zeros(40, len(like.mlp.gate.weight)).scatter(1, experts, heavy.float())
            for experts, heavy in ((chosen, weights), (expected[1], expected[0]))
        )
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-6)


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ODD: dict[str, tuple[str, dict[str, Any]]] = {
    # Native kernels read past the rotations of odd heads, whose last number they left out.
    "heads of 15": ("gpt2", {"n_embd": 30, "n_head": 2, "n_inner": 48}),
    "heads of 1": ("gpt2", {"n_embd": 2, "n_head": 2, "n_inner": 8}),
    "windows from layer 0 on": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
    ),
    "experts without head_dim": ("qwen3_moe", EXPERTS),
    # Its code has had no such cap since Gemma 2, and its config still has the key.
    "a cap of scores": (
        "gemma3_text",
        {"head_dim": 16, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 4, "sliding_window": 5},
    ),
    "windows of some layers, and use_sliding_window false": (
        "smollm3",
        {
            "sliding_window": 5,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
            "use_sliding_window": False,
        },
    ),
    # Its config takes 4,096 for the length that it was trained with, whatever its scaling says.
    "a scaling without a length": (
        "phi3",
        {
            "max_position_embeddings": 8192,
            "rope_parameters": {
                **{"rope_type": "longrope", "rope_theta": 1e4},
                **{"short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
            },
        },
    ),
    # 64 · 0.7 is 44.8: 44 numbers of a head turn, not 45.
    "a rounded part of heads": (
        "phi3",
        {
            **{"hidden_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1},
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.7},
        },
    ),
}


@pytest.mark.parametrize("kernels", ["native", "torch"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_shapes_are_computed_as_by_transformers(odd: str, kernels: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    kind, more = ODD[odd]
    write_model(kind, more, tmp_path, seed=3)
    config, cpu = read_config(tmp_path), torch.device("cpu")
    tokens = torch.arange(3, 33)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    chosen = choose_kernels(kernels, cpu, torch.float32).kernels
    family = Registry.load().family(config["architectures"][0])
    spec = family.spec(config)
    ours = load_model(tmp_path, family, spec, ComputeContext(cpu, torch.float32, chosen), progress=False)
    attend = DenseAttention(spec.layer_attention())
    with torch.inference_mode():
        found = ours.logits(ours(tokens, torch.arange(len(tokens)), attend))
        torch.testing.assert_close(found, theirs(tokens[None]).logits[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "key", "value", "tensor"),
    [
        ("gpt-oss", "num_local_experts", 7, "mlp.experts"),
        ("deepseek-v2", "qk_rope_head_dim", 64, "kv_a_proj_with_mqa"),
    ],
)
def test_a_tensor_too_small_for_what_is_taken_of_it_is_named(
    name: str, key: str, value: int, tensor: str, tmp_path: Path
) -> None:
    """It ended in a traceback where a family takes experts, or orders rows, that are not there."""
    write_checkpoint(name, tmp_path)
    config = {**read_config(tmp_path), key: value}
    family = Registry.load().family(config["architectures"][0])
    context = ComputeContext(torch.device("cpu"), torch.float32)
    with pytest.raises(ModelError, match=rf"model\.safetensors: .*{tensor}.* asks for"):
        load_model(tmp_path, family, family.spec(config), context, progress=False)
