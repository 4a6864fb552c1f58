"""Which tokenizers are known to take no longer than their texts are long."""

from __future__ import annotations

import json
import time

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from turnout.models.gguf.tokenizer import GPT4O, LLAMA3, QWEN2, TEKKEN
from turnout.models.hub.resolve import resolve_model
from turnout.text.quick_tokenizers import is_quick, is_quick_expression
from turnout.text.tokenizer import load_tokenizer

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QUICK = [LLAMA3, QWEN2, TEKKEN, GPT4O, GPT2, DEEPSEEK, " {2,}", r"\s+", r"[\r\n]", r"\p{N}{1,3}", "[一-龥]+"]
SLOW = [
    r"\s+$",
    r"(a+)+$",
    r"(a|aa)+$",
    r"a*a*c",
    r"a*c",
    r".*x",
    r"\s*[\r\n]+",
    r"\s+(?!\S)|a",
    r"(?:a*)*c",
    r"\p{L}+(?=x)",
    r"[a-z]+[0-9]+",
    r"[a&&[^b]]+",
    "",
    "a||b",
    r"\s+|",
    "(" * 10_000,
    r"\p{L}+|" * 10_000,
]
HOSTILE = [
    "a",
    "A",
    "1",
    " ",
    "\n",
    " \n",
    "é",
    "中",
    "ʰ",
    "\u0301",
    "'s",
    "'",
    "!",
    "!\n",
    "aA",
    "Aa",
    "\u2028",
    " a",
]


@pytest.mark.parametrize("expression", QUICK)
def test_expressions_of_models(expression: str) -> None:
    assert is_quick_expression(expression)


@pytest.mark.parametrize("expression", SLOW, ids=range(len(SLOW)))
def test_expressions_that_may_look_at_a_text_again_and_again(expression: str) -> None:
    assert not is_quick_expression(expression)


@pytest.mark.slow
@pytest.mark.parametrize("expression", QUICK)
def test_they_are_quick(expression: str) -> None:
    """A text eight times as long takes hours if the time is cubic, and over 30 times as long if quadratic."""
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    for text in HOSTILE:
        times = []
        for length in (40_000, 320_000):
            began = time.perf_counter()
            split.pre_tokenize_str(text * (length // len(text)))
            times.append(time.perf_counter() - began)
        assert times[1] < 24 * times[0] + 0.5, (text, times)


def tokenizer(normalizer: Normalizer | None = None, pre_tokenizer: PreTokenizer | None = None) -> Tokenizer:
    made = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    if normalizer is not None:
        made.normalizer = normalizer
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    return made


def test_the_embedded_tokenizer_is_quick() -> None:
    assert is_quick(load_tokenizer(resolve_model("turnout-tiny")).backend)


@pytest.mark.parametrize(
    ("made", "quick"),
    [
        (tokenizer(), True),
        (tokenizer(normalizers.Replace(" ", "▁")), True),
        (tokenizer(normalizers.Replace("a", "a" * 100)), False),
        (tokenizer(normalizers.Replace(Regex(r"\s+$"), "")), False),
        (tokenizer(normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("▁")])), True),
        (tokenizer(normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("▁" * 100)])), False),
        (tokenizer(None, pre_tokenizers.Split(Regex(QWEN2), "isolated")), True),
        (tokenizer(None, pre_tokenizers.Split(Regex(r"(a+)+$"), "isolated")), False),
        (
            tokenizer(
                None,
                pre_tokenizers.Sequence(
                    [pre_tokenizers.Digits(), pre_tokenizers.Split(Regex("a*b"), "removed")]
                ),
            ),
            False,
        ),
    ],
)
def test_tokenizers(made: Tokenizer, quick: bool) -> None:
    assert is_quick(made) is quick


def test_a_part_of_a_later_library_is_not_known() -> None:
    text = json.dumps({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="})

    class Part:
        def __getstate__(self) -> bytes:
            return text.encode()

    class Backend:
        normalizer, pre_tokenizer = Part(), None

    assert not is_quick(Backend())  # type: ignore[arg-type]
