"""The text of one choice, from the engine's tokens to what a client may see.

Streamed, whole and offline answers all go through here, so they cannot differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.sampling_params import SamplingParams
from turnout.text.detokenizer import detokenizer
from turnout.text.output.events import Event
from turnout.text.stops import StopFound, StopMatcher, StopStrings
from turnout.text.tokenizer import Tokenizer

__all__ = ["ChoiceText", "ShownToken", "TextDelta"]


class ShownToken(NamedTuple):
    """A token of the text that is shown, where log-probabilities are wanted."""

    logprobs: TokenLogprobs
    offset: int
    """Where its text begins, in characters from the beginning of the choice's text."""


class TextDelta(msgspec.Struct):
    """What a delta of the engine adds to the text of a choice: all that a renderer needs to know of it."""

    index: int
    """Which choice it belongs to."""
    text: str = ""
    tokens: Sequence[int] = ()
    """Tokens consumed, though the text of some may be held back yet; none follow a complete stop string."""
    shown: Sequence[ShownToken] = ()
    """Tokens whose text this delta completes. A stop token that is not shown is not among them."""
    finish_reason: str | None = None
    """``stop``, ``length``, ``abort`` or ``error``; None while the choice goes on."""
    stop_reason: str | int | None = None
    """The stop string, or the member of `stop_token_ids`, that ended the choice."""
    cumulative_logprob: float | None = None
    """At the end, where log-probabilities are known: the sum over all tokens consumed."""
    score: float | None = None
    """At the end: what the choice was ranked by, if it was ranked."""
    token_count: int = 0
    """Tokens of the choice consumed so far, those of this delta included."""
    events: Sequence[Event] = ()
    """The parts of the output that `text` completes, where they are told apart."""
    calls: int = 0
    """Tool calls of the choice so far."""
    reasoning_tokens: int = 0
    """Of `tokens`, those that are reasoning, where that is told apart."""
    answered: Sequence[ShownToken] = ()
    """Tokens of the answer's text, where it is told apart; they may have been `shown` before."""

    @property
    def begins(self) -> bool:
        """Its tokens are the choice's first."""
        return bool(self.tokens) and self.token_count == len(self.tokens)

    @property
    def shows(self) -> bool:
        """It has more to tell than that tokens were consumed."""
        return bool(self.text or self.shown or self.finish_reason)


class ChoiceText:
    """Detokenizes, holds back what may become a stop string, and cuts at the first complete stop string.

    ::

        decoded [ emitted ............ | held: may begin a stop ]( bytes of an incomplete character )
        0                           _emitted               _decoded
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        prompt: Sequence[int],
        index: int = 0,
        stops: StopStrings | None = None,
        shown: frozenset[int] = frozenset(),
    ) -> None:
        """`index` is what its text deltas are marked with.

        stops: those of `params`, which the choices of a request share; None: its own. shown: special tokens
        that are text all the same.
        """
        self._index = index
        self._params = params
        self._detokenizer = detokenizer(
            tokenizer, skip_special_tokens=params.skip_special_tokens, prompt=prompt, shown=shown
        )
        self._stops = StopMatcher(stops or StopStrings(params.stop))
        self.stops_apply = True
        """A stop string that is complete ends the choice."""
        self._found: StopFound | None = None
        self._held = ""
        self._emitted = 0
        self._waiting: deque[_Waiting] = deque()
        self.token_count = 0
        """Tokens consumed so far, a stop token included."""
        self._logprob: float | None = None
        self.finish_reason: str | None = None

    @property
    def stopped_by_text(self) -> bool:
        """A stop string ended the choice. The engine does not know that, and has to be told."""
        return self._found is not None

    def feed(self, delta: Delta) -> TextDelta:
        """What may be shown now; nothing once the choice has ended."""
        if self.finish_reason is not None:
            return TextDelta(self._index)
        tokens = self._consume(delta)
        if self._found is None and delta.finish_reason:
            self._hold(self._detokenizer.flush())
        self.finish_reason = "stop" if self._found else delta.finish_reason
        added = TextDelta(self._index, self._emit(), tokens, self._shown(), token_count=self.token_count)
        if self.finish_reason is not None:
            self._finish(added, delta)
        return added

    # -------------------------------------------------------------- reading

    def _consume(self, delta: Delta) -> Sequence[int]:
        """Read tokens until a stop string is complete; returns the tokens that were read."""
        hidden = len(delta.tokens) if self._hides_last(delta) else 0
        pairs = zip(delta.tokens, delta.logprobs or repeat(None), strict=False)
        for count, (token, logprobs) in enumerate(pairs, 1):
            self.token_count += 1
            if logprobs is not None:
                self._logprob = (self._logprob or 0.0) + logprobs.logprob
            if count != hidden:
                self._read(token, logprobs)
            if self._found:
                return delta.tokens[:count]
        return delta.tokens

    def _hides_last(self, delta: Delta) -> bool:
        return delta.stop_token is not None and not self._params.include_stop_str_in_output

    def _read(self, token: int, logprobs: TokenLogprobs | None) -> None:
        offset = self._decoded
        if logprobs is not None:
            offset += self._detokenizer.flushed_by(token)
        self._hold(self._detokenizer.feed(token))
        if logprobs is not None:
            needs = self._decoded + self._detokenizer.holding
            self._waiting.append(_Waiting(ShownToken(logprobs, offset), needs))

    def _hold(self, text: str) -> None:
        self._held += text
        may_stop = self.stops_apply and self.token_count > self._params.min_tokens
        self._found = self._stops.feed(text, may_stop=may_stop)

    @property
    def _decoded(self) -> int:
        return self._emitted + len(self._held)

    # -------------------------------------------------------------- showing

    def _emit(self) -> str:
        count = self._limit() - self._emitted
        text, self._held = self._held[:count], self._held[count:]
        self._emitted += count
        return text

    def _limit(self) -> int:
        """How many characters of the text may have been shown by now."""
        if self._found:
            return self._found.end if self._params.include_stop_str_in_output else self._found.start
        return self._decoded if self.finish_reason else self._decoded - self._stops.partial

    def _shown(self) -> list[ShownToken]:
        """The tokens of the text emitted so far that were not shown yet."""
        shown = []
        while self._waiting and self._may_show(self._waiting[0]):
            shown.append(self._waiting.popleft().token)
        return shown

    def _may_show(self, waiting: _Waiting) -> bool:
        if waiting.needs <= self._emitted:
            return True
        if self._found:
            return waiting.token.offset < self._emitted
        return self.finish_reason is not None

    def _finish(self, added: TextDelta, delta: Delta) -> None:
        # A choice that came whole keeps the sum over all its tokens, even where a stop string cuts it.
        whole = delta.cumulative_logprob
        added.finish_reason = self.finish_reason
        added.stop_reason = self._stop_reason(delta)
        added.cumulative_logprob = self._logprob if whole is None else whole
        added.score = delta.score

    def _stop_reason(self, delta: Delta) -> str | int | None:
        if self._found:
            return self._found.stop
        return delta.stop_token if delta.stop_token in self._params.stop_token_ids else None


class _Waiting(NamedTuple):
    """A token whose text is not shown yet."""

    token: ShownToken
    needs: int
    """Characters that must have been emitted before the token may be shown."""
