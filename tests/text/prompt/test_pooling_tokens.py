"""Texts and pairs become the tokens that transformers' tokenizers give, cut as those cut them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import RobertaProcessing, TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from turnout.core.errors import ModelError, RequestError
from turnout.core.types.pooling import PairTemplate
from turnout.text.prompt.pooling_tokens import Cut, pair_tokens, text_tokens
from turnout.text.tokenizer import Side, Tokenizer, load_tokenizer

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghij"]
TEXTS = ["", "a", "b c d", "a b c d e f g h i j", "j i h g f"]
BERT = TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
)
TYPED = ["input_ids", "token_type_ids", "attention_mask"]
ROBERTA = RobertaProcessing(("[SEP]", 2), ("[CLS]", 1))


def both(folder: Path, processor: object, **said: Any) -> tuple[Tokenizer, PreTrainedTokenizerFast]:
    backend = Backend(WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.post_processor = Whitespace(), processor
    said |= {"pad_token": "[PAD]", "model_max_length": 512}
    theirs = PreTrainedTokenizerFast(tokenizer_object=backend, **said)
    theirs.save_pretrained(folder)
    return load_tokenizer(folder), theirs


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("processor", [BERT, ROBERTA])
def test_texts_are_cut_as_transformers_cuts_them(tmp_path: Path, processor: object, side: Side) -> None:
    """Texts were cut at their end, whatever truncation_side says."""
    ours, theirs = both(tmp_path, processor, truncation_side=side)
    assert ours.truncation_side == side
    for text, keep in product(TEXTS, (4, 5, 7, 100)):
        expected = theirs(text, truncation=True, max_length=keep)["input_ids"]
        assert text_tokens(ours, text, limit=512, cut=Cut(keep, side)).ids == expected


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("processor", [BERT, ROBERTA])
def test_pairs_are_cut_as_transformers_cuts_them(tmp_path: Path, processor: object, side: Side) -> None:
    ours, theirs = both(tmp_path, processor, truncation_side=side, model_input_names=TYPED)
    for first, second, keep in product(TEXTS, TEXTS[1:], (5, 6, 7, 8, 11, 100)):
        expected = theirs(first, second, truncation=True, max_length=keep, return_token_type_ids=True)
        found = pair_tokens(ours, first, second, limit=512, cut=Cut(keep, side))
        types = [int(at >= found.second_text > 0) for at in range(len(found.ids))]
        assert (found.ids, types) == (expected["input_ids"], expected["token_type_ids"])


@pytest.mark.parametrize("inputs", [None, ["input_ids"], ["input_ids", "token_type_ids"]])
@pytest.mark.parametrize("kind", ["TokenizersBackend", "PreTrainedTokenizerFast", "BertTokenizerFast", None])
def test_tokens_have_types_where_transformers_gives_them(
    tmp_path: Path, kind: str | None, inputs: list[str] | None
) -> None:
    """Second texts had a type of their own where the folder names no inputs, of any class."""
    both(tmp_path, BERT)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    said = tmp_path / "tokenizer_config.json"
    config = {**json.loads(said.read_text()), "tokenizer_class": kind, "model_input_names": inputs}
    said.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
    theirs = AutoTokenizer.from_pretrained(tmp_path)("a b", "c")
    found = pair_tokens(load_tokenizer(tmp_path), "a b", "c", limit=512)
    assert found.second_text == (4 if "token_type_ids" in theirs else 0)


def test_a_cut_that_leaves_nothing_of_a_text_is_refused_with_the_least(tmp_path: Path) -> None:
    """All texts became the same tokens, the special ones."""
    ours, _ = both(tmp_path, BERT)
    cut = Cut(2, "right")
    with pytest.raises(RequestError, match=r"truncate_prompt_tokens is 2, but 2 .* at least 3 is expected"):
        text_tokens(ours, "a b c", limit=9, cut=cut)
    with pytest.raises(RequestError, match=r"truncate_prompt_tokens is 2, but 3 .* at least 4 is expected"):
        pair_tokens(ours, "a b c", "d", limit=9, cut=cut)
    assert text_tokens(ours, "a b c", special=False, limit=9, cut=cut).ids == [4, 5]


def test_what_a_template_writes_is_never_cut_at_its_start(tmp_path: Path) -> None:
    ours, _ = both(tmp_path, BERT)
    template = PairTemplate(("a ", " b ", " c"))
    assert pair_tokens(ours, "d", "e f", limit=9, cut=Cut(5, "right"), template=template).ids == [
        4,
        7,
        5,
        8,
        6,
    ]
    with pytest.raises(RequestError, match="truncation_side is left"):
        pair_tokens(ours, "d", "e f", limit=9, cut=Cut(5, "left"), template=template)


def test_a_side_that_is_none_is_refused(tmp_path: Path) -> None:
    both(tmp_path, BERT)
    said = tmp_path / "tokenizer_config.json"
    said.write_text(json.dumps({**json.loads(said.read_text()), "truncation_side": "both"}))
    with pytest.raises(ModelError, match="truncation_side = 'both' should be left or right"):
        load_tokenizer(tmp_path)


def test_a_second_text_is_cut_before_the_pair_is(tmp_path: Path) -> None:
    ours, _ = both(tmp_path, BERT)
    for keep, shorter in ((100, "a b c"), (6, "a b")):
        found = pair_tokens(ours, "j", "a b c d e f g h i", limit=512, cut=Cut(keep, "right", 3))
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
