"""Checkpoints that read images are served as their text models, with transformers' greedy tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

from turnout import LLM, SamplingParams
from turnout.core.errors import ModelError
from turnout.core.registry.registry import Registry
from turnout.models.hub.resolve import resolve_model
from turnout.models.text_parts import SERVED
from turnout.runner.checkpoint import open_checkpoint
from turnout.scripts.make_model import copy_tokenizer
from turnout.scripts.transformers_grid import RESULTS
from turnout.scripts.transformers_texts import small_model

TEXT = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
PIXELS = {**VISION, "image_size": 28, "patch_size": 14}
MROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10_000.0}
QWEN = {"embed_dim": 32, "hidden_size": 64, "depth": 1, "num_heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": {**TEXT, "head_dim": 16, "sliding_window": 17, "query_pre_attn_scalar": 20},
        "vision_config": PIXELS,
        "mm_tokens_per_image": 4,
        "image_token_index": 150,
    },
    "mistral3": {
        "text_config": {**TEXT, "model_type": "mistral", "head_dim": 16, "sliding_window": None},
        "vision_config": {**PIXELS, "model_type": "pixtral"},
        "image_token_index": 150,
    },
    # Its queries are scaled by their positions, and nothing but the type of the text model says so.
    "mistral3 around ministral3": {
        "text_config": {
            **{**TEXT, "model_type": "ministral3", "head_dim": 16},
            "rope_parameters": {
                **{"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "llama_4_scaling_beta": 0.9},
                "original_max_position_embeddings": 8,
            },
        },
        "vision_config": {**PIXELS, "model_type": "pixtral"},
        "image_token_index": 150,
    },
    # No window: Mistral's config has one where it says nothing.
    "llava around mistral": {
        "text_config": {
            **{**TEXT, "model_type": "mistral", "head_dim": 16, "sliding_window": None},
            "max_position_embeddings": 8192,
        },
        "vision_config": {**PIXELS, "model_type": "clip_vision_model"},
        "image_token_index": 150,
    },
    "qwen2_vl": {
        "text_config": {**TEXT, "rope_parameters": MROPE},
        "vision_config": QWEN,
        "image_token_id": 150,
        "video_token_id": 151,
    },
    "qwen2_5_vl": {
        "text_config": {**TEXT, "rope_parameters": MROPE},
        "vision_config": {**VISION, "depth": 1, "num_heads": 2, "out_hidden_size": 64},
        "image_token_id": 150,
        "video_token_id": 151,
    },
    "qwen3_vl": {
        "text_config": {**TEXT, "head_dim": 16, "rope_parameters": {**MROPE, "mrope_interleaved": True}},
        "vision_config": {**VISION, "depth": 1, "num_heads": 2, "out_hidden_size": 64},
        "image_token_id": 150,
        "video_token_id": 151,
    },
}
PROMPT = [5, 9, 140, 33, 7, 7, 21, 98]
OLD = {"model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head."}
"""How Gemma 3 and Mistral 3 were published, by how transformers writes them now."""


KNOWN = json.loads(RESULTS.read_text())["texts"]
AROUND = {name: each["kind"] for name, each in KNOWN.items() if name in SERVED}
"""The types of models that no family claims, whose text model is served."""
QUICK = ("LlavaForConditionalGeneration", "Gemma3nForConditionalGeneration")
"""One that a family of text runs, and one that the adapter runs."""


def saved(kind: str, folder: Path) -> Any:
    """Writes a random model, and returns it."""
    torch.manual_seed(1)
    config = AutoConfig.for_model(kind.partition(" ")[0], **MODELS[kind], tie_word_embeddings=False)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(std=2 * parameter.shape[-1] ** -0.5 if "q_proj" in name else 0.1)
    model.save_pretrained(folder)
    copy_tokenizer(resolve_model("turnout-tiny"), folder)
    return model


def generated(folder: Path) -> list[int]:
    llm = LLM(str(folder), max_model_len=128, kv_memory=2**22, dtype="float32")
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    return list(llm.generate([PROMPT], params, progress=False)[0].outputs[0].token_ids)


@torch.inference_mode()
def are_greedy(model: Any, tokens: list[int]) -> bool:
    ids = torch.tensor([PROMPT + tokens[:-1]])
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, len(PROMPT) - 1 :]
    return logits.argmax(-1).tolist() == tokens


@pytest.mark.parametrize("kind", MODELS)
def test_tokens_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    model = saved(kind, tmp_path)
    tokens = generated(tmp_path)
    assert are_greedy(model, tokens) and len(set(tokens)) > 3


def test_a_window_that_is_null_is_none(tmp_path: Path) -> None:
    saved("llava around mistral", tmp_path)
    spec = open_checkpoint(Registry.load(), str(tmp_path)).spec
    assert {rule.window for rule in spec.layer_attention()} == {None}


def test_another_text_model_is_not_computed_by_the_family_of_its_architecture(tmp_path: Path) -> None:
    saved("mistral3 around ministral3", tmp_path)
    with pytest.raises(ModelError, match="text_config: model_type = 'ministral3' is not supported"):
        open_checkpoint(Registry.load(), str(tmp_path), implementation="native")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in AROUND]
)
def test_tokens_of_a_model_around_a_known_text_model(name: str, tmp_path: Path) -> None:
    _, model = small_model(AROUND[name], name)
    model.save_pretrained(tmp_path, state_dict={k: v for k, v in model.state_dict().items() if not v.is_meta})
    copy_tokenizer(resolve_model("turnout-tiny"), tmp_path)
    tokens = generated(tmp_path)
    assert are_greedy(model, tokens) and len(set(tokens)) > 3


def test_those_are_served_that_were_found_to_compute_text_alike() -> None:
    families = Registry.load()
    alike = {name for name, each in KNOWN.items() if "difference" in each and not families.builds(name)}
    assert alike >= SERVED and not any(families.builds(name) for name in SERVED)


@pytest.mark.parametrize("kind", ["gemma3", "mistral3"])
def test_the_names_of_published_checkpoints(kind: str, tmp_path: Path) -> None:
    saved(kind, tmp_path)
    tokens, tensors = generated(tmp_path), load_file(tmp_path / "model.safetensors")
    renamed = {}
    for key, value in tensors.items():
        for now, before in OLD.items():
            key = f"{before}{key.removeprefix(now)}" if key.startswith(now) else key
        renamed[key.removeprefix("model.") if "vision" in key or "multi_modal" in key else key] = value
    assert any(key.startswith("language_model.model.layers.") for key in renamed)
    save_file(renamed, tmp_path / "model.safetensors")
    assert generated(tmp_path) == tokens


def test_an_old_config_of_qwen_has_the_text_model_beside_the_others(tmp_path: Path) -> None:
    saved("qwen2_vl", tmp_path)
    tokens, config = generated(tmp_path), json.loads((tmp_path / "config.json").read_text())
    text = config.pop("text_config")
    text.pop("rope_parameters"), text.pop("model_type")
    rope = {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "rope_theta": 10_000.0}
    (tmp_path / "config.json").write_text(json.dumps({**text, **config, **rope}))
    assert generated(tmp_path) == tokens


def test_a_config_of_gemma_may_leave_out_what_is_usual() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    rope = {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    family = Registry.load().family("Gemma3ForConditionalGeneration")
    spec = family.spec({"text_config": {**text, **rope}, "torch_dtype": "bfloat16", "eos_token_id": [1, 106]})
    assert (spec.heads, spec.kv_heads, spec.head_dim, spec.vocab_size) == (8, 4, 256, 262_208)
    assert spec.dtype == "bfloat16" and spec.eos_token_ids == (1, 106) and spec.tied_embeddings
    assert spec.layer_attention()[5].window is None and spec.layer_attention()[4].window == 1024


def test_a_model_of_images_whose_text_model_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4"})
    )
    with pytest.raises(ModelError, match="reads images or sound beside text"):
        LLM(str(tmp_path))
