"""Texts and pairs become the tokens that transformers' tokenizers give, cut as those cut them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import RobertaProcessing, TemplateProcessing
from transformers import PreTrainedTokenizerFast

from turnout.core.errors import RequestError
from turnout.text.prompt.pooling_tokens import pair_tokens, text_tokens
from turnout.text.tokenizer import Tokenizer, load_tokenizer

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghij"]
TEXTS = ["", "a", "b c d", "a b c d e f g h i j", "j i h g f"]
BERT = TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
)
ROBERTA = RobertaProcessing(("[SEP]", 2), ("[CLS]", 1))


def both(folder: Path, processor: object) -> tuple[Tokenizer, PreTrainedTokenizerFast]:
    backend = Backend(WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.post_processor = Whitespace(), processor
    theirs = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", model_max_length=512)
    theirs.save_pretrained(folder)
    return load_tokenizer(folder), theirs


@pytest.mark.parametrize("processor", [BERT, ROBERTA])
def test_texts_are_cut_as_transformers_cuts_them(tmp_path: Path, processor: object) -> None:
    ours, theirs = both(tmp_path, processor)
    for text, keep in product(TEXTS, (4, 5, 7, 100)):
        expected = theirs(text, truncation=True, max_length=keep)["input_ids"]
        assert text_tokens(ours, text, limit=512, keep=keep).ids == expected


@pytest.mark.parametrize("processor", [BERT, ROBERTA])
def test_pairs_are_cut_as_transformers_cuts_them(tmp_path: Path, processor: object) -> None:
    ours, theirs = both(tmp_path, processor)
    for first, second, keep in product(TEXTS, TEXTS[1:], (4, 5, 7, 8, 11, 100)):
        expected = theirs(first, second, truncation=True, max_length=keep, return_token_type_ids=True)
        found = pair_tokens(ours, first, second, limit=512, keep=keep)
        types = [int(at >= found.second_text > 0) for at in range(len(found.ids))]
        assert (found.ids, types) == (expected["input_ids"], expected["token_type_ids"])


@pytest.mark.parametrize("inputs", [["input_ids"], ["input_ids", "token_type_ids"]])
def test_tokens_have_types_unless_the_folder_leaves_them_out(tmp_path: Path, inputs: list[str]) -> None:
    both(tmp_path, BERT)
    said = tmp_path / "tokenizer_config.json"
    said.write_text(json.dumps({**json.loads(said.read_text()), "model_input_names": inputs}))
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)("a b", "c")
    found = pair_tokens(load_tokenizer(tmp_path), "a b", "c", limit=512)
    assert found.ids == theirs["input_ids"]
    assert found.second_text == (4 if "token_type_ids" in theirs else 0)
    assert ("token_type_ids" in theirs) == ("token_type_ids" in inputs)


def test_a_second_text_is_cut_before_the_pair_is(tmp_path: Path) -> None:
    ours, _ = both(tmp_path, BERT)
    for keep, shorter in ((100, "a b c"), (6, "a b")):
        found = pair_tokens(ours, "j", "a b c d e f g h i", limit=512, keep=keep, most_of_second=3)
        assert found == pair_tokens(ours, "j", shorter, limit=512)


def test_a_text_too_long_is_refused_with_both_numbers(tmp_path: Path) -> None:
    ours, _ = both(tmp_path, BERT)
    assert len(text_tokens(ours, "a b c", limit=5).ids) == 5
    with pytest.raises(RequestError, match="6 tokens, but at most 5"):
        text_tokens(ours, "a b c d", limit=5)
    with pytest.raises(RequestError, match="7 tokens, but at most 6"):
        pair_tokens(ours, "a b", "c d", limit=6)


def test_special_tokens_may_be_left_out(tmp_path: Path) -> None:
    ours, _ = both(tmp_path, BERT)
    assert text_tokens(ours, "a b", special=False, limit=9).ids == [4, 5]
