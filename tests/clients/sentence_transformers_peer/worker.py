"""Makes a folder as sentence-transformers saves it, and what that library makes of texts with it.

Called as ``worker.py NAME FOLDER TOKENIZER TEXTS``; writes ``expected.npz`` into FOLDER.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.cross_encoder.modules.logit_score import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers import AutoModelForSequenceClassification as Classifier

SIZE = 64
SHAPE = {"hidden_size": SIZE, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
BERT = {**SHAPE, "vocab_size": 40, "max_position_embeddings": 160}
DECODER = {**SHAPE, "vocab_size": 4096, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0}
GEMMA = {"use_bidirectional_attention": True, "sliding_window": 20, "query_pre_attn_scalar": 16}
PROMPTS = {"query": "find what answers this : ", "document": "a text : "}
TEMPLATE = """{%- set told = messages | selectattr("role", "eq", "system") | map(attribute="content") | first
 | default("judge the document") -%}
<|im_start|>system
{{ told }}<|im_end|>
<|im_start|>user
{{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def drawn(folder: Path, auto: type, kind: str, **shape: object) -> None:
    """Writes a random model, in which texts differ."""
    torch.manual_seed(0)
    model = auto.from_config(AutoConfig.for_model(kind, **shape))  # type: ignore[attr-defined]
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)


def word_tokenizer(folder: Path, texts: Sequence[str]) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({word for text in texts for word in text.split()})]
    backend = Tokenizer(WordLevel({word: id for id, word in enumerate(words[:40])}, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    made = PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **names)
    made.save_pretrained(folder)


def byte_tokenizer(folder: Path, given: Path, template: str | None = None) -> None:
    """The one of a decoder: a text ends with the end token."""
    made = AutoTokenizer.from_pretrained(given)
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    made.chat_template = template
    made.padding_side = "left"
    made.save_pretrained(folder)


def embedder(
    kind: str, pooling: str, *more: nn.Module, **shape: object
) -> Callable[[Path, Path, list[str]], None]:
    def make(folder: Path, tokenizer: Path, texts: list[str]) -> None:
        plain = folder.parent / "plain"
        drawn(plain, AutoModel, kind, **shape)
        if kind == "bert":
            word_tokenizer(plain, [*texts, *PROMPTS.values()])
        else:
            byte_tokenizer(plain, tokenizer)
        modules = [Transformer(str(plain)), Pooling(SIZE, pooling), *more]
        model = SentenceTransformer(
            modules=modules, prompts=PROMPTS, default_prompt_name="document", device="cpu"
        )
        model.save(str(folder))
        model = SentenceTransformer(str(folder), device="cpu")
        found = {name: model.encode(texts, prompt_name=name) for name in PROMPTS}
        np.savez(
            folder / "expected.npz",
            **found,
            default=model.encode(texts),
            cut=model.encode(texts, truncate_dim=8),
        )

    return make


def cross_encoder(kind: str, labels: int) -> Callable[[Path, Path, list[str]], None]:
    def make(folder: Path, tokenizer: Path, texts: list[str]) -> None:
        plain = folder.parent / "plain"
        if kind == "bert":
            drawn(plain, Classifier, kind, **BERT, num_labels=labels)
            word_tokenizer(plain, texts)
        else:
            drawn(plain, Classifier, kind, **DECODER, num_labels=labels)
            byte_tokenizer(plain, tokenizer)
        CrossEncoder(str(plain), device="cpu").save(str(folder))
        model = CrossEncoder(str(folder), device="cpu")
        np.savez(folder / "expected.npz", scores=model.predict([(texts[0], text) for text in texts]))

    return make


def by_tokens(folder: Path, tokenizer: Path, texts: list[str]) -> None:
    plain = folder.parent / "plain"
    drawn(plain, AutoModelForCausalLM, "qwen3", **DECODER, tie_word_embeddings=True)
    byte_tokenizer(plain, tokenizer, TEMPLATE)
    options = {"chat_template": {"add_generation_prompt": True}}
    first = Transformer(str(plain), transformer_task="text-generation", processing_kwargs=options)
    modules = [first, LogitScore(true_token_id=300, false_token_id=301)]
    CrossEncoder(modules=modules, prompts=PROMPTS, device="cpu").save(str(folder))
    model = CrossEncoder(str(folder), device="cpu")
    pairs = [(texts[0], text) for text in texts]
    told = model.predict(pairs, prompt_name="query")
    np.savez(folder / "expected.npz", scores=model.predict(pairs), told=told)


MADE = {
    "bert-mean": embedder("bert", "mean", Normalize(), **BERT),
    "bert-cls": embedder("bert", "cls", **BERT),
    "bert-max": embedder("bert", "max", Dense(SIZE, 24), **BERT),
    "bert-sqrt": embedder("bert", "mean_sqrt_len_tokens", **BERT),
    "qwen3-last": embedder("qwen3", "lasttoken", Normalize(), **DECODER),
    "mistral-last": embedder("mistral", "lasttoken", Normalize(), **DECODER, sliding_window=20),
    "llama-weighted": embedder("llama", "weightedmean", Normalize(), **DECODER),
    "gemma-both-sides": embedder(
        "gemma3_text",
        "mean",
        Dense(SIZE, 96, bias=False, activation_function=nn.Identity()),
        Dense(96, SIZE, bias=False, activation_function=nn.Identity()),
        Normalize(),
        **DECODER,
        **GEMMA,
    ),
    "pairs-bert": cross_encoder("bert", 1),
    "pairs-bert-classes": cross_encoder("bert", 3),
    "pairs-qwen3": cross_encoder("qwen3", 1),
    "pairs-by-tokens": by_tokens,
}

if __name__ == "__main__":
    name, folder, tokenizer, texts = sys.argv[1:]
    MADE[name](Path(folder), Path(tokenizer), json.loads(texts))
