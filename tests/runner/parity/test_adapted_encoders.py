"""Encoders that the adapter runs: what transformers computes, of every text in any batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from encoded import PROMPTS, engine_of, pooled
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from turnout.core.errors import ModelError

SHAPE = {
    "vocab_size": 120,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 160,
    "pad_token_id": 1,
}
SHORTER = {"num_key_value_heads": 2, "head_dim": 16}
WINDOW = {"head_dim": 16, "sliding_window": 12}
KINDS: Mapping[str, Mapping[str, Any]] = {
    # what differs from SHAPE, by the model's name in transformers
    "Albert": {"embedding_size": 32, "num_hidden_groups": 1},
    "NomicBert": {"head_dim": 16},
    "EuroBert": {**SHORTER, "classifier_pooling": "mean"},
    "Gte": {"head_dim": 16},
    "Ernie": {},
    "JinaEmbeddingsV3": {"head_dim": 16},
    "Ultrabert": WINDOW,
    "RoCBert": {},
    "RobertaPreLayerNorm": {"type_vocab_size": 1},
    "XLMRobertaXL": {"type_vocab_size": 1},
    "Data2VecText": {"type_vocab_size": 1},
}
QUICK = ("Albert", "NomicBert")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in KINDS]
LABELS = {0: "one", 1: "two", 2: "three"}
SECOND = {17: 9, 130: 70}
TWO_TYPES = ("Albert", "NomicBert", "Gte", "Ernie")
"""Those whose tokens have types."""


def made(folder: Path, name: str, task: str, **more: object) -> PreTrainedModel:
    """A model whose biases and norms are random, too, saved as transformers saves it."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SHAPE, **KINDS[name], **more})
    config._attn_implementation = "eager"
    model: PreTrainedModel = getattr(transformers, f"{name}{task}")(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


@torch.inference_mode()
def states_of(model: torch.nn.Module, prompt: list[int], second: int = 0) -> np.ndarray:
    types = {"token_type_ids": torch.tensor([[int(at >= second > 0) for at in range(len(prompt))]])}
    out = model(input_ids=torch.tensor([prompt]), **(types if second else {}))
    states: np.ndarray = out.last_hidden_state[0].float().numpy()
    return states


def without_padding(prompts: list[list[int]]) -> list[list[int]]:
    return [[token if token > 2 else 7 for token in prompt] for prompt in prompts]


TEXTS = without_padding(PROMPTS)


@pytest.mark.parametrize("name", NAMES)
def test_hidden_states_are_transformers(tmp_path: Path, name: str) -> None:
    model = made(tmp_path, name, "Model")
    engine = engine_of(tmp_path, cpu_kernels="native")
    found = {each: pooled(engine, TEXTS, pooling=each) for each in ("token", "cls", "mean")}
    for at, text in enumerate(TEXTS):
        expected = states_of(model, text)
        np.testing.assert_allclose(found["token"][at], expected, atol=1e-5)
        np.testing.assert_allclose(found["cls"][at], expected[0], atol=1e-5)
        np.testing.assert_allclose(found["mean"][at], expected.mean(0), atol=1e-5)
    for at, text in enumerate(TEXTS):  # to the bit, whatever else a step computes
        assert (pooled(engine, [text], pooling="mean")[0] == found["mean"][at]).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_classification_head(tmp_path: Path, name: str) -> None:
    made(tmp_path, name, "ForSequenceClassification", id2label=LABELS)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float32).eval()
    engine = engine_of(tmp_path, cpu_kernels="native")
    found = pooled(engine, TEXTS, task="classify")
    for text, scores in zip(TEXTS, found, strict=True):
        with torch.inference_mode():
            expected = model(input_ids=torch.tensor([text])).logits[0].softmax(-1)
        np.testing.assert_allclose(scores, expected.numpy(), atol=1e-5)
    assert all(
        (pooled(engine, [t], task="classify")[0] == s).all() for t, s in zip(TEXTS, found, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_TYPES)
def test_a_pairs_second_text_has_a_type_of_its_own(tmp_path: Path, name: str) -> None:
    model = made(tmp_path, name, "Model", type_vocab_size=2)
    for text, mean in zip(TEXTS, pooled(engine_of(tmp_path), TEXTS, SECOND, pooling="mean"), strict=True):
        expected = states_of(model, text, SECOND.get(len(text), 0)).mean(0)
        np.testing.assert_allclose(mean, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Albert", "NomicBert", "Ernie", "XLMRobertaXL"])
def test_a_head_for_another_task_is_left_out(tmp_path: Path, name: str) -> None:
    model = made(tmp_path, name, "ForMaskedLM").base_model
    found = pooled(engine_of(tmp_path), TEXTS, pooling="cls")
    for text, cls in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(cls, states_of(model, text)[0], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "options", [{"dtype": "bfloat16"}, {"quantization": "int8"}, {"cpu_kernels": "torch"}]
)
def test_other_weights_and_kernels_are_near(tmp_path: Path, name: str, options: Mapping[str, object]) -> None:
    model = made(tmp_path, name, "Model")
    for text, mean in zip(TEXTS, pooled(engine_of(tmp_path, **options), TEXTS, pooling="mean"), strict=True):
        expected = states_of(model, text).mean(0)
        assert mean @ expected / (np.linalg.norm(mean) * np.linalg.norm(expected)) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Bert", "Roberta", "DistilBert", "ModernBert", "Electra"])
def test_what_has_a_family_runs_by_the_adapter_too(tmp_path: Path, name: str) -> None:
    from test_encoders_equal_transformers import made as made_native

    made_native(tmp_path, name, "Model")
    by_family = pooled(engine_of(tmp_path), TEXTS, pooling="mean")
    adapted = pooled(engine_of(tmp_path, model_impl="transformers"), TEXTS, pooling="mean")
    for one, other in zip(by_family, adapted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "architecture", "more", "words"),
    [
        ("mpnet", "MPNetModel", {}, "a bias by relative position"),
        ("deberta-v2", "DebertaV2ForSequenceClassification", {}, "by relative positions"),
        ("mobilebert", "MobileBertModel", {}, "otherwise than each alone"),
        ("megatron-bert", "MegatronBertModel", {}, "0 of .* layers use the attention interface"),
        ("layoutlm", "LayoutLMModel", {}, "changes its attention mask"),
        ("eurobert", "EuroBertForSequenceClassification", {}, "reads neither the first token nor"),
        ("nomic_bert", "NomicBertModel", {"num_attention_heads": 0}, "transformers cannot read it"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    tmp_path: Path, kind: str, architecture: str, more: Mapping[str, object], words: str
) -> None:
    config = {"model_type": kind, "architectures": [architecture], **more}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=words) as refusal:
        engine_of(tmp_path)
    assert "\n" not in str(refusal.value)
