"""Decoders that rerank by the logits of two tokens: what transformers computes of Qwen3-Reranker's text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from family_checkpoints import draw, small_config
from transformers import AutoModelForCausalLM, PreTrainedModel

import turnout
from turnout import LLM
from turnout.core.errors import ConfigError, ModelError
from turnout.text.tokenizer import load_tokenizer

TINY = Path(turnout.__file__).parent / "models" / "tiny" / "turnout-tiny"
NO, YES = 300, 301
ROLES = "{{ messages[-2]['content'] }}: {{ messages[-1]['content'] }} {# 'query' 'document' #}"
DOCUMENTS = ["def f(x): return x", "import os", "class A: pass"]
CARD = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
DEFAULT = "Given a web search query, retrieve relevant passages that answer the query"


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    """A causal model, and nothing of sentence-transformers beside it."""
    folder = tmp_path_factory.mktemp("reranker")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, folder)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(small_config("qwen3", vocab_size=4096)).eval()
    draw(model)
    model.save_pretrained(folder)
    return folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def names(folder: Path) -> list[str]:
    backend = load_tokenizer(folder).backend
    return [backend.id_to_token(token) for token in (NO, YES)]


@torch.inference_mode()
def expected(folder: Path, model: PreTrainedModel, texts: list[str]) -> list[float]:
    tokenizer, scores = load_tokenizer(folder), []
    for text in texts:
        logits = model(input_ids=torch.tensor([tokenizer.encode(text, add_special_tokens=False)])).logits[
            0, -1
        ]
        scores.append(float(logits[[NO, YES]].softmax(-1)[1]))
    return scores


def test_overrides_make_a_reranker_of_a_causal_model(reranker: tuple[Path, PreTrainedModel]) -> None:
    folder, model = reranker
    keys = {"classifier_from_token": names(folder), "is_original_qwen3_reranker": True}
    keys |= {"architectures": ["Qwen3ForSequenceClassification"]}  # as vLLM's recipe has it
    llm = LLM(model=str(folder), device="cpu", kv_memory="64MiB", hf_overrides=keys)
    found = llm.score("what is f?", DOCUMENTS)
    texts = [CARD.format(instruction=DEFAULT, query="what is f?", document=each) for each in DOCUMENTS]
    np.testing.assert_allclose(found, expected(folder, model, texts), atol=1e-5)
    assert len(set(found)) == 3


def test_the_config_may_say_it_and_a_template_is_given(
    reranker: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    folder, model = reranker
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    config = json.loads((own / "config.json").read_text()) | {"classifier_from_token": names(folder)}
    (own / "config.json").write_text(json.dumps(config))
    llm = LLM(model=str(own), device="cpu", kv_memory="64MiB", chat_template=ROLES)
    found = llm.score("what is f?", DOCUMENTS)
    texts = [f"what is f?: {each} " for each in DOCUMENTS]
    np.testing.assert_allclose(found, expected(own, model, texts), atol=1e-5)
    with pytest.raises(ModelError, match="is_original_qwen3_reranker"):
        LLM(model=str(own), device="cpu", kv_memory="64MiB")


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        ({"classifier_from_token": ["no", "nay nay nay"]}, ModelError, "'nay nay nay', which is no token"),
        ({"classifier_from_token": "yes"}, ModelError, "should name two tokens"),
        ("{", ConfigError, "should be a JSON object"),
        ("[1]", ConfigError, "should be a JSON object"),
        ({"num_hidden_layers": "many"}, ModelError, "num_hidden_layers"),
    ],
)
def test_wrong_overrides_are_refused(
    reranker: tuple[Path, PreTrainedModel], overrides: object, error: type[Exception], words: str
) -> None:
    folder, _ = reranker
    if isinstance(overrides, dict) and "nay nay nay" in str(overrides):
        overrides = {"classifier_from_token": [names(folder)[0], "nay nay nay"]}
    with pytest.raises(error, match=words):
        LLM(model=str(folder), device="cpu", kv_memory="64MiB", hf_overrides=overrides)
