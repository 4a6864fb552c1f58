"""The text of one choice, split into reasoning, answer and calls: of served and offline answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import ceil

from turnout.core.types.messages import Delta
from turnout.text.choice_text import ChoiceText, ShownToken, TextDelta
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.split.one_by_one import joined, one_by_one

__all__ = ["SplitText"]


class SplitText:
    """A `ChoiceText` whose text deltas have events, and are cut by no stop string within a call."""

    def __init__(self, choice: ChoiceText, splitter: OutputSplitter, *, singly: bool) -> None:
        """singly: it matters what each token is: reasoning is counted, a stop string may be in a call, or
        log-probabilities are wanted."""
        self._choice, self._splitter, self._singly = choice, splitter, singly
        self._undecided: deque[ShownToken] = deque()
        """Tokens of which it is not known whether they are the answer's."""
        self._length = 0
        """Characters of the text so far."""

    @property
    def token_count(self) -> int:
        return self._choice.token_count

    @property
    def stopped_by_text(self) -> bool:
        return self._choice.stopped_by_text

    def feed(self, delta: Delta) -> TextDelta:
        """As `ChoiceText.feed`."""
        added: list[TextDelta] = []
        for one in one_by_one(delta) if self._singly else (delta,):
            self._choice.stops_apply = not self._splitter.calling
            added.append(self._split(self._choice.feed(one)))
            if added[-1].finish_reason is not None:
                break
        return joined(added)

    def _split(self, added: TextDelta) -> TextDelta:
        splitter = self._splitter
        reasoned, only = splitter.reasoned, splitter.reasons
        events = splitter.feed(added.text)
        if only and splitter.reasons:
            added.reasoning_tokens = len(added.tokens)
        elif reasoned < splitter.reasoned:  # it has begun, or ended, among these tokens
            share = (splitter.reasoned - reasoned) / max(1, len(added.text))
            added.reasoning_tokens = ceil(len(added.tokens) * min(1, share))
        if added.finish_reason is not None:
            events += splitter.finish()
        added.events, added.calls = events, splitter.calls
        self._undecided.extend(added.shown)
        self._length += len(added.text)
        added.answered = list(self._answered()) if self._undecided else ()
        return added

    def _answered(self) -> Iterator[ShownToken]:
        """The answer's tokens among those of which it is known by now."""
        spans, tokens = self._splitter.answer, self._undecided
        while tokens:
            start = tokens[0].offset
            # Several tokens may make up one character: all but the last seem to have no text.
            end = next((token.offset for token in tokens if token.offset > start), self._length)
            if end == start or end > self._splitter.decided:
                return
            while spans and spans[0][1] <= start:
                spans.popleft()
            token = tokens.popleft()
            if spans and spans[0][0] < end:
                yield token
