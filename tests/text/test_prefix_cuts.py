"""The first tokens of a long text are those of the whole text, though the rest is not tokenized."""

from __future__ import annotations

import random

import pytest
from tokenizers import AddedToken, Regex
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.normalizers import NFC, BertNormalizer, Lowercase, Replace
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Metaspace, Split, WhitespaceSplit
from tokenizers.pre_tokenizers import Sequence as Words
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer

from turnout.core.errors import RequestError
from turnout.text.prefix_cuts import EXPRESSIONS, cuts, is_cut_at_spaces
from turnout.text.tokenizer import Tokenizer

PIECES = [
    *("word", "Words", "über", "STRASSE", "don't", "1984", "3.14", "naïve", "Ωμέγα", "σς", "слово"),
    *(
        "漢字",
        "e\u0301te",
        "\u0301x",
        "क्षि",
        "a\u200db",
        "🙂",
        "...",
        "``x''",
        "ſ",
        "ﬁn",
        "\u0d4ex",
        "[MASK]",
    ),
]
GAPS = [" "] * 6 + ["  ", "\n", " \n ", "\t", "\u00a0", "", ", ", "\u3000", " \u0301"]


def text(seed: int, words: int = 400) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(PIECES) + rng.choice(GAPS) for _ in range(words))


CORPUS = [text(seed) for seed in range(1000, 1010)]


def bert() -> Backend:
    backend = Backend(WordPiece(unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    backend.train_from_iterator(CORPUS, WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]", "[MASK]"]))
    backend.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True)])
    return backend


def byte_level(words: object) -> Backend:
    backend = Backend(BPE())
    backend.normalizer, backend.pre_tokenizer = NFC(), words  # type: ignore[assignment]
    letters = ByteLevel.alphabet()
    backend.train_from_iterator(CORPUS, BpeTrainer(vocab_size=400, initial_alphabet=letters))
    backend.add_tokens([AddedToken("  ", normalized=False), AddedToken("word", single_word=True)])
    return backend


def unigram(words: object) -> Backend:
    backend = Backend(Unigram())
    backend.normalizer = Normalizers([Replace(Regex(" {2,}"), " "), Replace("``", '"'), Lowercase()])
    backend.pre_tokenizer = words  # type: ignore[assignment]
    backend.train_from_iterator(
        CORPUS, UnigramTrainer(vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"])
    )
    return backend


KINDS = {
    "bert": bert,
    "gpt2": lambda: byte_level(ByteLevel()),
    **{
        f"split {number}": lambda each=each: byte_level(
            Words([Split(Regex(each), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])
        )
        for number, each in enumerate(sorted(EXPRESSIONS))
    },
    "xlm-r": lambda: unigram(Words([WhitespaceSplit(), Metaspace()])),
    "metaspace": lambda: unigram(Metaspace()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_first_tokens_are_those_of_the_whole_text(kind: str) -> None:
    tokenizer = Tokenizer(KINDS[kind]())
    assert is_cut_at_spaces(tokenizer.backend)
    for seed in range(40):
        whole = text(seed)
        ids = tokenizer.encode(whole, add_special_tokens=False)
        for count in (0, 1, 7, 50, 333, len(ids), len(ids) + 1):
            assert tokenizer.first_ids(whole, count) == ids[:count]
        for place in cuts(whole, 1):  # each of them, whatever a text needs
            before = tokenizer.encode(whole[:place], add_special_tokens=False)
            assert before == ids[: len(before)]


def test_a_beginning_alone_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(bert())
    read: list[int] = []
    ids_of = tokenizer._ids
    monkeypatch.setattr(
        tokenizer, "_ids", lambda text, special: (read.append(len(text)), ids_of(text, special))[1]
    )
    assert len(tokenizer.first_ids("word " * 100_000, 500)) == 500
    assert sum(read) < 10_000


@pytest.mark.parametrize(
    "words",
    [
        None,
        Metaspace(split=False),
        ByteLevel(use_regex=False),
        Split(Regex(r"\s?\w+\s?"), "isolated"),
        Split(Regex(min(EXPRESSIONS)), "merged_with_previous"),
    ],
)
def test_others_are_tokenized_whole(words: object) -> None:
    backend = Backend(BPE())
    if words is not None:
        backend.pre_tokenizer = words  # type: ignore[assignment]
    assert not is_cut_at_spaces(backend)


def test_an_added_token_with_a_space_in_it_may_lie_across() -> None:
    backend = bert()
    backend.add_tokens(["new york"])
    tokenizer = Tokenizer(backend)
    whole = "in new york " * 400
    assert not is_cut_at_spaces(backend)
    assert tokenizer.first_ids(whole, 50) == tokenizer.encode(whole, add_special_tokens=False)[:50]


def test_a_normalizer_that_writes_over_spaces_joins_words() -> None:
    backend = bert()
    backend.normalizer = Replace(" ", "\u2581")  # type: ignore[assignment]
    assert not is_cut_at_spaces(backend)


def test_all_of_a_text_must_be_unicode() -> None:
    with pytest.raises(RequestError):
        Tokenizer(bert()).first_ids("word " * 1000 + "\ud800", 3)
