"""Writes an embedder and a reranker as small as can be, to try things without a network.

Their weights are random. The embedder still finds texts that share words, since the same words begin with the
same numbers; the reranker's scores mean nothing.

    python examples/rag/small_models.py FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

DOCS = Path(__file__).parents[2] / "docs"
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
"""What BERT reads: the class of this tokenizer names no types of tokens by itself."""
LONGEST = 512
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
"""What sentence-transformers does with a text, and where it says so."""


def write_models(folder: Path, *, layers: int = 2, hidden: int = 128) -> tuple[Path, Path]:
    """Writes both models into a folder; returns the embedder's and the reranker's."""
    tokenizer = words_of(path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md")))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        intermediate_size=4 * hidden,
        max_position_embeddings=LONGEST,
        num_labels=1,
    )
    torch.manual_seed(0)
    embedder = write(folder / "embed", BertModel(config, add_pooling_layer=False), tokenizer)
    describe(embedder, hidden)
    return embedder, write(folder / "rerank", BertForSequenceClassification(config), tokenizer)


def describe(embedder: Path, hidden: int) -> None:
    """Says in a model's folder that texts become the normalized means of their tokens' vectors."""
    (embedder / "modules.json").write_text(json.dumps(MODULES))
    (embedder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True}
    (embedder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def words_of(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """BERT's kind of tokenizer, with the words of these texts."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=6000, special_tokens=list(SPECIAL.values()), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    ends = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=LONGEST, model_input_names=INPUTS, **SPECIAL
    )


def write(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    said = folder / "tokenizer_config.json"
    # A name that older versions of transformers know, too.
    known = {**json.loads(said.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}
    said.write_text(json.dumps(known, indent=2))
    return folder


if __name__ == "__main__":
    sys.stdout.writelines(f"{written}\n" for written in write_models(Path(sys.argv[1])))
