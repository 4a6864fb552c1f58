"""Bad words become token sequences, and offline they do not come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnout import LLM, SamplingParams
from turnout.text.bad_words import with_bad_words

PROMPT = "import os\n\ndef main():\n"
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    yield LLM(kv_memory="32MiB", device="cpu")


def test_a_word_is_tokenized_as_it_begins_a_text_and_after_a_space(llm: LLM) -> None:
    params = with_bad_words(SamplingParams(bad_words=["self", " return"]), llm.tokenizer)
    texts = [llm.tokenizer.decode(tokens) for tokens in params.bad_words_token_ids]
    assert texts == ["self", " self", "return", " return"]


def test_sequences_that_are_given_stay(llm: LLM) -> None:
    params = SamplingParams(bad_words=["\n"], bad_words_token_ids=[[1, 2]])
    assert with_bad_words(params, llm.tokenizer).bad_words_token_ids[0] == (1, 2)
    assert with_bad_words(GREEDY, llm.tokenizer) is GREEDY


def test_words_that_would_have_come_do_not(llm: LLM) -> None:
    (free,) = llm.generate(PROMPT, GREEDY, progress=False)
    words = [word for word in free.outputs[0].text.split() if word.isalpha()][:3]
    assert words
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, bad_words=words)
    (held,) = llm.generate(PROMPT, params, progress=False)
    produced = held.outputs[0].token_ids
    for word in with_bad_words(params, llm.tokenizer).bad_words_token_ids:
        size = len(word)
        assert list(word) not in [produced[i : i + size] for i in range(len(produced))]
