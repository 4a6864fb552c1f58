"""The words that the latest tokens begin are found by bisection, however many words there are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.plugins.logits_processors.word_index import WordIndex

tokens = st.integers(0, 2)
words = st.lists(st.lists(tokens, min_size=1, max_size=5).map(tuple), max_size=30)


@settings(deadline=None)
@given(words, st.lists(tokens, max_size=8))
def test_the_last_tokens_of_the_words_that_the_text_begins(
    words: list[tuple[int, ...]], text: list[int]
) -> None:
    expected = [
        word[-1]
        for word in words
        if len(word) <= len(text) + 1 and text[len(text) - len(word) + 1 :] == list(word[:-1])
    ]
    found = WordIndex(words).completing(lambda count: text[len(text) - min(count, len(text)) :])
    assert sorted(found.tolist()) == sorted(expected)


class Counted(tuple[int, ...]):
    """Counts how often a token of one of its kind is read."""

    reads = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        Counted.reads += 1
        return super().__getitem__(index)


def test_a_step_reads_few_of_many_words() -> None:
    """Each of 10,000 words was compared with the text for each row, for 0.4 s a step."""
    index = WordIndex([(first, second, 7) for first in range(100) for second in range(100)])
    index._before = [Counted(before) for before in index._before]
    assert index.completing(lambda count: [3, 5][:count]).tolist() == [7]
    assert Counted.reads < 100
