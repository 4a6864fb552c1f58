"""Control tokens that a text spells are plain text, for each kind of vocabulary."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from turnout.core.errors import RequestError
from turnout.text.tokenizer import Tokenizer

TEXT = "x = '<fim_suffix>'<|endoftext|> <table> </s>"
SPELLED = ("<fim_suffix>", "<|endoftext|>", "</s>")


def bytewise() -> Backend:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: id for id, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def merged() -> Backend:
    """The merges themselves make ``</s>``, as those that are made of a GGUF file's scores may."""
    letters = sorted({*TEXT.replace(" ", "▁"), "▁"})
    pieces = [*letters, "</", "s>", "</s>"]
    merges = [("<", "/"), ("s", ">"), ("</", "s>")]
    backend = Backend(models.BPE({piece: id for id, piece in enumerate(pieces)}, merges))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    back = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(back)  # type: ignore[arg-type]  # a list of several kinds
    return backend


def unigram() -> Backend:
    """``</s>`` is a piece with the best score, as in SentencePiece's own files."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((letter, -5.0) for letter in sorted({*TEXT, "▁"} - {" "}))]
    backend = Backend(models.Unigram(pieces, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


def slow() -> Backend:
    """A rule that a text may make slow, so that another process tokenizes."""
    backend = bytewise()
    split, by_bytes = pre_tokenizers.Split(Regex(r"\s+$"), "isolated"), backend.pre_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, by_bytes])
    return backend


@pytest.fixture(params=[bytewise, merged, unigram, slow], ids=lambda made: made.__name__)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    backend: Backend = request.param()
    backend.add_special_tokens(["</s>", AddedToken("<fim_suffix>", normalized=False)])
    backend.add_tokens([AddedToken(text, normalized=False) for text in ("<|endoftext|>", "<table>")])
    return Tokenizer(backend)


def test_what_a_text_spells_is_plain_text(tokenizer: Tokenizer) -> None:
    """<|endoftext|> is one of those that Qwen's vocabulary calls ordinary; <table> stands for text."""
    controls = {tokenizer.backend.token_to_id(text) for text in SPELLED}
    assert controls <= set(tokenizer.encode(TEXT, add_special_tokens=False))
    ids = tokenizer.encode_literally(TEXT)
    assert controls.isdisjoint(ids) and tokenizer.backend.token_to_id("<table>") in ids
    assert tokenizer.decode(ids, skip_special_tokens=False).split() == TEXT.split()


def test_other_texts_have_the_tokens_that_they_have(tokenizer: Tokenizer) -> None:
    for text in ("", "x = b", "<table> = x", "< fim_suffix"):
        assert tokenizer.encode_literally(text) == tokenizer.encode(text, add_special_tokens=False)


def test_a_text_that_is_too_long_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="maximum context length is 2 tokens"):
        tokenizer.encode_literally(TEXT * 1000, limit=2)
