"""Encoders with random weights: what transformers computes, of every text in any batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from encoded import PROMPTS, engine_of, pooled
from transformers import PreTrainedModel

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.runner.assembly import build_engine

SHAPE = {
    "vocab_size": 120,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
DISTIL = {"vocab_size": 120, "dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96}
TOKENS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)
CONFIGS = {
    "Bert": {**SHAPE, "max_position_embeddings": 150},
    "Roberta": {**SHAPE, "max_position_embeddings": 152, "type_vocab_size": 1, "pad_token_id": 1},
    "XLMRoberta": {**SHAPE, "max_position_embeddings": 152, "hidden_act": "gelu_new", "pad_token_id": 1},
    "Electra": {**SHAPE, "max_position_embeddings": 150, "embedding_size": 64},
    "DistilBert": {**DISTIL, "max_position_embeddings": 150},
    "ModernBert": {**SHAPE, **TOKENS, "max_position_embeddings": 150, "local_attention": 20},
}
SECOND = {17: 9, 130: 70}
"""Of prompts that are pairs: where the second text begins."""


def made(folder: Path, name: str, task: str, **more: object) -> PreTrainedModel:
    """A model whose biases and norms are random, too."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**CONFIGS[name], **more})
    model: PreTrainedModel = getattr(transformers, f"{name}{task}")(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


@torch.inference_mode()
def hidden_states(model: PreTrainedModel, prompt: Sequence[int], second: int = 0) -> np.ndarray:
    types = {"token_type_ids": torch.tensor([[int(at >= second > 0) for at in range(len(prompt))]])}
    out = model(input_ids=torch.tensor([prompt]), **(types if second else {}))
    states: np.ndarray = out.last_hidden_state[0].float().numpy()
    return states


@pytest.mark.parametrize("kernels", ["native", pytest.param("torch", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CONFIGS)
def test_hidden_states_are_transformers(tmp_path: Path, name: str, kernels: str) -> None:
    model = made(tmp_path, name, "Model")
    engine = engine_of(tmp_path, cpu_kernels=kernels)
    by_token, first, mean = (pooled(engine, pooling=each) for each in ("token", "cls", "mean"))
    for prompt, states, cls, average in zip(PROMPTS, by_token, first, mean, strict=True):
        expected = hidden_states(model, prompt)
        np.testing.assert_allclose(states, expected, atol=1e-5)
        np.testing.assert_allclose(cls, expected[0], atol=1e-5)
        np.testing.assert_allclose(average, expected.mean(0), atol=1e-5)
    if kernels == "native":  # to the bit, whatever else a step computes
        assert all(
            (pooled(engine, [p], pooling="mean")[0] == m).all() for p, m in zip(PROMPTS, mean, strict=True)
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_bfloat16_is_near(tmp_path: Path, name: str) -> None:
    model = made(tmp_path, name, "Model")
    found = pooled(engine_of(tmp_path, dtype="bfloat16"), pooling="mean")
    for prompt, mean in zip(PROMPTS, found, strict=True):
        expected = hidden_states(model, prompt).mean(0)
        cosine = mean @ expected / (np.linalg.norm(mean) * np.linalg.norm(expected))
        assert cosine > 0.999
        np.testing.assert_allclose(mean, expected, atol=2e-2 * np.abs(expected).max())


def test_a_pairs_second_text_has_a_type_of_its_own(tmp_path: Path) -> None:
    model = made(tmp_path, "Bert", "Model")
    found = pooled(engine_of(tmp_path), second=SECOND, pooling="mean")
    for prompt, mean in zip(PROMPTS, found, strict=True):
        expected = hidden_states(model, prompt, SECOND.get(len(prompt), 0)).mean(0)
        np.testing.assert_allclose(mean, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "labels", "more"),
    [
        *((name, 1, {}) for name in CONFIGS),
        ("Bert", 3, {}),
        ("ModernBert", 3, {"classifier_pooling": "mean", "classifier_bias": True}),
    ],
)
def test_scores_are_transformers(tmp_path: Path, name: str, labels: int, more: Mapping[str, object]) -> None:
    model = made(tmp_path, name, "ForSequenceClassification", num_labels=labels, **more)
    found = pooled(engine_of(tmp_path), task="classify")
    for prompt, scores in zip(PROMPTS, found, strict=True):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt])).logits[0]
        expected = logits.sigmoid() if labels == 1 else logits.softmax(-1)
        np.testing.assert_allclose(scores, expected.numpy(), atol=1e-5)


def test_narrow_embeddings_are_widened(tmp_path: Path) -> None:
    model = made(tmp_path, "Electra", "ForPreTraining", embedding_size=24)
    found = pooled(engine_of(tmp_path), pooling="cls")
    expected = hidden_states(model.electra, PROMPTS[3])[0]
    np.testing.assert_allclose(found[3], expected, atol=1e-5)


def test_a_head_for_another_task_is_left_out(tmp_path: Path) -> None:
    model = made(tmp_path, "Bert", "ForMaskedLM")
    found = pooled(engine_of(tmp_path), pooling="cls")
    expected = hidden_states(model.bert, PROMPTS[3])[0]
    np.testing.assert_allclose(found[3], expected, atol=1e-5)


@pytest.mark.parametrize("quantization", ["int8", "int8wo"])
def test_linear_layers_are_quantized(tmp_path: Path, quantization: str) -> None:
    model = made(tmp_path, "Bert", "Model")
    found = pooled(engine_of(tmp_path, quantization=quantization), pooling="mean")
    for prompt, mean in zip(PROMPTS, found, strict=True):
        expected = hidden_states(model, prompt).mean(0)
        assert mean @ expected / (np.linalg.norm(mean) * np.linalg.norm(expected)) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["sarathi", "prefill-first", "static", "mlfq", "sjf", "fair", "srpt"])
def test_every_scheduler_serves_whole_prompts(tmp_path: Path, scheduler: str) -> None:
    made(tmp_path, "Bert", "Model")
    expected = pooled(engine_of(tmp_path), pooling="mean")
    found = pooled(engine_of(tmp_path, scheduler=scheduler, max_num_batched_tokens=150), pooling="mean")
    assert all((a == b).all() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv": "contiguous"}, "not_causal"),
        ({"spec_ngram": True}, "spec_ngram"),
        ({"kv_memory": "1GiB"}, "kv_memory"),
        ({"kv_eviction": "lru"}, "kv_eviction"),
    ],
)
def test_settings_of_decoders_are_refused(tmp_path: Path, options: Mapping[str, object], words: str) -> None:
    made(tmp_path, "Bert", "Model")
    with pytest.raises(ConfigError, match=words):
        engine_of(tmp_path, **options)


def test_a_decoder_needs_kv_memory() -> None:
    with pytest.raises(ConfigError, match="kv=none keeps no keys and values"):
        build_engine(EngineConfig(model="turnout-tiny", kv="none"))
