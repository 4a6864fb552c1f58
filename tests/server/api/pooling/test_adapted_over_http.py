"""Encoders that transformers' modules run, beside a chat: an embedder and a cross-encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from three_models import describe, write, write_models
from tiny_server import serving
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    AutoTokenizer,
    NomicBertConfig,
    NomicBertModel,
)

TEXTS = ["drain a replica", "blocks of keys and values", "a"]
SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}


@pytest.mark.slow
def test_they_give_transformers_numbers(tmp_path: Path) -> None:
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = AutoTokenizer.from_pretrained(write_models(tmp_path)[0], model_input_names=inputs)
    torch.manual_seed(0)
    shape = {**SHAPE, "vocab_size": len(tokenizer), "max_position_embeddings": 512}
    nomic = NomicBertModel(NomicBertConfig(**shape)).eval()
    albert = AlbertForSequenceClassification(AlbertConfig(**shape, embedding_size=32, num_labels=1)).eval()
    embed = write(tmp_path / "nomic", nomic, tokenizer)
    describe(embed, 64)
    models = (f"embed={embed}", f"rerank={write(tmp_path / 'albert', albert, tokenizer)}")
    flags = (*models, "--kv-memory", "64MiB")
    with serving(*flags, model="chat=turnout-tiny", generates=False) as server, torch.inference_mode():
        found = server.post("/v1/embeddings", {"model": "embed", "input": TEXTS}).json()["data"]
        for text, each in zip(TEXTS, found, strict=True):
            states = nomic(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            mean = torch.nn.functional.normalize(states.mean(0), dim=0)
            assert each["embedding"] == pytest.approx(mean.tolist(), abs=1e-5)
        asked = {"model": "rerank", "query": "how?", "documents": TEXTS}
        found = server.post("/v1/rerank", asked).json()["results"]
        for each in found:
            logit = albert(**tokenizer("how?", TEXTS[each["index"]], return_tensors="pt")).logits[0]
            assert each["relevance_score"] == pytest.approx(float(logit.sigmoid()), abs=1e-5)
        said = server.post("/v1/completions", {"model": "chat", "prompt": "def", "max_tokens": 3})
        assert said.status_code == 200, said.text
        assert "Traceback" not in server.text()
