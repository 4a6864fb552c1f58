"""Tokenizers small enough to train in a moment, one of each way to decode."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from turnout.text.tokenizer import Tokenizer

SAMPLE = ["def main(argv):", "    return 0", "Hello world, hello tokens", "你好，世界", "the 🚀 launches"]
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def byte_level() -> Tokenizer:
    """As Qwen's, GPT's and Llama 3's: tokens are byte strings."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|eos|>", "<|start|>", "<|end|>", "<|特殊|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SAMPLE, trainer)
    return Tokenizer(backend, {"eos_token": "<|eos|>"}, {"default": TEMPLATE})


def sentencepiece() -> Tokenizer:
    """As Llama 2's: a leading space is part of the word, unknown characters are spelt in bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "H", "e", "l", "o", "w", "r", "d", ",", "▁world", "▁Hello", "▁wor", "你"]
    merges = [("▁", "w"), ("▁w", "o"), ("▁wo", "r")]
    pieces += ["▁w", "▁wo"]
    backend = Backend(
        models.BPE(
            {piece: id for id, piece in enumerate(pieces)}, merges, unk_token="<unk>", byte_fallback=True
        )
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return Tokenizer(backend, {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.fixture(scope="session")
def bytewise() -> Tokenizer:
    return byte_level()


@pytest.fixture(scope="session")
def spaced() -> Tokenizer:
    return sentencepiece()
