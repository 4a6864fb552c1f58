"""Decoders without a language head, as embedders and classifiers have none: what transformers computes."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from encoded import CLOSE, PROMPTS, Vector, are_close, engine_of, pooled
from family_checkpoints import VOCABULARY, draw, small_config
from transformers import PreTrainedModel

from turnout.core.errors import ModelError

SLOW = ("llama", "mistral-window", "qwen2-windows", "gemma2", "gemma3", "gpt2", "phi3", "qwen3-moe", "olmo2")
FAMILIES = ["qwen3", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
TEXTS = [[token % VOCABULARY for token in prompt] for prompt in PROMPTS]


def written(folder: Path, kind: str, name: str, **more: object) -> PreTrainedModel:
    """A random model of that auto class, saved as transformers saves it, and read back as it reads it."""
    torch.manual_seed(0)
    auto = getattr(transformers, kind)
    model = auto.from_config(small_config(name, **more)).eval()
    draw(model)
    model.save_pretrained(folder)
    made: PreTrainedModel = auto.from_pretrained(folder, dtype=torch.float32).eval()
    return made


@torch.inference_mode()
def states_of(model: PreTrainedModel, text: list[int]) -> Vector:
    return model(input_ids=torch.tensor([text])).last_hidden_state[0].float().numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_body_alone(tmp_path: Path, name: str) -> None:
    model = written(tmp_path, "AutoModel", name)
    engine = engine_of(tmp_path, kv_memory="64MiB")
    last, mean = (pooled(engine, TEXTS, pooling=each) for each in ("last", "mean"))
    for text, one, other in zip(TEXTS, last, mean, strict=True):
        expected = states_of(model, text)
        are_close(one, expected[-1])
        are_close(other, expected.mean(0))


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_classification_head(tmp_path: Path, name: str, labels: int) -> None:
    model = written(tmp_path, "AutoModelForSequenceClassification", name, num_labels=labels)
    found = pooled(engine_of(tmp_path, kv_memory="64MiB"), TEXTS, task="classify")
    for text, scores in zip(TEXTS, found, strict=True):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([text])).logits[0]
        expected = logits.sigmoid() if labels == 1 else logits.softmax(-1)
        np.testing.assert_allclose(scores, expected.numpy(), atol=CLOSE)


@pytest.mark.parametrize("name", ["gemma", "stablelm", "phi"])
@pytest.mark.slow
def test_bodies_that_the_adapter_runs(tmp_path: Path, name: str) -> None:
    model = written(tmp_path, "AutoModelForSequenceClassification", name, num_labels=2)
    engine = engine_of(tmp_path, kv_memory="64MiB")
    found = pooled(engine, TEXTS, task="classify")
    for text, scores in zip(TEXTS, found, strict=True):
        with torch.inference_mode():
            expected = model(input_ids=torch.tensor([text])).logits[0].softmax(-1)
        np.testing.assert_allclose(scores, expected.numpy(), atol=CLOSE)
    bare = tmp_path / "bare"
    body = written(bare, "AutoModel", name)
    for text, vector in zip(TEXTS, pooled(engine_of(bare, kv_memory="64MiB"), TEXTS), strict=True):
        are_close(vector, states_of(body, text)[-1])


@pytest.mark.parametrize(
    ("kind", "architecture", "words"),
    [
        ("mpnet", "MPNetModel", "a bias by relative position"),
        ("mpnet", "MPNetForMaskedLM", "of encoders, BERT"),
        ("deberta-v2", "DebertaV2ForSequenceClassification", "by relative positions"),
        ("bert", "BertForTokenClassification", "labels each token"),
        ("qwen3", "Qwen3ForTokenClassification", "labels each token"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    tmp_path: Path, kind: str, architecture: str, words: str
) -> None:
    config = {"model_type": kind, "architectures": [architecture]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=f"{architecture}.*{words}"):
        engine_of(tmp_path)


def test_padding_at_the_end_is_passed_over(tmp_path: Path) -> None:
    """The head reads the last token that is no padding: many a text ends with the token that pads, too."""
    model = written(tmp_path, "AutoModelForSequenceClassification", "qwen3", num_labels=1, pad_token_id=5)
    texts = [[*TEXTS[2], 5], [*TEXTS[3], 5, 5], [5]]
    found = pooled(engine_of(tmp_path, kv_memory="64MiB"), texts, task="classify")
    for text, score in zip(texts, found, strict=True):
        with torch.inference_mode():
            expected = model(input_ids=torch.tensor([text])).logits[0].sigmoid()
        np.testing.assert_allclose(score, expected.numpy(), atol=CLOSE)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("gemma3", {"use_bidirectional_attention": True}),
        ("qwen3", {"is_causal": False}),
        ("qwen2-windows", {"is_causal": False}),
    ],
)
@pytest.mark.parametrize("kernels", ["native", pytest.param("torch", marks=pytest.mark.slow)])
def test_a_body_that_sees_both_sides(
    tmp_path: Path, name: str, more: Mapping[str, object], kernels: str
) -> None:
    model = written(tmp_path, "AutoModel", name, **more)
    engine = engine_of(tmp_path, cpu_kernels=kernels)
    found = pooled(engine, TEXTS, pooling="mean")
    for text, mean in zip(TEXTS, found, strict=True):
        are_close(mean, states_of(model, text).mean(0))
    if kernels == "native":
        alone = [pooled(engine, [text], pooling="mean")[0] for text in TEXTS]
        assert all((one == other).all() for one, other in zip(alone, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3", "llama", "gemma3"])
def test_sixty_four_texts_of_mixed_lengths_in_bfloat16(tmp_path: Path, name: str) -> None:
    """Within 2e-2 of float32, or as near as transformers in bfloat16 where that is farther off itself."""
    model = written(tmp_path, "AutoModel", name)
    half = copy.deepcopy(model).bfloat16()
    rng = np.random.default_rng(0)
    texts = [rng.integers(3, VOCABULARY, length).tolist() for length in rng.integers(1, 150, 64)]
    engine = engine_of(tmp_path, kv_memory="64MiB", dtype="bfloat16", max_num_batched_tokens=512)

    def vectors_of(states: Vector) -> list[Vector]:
        return [each / np.linalg.norm(each) for each in (states[-1], states.mean(0))]

    expected = [vectors_of(states_of(model, text)) for text in texts]
    theirs = [vectors_of(states_of(half, text)) for text in texts]
    found = zip(*(pooled(engine, texts, pooling=each) for each in ("last", "mean")), strict=True)
    ours = [[each / np.linalg.norm(each) for each in pair] for pair in found]
    for at in range(2):
        far, bound = (
            max(np.abs(one[at] - other[at]).max() for one, other in zip(each, expected, strict=True))
            for each in (ours, theirs)
        )
        assert far <= max(2e-2, bound)


def test_no_bit_of_a_score_depends_on_the_batch(tmp_path: Path) -> None:
    written(tmp_path, "AutoModelForSequenceClassification", "qwen3", num_labels=1)
    engine = engine_of(tmp_path, kv_memory="64MiB", cpu_kernels="native", max_num_batched_tokens=97)
    found = pooled(engine, TEXTS * 2, task="classify")
    alone = [pooled(engine, [text], task="classify")[0] for text in TEXTS * 2]
    assert found == alone


@pytest.mark.parametrize("tied", [False, True])
def test_an_embedder_saved_as_a_causal_model(tmp_path: Path, tied: bool) -> None:
    """Qwen3-Embedding: its config names a causal model, its tensors are those of the body."""
    model = written(tmp_path, "AutoModel", "qwen3", tie_word_embeddings=tied)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3ForCausalLM"]}))
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    found = pooled(engine_of(tmp_path, kv_memory="64MiB"), TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        are_close(vector, states_of(model, text)[-1])
